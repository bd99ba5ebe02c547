//! What clients are told, word by word: the same webhook answers are given to a real server and to this one.
//!
//! `recorded.json` holds what kube-apiserver 1.36.3 answered. To record it again:
//! `USHER_RECORD_WEBHOOKS=KUBECONFIG cargo test -p usher-embedded --test admission -- texts`.

use std::collections::BTreeMap;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::server::{Reply, Server, stranger};
use crate::world::{self, Answer, World};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/admission/recorded.json");

struct Case {
    name: &'static str,
    mutating: bool,
    reply: Reply,
    /// Laid over the webhook.
    hook: Value,
    delete: bool,
}

fn case(name: &'static str, reply: Reply) -> Case {
    Case {
        name,
        mutating: false,
        reply,
        hook: json!({}),
        delete: false,
    }
}

fn mutating(name: &'static str, response: Value) -> Case {
    Case {
        mutating: true,
        ..case(name, Reply::Response(response))
    }
}

fn patch(operations: &Value) -> Value {
    let text = base64::engine::general_purpose::STANDARD.encode(operations.to_string());
    json!({"allowed": true, "patchType": "JSONPatch", "patch": text})
}

fn cases(server: &Server, named: &Server) -> Vec<Case> {
    let deny = |name, status: Value| case(name, Reply::Response(json!({"allowed": false, "status": status})));
    let raw = |name, code, text: &str| case(name, Reply::Raw(code, text.to_owned()));
    let allow = || Reply::Response(json!({"allowed": true}));
    let patches = |name, operations: Value| mutating(name, patch(&operations));
    vec![
        case("denied without a word", Reply::Response(json!({"allowed": false}))),
        deny("denied with a message", json!({"message": "no such luck"})),
        deny("denied with a reason", json!({"reason": "because so"})),
        deny(
            "denied with both and a code",
            json!({"message": "m", "reason": "Conflict", "code": 409}),
        ),
        deny("denied with a code of success", json!({"message": "m", "code": 200})),
        deny(
            "denied with details",
            json!({"message": "m", "reason": "Invalid", "code": 422,
                "details": {"kind": "K", "causes": [{"message": "c", "field": "f", "reason": "r"}]}}),
        ),
        case(
            "allowed with warnings",
            Reply::Response(json!({"allowed": true, "warnings": ["careful", "very"]})),
        ),
        mutating(
            "denied by a mutating webhook",
            json!({"allowed": false, "status": {"message": "m"}}),
        ),
        case(
            "another's uid",
            Reply::Response(json!({"allowed": true, "uid": "other"})),
        ),
        case(
            "no response",
            Reply::Review(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"})),
        ),
        raw("text", 200, "hello"),
        raw("nothing", 200, ""),
        raw("another kind", 200, r#"{"kind":"Pod","apiVersion":"v1"}"#),
        raw("code 500", 500, "boom"),
        raw("code 404", 404, "not here"),
        raw("code 403", 403, "not you"),
        raw("code 503", 503, "later"),
        raw("code 400", 400, "what"),
        raw(
            "code 409 with a status",
            409,
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"said so","reason":"Conflict","code":409}"#,
        ),
        case(
            "a validating webhook that patches",
            Reply::Response(patch(&json!([{"op": "add", "path": "/data", "value": {}}]))),
        ),
        mutating("a patch without a type", {
            let mut response = patch(&json!([]));
            response.as_object_mut().unwrap().remove("patchType");
            response
        }),
        mutating(
            "a type without a patch",
            json!({"allowed": true, "patchType": "JSONPatch"}),
        ),
        mutating("a patch of another type", {
            let mut response = patch(&json!([{"op": "add", "path": "/data/x", "value": "y"}]));
            response["patchType"] = json!("MergePatch");
            response
        }),
        patches(
            "a patch that removes what is not there",
            json!([{"op": "remove", "path": "/data/none"}]),
        ),
        patches(
            "a patch that replaces what is not there",
            json!([{"op": "replace", "path": "/data/none", "value": 1}]),
        ),
        patches(
            "a patch below what is not there",
            json!([{"op": "add", "path": "/spec/none", "value": 1}]),
        ),
        patches(
            "a patch whose test fails",
            json!([{"op": "test", "path": "/data/a", "value": "c"}]),
        ),
        patches(
            "a patch that breaks the type",
            json!([{"op": "add", "path": "/immutable", "value": "yes"}]),
        ),
        patches(
            "a patch that breaks a rule",
            json!([{"op": "add", "path": "/data/not~1good", "value": "x"}]),
        ),
        patches(
            "a patch that is fine",
            json!([{"op": "add", "path": "/metadata/labels", "value": {"added": "yes"}}]),
        ),
        patches(
            "a patch that renames",
            json!([{"op": "replace", "path": "/metadata/name", "value": "renamed"}]),
        ),
        Case {
            delete: true,
            ..patches(
                "a patch of a delete",
                json!([{"op": "add", "path": "/data/x", "value": "y"}]),
            )
        },
        Case {
            delete: true,
            ..deny("a delete denied", json!({"message": "keep it"}))
        },
        Case {
            hook: json!({"clientConfig": {"caBundle": stranger()}}),
            ..case("another CA", allow())
        },
        Case {
            hook: json!({"clientConfig": {"url": format!("https://{}/hook", named.address), "caBundle": named.authority}}),
            ..case("a certificate for another name", allow())
        },
        Case {
            hook: json!({"clientConfig": {"url": "https://127.0.0.1:1/hook"}}),
            ..case("nobody there", allow())
        },
        Case {
            hook: json!({"clientConfig": {"url": "https://127.0.0.1:1/hook"}, "failurePolicy": "Ignore"}),
            ..case("nobody there, ignored", allow())
        },
        Case {
            hook: json!({"timeoutSeconds": 1}),
            ..case("no answer", Reply::Silence)
        },
        case("hung up", Reply::Hangup),
        Case {
            hook: json!({"matchConditions": [{"name": "c", "expression": "object.spec.x == 1"}]}),
            ..case("a condition that fails", allow())
        },
        Case {
            hook: json!({"matchConditions": [{"name": "c", "expression": "object.spec.x == 1"},
                {"name": "d", "expression": "request.operation != 'CREATE'"}]}),
            ..deny("a condition that fails and one that is false", json!({}))
        },
        Case {
            hook: json!({"clientConfig": {"url": format!("https://{}", server.address)}}),
            ..deny("denied at a url without a path", json!({}))
        },
    ]
}

/// Lays one object over another.
fn lay(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                lay(under.entry(key).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over.clone(),
    }
}

fn configuration(case: &Case, server: &Server) -> (String, Value) {
    let kind = if case.mutating { "Mutating" } else { "Validating" };
    let mut hook = json!({
        "name": "hook.texts.test", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": server.url(), "caBundle": server.authority},
        "objectSelector": {"matchLabels": {"texts": "yes"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
            "operations": [if case.delete { "DELETE" } else { "CREATE" }]}],
    });
    lay(&mut hook, &case.hook);
    let path = format!(
        "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations",
        kind.to_lowercase()
    );
    let whole = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
        "metadata": {"name": "texts"}, "webhooks": [hook]});
    (path, whole)
}

