//! Served by Usher, asked by a real API server.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use usher_engine::ObjectKey;
use usher_operator::tls::{TlsConfig, TlsServer};

use super::server::{DAY, HandClock, Running, config, eventually, routes};

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_is_served_through_a_change_of_authority() {
    let path = std::env::var("USHER_TEST_KUBECONFIG")
        .expect("this test needs a real API server: set USHER_TEST_KUBECONFIG to the path of a kubeconfig");
    let kubeconfig = kube::config::Kubeconfig::read_from(&path).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let name = format!("usher-webhook-{}", std::process::id());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let new: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    namespaces.create(&PostParams::default(), &new).await.unwrap();
    let outcome = AssertUnwindSafe(change_authority(client, name.clone()))
        .catch_unwind()
        .await;
    let _ = configurations.delete(&name, &DeleteParams::default()).await;
    let _ = namespaces.delete(&name, &DeleteParams::default()).await;
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

async fn change_authority(client: kube::Client, name: String) {
    // The API server goes by the real time, so ours begins ten days before it: what is made then is due now, and
    // still counts now.
    let clock = HandClock::at(
        Timestamp::now()
            .checked_sub(SignedDuration::try_from(10 * DAY).unwrap())
            .unwrap(),
    );
    let mut config = config();
    config.secret = ObjectKey::new(&name, "usher-webhook").unwrap();
    config.configuration = Some(name.clone());
    config.lifetimes.authority = 12 * DAY;
    config.lifetimes.serving = 11 * DAY;
    let bind = async |config: &TlsConfig| {
        TlsServer::bind(
            config.clone(),
            routes(),
            None,
            Some(client.clone()),
            Arc::new(clock.clone()),
        )
        .await
        .unwrap()
    };
    let server = bind(&config).await;
    config.address = server.address();

    let webhook = json!({
        "name": "guard.usher.dev", "clientConfig": {"url": format!("https://{}/guard", server.address())},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
        "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 10,
    });
    let mut slow = webhook.clone();
    slow["name"] = json!("sleeps.usher.dev");
    slow["clientConfig"]["url"] = json!(format!("https://{}/sleeps", server.address()));
    slow["matchConditions"] = json!([{"name": "slow", "expression": "request.name == 'slow'"}]);
    slow["timeoutSeconds"] = json!(1);
    let new = serde_json::from_value(json!({"metadata": {"name": name}, "webhooks": [webhook, slow]})).unwrap();
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    configurations.create(&PostParams::default(), &new).await.unwrap();
    let published = async || {
        let found = configurations.get(&name).await.unwrap();
        String::from_utf8(
            found.webhooks.unwrap()[0]
                .client_config
                .ca_bundle
                .clone()
                .unwrap_or_default()
                .0,
        )
        .unwrap()
    };
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &name);
    let try_out = async |map: &str| {
        let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": map}})).unwrap();
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        maps.create(&dry, &map).await.map_err(|error| error.to_string())
    };
    let guarded = async || {
        let denied = try_out("bad-one").await.unwrap_err();
        assert!(
            denied.contains("guard.usher.dev\" denied the request: names must not begin with bad"),
            "{denied}"
        );
        try_out("good").await.unwrap();
    };

    let running = Running::run(server, config.health.clone(), clock.clone()).await;
    eventually("the API server asks", async || {
        try_out("bad-one")
            .await
            .is_err_and(|error| error.contains("names must not begin with bad"))
    })
    .await;
    guarded().await;
    let slow = try_out("slow").await.unwrap_err();
    assert!(
        slow.contains("the webhook at /sleeps took longer than 0.9 s: try again"),
        "{slow}"
    );
    let old = running.bundle();
    assert_eq!(published().await, old);

    clock.advance(10 * DAY);
    eventually("a second authority is published", async || {
        published().await.len() > old.len()
    })
    .await;
    let both = published().await;
    let newest = both.strip_suffix(&old).unwrap();
    guarded().await;
    clock.looked_at().await;
    clock.advance(config.lifetimes.settle);
    eventually("the new authority signs", async || {
        running.connect(newest).await.is_ok()
    })
    .await;
    guarded().await;

    // Another process takes over the address: new connections, new handshakes, the same Secret.
    running.stop().await;
    let running = Running::run(bind(&config).await, config.health.clone(), clock.clone()).await;
    assert_eq!(running.bundle(), both);
    guarded().await;
    assert_eq!(published().await, both);
    running.stop().await;
    let lost = try_out("good").await.unwrap_err();
    assert!(lost.contains("failed calling webhook"), "{lost}");
}
