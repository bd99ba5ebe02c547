//! tcpSocket: a port that takes connections is well.

use std::time::Duration;

use super::{Answer, Outcome, dial};

pub(super) async fn probe(host: &str, port: u16, limit: Duration) -> Answer {
    match tokio::time::timeout(limit, dial::connect(host, port)).await {
        Ok(Ok(_)) => Answer::new(Outcome::Success, ""),
        Ok(Err(why)) => Answer::new(Outcome::Failure, why),
        Err(_) => Answer::new(Outcome::Failure, dial::timed_out(host, port)),
    }
}
