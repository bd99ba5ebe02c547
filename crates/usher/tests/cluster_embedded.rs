//! Programs that ask much of an API server, on the embedded cluster: the external trigger (A20), scrapes and events (A26),
//! and the command line. The same cases by the same code; only the server is another (`support/plane.rs`, which also has what
//! is left out).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

mod cli_cluster {
    mod control_plane;
    mod life;
    mod plan;
    mod rights;
}
mod monitoring {
    mod events;
    mod exposition;
    mod scrape;
}
mod trigger {
    mod answers;
    mod client;
    mod example;
    mod hostile;
    mod rights;
}

/// Else all of this would prove nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_is_the_embedded_one() {
    let version = support::Server::shared()
        .client()
        .await
        .apiserver_version()
        .await
        .unwrap();
    assert!(version.git_version.contains("+usher"), "{}", version.git_version);
}

#[test]
fn every_program_runs_on_the_embedded_cluster_or_says_why_not() {
    support::plane::check_elsewhere();
}
