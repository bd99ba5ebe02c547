//! What is around a body: verb, path, query and headers.

use super::{JSON, Seen, any};
use crate::dice::Dice;
use crate::mutate;
use crate::request::Sent;

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
pub const ACCEPTS: [&str; 16] = [
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
pub const METHODS: [&str; 9] = [
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

pub fn query(sent: &mut Sent, seen: &Seen, dice: &mut Dice) {
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

pub fn path(sent: &mut Sent, dice: &mut Dice) {
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

pub fn headers(sent: &mut Sent, dice: &mut Dice) {
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
