//! The next input: a good request, changed in one or several ways, or one made for the state at hand.

use serde_json::{Value, json};

use crate::corpus::Corpus;
use crate::custom;
use crate::dice::Dice;
use crate::mutate;
use crate::request::Sent;

const JSON: &str = "application/json";
const BODIES: [&str; 12] = [
    JSON,
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/cbor",
    "application/json; charset=utf-8",
    "APPLICATION/JSON",
    "",
    "text/plain",
];
const ACCEPTS: [&str; 16] = [
    JSON,
    "application/yaml",
    "*/*",
    "",
    ",,;;==,",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf, application/json",
    "application/cbor",
    "application/json;as=Table;g=meta.k8s.io;v=v1",
    "application/json;as=Table;g=meta.k8s.io;v=v1beta1, application/json",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1",
    "application/json;as=Chart;g=x;v=y",
    "application/json;pretty=1",
    "application/yaml;as=Table;g=meta.k8s.io;v=v1",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
];
const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW",
];
const PARAMETERS: [&str; 20] = [
    "labelSelector",
    "fieldSelector",
    "resourceVersion",
    "resourceVersionMatch",
    "limit",
    "continue",
    "timeoutSeconds",
    "dryRun",
    "fieldValidation",
    "fieldManager",
    "force",
    "includeObject",
    "watch",
    "allowWatchBookmarks",
    "sendInitialEvents",
    "propagationPolicy",
    "gracePeriodSeconds",
    "orphanDependents",
    "pretty",
    "verbose",
];
const VALUES: [&str; 56] = [
    "",
    "0",
    "1",
    "-1",
    "true",
    "false",
    "All",
    "Strict",
    "Warn",
    "Ignore",
    "None",
    "Metadata",
    "Object",
    "Exact",
    "NotOlderThan",
    "Background",
    "Foreground",
    "Orphan",
    "fuzzer",
    "999999999999",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "a=b",
    "a==b",
    "a!=b",
    "a in (b,c)",
    "a notin ()",
    "!a",
    "a,b",
    "a in (",
    "a in b",
    "=",
    "==",
    ",",
    "(",
    "a=b=c",
    "!!a",
    "a>1",
    "a<b",
    "a/b/c=d",
    "a=💥",
    "metadata.name=a",
    "metadata.name!=a,metadata.namespace=b",
    "status.phase=Running",
    "spec.nodeName=",
    "nope=x",
    "a\\,b=c",
    "metadata.name=a\\",
    "\\",
    "e30",
    "eyJ2IjoibWV0YS5rOHMuaW8vdjEi",
    "bm90IGpzb24",
    "%",
    "involvedObject.name=x",
    "type=Normal",
];

/// What a batch has learnt from the answers so far.
#[derive(Debug, Default)]
pub struct Seen {
    /// Where an object is, and what it is.
    pub objects: Vec<(String, Value)>,
    pub tokens: Vec<String>,
    pub definitions: Vec<Value>,
    pub revision: u64,
}

impl Seen {
    pub fn note(&mut self, sent: &Sent, code: u16, answer: &Value) {
        if let Some(token) = answer
            .pointer("/metadata/continue")
            .and_then(Value::as_str)
            .filter(|t| !t.is_empty())
        {
            push(&mut self.tokens, token.to_owned());
        }
        let metadata = &answer["metadata"];
        if let Some(Ok(revision)) = metadata["resourceVersion"].as_str().map(str::parse) {
            self.revision = self.revision.max(revision);
        }
        if !matches!(code, 200 | 201) || sent.method == "GET" {
            return;
        }
        let (Some(name), Some(_)) = (metadata["name"].as_str(), metadata["uid"].as_str()) else {
            return;
        };
        if answer["kind"] == "CustomResourceDefinition" {
            push(&mut self.definitions, answer.clone());
        }
        let place = match sent.method.as_str() {
            "POST" => format!("{}/{name}", sent.path.trim_end_matches('/')),
            _ => sent.path.clone(),
        };
        push(&mut self.objects, (place, answer.clone()));
    }
}

