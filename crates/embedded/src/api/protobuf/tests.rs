//! Bodies as the reference writes them, and bodies that nobody should.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::filled::field;
use super::*;
use crate::kinds::{self, definition};

/// Objects of a real kube-apiserver 1.36.3: what `kinds/recorded/creates.json` sends, and a definition with schemas of all
/// sorts, was created and asked for with `Accept: application/vnd.kubernetes.protobuf` and as JSON. Protobuf, JSON.
const RECORDED: &str = include_str!("recorded.txt");

/// What should come of a message, and what comes, as it would be stored.
fn both(bytes: &str, json: &str) -> (Value, Value) {
    let bytes = STANDARD.decode(bytes).unwrap();
    let wanted: Value = serde_json::from_str(json).unwrap();
    let api_version = wanted["apiVersion"].as_str().unwrap();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = wanted["kind"].as_str().unwrap();
    let expected = BodyType { group, version, kind };
    let mut came = parse(&bytes, expected).unwrap();
    let name = match kind {
        "DeleteOptions" | "Status" => format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}"),
        kind => definitions::name(group, version, kind),
    };
    assert_eq!(
        kinds::decode(&definition(&name).unwrap(), &mut came),
        Ok(Vec::new()),
        "{name}"
    );
    (wanted, came)
}

#[test]
fn a5_every_field_of_every_built_in_kind_is_read() {
    let types = kinds::rows().into_iter().flat_map(|row| {
        let versions: Vec<String> = row.versions.iter().map(|version| version.name.to_string()).collect();
        versions
            .into_iter()
            .map(move |version| (row.group.to_string(), version, row.kind.to_string()))
    });
    // What is sent to subresources.
    let others = [
        ("", "v1", "Binding"),
        ("authentication.k8s.io", "v1", "TokenRequest"),
        ("autoscaling", "v1", "Scale"),
        ("policy", "v1", "Eviction"),
    ]
    .map(|(group, version, kind)| (group.to_owned(), version.to_owned(), kind.to_owned()));
    let types: BTreeSet<_> = types.chain(others).collect();
    assert!(types.len() > 40, "{types:?}");
    for (group, version, kind) in types {
        let expected = BodyType {
            group: &group,
            version: &version,
            kind: &kind,
        };
        let name = definitions::name(&group, &version, &kind);
        let (message, mut wanted) = filled::object(&name);
        wanted["apiVersion"] = expected.api_version().into();
        wanted["kind"] = kind.as_str().into();
        let mut came = parse(&body(&expected.api_version(), &kind, &message), expected).unwrap();
        for object in [&mut came, &mut wanted] {
            assert_eq!(
                kinds::decode(&definition(&name).unwrap(), object),
                Ok(Vec::new()),
                "{name}"
            );
        }
        assert_eq!(came, wanted, "{name}");
    }
}

#[test]
fn a5_objects_of_a_real_server_are_the_same_in_both_formats() {
    let mut kinds = BTreeSet::new();
    for line in RECORDED.lines() {
        let (bytes, json) = line.split_once('\t').unwrap();
        let (mut wanted, came) = both(bytes, json);
        // What stands around a message is lost where it stands within another; defaults bring it back.
        let claims = wanted.pointer_mut("/spec/volumeClaimTemplates");
        for claim in claims.and_then(Value::as_array_mut).into_iter().flatten() {
            claim
                .as_object_mut()
                .unwrap()
                .retain(|field, _| !matches!(&**field, "apiVersion" | "kind"));
        }
        assert_eq!(came, wanted);
        kinds.insert(wanted["kind"].as_str().unwrap().to_owned());
    }
    assert!(kinds.len() > 30, "{kinds:?}");
}

fn body(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let named = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), field(1, &named), field(2, message)].concat()
}

const CONFIG_MAP: BodyType = BodyType {
    group: "",
    version: "v1",
    kind: "ConfigMap",
};

fn refused(bytes: &[u8], expected: BodyType) -> String {
    let fault = parse(bytes, expected).unwrap_err();
    assert_eq!(fault.code, 400);
    fault.message
}

