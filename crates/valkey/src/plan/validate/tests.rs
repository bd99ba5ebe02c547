use super::*;
use crate::seen::{Objects, Rules};
use serde_json::{Value, json};
use usher_operator::record::read;

fn cluster(spec: Value) -> ClusterRecord {
    let metadata = json!({"namespace": "ns", "name": "c", "uid": "u", "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {"usher.dev/paused": "perhaps"}});
    let status = json!({"valkeyVersion": "9.0.0..9.1.1"});
    let object =
        json!({"apiVersion": "x/v1", "kind": "ValkeyCluster", "metadata": metadata, "spec": spec, "status": status});
    read(&serde_json::from_value(object).unwrap()).unwrap()
}

fn says(spec: Value) -> String {
    let invalid = validate(&cluster(spec), &Observation::default());
    invalid
        .map(|invalid| format!("{}: {}", invalid.reason, invalid.message))
        .unwrap_or_default()
}

#[test]
fn what_cannot_be_is_told_with_its_field_and_the_way_out() {
    let cases = [
        (json!({"image": {"tag": "9.1.2"}}), ""),
        (json!({"image": {"tag": "latest"}}), ""),
        (json!({"masters": 2}), "spec.masters is 2"),
        (json!({"replicasPerMaster": 6}), "spec.replicasPerMaster is 6"),
        (
            json!({"masters": 100, "replicasPerMaster": 5}),
            "is 600, and 500 is the most",
        ),
        (
            json!({"config": {"requirepass": "x"}}),
            "spec.config.requirepass follows from spec.auth",
        ),
        (
            json!({"config": {"Cluster-Enabled": "no"}}),
            "spec.config.Cluster-Enabled is set by Usher itself",
        ),
        (json!({"config": {"max memory": "x"}}), "which is no name of a setting"),
        (
            json!({"config": {"maxmemory": "1gb\nrequirepass x"}}),
            "spec.config.maxmemory has a control character",
        ),
        (
            json!({"resources": {"requests": {"memory": "2Gi"}}}),
            "spec.resources.requests.memory is 2Gi, more than the limit of 1Gi",
        ),
        (
            json!({"resources": {"requests": {"cpu": "1.5"}}}),
            "spec.resources.requests.cpu is 1.5",
        ),
        (
            json!({"metricsExporter": {"enabled": true, "resources": {"cpuRequest": "1"}}}),
            "cpuRequest is 1, more than cpuLimit",
        ),
        (
            json!({"metricsExporter": {"resources": {"cpuRequest": "1"}}}),
            "DowngradeBlocked",
        ),
        (
            json!({"image": {"tag": "6.2"}}),
            "is Valkey 6.2.0; 7.2, 8.x and 9.x are supported",
        ),
        (json!({"image": {"tag": "10.0.1-alpine"}}), "10.0.1; 7.2"),
        (
            json!({"image": {"tag": "9.1.0"}}),
            "older than 9.1.1, which servers run (DowngradeBlocked)",
        ),
        (json!({"image": {"tag": "9.1.0", "allowDowngrade": true}}), ""),
        (json!({"tls": {"secretName": "x"}}), "spec.tls: this version of Usher"),
        (
            json!({"auth": {"secretRef": {"name": "x"}, "acl": {"enabled": true}}}),
            "spec.auth.acl",
        ),
    ];
    for (spec, words) in cases {
        let told = says(spec.clone());
        assert_eq!(told.is_empty(), words.is_empty(), "{spec}: {told}");
        assert!(told.contains(words), "{spec}: {told}");
    }
}

#[test]
fn settings_may_ask_for_a_password_and_for_encryption() {
    let told = |require_tls, require_auth, spec| {
        let rules = Rules {
            require_tls,
            require_auth,
        };
        let seen = Observation {
            rules,
            ..Observation::default()
        };
        validate(&cluster(spec), &seen)
            .map(|invalid| invalid.message)
            .unwrap_or_default()
    };
    let new = json!({"image": {"tag": "9.1.2"}});
    assert!(told(false, true, new.clone()).contains("valkey.requireAuth"));
    assert!(told(true, false, new.clone()).contains("valkey.requireTls"));
    assert_eq!(
        told(
            false,
            true,
            json!({"image": {"tag": "9.1.2"}, "auth": {"secretRef": {"name": "s"}}})
        ),
        ""
    );
}

fn with(objects: Objects) -> Observation {
    Observation {
        objects,
        ..Observation::default()
    }
}

#[test]
fn what_is_another_s_needs_a_person_and_what_is_missing_only_needs_to_come() {
    let new = cluster(json!({"image": {"tag": "9.1.2"}}));
    let foreign = with(Objects {
        foreign: vec![("StatefulSet", "c".into())],
        ..Objects::default()
    });
    let told = validate(&new, &foreign).unwrap();
    assert_eq!((told.class, told.reason), (CauseClass::Permanent, "ForeignObject"));
    assert!(
        told.message.contains("StatefulSet ns/c is not this cluster's"),
        "{}",
        told.message
    );
    let password = PasswordSeen::Missing {
        secret: "s".into(),
        problem: "there is no such Secret".into(),
    };
    let told = validate(
        &new,
        &with(Objects {
            password,
            ..Objects::default()
        }),
    )
    .unwrap();
    assert_eq!((told.class, told.reason), (CauseClass::Validation, "MissingSecret"));
    assert!(
        told.message.starts_with("MissingSecret s: there is no such Secret."),
        "{}",
        told.message
    );
}

#[test]
fn what_is_odd_is_told_and_stops_nothing() {
    let new = cluster(json!({"image": {"tag": "9.1.2"}}));
    let seen = with(Objects {
        password: PasswordSeen::Differs { secret: "s".into() },
        ..Objects::default()
    });
    assert_eq!(validate(&new, &seen), None);
    let reasons: Vec<_> = remarks(&new, &seen).iter().map(|finding| finding.reason).collect();
    assert_eq!(reasons, ["AnnotationIgnored", "PasswordChangeNotApplied"]);
}