fn subject() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "subject", "labels": {"texts": "yes"}},
        "data": {"a": "b"}})
}

/// One try of the case.
async fn attempt(world: &World, case: &Case) -> Answer {
    let path = format!("{MAPS}/subject");
    if case.delete {
        world.post(MAPS, subject()).await;
        return world.delete(&path).await;
    }
    let answer = world.post(MAPS, subject()).await;
    for name in ["subject", "renamed"] {
        world.delete(&format!("{MAPS}/{name}")).await;
    }
    answer
}

/// The answer without what differs from run to run.
fn normal(answer: &Answer, server: &Server, named: &Server) -> Value {
    let mut shown = json!({"code": answer.code, "warnings": answer.warnings});
    if answer.code >= 400 {
        shown["status"] = answer.body.clone();
    } else if !answer.body["data"].is_null() {
        shown["data"] = answer.body["data"].clone();
        shown["labels"] = answer.body["metadata"]["labels"].clone();
        shown["name"] = answer.body["metadata"]["name"].clone();
    }
    let mut text = shown.to_string();
    for address in [server.address, named.address] {
        text = text.replace(&format!(":{}", address.port()), ":<port>");
    }
    let mut out = String::new();
    let mut rest = text.as_str();
    const UID: &str = r#"expected response.uid=\""#;
    while let Some(at) = rest.find(UID) {
        let (before, after) = rest.split_at(at + UID.len());
        out.push_str(before);
        out.push_str("<uid>");
        rest = &after[36..];
    }
    out.push_str(rest);
    serde_json::from_str(&out).unwrap()
}

#[tokio::test]
async fn answers_about_webhooks_read_as_the_references_do() {
    let server = Server::start(&["127.0.0.1"]).await;
    let named = Server::start(&["other.example"]).await;
    if let Some(kubeconfig) = std::env::var_os("USHER_RECORD_WEBHOOKS") {
        record(&kubeconfig.into_string().unwrap(), &server, &named).await;
        return;
    }
    let recorded: BTreeMap<String, Value> = serde_json::from_str(&std::fs::read_to_string(RECORDED).unwrap()).unwrap();
    let world = World::new();
    let mut wrong = Vec::new();
    for case in cases(&server, &named) {
        server.set(case.reply.clone());
        let (path, configuration) = configuration(&case, &server);
        world.post(&path, configuration).await.ok();
        let answer = normal(&attempt(&world, &case).await, &server, &named);
        world.delete(&format!("{path}/texts")).await.ok();
        world.delete(&format!("{MAPS}/subject")).await;
        if recorded.get(case.name) != Some(&answer) {
            let expected = recorded.get(case.name).cloned().unwrap_or_default();
            wrong.push(format!("{}:\n  reference {expected}\n  here      {answer}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A real server sees a new configuration a moment after it was made: it is asked until it does.
async fn record(kubeconfig: &str, server: &Server, named: &Server) {
    let world = World::real(kubeconfig).await;
    let mut recorded = BTreeMap::new();
    for case in cases(server, named) {
        server.set(case.reply.clone());
        let before = server.asked();
        let (path, configuration) = configuration(&case, server);
        world.post(&path, configuration).await.ok();
        let mut answer = attempt(&world, &case).await;
        for _ in 0..20 {
            if server.asked() > before || answer.code >= 400 {
                break;
            }
            world::pause().await;
            answer = attempt(&world, &case).await;
        }
        world.delete(&format!("{path}/texts")).await.ok();
        // Until it is forgotten.
        server.set(Reply::Response(json!({"allowed": true})));
        for _ in 0..20 {
            let asked = server.asked();
            let gone = attempt(&world, &case).await;
            if gone.code < 400 && server.asked() == asked {
                break;
            }
            world::pause().await;
        }
        world.delete(&format!("{MAPS}/subject")).await;
        recorded.insert(case.name, normal(&answer, server, named));
    }
    std::fs::write(RECORDED, serde_json::to_string_pretty(&recorded).unwrap() + "\n").unwrap();
}
