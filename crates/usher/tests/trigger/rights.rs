//! What the operator itself may lack: it goes on, and says so.

use std::process::Command;

use serde_json::{Value, json};

use super::client::update;
use crate::support::World;
use crate::support::plane::left_out;
use crate::support::rights;
use crate::support::world::eventually;

/// As somebody runs it on their machine, with rights for the kinds and for nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn without_rights_for_secrets_and_reviews_it_runs_and_tells_what_is_missing() {
    if left_out("without_rights_for_secrets_and_reviews_it_runs_and_tells_what_is_missing") {
        return;
    }
    let world = World::new().await;
    world.pool("office", json!({"cidr": "10.0.0.0/16"})).await;
    let token = world.token("may", update(&["office"])).await;
    world.grant(rights::all()).await;
    let kubeconfig = world.account("usher").await;
    let mut operator = world.operator().with(&kubeconfig).tls().ready().await;
    // Its work does not depend on it.
    world.claim("claim", json!({"poolRef": "office"})).await;
    world.until_bound(&["claim"]).await;
    eventually("the log says how the certificate is kept", async || {
        operator.log().contains("the certificate is kept in memory only")
    })
    .await;
    let log = operator.log();
    assert!(
        log.contains("cannot get resource \\\"secrets\\\"") || log.contains("cannot get resource \"secrets\""),
        "the right is named: {log}"
    );
    // Nobody can check that certificate; on the same machine one may do without.
    let url = format!("https://{}{}", operator.tls, world.path("office"));
    let curl = |more: &[&str]| {
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--show-error", "--request", "POST"])
            .args(more);
        command.args(["--header", &format!("authorization: Bearer {token}"), &url]);
        let output = command.output().expect("curl");
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    assert!(!curl(&[]).0, "trusted by nobody");
    let (done, said) = curl(&["--insecure"]);
    assert!(done);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["code"], 503);
    let message = said["message"].as_str().unwrap();
    assert!(
        message.contains("create tokenreviews.authentication.k8s.io") && message.contains("usher install"),
        "{message}"
    );
    operator.assert_alive();
}
