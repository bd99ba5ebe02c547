//! The same cases as `acceptance`, on an API server without kube-controller-manager: no garbage collector, nobody who
//! empties a namespace, no controllers at all. What Usher promises does not rest on them.
//!
//! The server is chosen in `support/plane.rs`; the cases left out are listed there. `USHER_TEST_BARE_KUBECONFIG` and
//! `USHER_BARE_K8S_DIR` say where the server is; `cargo xtask test` starts one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "acceptance/main.rs"]
mod acceptance;

use acceptance::support;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use support::plane::check_left_out;
use support::{Server, World};

/// Else all of this would prove nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_has_no_controllers() {
    let state = std::fs::read_to_string(Server::shared().dir.join("state.json")).unwrap();
    assert!(
        state.contains("kube-apiserver") && !state.contains("kube-controller-manager"),
        "{state}"
    );
    // Where there is one, it makes this ServiceAccount in each namespace, within a second of it.
    let world = World::new().await;
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), "default");
    assert!(accounts.get_opt("default").await.unwrap().is_none());
}

#[test]
fn every_case_that_is_left_out_exists_and_says_so() {
    check_left_out();
}