fn push<T>(all: &mut Vec<T>, one: T) {
    const KEPT: usize = 60;
    if all.len() == KEPT {
        all.remove(0);
    }
    all.push(one);
}

pub fn next(corpus: &Corpus, seen: &Seen, dice: &mut Dice) -> Sent {
    let mut sent = match dice.below(100) {
        0..30 => from_corpus(corpus, dice),
        30..38 => {
            let mut sent = from_corpus(corpus, dice);
            for _ in 0..=dice.below(3) {
                mutate::bytes(&mut sent.body, dice);
            }
            sent
        }
        38..40 => Sent::new(
            dice.pick(&["POST", "PATCH", "PUT"]),
            dice.pick(&[
                "/api/v1/namespaces/default/configmaps",
                "/api/v1/namespaces/default/configmaps/bomb?fieldManager=f",
            ]),
        )
        .with_body(
            dice.pick(&["application/yaml", "application/apply-patch+yaml"]),
            mutate::yaml_bomb(dice),
        ),
        40..54 => patch(corpus, seen, dice),
        54..62 => put_back(corpus, seen, dice),
        62..74 => read(corpus, seen, dice),
        74..80 => custom::definition(corpus, seen, dice),
        80..95 => custom::object(corpus, seen, dice).unwrap_or_else(|| from_corpus(corpus, dice)),
        95..97 => protobuf(corpus, dice),
        _ => delete(corpus, seen, dice),
    };
    if dice.one_in(6) {
        query(&mut sent, seen, dice);
    }
    if dice.one_in(12) {
        path(&mut sent, dice);
    }
    if dice.one_in(10) {
        headers(&mut sent, dice);
    }
    if dice.one_in(40) {
        sent.method = dice.pick(&METHODS).to_owned();
    }
    sent
}

fn any<'a, T>(all: &'a [T], dice: &mut Dice) -> Option<&'a T> {
    all.get(dice.below(all.len()))
}

fn from_corpus(corpus: &Corpus, dice: &mut Dice) -> Sent {
    let mut sent = any(&corpus.requests, dice).unwrap().clone();
    if let Ok(mut body) = serde_json::from_slice::<Value>(&sent.body) {
        let spare = any(&corpus.objects, dice).unwrap();
        for _ in 0..dice.below(4) {
            mutate::value(&mut body, spare, dice);
        }
        // A new name: it is created, not refused for being there.
        if sent.method == "POST"
            && dice.one_in(2)
            && let Some(name) = body.pointer_mut("/metadata/name")
        {
            *name = format!("n{}", dice.below(200)).into();
        }
        sent.body = mutate::text(&body);
    }
    sent
}

/// An object that is there: where it is, and itself.
fn known<'a>(corpus: &'a Corpus, seen: &'a Seen, dice: &mut Dice) -> (String, Value) {
    match any(&seen.objects, dice) {
        Some((place, object)) if !dice.one_in(3) => (place.clone(), object.clone()),
        _ => {
            let place = any(&corpus.places, dice).unwrap().clone();
            let name = place.rsplit('/').next().unwrap_or_default();
            let object = corpus.objects.iter().find(|object| object["metadata"]["name"] == name);
            (place.clone(), object.cloned().unwrap_or_default())
        }
    }
}

fn subresource(place: String, dice: &mut Dice) -> String {
    match dice.below(6) {
        0 => format!("{place}/status"),
        1 if dice.one_in(2) => format!("{place}/scale"),
        2 if dice.one_in(4) => format!(
            "{place}/{}",
            dice.pick(&["finalize", "eviction", "binding", "token", "log", "exec", "x"])
        ),
        _ => place,
    }
}

