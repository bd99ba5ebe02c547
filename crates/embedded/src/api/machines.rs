//! What this machine runs, for `usher node` and `usher images`: no part of Kubernetes, and for the admin alone.
//!
//! | request | |
//! |---|---|
//! | `GET /usher/nodes` | process nodes: name, state, address; and how pods are isolated |
//! | `POST /usher/nodes/NAME/stop\|kill\|cut\|start` | see [`NodeHandle`](crate::NodeHandle) |
//! | `GET /usher/images` | the image table: pattern, what it resolves to, errors; and images in use that are in no table |

use std::collections::BTreeSet;
use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::Server;
use crate::api::answer::Answer;
use crate::caller::Caller;
use crate::fault::Fault;
use crate::node::machine::Machine;

impl Server {
    pub(super) async fn machines(&self, method: &Method, rest: &str, caller: &Caller) -> Result<Answer, Fault> {
        if *caller != Caller::admin() {
            return Err(Fault::new(
                403,
                "Forbidden",
                "what this machine runs is for the admin: use the token of the cluster's own kubeconfig",
            ));
        }
        let machine = self.machine.get().and_then(std::sync::Weak::upgrade);
        let parts: Vec<&str> = rest.split('/').collect();
        match (method.as_str(), parts.as_slice()) {
            ("GET", ["nodes"]) => Ok(Answer::bytes(
                200,
                "application/json",
                (nodes(machine.as_ref())).to_string(),
            )),
            ("GET", ["images"]) => {
                let listed = match machine {
                    Some(machine) => tokio::task::spawn_blocking(move || images(&machine))
                        .await
                        .map_err(|why| Fault::internal(why.to_string()))?,
                    None => json!({"entries": [], "errors": [], "unknown": []}),
                };
                Ok(Answer::bytes(200, "application/json", listed.to_string()))
            }
            ("POST", ["nodes", name, verb]) => {
                let none = || Fault::new(404, "NotFound", format!("there is no process node {name:?}"));
                let node = machine.as_ref().ok_or_else(none)?.node(name).map_err(|_| none())?;
                match *verb {
                    "stop" => node.stop().await,
                    "kill" => node.kill().await,
                    "start" => node.start().await,
                    "cut" => node
                        .cut()
                        .await
                        .map_err(|why| Fault::new(409, "Conflict", why.to_string()))?,
                    other => {
                        let why = format!("a node cannot {other:?}: use stop, kill, cut or start");
                        return Err(Fault::bad_request(why));
                    }
                }
                let told = json!({"name": name, "state": node.state().to_string()});
                Ok(Answer::bytes(200, "application/json", told.to_string()))
            }
            _ => Err(Fault::new(
                404,
                "NotFound",
                "the server has GET /usher/nodes, POST /usher/nodes/NAME/stop|kill|cut|start and GET /usher/images",
            )),
        }
    }
}

fn nodes(machine: Option<&Arc<Machine>>) -> Value {
    let all: Vec<Value> = machine
        .map(Machine::nodes)
        .unwrap_or_default()
        .iter()
        .map(|node| json!({"name": node.name(), "state": node.state().to_string(), "address": node.address()}))
        .collect();
    json!({"nodes": all, "isolation": machine.and_then(|machine| machine.isolation_told())})
}

fn images(machine: &Machine) -> Value {
    let images = machine.images();
    let entries: Vec<Value> = images
        .listing()
        .iter()
        .map(|entry| {
            let (resolves_to, missing) = match &entry.resolves_to {
                Ok(found) => (Some(found), None),
                Err(why) => (None, Some(why)),
            };
            json!({"file": entry.file, "line": entry.line, "match": entry.pattern, "resolvesTo": resolves_to,
                "missing": missing})
        })
        .collect();
    let errors: Vec<String> = images.errors().iter().map(ToString::to_string).collect();
    let pods = machine.hand().mirror.pods.list(None);
    let in_use: BTreeSet<&str> = pods
        .iter()
        .filter_map(|pod| pod.spec.as_ref())
        .flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers))
        .filter_map(|container| container.image.as_deref())
        .collect();
    let unknown: Vec<&str> = in_use
        .into_iter()
        .filter(|image| images.resolve(image).is_err())
        .collect();
    json!({"entries": entries, "errors": errors, "unknown": unknown})
}