#[test]
fn a5_a_body_that_does_not_say_its_type_is_of_the_path_s() {
    let message = field(1, &field(1, b"a"));
    for (api_version, kind) in [("", ""), ("v1", ""), ("", "ConfigMap")] {
        let object = parse(&body(api_version, kind, &message), CONFIG_MAP).unwrap();
        assert_eq!(
            object,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
        );
    }
}

#[test]
fn a5_bodies_that_are_not_understood_are_refused_in_the_reference_s_words() {
    let unrecognized = |why: &str| format!("the object provided is unrecognized (must be of type ConfigMap): {why}");
    for (bytes, why) in [
        (&b""[..], "empty data (<empty>)"),
        (
            b"nonsense",
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] (6e6f6e73656e7365)",
        ),
        (b"k8s\0", "empty body (6b387300)"),
        (b"k8s\0\x0a\x0f\x0a", "unexpected EOF (6b3873000a0f0a)"),
        (
            b"k8s\0\x0c",
            "proto: Unknown: wiretype end group for non-group (6b3873000c)",
        ),
        (
            b"k8s\0\x1f",
            "proto: wrong wireType = 7 for field ContentEncoding (6b3873001f)",
        ),
    ] {
        assert_eq!(refused(bytes, CONFIG_MAP), unrecognized(why));
    }
    let no_kind = |kind: &str, version: &str| {
        format!("no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\"")
    };
    for (api_version, kind, message, why) in [
        ("v1", "ConfigMap", &b"\x0a\x11\x0a"[..], "unexpected EOF".to_owned()),
        (
            "v1",
            "ConfigMap",
            b"\x08\x01",
            "proto: wrong wireType = 0 for field ObjectMeta".to_owned(),
        ),
        (
            "v1",
            "ConfigMap",
            b"\x0a\x02\x08\x01",
            "proto: wrong wireType = 0 for field Name".to_owned(),
        ),
        (
            "v1",
            "ConfigMap",
            b"\x00",
            "proto: ConfigMap: illegal tag 0 (wire type 0)".to_owned(),
        ),
        ("v1", "Foo", b"", no_kind("Foo", "v1")),
        ("apps/v1", "ConfigMap", b"", no_kind("ConfigMap", "apps/v1")),
        (
            "v1",
            "Secret",
            b"",
            "converting (v1.Secret) to (core.ConfigMap): unknown conversion".to_owned(),
        ),
        (
            "apps/v1",
            "Deployment",
            b"",
            "converting (v1.Deployment) to (core.ConfigMap): unknown conversion".to_owned(),
        ),
    ] {
        assert_eq!(
            refused(&body(api_version, kind, message), CONFIG_MAP),
            format!("{kind} in version \"v1\" cannot be handled as a ConfigMap: {why}")
        );
    }
    let options = BodyType::DELETE_OPTIONS;
    assert_eq!(
        refused(&body("v1", "DeleteOptions", b"\x08"), options),
        "unexpected EOF"
    );
    assert_eq!(
        refused(&body("v1", "ConfigMap", b""), options),
        no_kind("ConfigMap", "v1")
    );
    let read = parse(&body("apps/v1", "DeleteOptions", b"\x08\x00"), options).unwrap();
    assert_eq!(read["gracePeriodSeconds"], 0);
}

#[test]
fn a5_a_field_that_comes_again_replaces_a_value_and_is_merged_into_a_message() {
    let meta = [
        field(1, &[field(1, b"a"), field(2, b"b")].concat()),
        field(1, &[field(1, b"c"), field(2, b"")].concat()),
    ];
    let object = parse(&body("v1", "ConfigMap", &meta.concat()), CONFIG_MAP).unwrap();
    assert_eq!(object["metadata"], json!({"name": "c"}));
    let security = field(2, &field(14, &field(4, &[0x01, 0x02])));
    let unpacked = field(2, &field(14, &[0x20, 0x05]));
    let pod = BodyType {
        kind: "Pod",
        ..CONFIG_MAP
    };
    let object = parse(&body("v1", "Pod", &[security, unpacked].concat()), pod).unwrap();
    assert_eq!(
        object["spec"]["securityContext"],
        json!({"supplementalGroups": [1, 2, 5]})
    );
}

