//! The API server's audit log: who asked what, and when the request was received. The server's word, not the operator's.

use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::control_plane::Server;
use super::world::{World, eventually};

/// One request that was answered.
#[derive(Debug, Clone)]
pub struct Request {
    pub user: String,
    pub agent: String,
    pub verb: String,
    /// `subnets`, or `subnets/status`.
    pub resource: String,
    pub name: String,
    pub code: u64,
    pub received: Timestamp,
}

impl Request {
    fn read(line: &str, namespace: &str) -> Option<Self> {
        let event: Value = serde_json::from_str(line).ok()?;
        let object = &event["objectRef"];
        if object["namespace"] != namespace {
            return None;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let subresource = object["subresource"]
            .as_str()
            .map(|s| format!("/{s}"))
            .unwrap_or_default();
        Some(Self {
            user: text(&event["user"]["username"]),
            agent: text(&event["userAgent"]),
            verb: text(&event["verb"]),
            resource: text(&object["resource"]) + &subresource,
            name: text(&object["name"]),
            code: event["responseStatus"]["code"].as_u64().unwrap_or(0),
            received: event["requestReceivedTimestamp"].as_str()?.parse().ok()?,
        })
    }

    /// By an operator's connection of this role: `writer`, `watch`, `events`, `lease`.
    pub fn by(&self, role: &str) -> bool {
        self.agent.starts_with("usher/") && self.agent.ends_with(&format!("({role})"))
    }

    pub fn is_write(&self) -> bool {
        matches!(
            self.verb.as_str(),
            "create" | "update" | "patch" | "delete" | "deletecollection"
        )
    }

    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// `update subnets/status`.
    pub fn what(&self) -> String {
        format!("{} {}", self.verb, self.resource)
    }
}

/// The audit log of one namespace, from some moment on.
#[derive(Debug, Clone)]
pub struct Audit {
    file: PathBuf,
    from: u64,
    namespace: String,
}

impl Audit {
    pub fn from_now(server: &Server, namespace: &str) -> Self {
        let file = server.dir.join("audit.log");
        let from = std::fs::metadata(&file).map_or(0, |m| m.len());
        Self {
            file,
            from,
            namespace: namespace.to_owned(),
        }
    }

    /// Everything up to now. A request is in the log soon after its answer: a mark of our own, written after whatever
    /// matters, tells that the log has come that far.
    pub async fn requests(&self, world: &World) -> Vec<Request> {
        let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &self.namespace);
        let mark = format!("mark-{}", Timestamp::now().as_nanosecond());
        let map = serde_json::from_value(json!({"metadata": {"name": mark}})).unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
        let mut requests = Vec::new();
        eventually("the audit log has come to now", async || {
            let text = self.read();
            let seen = text.contains(&mark);
            if seen {
                requests = text
                    .lines()
                    .filter_map(|line| Request::read(line, &self.namespace))
                    .collect();
            }
            seen
        })
        .await;
        requests.sort_by_key(|request| request.received);
        requests
    }

    fn read(&self) -> String {
        let mut file = std::fs::File::open(&self.file).unwrap();
        file.seek(SeekFrom::Start(self.from)).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