fn pointer(value: &Value, dice: &mut Dice) -> String {
    let mut at = value;
    let mut text = String::new();
    loop {
        if dice.one_in(4) && !text.is_empty() {
            return text;
        }
        let key;
        (key, at) = match at {
            Value::Object(map) if !map.is_empty() => {
                let (key, value) = map.iter().nth(dice.below(map.len())).unwrap();
                (key.replace('~', "~0").replace('/', "~1"), value)
            }
            Value::Array(all) if !all.is_empty() => {
                let index = dice.below(all.len());
                (index.to_string(), &all[index])
            }
            _ => {
                if dice.one_in(3) {
                    text += dice.pick(&[
                        "/-",
                        "/0",
                        "/-1",
                        "/x",
                        "/01",
                        "/99999999999999999999",
                        "/~",
                        "/~2",
                        "/",
                    ]);
                }
                return text;
            }
        };
        text = format!("{text}/{key}");
    }
}

fn patch(corpus: &Corpus, seen: &Seen, dice: &mut Dice) -> Sent {
    let (place, object) = known(corpus, seen, dice);
    let spare = any(&corpus.objects, dice).unwrap();
    let place = subresource(place, dice);
    let (media, mut body) = match dice.below(4) {
        0 => {
            let operation = |dice: &mut Dice| {
                let from = if dice.one_in(2) { &object } else { spare };
                json!({"op": dice.pick(&["add", "remove", "replace", "move", "copy", "test", "nope"]),
                    "path": pointer(&object, dice), "from": pointer(&object, dice), "value": mutate::any_part(from, dice)})
            };
            let count = if dice.one_in(200) { 10_001 } else { dice.below(4) };
            (
                "application/json-patch+json",
                Value::Array((0..count).map(|_| operation(dice)).collect()),
            )
        }
        kind => {
            // Some fields of the object, changed.
            let mut body = object.clone();
            if let Value::Object(map) = &mut body {
                for key in ["metadata", "spec", "status", "data"] {
                    if dice.one_in(2) {
                        map.remove(key);
                    }
                }
                if kind == 3 {
                    map.insert("metadata".into(), json!({"name": object["metadata"]["name"]}));
                }
            }
            for _ in 0..dice.below(3) {
                mutate::value(&mut body, spare, dice);
            }
            if kind == 2 && dice.one_in(2) {
                directive(&mut body, dice);
            }
            let media = [
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
                "application/apply-patch+yaml",
            ][kind - 1];
            (media, body)
        }
    };
    if dice.one_in(3) {
        mutate::value(&mut body, spare, dice);
    }
    let mut sent = Sent::new("PATCH", &place).with_body(media, mutate::text(&body));
    if media.contains("apply") && !dice.one_in(10) {
        sent.set_parameter("fieldManager", dice.pick(&["a", "b", "c"]));
        if dice.one_in(2) {
            sent.set_parameter("force", "true");
        }
    }
    sent
}

/// One of strategic merge's own words, somewhere.
fn directive(body: &mut Value, dice: &mut Dice) {
    let pairs = [
        ("$patch", json!("delete")),
        ("$patch", json!("replace")),
        ("$patch", json!("merge")),
        ("$patch", json!(1)),
        ("$retainKeys", json!(["name", "x"])),
        ("$retainKeys", json!([1])),
        ("$setElementOrder/containers", json!([{"name": "b"}, {"name": "a"}])),
        ("$setElementOrder/finalizers", json!(["b", "a", null])),
        ("$deleteFromPrimitiveList/finalizers", json!(["a"])),
        ("$deleteFromPrimitiveList/x", json!({})),
    ];
    let (key, word) = pairs[dice.below(pairs.len())].clone();
    let mut at = body;
    loop {
        at = match at {
            Value::Object(map) if map.is_empty() || dice.one_in(3) => {
                map.insert(key.to_owned(), word);
                return;
            }
            Value::Object(map) => {
                let index = dice.below(map.len());
                map.values_mut().nth(index).unwrap()
            }
            Value::Array(all) if all.is_empty() || dice.one_in(3) => {
                all.push(json!({ key: word }));
                return;
            }
            Value::Array(all) => {
                let index = dice.below(all.len());
                &mut all[index]
            }
            _ => return,
        };
    }
}

