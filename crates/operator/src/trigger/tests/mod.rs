//! Every answer of the desk, with a cluster that knows some people and an object.

mod refusals;
mod waiting;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::to_bytes;
use http::{Method, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse};
use serde_json::json;
use tower::ServiceExt;

use super::cluster::Reply;
use super::request::Token;
use super::*;
use crate::webhook::{ReviewLimits, Routes};

pub(super) const GREETINGS: Trigger = Trigger {
    resource: ApiType {
        group: "test.usher.dev",
        version: "v1",
        kind: "Greeting",
        plural: "greetings",
    },
    called: "greeting",
    annotation: "usher.dev/again",
    answered_in: "said",
};
const PATH: &str = "/v1/trigger/greetings/here/hello";

/// A kind's part at each look: what it makes of the object, and how many looks there were.
type Part = dyn FnMut(&mut Value, usize) + Send;

/// What the API server would know, and what it was asked.
#[derive(Default)]
struct Known {
    objects: BTreeMap<String, Value>,
    asked: Vec<String>,
    trouble: Option<Trouble>,
    kind: Option<Box<Part>>,
    looks: usize,
    hangs: bool,
}

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Known>>);

impl Fake {
    fn known<T>(&self, with: impl FnOnce(&mut Known) -> T) -> T {
        with(&mut self.0.lock().unwrap())
    }

    fn ask<T: Send + 'static>(&self, what: String, answer: impl FnOnce(&mut Known) -> T) -> Reply<'static, T> {
        let answer = self.known(|known| {
            known.asked.push(what);
            match known.trouble.clone() {
                _ if known.hangs => None,
                Some(trouble) => Some(Err(trouble)),
                None => Some(Ok(answer(known))),
            }
        });
        match answer {
            Some(answer) => Box::pin(std::future::ready(answer)),
            None => Box::pin(std::future::pending()),
        }
    }
}

impl Cluster for Fake {
    fn who<'a>(&'a self, token: &'a Token) -> Reply<'a, Option<UserInfo>> {
        let name = token.reveal().strip_prefix("token-of-").map(str::to_owned);
        self.ask("who".to_owned(), |_| {
            name.map(|name| UserInfo {
                username: Some(name),
                ..UserInfo::default()
            })
        })
    }

    fn may_update<'a>(&'a self, user: &'a UserInfo, trigger: &'a Trigger, key: &'a ObjectKey) -> Reply<'a, bool> {
        let user = user.username.clone().unwrap();
        let what = format!("may {user} update {} {key}", trigger.resource.plural);
        self.ask(what, |_| user == "kim")
    }

    fn annotate<'a>(&'a self, trigger: &'a Trigger, key: &'a ObjectKey, value: &'a str) -> Reply<'a, Option<Value>> {
        let (key, value, annotation) = (key.to_string(), value.to_owned(), trigger.annotation);
        self.ask(format!("annotate {key}"), move |known| {
            let object = known.objects.get_mut(&key)?;
            object["metadata"]["annotations"][annotation] = json!(value);
            Some(object.clone())
        })
    }

    fn read<'a>(&'a self, _: &'a Trigger, key: &'a ObjectKey) -> Reply<'a, Option<Value>> {
        let key = key.to_string();
        self.ask(format!("read {key}"), move |known| {
            known.looks += 1;
            let (looks, kind) = (known.looks, &mut known.kind);
            let object = known.objects.get_mut(&key)?;
            if let Some(kind) = kind {
                kind(object, looks);
            }
            Some(object.clone())
        })
    }
}

/// Stands still unless told.
#[derive(Debug, Default)]
struct HandClock(AtomicU64);

impl Clock for HandClock {
    fn wall(&self) -> Timestamp {
        "2026-11-05T12:00:00.5Z".parse().unwrap()
    }
    fn monotonic(&self) -> Moment {
        Moment::after_start(Duration::from_millis(self.0.load(Ordering::Relaxed)))
    }
}

/// There are some beside the triggers, on the same port.
fn webhooks() -> Routes {
    Routes::new().on("/webhook", |request: AdmissionRequest<DynamicObject>| {
        std::future::ready(AdmissionResponse::from(&request))
    })
}

struct Office {
    router: Router,
    cluster: Fake,
    clock: Arc<HandClock>,
    health: Health,
    stop: watch::Sender<bool>,
    counted: Family<TriggerLabel, Counter>,
}

impl Office {
    fn new() -> Self {
        Self::of(None)
    }

    fn of(scope: Option<&str>) -> Self {
        let (stop, stopping) = watch::channel(false);
        let (cluster, clock, health) = (Fake::default(), Arc::new(HandClock::default()), Health::new());
        health.set("greetings", Ok(()));
        let hello = json!({"metadata": {"uid": "1", "annotations": {}}, "status": {"said": {"trigger": "old"}}});
        cluster.known(|known| known.objects.insert("here/hello".to_owned(), hello));
        let counted = Family::default();
        let surroundings = Surroundings {
            scope: scope.map(str::to_owned),
            health: health.clone(),
            counted: counted.clone(),
            stop: stopping,
        };
        let mut desk = Desk::with(vec![GREETINGS], Box::new(cluster.clone()), clock.clone(), surroundings);
        (desk.body_time, desk.call_time) = (Duration::from_millis(100), Duration::from_millis(300));
        Self {
            router: crate::tls::router(webhooks(), ReviewLimits::default(), Some(desk)),
            cluster,
            clock,
            health,
            stop,
            counted,
        }
    }

    async fn send(&self, request: http::Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn ask(&self, method: Method, path: &str, token: Option<&str>) -> (u16, Value) {
        let mut request = http::Request::builder().method(method).uri(path);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = self.send(request.body(Body::empty()).unwrap()).await;
        read(response).await
    }

    async fn kim(&self, path: &str) -> (u16, Value) {
        self.ask(Method::POST, path, Some("token-of-kim")).await
    }

    fn asked(&self) -> Vec<String> {
        self.cluster.known(|known| std::mem::take(&mut known.asked))
    }

    async fn until_looked_at(&self, times: usize) {
        until(|| self.cluster.known(|known| known.looks) >= times).await;
    }

    fn annotation(&self) -> Option<String> {
        self.cluster.known(|known| {
            let value = &known.objects["here/hello"]["metadata"]["annotations"][GREETINGS.annotation];
            value.as_str().map(str::to_owned)
        })
    }
}

async fn read(response: Response) -> (u16, Value) {
    let status = response.status();
    assert_eq!(response.headers()["content-type"], "application/json");
    let body = to_bytes(response.into_body(), 10_000).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    if !status.is_success() {
        assert_eq!(body["code"], status.as_u16());
        let message = body["message"].as_str().unwrap();
        assert!(!message.contains("token-of-"), "{message}");
        assert!(message.len() > 20 && !message.contains('\n'), "{message}");
    }
    (status.as_u16(), body)
}

async fn until(mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), wait).await;
    waited.expect("within half a minute");
}

fn message(body: &Value) -> &str {
    body["message"].as_str().unwrap()
}
