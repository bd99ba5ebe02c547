//! Custody against a small API server: objects by path, resourceVersions, and nothing else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};

use super::super::decide::later;
use super::*;

const SECRET: &str = "/api/v1/namespaces/usher-system/secrets/usher-webhook";
const CONFIGURATION: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/usher";

#[derive(Default)]
pub(in super::super) struct Server {
    objects: BTreeMap<String, Value>,
    revision: u64,
    writes: Vec<String>,
    /// Answers to the next writes, instead of doing them.
    broken: Vec<StatusCode>,
    /// Answer to everything.
    pub(in super::super) closed: Option<StatusCode>,
}

impl Server {
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> (StatusCode, Value) {
        let failure = |code: StatusCode, reason: &str| {
            (
                code,
                json!({"kind": "Status", "status": "Failure", "code": code.as_u16(), "reason": reason, "message": reason}),
            )
        };
        if let Some(code) = self.closed {
            return failure(code, "Closed");
        }
        if method == Method::GET {
            let found = self.objects.get(path).cloned();
            return found.map_or_else(
                || failure(StatusCode::NOT_FOUND, "NotFound"),
                |object| (StatusCode::OK, object),
            );
        }
        if let Some(code) = self.broken.pop() {
            return failure(code, "Broken");
        }
        let mut object: Value = serde_json::from_slice(body).unwrap();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let path = if method == Method::POST {
            format!("{path}/{name}")
        } else {
            path.to_owned()
        };
        match (self.objects.get(&path), method == Method::POST) {
            (Some(_), true) => return failure(StatusCode::CONFLICT, "AlreadyExists"),
            (None, false) => return failure(StatusCode::NOT_FOUND, "NotFound"),
            (Some(there), false) if there["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] => {
                return failure(StatusCode::CONFLICT, "Conflict");
            }
            _ => {}
        }
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.writes.push(format!("{method} {path}"));
        self.objects.insert(path, object.clone());
        (StatusCode::OK, object)
    }
}

pub(in super::super) type Shared = Arc<Mutex<Server>>;

fn client(server: &Shared) -> kube::Client {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            // Others get their turn here: what was read may be old by the time it is written.
            tokio::task::yield_now().await;
            let (code, answer) = server.lock().unwrap().answer(&head.method, head.uri.path(), &body);
            let answer = Body::from(answer.to_string().into_bytes());
            Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(answer).unwrap())
        }
    });
    kube::Client::new(service, "default")
}

pub(in super::super) fn cluster() -> Shared {
    let webhook =
        |name: &str| json!({"name": name, "clientConfig": {"url": "https://x", "unknownToUs": 7}, "rules": []});
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "usher", "resourceVersion": "1"}, "webhooks": [webhook("a.usher.dev"), webhook("b.usher.dev")],
    });
    let objects = BTreeMap::from([(CONFIGURATION.to_owned(), configuration)]);
    Arc::new(Mutex::new(Server {
        objects,
        revision: 1,
        ..Server::default()
    }))
}

pub(in super::super) fn custody(server: &Shared) -> Custody {
    let names = Names::of_service("usher", "usher-system").unwrap();
    let secret = ObjectKey::new("usher-system", "usher-webhook").unwrap();
    let places = Places {
        secret,
        configuration: Some("usher".to_owned()),
        config_map: None,
    };
    Custody::new(Some(client(server)), places, names, Lifetimes::default())
}

fn published(server: &Shared) -> Vec<String> {
    let server = server.lock().unwrap();
    let webhooks = server.objects[CONFIGURATION]["webhooks"].as_array().unwrap().clone();
    webhooks
        .into_iter()
        .map(|webhook| {
            assert_eq!(webhook["clientConfig"]["unknownToUs"], 7, "fields we do not know stay");
            let bytes: k8s_openapi::ByteString =
                serde_json::from_value(webhook["clientConfig"]["caBundle"].clone()).unwrap();
            String::from_utf8(bytes.0).unwrap()
        })
        .collect()
}

pub(in super::super) fn start() -> Timestamp {
    "2026-11-05T12:00:00Z".parse().unwrap()
}

fn days(n: u64) -> Duration {
    Duration::from_secs(n * 86_400)
}

