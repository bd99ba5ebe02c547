//! The same cases as `acceptance`, on the embedded cluster: the operator and kubectl are processes that reach it by HTTPS,
//! as they reach a real one. The server is chosen in `support/plane.rs`; the cases left out are listed there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "acceptance/main.rs"]
mod acceptance;

use acceptance::support;

use support::Server;
use support::plane::check_left_out;

/// Else all of this would prove nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_is_the_embedded_one() {
    let version = Server::shared().client().await.apiserver_version().await.unwrap();
    assert!(version.git_version.contains("+usher"), "{}", version.git_version);
}

#[test]
fn every_case_that_is_left_out_exists_and_says_so() {
    check_left_out();
}
