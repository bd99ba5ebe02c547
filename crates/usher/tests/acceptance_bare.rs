//! The same cases as `acceptance`, on an API server without kube-controller-manager: no garbage collector, nobody who
//! empties a namespace, no controllers at all. What Usher promises does not rest on them.
//!
//! The server is chosen in `support/bare.rs`; the cases left out are listed there. `USHER_TEST_BARE_KUBECONFIG` and
//! `USHER_BARE_K8S_DIR` say where the server is; `cargo xtask test` starts one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "acceptance/main.rs"]
mod acceptance;

use acceptance::support;

use std::path::Path;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use support::bare::LEFT_OUT;
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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/acceptance");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let sources = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let code: String = sources.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    for (case, reason) in LEFT_OUT {
        assert!(reason.len() > 10, "{case}: say why");
        assert!(code.contains(&format!("async fn {case}()")), "there is no case {case}");
        assert!(
            code.contains(&format!("left_out(\"{case}\")")),
            "{case} does not begin with left_out: it is run here, so take it off the list"
        );
    }
    assert_eq!(
        code.matches("left_out(\"").count(),
        LEFT_OUT.len(),
        "each by its own name, once"
    );
}
