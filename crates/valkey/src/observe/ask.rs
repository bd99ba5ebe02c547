//! Asks every server of a cluster what there is to know, each in one pipeline.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use futures::stream;
use jiff::Timestamp;
use redis::Cmd;
use usher_engine::Uid;

use super::client::{Clients, Password, Target, Trouble, command};
use super::parse;
use super::reply::Reply;
use super::seen::{Answer, Memory};

/// Servers asked at once.
const AT_ONCE: usize = 32;

/// What every server is asked. [`parse::says`] reads the answers in this order.
pub const QUESTIONS: [&str; 9] = [
    "CLUSTER MYID",
    "CLUSTER MYSHARDID",
    "CLUSTER INFO",
    "CLUSTER NODES",
    "INFO server replication persistence memory",
    "ROLE",
    "DBSIZE",
    "CLUSTER GETSLOTMIGRATIONS",
    "CONFIG GET min-replicas-to-write",
];

/// The first of them are answered by every server. Slot migrations are unknown before 9, and CONFIG may be forbidden.
pub const ALWAYS_ANSWERED: usize = 7;

/// Asks all of them. Since when one is silent or loading is known from what was seen before.
pub async fn everyone(
    clients: &Clients,
    cluster: &Uid,
    targets: &[Target],
    password: Option<&Password>,
    before: &Memory,
    now: Timestamp,
) -> BTreeMap<Uid, Answer> {
    clients.keep_only(cluster, &targets.iter().map(|target| target.pod.clone()).collect());
    let questions: Vec<Cmd> = QUESTIONS.iter().map(|words| command(words)).collect();
    // Each owns its target: a pass may be moved from thread to thread.
    let asked = targets.iter().cloned().map(|target| {
        let since = before.silent_since.get(&target.pod).copied().unwrap_or(now);
        let questions = &questions;
        async move {
            let asked = clients.question(cluster, &target, password, questions).await;
            let answer = answer(asked.map(|(_, replies)| replies), since);
            (target.pod, answer)
        }
    });
    stream::iter(asked).buffer_unordered(AT_ONCE).collect().await
}

/// What the answers come to.
fn answer(asked: Result<Vec<Reply>, Trouble>, since: Timestamp) -> Answer {
    let silent = |error: String, refused| Answer::Silent { error, since, refused };
    let replies = match asked {
        Ok(replies) => replies,
        Err(Trouble::Loading) => return Answer::Loading { since },
        Err(trouble) => return silent(trouble.to_string(), matches!(trouble, Trouble::Refused(_))),
    };
    let refusal = replies.iter().take(ALWAYS_ANSWERED).find_map(Reply::refusal);
    match refusal.map(Trouble::of_refusal) {
        Some(Trouble::Loading) => Answer::Loading { since },
        Some(trouble) => silent(trouble.to_string(), matches!(trouble, Trouble::Refused(_))),
        None => match parse::says(&replies) {
            Ok(says) => Answer::Says(Box::new(says)),
            Err(error) => silent(error.to_string(), false),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r2_loading_refusing_and_unreadable_servers_are_told_apart() {
        let since = Timestamp::UNIX_EPOCH;
        let all = |reply: Reply| answer(Ok(vec![reply; QUESTIONS.len()]), since);
        let loading = Reply::Refusal("LOADING Valkey is loading the dataset in memory".into());
        assert_eq!(all(loading), Answer::Loading { since });
        let refused = all(Reply::Refusal("NOAUTH Authentication required.".into()));
        assert!(matches!(refused, Answer::Silent { refused: true, .. }), "{refused:?}");
        let odd = all(Reply::Nil);
        assert!(matches!(&odd, Answer::Silent { refused: false, error, .. } if error.contains("CLUSTER MYID")));
    }
}
