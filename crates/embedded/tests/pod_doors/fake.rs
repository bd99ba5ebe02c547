//! A node that runs nothing: logs are files of the test's, and commands are a few that a test needs.

use std::fs;
use std::io::Write as _;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;
use usher_embedded::fault::Fault;
use usher_embedded::node::door::{self, Doors, ExecEnd, ExecOrder, ExecSide, Executed, LogStream, Output};
use usher_embedded::node::logs::{self, LogQuery, chosen};

#[derive(Debug)]
pub struct Node {
    folder: tempfile::TempDir,
    pub running: watch::Sender<bool>,
    /// How many commands have lost their user.
    pub left: watch::Sender<usize>,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            running: watch::Sender::new(true),
            left: watch::Sender::new(0),
        }
    }
}

impl Node {
    /// Adds a line to the log.
    pub fn say(&self, time: &str, text: &str) {
        let path = logs::file(self.folder.path(), 0);
        let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(format!("{time} stdout F {text}\n").as_bytes()).unwrap();
    }
}

impl Doors for Node {
    fn log<'a>(&'a self, pod: &'a Pod, container: &'a str, query: LogQuery) -> BoxFuture<'a, Result<LogStream, Fault>> {
        let name = pod.metadata.name.as_deref().unwrap();
        let chosen = chosen(name, pod.status.as_ref().unwrap(), container, query.previous);
        let running = self.running.subscribe();
        async move {
            Ok(logs::stream(
                self.folder.path().to_owned(),
                chosen?.instance,
                query,
                running,
            ))
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
            let status = pod.status.as_ref().unwrap();
            if !chosen("p", status, container, false).is_ok_and(|chosen| chosen.is_running) {
                return Err(door::not_running(container));
            }
            let (executed, side) = Executed::pair(&order);
            let left = self.left.clone();
            tokio::spawn(async move {
                run(order, side, left).await;
            });
            Ok(executed)
        }
        .boxed()
    }
}

async fn run(order: ExecOrder, mut side: ExecSide, left: watch::Sender<usize>) {
    let words: Vec<&str> = order.command.iter().map(String::as_str).collect();
    let end = match words.as_slice() {
        ["echo", rest @ ..] => {
            let line = format!("{}\n", rest.join(" "));
            let _ = side.output.send(Output::Stdout(Bytes::from(line))).await;
            ExecEnd::Exited(0)
        }
        ["complain", code] => {
            let _ = side.output.send(Output::Stderr(Bytes::from_static(b"oh no\n"))).await;
            ExecEnd::Exited(code.parse().unwrap())
        }
        ["cat"] => {
            while let Some(bytes) = side.input.as_mut().unwrap().recv().await {
                let _ = side.output.send(Output::Stdout(bytes)).await;
            }
            if side.output.is_closed() {
                left.send_modify(|left| *left += 1);
            }
            ExecEnd::Exited(0)
        }
        ["size"] => {
            let size = side.size.as_mut().unwrap();
            size.changed().await.unwrap();
            let size = *size.borrow();
            let text = format!("{}x{}", size.columns, size.rows);
            let _ = side.output.send(Output::Stdout(Bytes::from(text))).await;
            ExecEnd::Exited(0)
        }
        ["flood"] => {
            for _ in 0..64 {
                let _ = side
                    .output
                    .send(Output::Stdout(Bytes::from(vec![b'x'; 32 * 1024])))
                    .await;
            }
            ExecEnd::Exited(0)
        }
        _ => ExecEnd::Failed(format!("no such program: {}", words.join(" "))),
    };
    let _ = side.end.send(end);
}
