//! Requests whose answers go on: a container's log, and a command in a container (11.6).
//!
//! [`verbs`](super::verbs) hands them over here. The registry finds the pod and its container (`registry::logs`), the
//! node that runs it is asked at its [`Doors`]. Exec takes the connection over: [`handshake`] agrees with
//! the client on a WebSocket, [`session`] carries the command's streams on it in frames ([`frame`]). What is not served
//! (SPDY, attach, port-forward) is refused with a sentence that says what to do instead.

mod frame;
mod handshake;
mod session;

use std::sync::{Arc, Weak};

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::sync::watch;

use crate::api::answer::Answer;
use crate::api::verbs::Call;
use crate::fault::Fault;
use crate::node::door::{Doors, ExecOrder};
use crate::node::machine::NodeState;
use crate::registry::ask::Target;
use crate::registry::{PodPlace, object};

/// In a request's extensions, if it came over a listener: turns true when that stops.
#[derive(Debug, Clone)]
pub(crate) struct Stopping(pub(crate) watch::Receiver<bool>);

impl Stopping {
    async fn stopped(mut self) {
        // A sender that is gone is a listener that is gone.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}

impl Call<'_> {
    /// GET of `pods/NAME/log`.
    pub(super) async fn log(&self, target: &Target) -> Result<Answer, Fault> {
        let options = self.query.log_options()?;
        let (place, query) = self.registry().log(target, &options)?;
        let Some(place) = place else {
            // It runs nowhere yet: nothing was said.
            return Ok(Answer::nothing(204));
        };
        let doors = self.doors(&place, "it has no logs of it")?;
        let log = doors.log(&place.pod, &place.container, query).await?;
        Ok(Answer::log(log))
    }

    /// GET or POST of `pods/NAME/exec`.
    pub(super) fn exec(&self, target: &Target) -> Result<Answer, Fault> {
        let place = self.registry().exec_place(target, self.query.get("container"))?;
        let doors = self.doors(&place, "nothing can be run in it")?;
        let flag = |name: &str| self.query.flag(name);
        let order = ExecOrder {
            command: self.query.all("command"),
            stdin: flag("stdin"),
            stdout: flag("stdout"),
            stderr: flag("stderr") && !flag("tty"),
            tty: flag("tty"),
        };
        if !(order.stdin || order.stdout || order.stderr) {
            return Err(Fault::bad_request(
                "you must specify at least 1 of stdin, stdout, stderr",
            ));
        }
        if order.command.is_empty() {
            return Err(Fault::bad_request(
                "you must specify at least one command for the container",
            ));
        }
        let agreed = handshake::agree(&self.parts.headers)?;
        let Some(upgrade) = self.parts.extensions.get::<OnUpgrade>().cloned() else {
            return Err(Fault::bad_request(
                "exec takes its connection over: it needs one of HTTP/1.1 to a listener of this cluster",
            ));
        };
        let room = self.server.doors.room()?;
        let stopping = self.parts.extensions.get::<Stopping>().cloned();
        tokio::spawn(async move {
            let stream = match upgrade.await {
                Ok(upgraded) => TokioIo::new(upgraded),
                Err(error) => {
                    tracing::debug!(%error, "a connection for exec was lost");
                    return;
                }
            };
            let start = doors.exec(&place.pod, &place.container, order.clone());
            let stopped = async {
                match stopping {
                    Some(stopping) => stopping.stopped().await,
                    None => std::future::pending().await,
                }
            };
            session::serve(stream, agreed.protocol, &order, start, stopped).await;
            drop(room);
        });
        Ok(Answer::upgrade(agreed.headers))
    }

    fn doors(&self, place: &PodPlace, so: &str) -> Result<Arc<dyn Doors>, Fault> {
        self.server.doors.of(&place.node).ok_or_else(|| {
            let (name, node) = (&place.name, &place.node);
            let state = self.server.machine.get().and_then(Weak::upgrade).and_then(|machine| {
                let node = machine.node(node).ok()?;
                Some(node.state())
            });
            let back = format!("; `usher node {node} start` brings it back");
            let (which, back) = match state {
                None => ("which this cluster does not run", String::new()),
                Some(NodeState::Stopped) => ("which is stopped", back),
                Some(NodeState::Killed) => ("which was killed", back),
                Some(NodeState::Cut) => ("which is cut off from the API", back),
                Some(NodeState::Running) => ("which is being started", "; try again in a moment".to_owned()),
            };
            Fault::new(500, "", format!("pod {name} is on node {node}, {which}: {so}{back}"))
        })
    }

    /// What is said to who would attach to a pod or forward its ports.
    pub(super) fn not_served(&self, target: &Target) -> Result<Fault, Fault> {
        let pod = self.registry().pod(target)?;
        let text = match target.subresource.as_deref() {
            Some("attach") => no_attach(&target.name),
            _ => no_port_forward(&pod),
        };
        Ok(Fault::new(501, "NotImplemented", text))
    }
}

fn no_attach(name: &str) -> String {
    format!(
        "attach is not served here: kubectl logs -f {name} shows what the pod writes, kubectl exec -it {name} -- sh opens a \
         shell in it"
    )
}

fn no_port_forward(pod: &Value) -> String {
    let ports = object::at(pod, "spec.containers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let ports = ports
        .filter_map(|container| container.get("ports")?.as_array())
        .flatten();
    let port = ports.filter_map(|port| port.get("containerPort")?.as_i64()).next();
    let port = port.map_or_else(|| "PORT".to_owned(), |port| port.to_string());
    match object::at(pod, "status.podIP").and_then(Value::as_str) {
        Some(address) => format!(
            "port-forward is not served here, and not needed: connect to the pod's address {address}:{port} directly"
        ),
        None => {
            "port-forward is not served here, and not needed: once the pod runs, connect to its address (kubectl get \
                 pod -o wide) directly"
                .to_owned()
        }
    }
}