fn put_back(corpus: &Corpus, seen: &Seen, dice: &mut Dice) -> Sent {
    let (place, mut object) = known(corpus, seen, dice);
    let spare = any(&corpus.objects, dice).unwrap();
    if dice.one_in(2)
        && let Some(Value::Object(map)) = object.get_mut("metadata")
    {
        map.remove("resourceVersion");
    }
    for _ in 0..=dice.below(3) {
        mutate::value(&mut object, spare, dice);
    }
    Sent::new("PUT", &subresource(place, dice)).with_body(JSON, mutate::text(&object))
}

fn read(corpus: &Corpus, seen: &Seen, dice: &mut Dice) -> Sent {
    let (place, _) = known(corpus, seen, dice);
    let place = match dice.below(5) {
        0 => subresource(place, dice),
        1 => any(&corpus.requests, dice).unwrap().path.clone(),
        _ => place
            .rsplit_once('/')
            .map(|(collection, _)| collection.to_owned())
            .unwrap_or_default(),
    };
    let mut sent = Sent::new("GET", &place);
    if dice.one_in(3) {
        sent.set_parameter("limit", dice.pick(&["1", "2", "7"]));
    }
    for _ in 0..dice.below(4) {
        query(&mut sent, seen, dice);
    }
    if dice.one_in(3) {
        sent.set_header("accept", dice.pick(&ACCEPTS));
    }
    sent
}

fn delete(corpus: &Corpus, seen: &Seen, dice: &mut Dice) -> Sent {
    let (place, _) = known(corpus, seen, dice);
    let collection = dice.one_in(15);
    let place = if collection {
        place.rsplit_once('/').unwrap_or_default().0.to_owned()
    } else {
        place
    };
    let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
    if dice.one_in(2) {
        body["propagationPolicy"] = dice.pick(&["Background", "Foreground", "Orphan", "x"]).into();
    }
    if dice.one_in(2) {
        body["gracePeriodSeconds"] = mutate::number(dice);
    }
    if dice.one_in(4) {
        body["preconditions"] = json!({"uid": mutate::word(dice)});
    }
    if dice.one_in(4) {
        mutate::value(
            &mut body,
            &json!({"dryRun": ["All"], "preconditions": {"resourceVersion": "1"}, "orphanDependents": true}),
            dice,
        );
    }
    let sent = Sent::new("DELETE", &place);
    if dice.one_in(2) {
        sent
    } else {
        sent.with_body(JSON, mutate::text(&body))
    }
}

