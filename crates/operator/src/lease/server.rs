//! An API server of a few lines, for one Lease: it can hang, refuse, and do without saying. Tests only.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;

/// What the server does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Fine,
    Hang,
    /// Does it, and does not say so.
    ActAndHang,
    /// Does it, and says so this much later.
    Late(Duration),
    Refuse(u16, &'static str),
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) lease: Option<Value>,
    pub(super) version: u64,
    pub(super) mood: Mood,
    /// For the next requests, before `mood`.
    pub(super) next: VecDeque<Mood>,
    pub(super) requests: Vec<String>,
    /// Whoever is to have ceased to lead when the Lease is given back.
    pub(super) bell: Option<watch::Receiver<bool>>,
}

#[derive(Debug, Clone)]
pub(super) struct Api(Arc<Mutex<Server>>);

impl Api {
    pub(super) fn new() -> Self {
        let server = Server {
            lease: None,
            version: 10,
            mood: Mood::Fine,
            next: VecDeque::new(),
            requests: Vec::new(),
            bell: None,
        };
        Self(Arc::new(Mutex::new(server)))
    }

    pub(super) fn with<T>(&self, f: impl FnOnce(&mut Server) -> T) -> T {
        f(&mut self.0.lock().unwrap())
    }

    pub(super) fn edit(&self, f: impl FnOnce(&mut Value)) {
        self.with(|server| {
            server.version += 1;
            let version = server.version.to_string();
            let lease = server.lease.as_mut().unwrap();
            f(lease);
            lease["metadata"]["resourceVersion"] = json!(version);
        });
    }

    pub(super) fn lease(&self) -> Value {
        self.with(|server| server.lease.clone().unwrap())
    }

    pub(super) fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                let (mood, answer) = api.with(|server| server.serve(&parts.method, parts.uri.path(), &body));
                if matches!(mood, Mood::Hang | Mood::ActAndHang) {
                    std::future::pending::<()>().await;
                }
                if let Mood::Late(late) = mood {
                    tokio::time::sleep(late).await; // edge: a server that answers late
                }
                let (code, body) = answer;
                let response = Response::builder()
                    .status(code)
                    .body(Body::from(serde_json::to_vec(&body).unwrap()));
                Ok::<_, kube::Error>(response.unwrap())
            }
        });
        kube::Client::new(service, "home")
    }
}

impl Server {
    fn serve(&mut self, method: &Method, path: &str, body: &[u8]) -> (Mood, (StatusCode, Value)) {
        let mood = self.next.pop_front().unwrap_or(self.mood);
        self.requests.push(format!("{method} {path}"));
        let answer = match mood {
            Mood::Hang => (StatusCode::OK, json!({})),
            Mood::Refuse(code, reason) => status(code, reason),
            Mood::Fine | Mood::ActAndHang | Mood::Late(_) => self.act(method, body),
        };
        (mood, answer)
    }

    fn act(&mut self, method: &Method, body: &[u8]) -> (StatusCode, Value) {
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        match (method.as_str(), &self.lease) {
            ("GET", Some(lease)) => return (StatusCode::OK, lease.clone()),
            ("GET" | "PUT", None) => return status(404, "NotFound"),
            ("POST", Some(_)) => return status(409, "AlreadyExists"),
            ("PUT", Some(lease)) => {
                let given: Value = serde_json::from_slice(body).unwrap();
                assert!(version(&given).is_string(), "a replace without resourceVersion");
                if version(&given) != version(lease) {
                    return status(409, "Conflict");
                }
            }
            _ => {}
        }
        let mut lease: Value = serde_json::from_slice(body).unwrap();
        if let Some(bell) = &self.bell
            && lease["spec"]["holderIdentity"].is_null()
        {
            assert!(!*bell.borrow(), "given back by one who still leads");
        }
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.lease = Some(lease.clone());
        (StatusCode::OK, lease)
    }
}

fn status(code: u16, reason: &str) -> (StatusCode, Value) {
    let message = format!("the server says {reason}");
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code,
    });
    (StatusCode::from_u16(code).unwrap(), body)
}