#[tokio::test]
async fn the_first_look_writes_secret_and_bundle_and_the_second_nothing() {
    let server = cluster();
    let mut custody = custody(&server);
    let look = custody.look(start()).await.unwrap();
    assert!(look.unpublished.is_none());
    assert_eq!(published(&server), [look.material.bundle(), look.material.bundle()]);
    {
        let server = server.lock().unwrap();
        assert_eq!(
            server.writes,
            [format!("POST {SECRET}"), format!("PUT {CONFIGURATION}")]
        );
        assert_eq!(server.objects[SECRET]["type"], "kubernetes.io/tls");
    }
    let again = custody.look(later(start(), days(1))).await.unwrap();
    assert_eq!(again.material, look.material);
    assert_eq!(server.lock().unwrap().writes.len(), 2);
    // Somebody applies the manifest again, without a bundle.
    let empty = serde_json::to_value(k8s_openapi::ByteString(Vec::new())).unwrap();
    server.lock().unwrap().objects.get_mut(CONFIGURATION).unwrap()["webhooks"][1]["clientConfig"]["caBundle"] = empty;
    custody.look(later(start(), days(2))).await.unwrap();
    assert_eq!(published(&server), [look.material.bundle(), look.material.bundle()]);
}

/// For clients that are no API server: a ConfigMap, since the Secret has keys in it.
#[tokio::test]
async fn the_bundle_is_in_a_config_map_too_and_nothing_secret_is_with_it() {
    const MAP: &str = "/api/v1/namespaces/usher-system/configmaps/usher-ca";
    let server = cluster();
    let mut custody = custody(&server);
    custody.places.configuration = None;
    custody.places.config_map = Some(ObjectKey::new("usher-system", "usher-ca").unwrap());
    let look = custody.look(start()).await.unwrap();
    assert!(look.unpublished.is_none(), "{:?}", look.unpublished);
    let data = server.lock().unwrap().objects[MAP]["data"].clone();
    assert_eq!(data, json!({"ca.crt": look.material.bundle()}));
    assert_eq!(
        server.lock().unwrap().writes,
        [format!("POST {SECRET}"), format!("POST {MAP}")]
    );
    custody.look(later(start(), days(1))).await.unwrap();
    assert_eq!(server.lock().unwrap().writes.len(), 2, "nothing new, nothing written");
    // Somebody edits it; a new authority comes.
    server.lock().unwrap().objects.get_mut(MAP).unwrap()["data"] = json!({"ca.crt": "", "note": "mine"});
    custody.look(later(start(), days(2))).await.unwrap();
    server.lock().unwrap().objects.remove(SECRET);
    let both = custody.look(later(start(), days(3))).await.unwrap().material;
    assert_eq!(both.authorities.len(), 2);
    assert_eq!(
        server.lock().unwrap().objects[MAP]["data"],
        json!({"ca.crt": both.bundle(), "note": "mine"})
    );
    // One that was there before us is somebody's.
    server.lock().unwrap().objects.get_mut(MAP).unwrap()["metadata"]["labels"] = json!({});
    let look = custody.look(later(start(), days(4))).await.unwrap();
    assert_eq!(
        look.unpublished.unwrap().to_string(),
        "ConfigMap usher-system/usher-ca holds something that Usher did not put there: choose another name with \
         --tls-name, or delete it"
    );
}

#[tokio::test]
async fn replicas_that_look_at_once_end_with_the_same_certificates() {
    let server = cluster();
    let mut replicas: Vec<Custody> = (0..4).map(|_| custody(&server)).collect();
    for replica in &mut replicas {
        replica.places.config_map = Some(ObjectKey::new("usher-system", "usher-ca").unwrap());
    }
    // From nothing; then a new serving certificate; a new authority; its first signature.
    for day in [0, 61, 120, 180, 240, 300, 360, 420, 480, 488, 489] {
        let now = later(start(), days(day));
        let looks = futures::future::join_all(replicas.iter_mut().map(|replica| replica.look(now))).await;
        let bundles: Vec<String> = looks.into_iter().map(|look| look.unwrap().material.bundle()).collect();
        // Who looked last saw all writes; once more for the others.
        let looks = futures::future::join_all(replicas.iter_mut().map(|replica| replica.look(now))).await;
        let looks: Vec<Material> = looks.into_iter().map(|look| look.unwrap().material).collect();
        assert!(looks.iter().all(|material| *material == looks[0]), "day {day}");
        assert_eq!(published(&server)[0], looks[0].bundle(), "day {day}");
        assert!(bundles.contains(&looks[0].bundle()));
        assert_eq!(looks[0].authorities.len(), if day < 488 { 1 } else { 2 }, "day {day}");
    }
}

