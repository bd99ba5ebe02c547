//! Logs and exec (11.6), for the API.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use tokio::sync::watch;

use super::chores::Context;
use super::folder::PodFolder;
use super::{Agent, View};
use crate::fault::Fault;
use crate::node::door::{Doors, ExecEnd, ExecOrder, ExecSide, Executed, LogStream, Output, not_running};
use crate::node::logs::{LogQuery, chosen, stream};
use crate::node::supervisor::client::{Exec, ExecEvent, ExecInput};
use crate::node::supervisor::protocol::{ExecPlan, Phase};

impl Agent {
    fn view_of(&self, pod: &Pod) -> Result<watch::Receiver<View>, Fault> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        self.view(uid).ok_or_else(|| {
            Fault::internal(format!(
                "node {} does not have pod {} yet: try again",
                self.entry.name,
                pod.metadata.name.as_deref().unwrap_or_default()
            ))
        })
    }
}

impl Agent {
    /// A command's words as the container reads them: where nothing can be mounted, paths of mounts are their folders (N5).
    async fn words(&self, pod: &Pod, container: &str, status: &PodStatus, words: &[String]) -> Vec<String> {
        let spec = pod.spec.as_ref();
        let all = spec.map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
        let container = all.into_iter().flatten().find(|one| one.name == container);
        let (Some(container), Some(agent)) = (container, self.own.upgrade()) else {
            return words.to_vec();
        };
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let folder = PodFolder::new(self.machine.data(), &uid);
        let context = Arc::new(Context::new(agent, uid, folder));
        let address = status.pod_ip.as_deref().unwrap_or_default();
        let rewriter = context.rewriter(&Arc::new(pod.clone()), container, address).await;
        words.iter().map(|word| rewriter.text(word)).collect()
    }
}

impl Doors for Agent {
    fn log<'a>(&'a self, pod: &'a Pod, container: &'a str, query: LogQuery) -> BoxFuture<'a, Result<LogStream, Fault>> {
        async move {
            let view = self.view_of(pod)?;
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let found = chosen(name, &view.borrow().status, container, query.previous)?;
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            let folder = PodFolder::new(self.machine.data(), uid).logs(container);
            let running = runs(
                view,
                container.to_owned(),
                found.instance,
                found.is_running && query.follow,
            );
            Ok(stream(folder, found.instance, query, running))
        }
        .boxed()
    }

    fn exec<'a>(
        &'a self,
        pod: &'a Pod,
        container: &'a str,
        order: ExecOrder,
    ) -> BoxFuture<'a, Result<Executed, Fault>> {
        async move {
            let view = self.view_of(pod)?.borrow().clone();
            let latest = view
                .attempts
                .get(container)
                .and_then(|attempts| attempts.last_key_value());
            let running = latest.filter(|(_, attempt)| matches!(attempt.phase, Phase::Running { .. }));
            let (Some((attempt, _)), Some(supervisor)) = (running, view.supervisor) else {
                return Err(not_running(container));
            };
            let plan = ExecPlan {
                container: container.to_owned(),
                attempt: Some(*attempt),
                argv: self.words(pod, container, &view.status, &order.command).await,
                tty: order.tty,
                stdin: order.stdin,
                timeout_milliseconds: None,
                max_output_bytes: None,
            };
            let exec = supervisor
                .exec(plan)
                .await
                .map_err(|why| Fault::internal(why.to_string()))?;
            let (executed, side) = Executed::pair(&order);
            tokio::spawn(carry(exec, side));
            Ok(executed)
        }
        .boxed()
    }
}

/// Whether an attempt still runs, for whoever follows its log.
fn runs(mut view: watch::Receiver<View>, container: String, attempt: u32, is_followed: bool) -> watch::Receiver<bool> {
    let (sender, receiver) = watch::channel(is_followed);
    if is_followed {
        tokio::spawn(async move {
            let is_over = |view: &View| {
                let record = view
                    .attempts
                    .get(&container)
                    .and_then(|attempts| attempts.get(&attempt));
                record.is_none_or(|record| record.phase.has_ended())
            };
            tokio::select! {
                // The worker is gone: so is the pod.
                _ = view.wait_for(is_over) => {}
                () = sender.closed() => {}
            }
            sender.send_replace(false);
        });
    }
    receiver
}

/// Both ways until the command has ended, whether or not its user is still there. The connection to the supervisor is kept
/// until then: the supervisor kills a command whose connection goes, as it must when an agent that ran a probe dies.
async fn carry(exec: Exec, side: ExecSide) {
    let Exec { input, mut output } = exec;
    let ExecSide {
        input: stdin,
        output: sink,
        size,
        end,
    } = side;
    let feeding = tokio::spawn(feed(input, stdin, size));
    let how = loop {
        let piece = match output.next().await {
            Ok(ExecEvent::Stdout(bytes)) => Output::Stdout(Bytes::from(bytes)),
            Ok(ExecEvent::Stderr(bytes)) => Output::Stderr(Bytes::from(bytes)),
            Ok(ExecEvent::Exit(exit)) => {
                break match exit.start_error {
                    Some(why) => ExecEnd::Failed(why),
                    None => ExecEnd::Exited(exit.code),
                };
            }
            Err(why) => break ExecEnd::Failed(why.to_string()),
        };
        // Nobody reads any more: the command runs on all the same.
        let _ = sink.send(piece).await;
    };
    drop(sink);
    let _ = end.send(how);
    feeding.abort();
}

async fn feed(
    mut input: ExecInput,
    mut stdin: Option<tokio::sync::mpsc::Receiver<Bytes>>,
    mut size: Option<watch::Receiver<crate::node::door::TerminalSize>>,
) {
    loop {
        let is_broken = tokio::select! {
            piece = async {
                match &mut stdin {
                    Some(stdin) => stdin.recv().await,
                    None => std::future::pending().await,
                }
            } => match piece {
                Some(piece) => input.stdin(&piece).await.is_err(),
                None => {
                    stdin = None;
                    input.end_stdin().await.is_err()
                }
            },
            new = async {
                match &mut size {
                    Some(size) => size.changed().await.map(|()| *size.borrow_and_update()),
                    None => std::future::pending().await,
                }
            } => match new {
                Ok(new) => input.resize(new.columns, new.rows).await.is_err(),
                Err(_) => {
                    size = None;
                    false
                }
            },
        };
        if is_broken {
            return;
        }
    }
}

/// What the API asks a node through.
pub(crate) fn of(agent: &Arc<Agent>) -> Arc<dyn Doors> {
    agent.clone()
}