#[test]
fn a5_what_is_no_text_is_written_as_go_writes_it() {
    let entry = field(2, &[field(1, b"k"), field(2, b"a\xffb")].concat());
    let object = parse(&body("v1", "ConfigMap", &entry), CONFIG_MAP).unwrap();
    assert_eq!(object["data"], json!({"k": "a\u{fffd}b"}));
}

#[test]
fn a5_schemas_within_schemas_end_where_json_ends() {
    let expected = BodyType {
        group: "apiextensions.k8s.io",
        version: "v1",
        kind: "CustomResourceDefinition",
    };
    let nested = |levels: usize| {
        // `not` of `not` of ...
        let schema = (0..levels).fold(Vec::new(), |inner, _| field(28, &inner));
        let spec = field(2, &field(7, &field(4, &field(1, &schema))));
        parse(&body("apiextensions.k8s.io/v1", expected.kind, &spec), expected)
    };
    let object = nested(121).unwrap();
    let text = object.to_string();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), object);
    for levels in [122, 10_000] {
        let why = nested(levels).unwrap_err().message;
        assert!(why.ends_with("exceeded max depth"), "{why}");
    }
    // JSON within counts on.
    let revision = BodyType {
        group: "apps",
        version: "v1",
        kind: "ControllerRevision",
    };
    let json = |levels: usize| {
        let text = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let data = field(2, &field(1, text.as_bytes()));
        parse(&body("apps/v1", revision.kind, &data), revision)
    };
    assert!(json(126).is_ok());
    assert!(json(127).unwrap_err().message.ends_with("exceeded max depth"));
    assert!(json(1_000).unwrap_err().message.ends_with("exceeded max depth"));
}

#[test]
fn a5_a_small_body_does_not_become_a_large_object() {
    let pod = BodyType {
        kind: "Pod",
        ..CONFIG_MAP
    };
    let containers = field(2, &field(2, b"").repeat(1_400_000));
    let why = refused(&body("v1", "Pod", &containers), pod);
    assert!(why.ends_with("the message holds more than 1048576 values"), "{why}");
}

#[test]
fn a5_times_are_written_as_their_type_is() {
    let expected = BodyType {
        group: "coordination.k8s.io",
        version: "v1",
        kind: "Lease",
    };
    let lease = |time: &[u8]| {
        let spec = field(2, &field(4, time));
        parse(&body("coordination.k8s.io/v1", "Lease", &spec), expected)
    };
    let at = |seconds: i64, nanos: i64| {
        let number = |number: i64| {
            let mut bytes: Vec<u8> = (0..9).map(|at| (number >> (7 * at)) as u8 | 0x80).collect();
            bytes.push((number >> 63) as u8 & 1);
            bytes
        };
        [vec![0x08], number(seconds), vec![0x10], number(nanos)].concat()
    };
    for (seconds, nanos, text) in [
        (0, 0, "1970-01-01T00:00:00.000000Z"),
        (1, 1_999, "1970-01-01T00:00:01.000001Z"),
        (0, -1_000, "1969-12-31T23:59:59.999999Z"),
    ] {
        assert_eq!(lease(&at(seconds, nanos)).unwrap()["spec"]["renewTime"], text);
    }
    for nothing in [&[][..], &at(-62_135_596_800, 0)] {
        assert_eq!(lease(nothing).unwrap()["spec"]["renewTime"], Value::Null);
    }
    for seconds in [i64::MAX, i64::MIN, -62_135_596_801, 253_402_300_800] {
        let why = lease(&at(seconds, 0)).unwrap_err().message;
        assert!(why.contains("year outside of range"), "{why}");
    }
}

#[test]
fn a5_bodies_that_end_anywhere_or_have_a_wrong_byte_are_an_answer() {
    for line in RECORDED.lines() {
        let (bytes, json) = line.split_once('\t').unwrap();
        let wanted: Value = serde_json::from_str(json).unwrap();
        let kind = wanted["kind"].as_str().unwrap();
        let whole = STANDARD.decode(bytes).unwrap();
        let expected = BodyType { kind, ..CONFIG_MAP };
        for at in (0..whole.len()).step_by(5) {
            let _ = parse(whole.get(..at).unwrap(), expected);
            let mut wrong = whole.clone();
            wrong[at] ^= 0x15;
            let _ = parse(&wrong, expected);
        }
    }
}