#[tokio::test]
async fn a_deleted_secret_makes_a_new_authority_and_breaks_nobody() {
    let server = cluster();
    let mut custody = custody(&server);
    let before = custody.look(start()).await.unwrap().material;
    server.lock().unwrap().objects.remove(SECRET);
    let now = later(start(), days(1));
    let during = custody.look(now).await.unwrap().material;
    assert_eq!(
        (during.authorities.len(), &during.authorities[1]),
        (2, &before.authorities[0])
    );
    assert_eq!(during.serving, before.serving);
    assert_eq!(published(&server)[0], during.bundle());
    let after = custody
        .look(later(now, Duration::from_secs(600)))
        .await
        .unwrap()
        .material;
    assert_ne!(after.serving, before.serving);
    assert_eq!(after.authorities, during.authorities);
}

#[tokio::test]
async fn a_bundle_that_was_overwritten_has_to_settle_again() {
    let server = cluster();
    let mut custody = custody(&server);
    let before = custody.look(start()).await.unwrap().material;
    server.lock().unwrap().objects.remove(SECRET);
    let during = custody.look(start()).await.unwrap().material;
    let stale = serde_json::to_value(k8s_openapi::ByteString(before.bundle().into_bytes())).unwrap();
    server.lock().unwrap().objects.get_mut(CONFIGURATION).unwrap()["webhooks"][0]["clientConfig"]["caBundle"] = stale;
    let now = later(start(), Duration::from_secs(600));
    assert_eq!(
        custody.look(now).await.unwrap().material,
        during,
        "API servers trust the old one only, until now"
    );
    assert_eq!(published(&server)[0], during.bundle());
    let after = custody
        .look(later(now, Duration::from_secs(600)))
        .await
        .unwrap()
        .material;
    assert_ne!(after.serving, during.serving);
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_left_alone() {
    let server = cluster();
    let theirs = json!({"apiVersion": "v1", "kind": "Secret", "data": {"tls.crt": "eA=="},
        "metadata": {"name": "usher-webhook", "namespace": "usher-system", "resourceVersion": "1"}});
    server.lock().unwrap().objects.insert(SECRET.to_owned(), theirs.clone());
    let error = custody(&server).look(start()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "Secret usher-system/usher-webhook holds something that Usher did not put there: \
         choose another name with --tls-name, or delete it"
    );
    assert_eq!(server.lock().unwrap().objects[SECRET], theirs);
    // An empty one, laid out by a chart, is taken.
    server.lock().unwrap().objects.get_mut(SECRET).unwrap()["data"] = json!({"tls.crt": "", "tls.key": ""});
    custody(&server).look(start()).await.unwrap();
}

#[tokio::test]
async fn without_its_configuration_the_server_has_certificates_and_a_problem() {
    let server = cluster();
    let configuration = server.lock().unwrap().objects.remove(CONFIGURATION).unwrap();
    let mut custody = custody(&server);
    let look = custody.look(start()).await.unwrap();
    assert_eq!(
        look.unpublished.unwrap().to_string(),
        "read ValidatingWebhookConfiguration usher: it is not there; create it (and its namespace) with `usher install`"
    );
    // An authority that nobody knows does not sign, however long ago it was made.
    custody.look(later(start(), days(61))).await.unwrap();
    server.lock().unwrap().objects.remove(SECRET);
    let stuck = custody.look(later(start(), days(62))).await.unwrap().material;
    assert_eq!(custody.look(later(start(), days(100))).await.unwrap().material, stuck);
    server
        .lock()
        .unwrap()
        .objects
        .insert(CONFIGURATION.to_owned(), configuration);
    let now = later(start(), days(101));
    assert_eq!(custody.look(now).await.unwrap().material, stuck);
    assert_eq!(published(&server)[0], stuck.bundle());
    assert_ne!(
        custody
            .look(later(now, Duration::from_secs(600)))
            .await
            .unwrap()
            .material
            .serving,
        stuck.serving
    );
}

#[tokio::test]
async fn trouble_with_the_api_server_is_told_and_leaves_nothing_half_done() {
    let server = cluster();
    let mut custody = custody(&server);
    server.lock().unwrap().broken = vec![StatusCode::FORBIDDEN];
    let error = custody.look(start()).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("create Secret usher-system/usher-webhook: forbidden"),
        "{error}"
    );
    server.lock().unwrap().broken = vec![StatusCode::INTERNAL_SERVER_ERROR];
    assert!(custody.look(start()).await.unwrap_err().class().retries());
    server.lock().unwrap().broken = vec![StatusCode::CONFLICT; 20];
    let error = custody.look(start()).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("Secret usher-system/usher-webhook changes whenever Usher writes it"),
        "{error}"
    );
    server.lock().unwrap().broken.clear();
    assert!(custody.look(start()).await.unwrap().unpublished.is_none());
}