/// An envelope around some bytes, both possibly broken.
fn protobuf(corpus: &Corpus, dice: &mut Dice) -> Sent {
    let sent = any(&corpus.requests, dice).unwrap().clone();
    let body: Value = serde_json::from_slice(&sent.body).unwrap_or_default();
    let text = |key: &str, otherwise: &str| body[key].as_str().unwrap_or(otherwise).as_bytes().to_vec();
    let field = |number: u8, bytes: &[u8]| {
        let mut all = vec![number << 3 | 2];
        let mut length = bytes.len();
        while length >= 0x80 {
            all.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        all.push(length as u8);
        all.extend(bytes);
        all
    };
    let name = field(1, body["metadata"]["name"].as_str().unwrap_or("p").as_bytes());
    let mut raw = field(1, &name);
    for _ in 0..dice.below(6) {
        let noise: Vec<u8> = (0..dice.below(20)).map(|_| dice.next() as u8).collect();
        raw.extend(field(dice.below(16) as u8, &noise));
    }
    if dice.one_in(20) {
        raw = (0..300).fold(raw, |raw, _| field(2, &raw));
    }
    let kind = if dice.one_in(4) {
        b"DeleteOptions".to_vec()
    } else {
        text("kind", "Pod")
    };
    let meta = [field(1, &text("apiVersion", "v1")), field(2, &kind)].concat();
    let mut bytes = [b"k8s\0".to_vec(), field(1, &meta), field(2, &raw)].concat();
    if dice.one_in(2) {
        mutate::bytes(&mut bytes, dice);
    }
    sent.with_body("application/vnd.kubernetes.protobuf", bytes)
}

fn query(sent: &mut Sent, seen: &Seen, dice: &mut Dice) {
    let name = dice.pick(&PARAMETERS);
    let value = match (name, dice.below(4)) {
        ("continue", 0..3) if !seen.tokens.is_empty() => {
            let token = any(&seen.tokens, dice).unwrap().clone();
            if dice.one_in(2) {
                token
            } else {
                let mut bytes = token.into_bytes();
                mutate::bytes(&mut bytes, dice);
                String::from_utf8_lossy(&bytes).into_owned()
            }
        }
        ("resourceVersion", 0..3) => (seen.revision + 5).saturating_sub(dice.below(200) as u64).to_string(),
        (_, 0) => mutate::word(dice),
        _ => dice.pick(&VALUES).to_owned(),
    };
    if dice.one_in(10) {
        sent.query.push((name.to_owned(), value));
    } else {
        sent.set_parameter(name, &value);
    }
}

fn path(sent: &mut Sent, dice: &mut Dice) {
    let mut parts: Vec<String> = sent.path.split('/').skip(1).map(str::to_owned).collect();
    let at = dice.below(parts.len());
    match dice.below(8) {
        0 => drop(parts.remove(at)),
        1 => parts.insert(at, parts[at].clone()),
        2 => parts[at] = String::new(),
        3 => {
            parts[at] = dice
                .pick(&[
                    "%2e%2e",
                    "..",
                    ".",
                    "%2f",
                    "%00",
                    "%",
                    "%zz",
                    "%ff%fe",
                    "a%2Fb",
                    "%F0%9F%92%A5",
                    "watch",
                    "namespaces",
                    "*",
                ])
                .to_owned()
        }
        4 => parts[at] = "a".repeat([253, 254, 5_000, 60_000][dice.below(4)]),
        5 => parts.push(dice.pick(&["status", "scale", "", "x", "..", "proxy"]).to_owned()),
        6 => parts[at] = parts[at].to_uppercase(),
        _ => parts.insert(at, dice.pick(&["watch", "", "apis", "v1", "openapi", "v3"]).to_owned()),
    }
    sent.path = format!("/{}", parts.join("/"));
}

fn headers(sent: &mut Sent, dice: &mut Dice) {
    let (name, value) = match dice.below(7) {
        0..3 => ("accept", dice.pick(&ACCEPTS).to_owned()),
        3 | 4 => ("content-type", dice.pick(&BODIES).to_owned()),
        5 => {
            let name = dice.pick(&[
                "impersonate-user",
                "impersonate-group",
                "impersonate-uid",
                "impersonate-extra-a%2fb",
                "impersonate-extra-%",
            ]);
            (
                name,
                dice.pick(&[
                    "eve",
                    "",
                    "system:serviceaccount:a:b",
                    "system:masters",
                    "é",
                    "system:serviceaccount:",
                ])
                .to_owned(),
            )
        }
        _ => {
            let name = dice.pick(&[
                "if-none-match",
                "user-agent",
                "accept-encoding",
                "content-length",
                "authorization",
            ]);
            (
                name,
                dice.pick(&[
                    "*",
                    "",
                    "gzip",
                    "a/b/c",
                    "\u{7f}",
                    "gzip;q=0, *",
                    "Bearer x",
                    "999999999999",
                    "\"\"",
                ])
                .to_owned(),
            )
        }
    };
    sent.set_header(name, &value);
}
