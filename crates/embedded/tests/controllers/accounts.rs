//! What each namespace has from the start, and token Secrets.

use serde_json::json;

use crate::world::World;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn token_secret(world: &World, name: &str, account: &str) {
    let body = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}}});
    world.post(SECRETS, &body);
}

#[test]
fn c2_every_namespace_has_an_account_and_a_certificate() {
    let mut world = World::new();
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}});
    world.post("/api/v1/namespaces", &body);
    world.settle();
    for namespace in ["default", "kube-system", "kube-public", "kube-node-lease", "new"] {
        world.find(&format!("/api/v1/namespaces/{namespace}/serviceaccounts/default"));
        let map = world.find(&format!("/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt"));
        assert_eq!(
            map["data"],
            json!({"ca.crt": ""}),
            "nothing listens: nobody is to be believed"
        );
        let words = map["metadata"]["annotations"]["kubernetes.io/description"]
            .as_str()
            .unwrap();
        assert!(
            words.starts_with("Contains a CA bundle that can be used to verify the kube-apiserver"),
            "{words}"
        );
    }
}

#[test]
fn c2_what_was_deleted_or_changed_comes_back() {
    let mut world = World::new();
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    let map = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
    let first = world.find(account);
    world.delete(account);
    world.patch(map, &json!({"data": {"ca.crt": "mine", "more": "x"}}));
    world.settle();
    assert_ne!(world.find(account)["metadata"]["uid"], first["metadata"]["uid"]);
    assert_eq!(world.find(map)["data"], json!({"ca.crt": ""}));
    world.delete(map);
    world.settle();
    assert_eq!(world.find(map)["data"], json!({"ca.crt": ""}));
}

#[test]
fn c2_a_namespace_that_goes_takes_them_along_and_gets_no_new_ones() {
    let mut world = World::new();
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gone"}});
    world.post("/api/v1/namespaces", &body);
    world.settle();
    world.delete("/api/v1/namespaces/gone");
    world.settle();
    assert_eq!(world.get("/api/v1/namespaces/gone"), None);
    assert!(world.list("/api/v1/namespaces/gone/serviceaccounts").is_empty());
}

#[test]
fn c2_a_token_secret_is_filled_in_one_write_and_goes_with_its_account() {
    let mut world = World::new();
    let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    let account = world.post("/api/v1/namespaces/default/serviceaccounts", &body);
    token_secret(&world, "robot-token", "robot");
    let before = world.writes();
    world.settle();
    assert_eq!(world.writes() - before, 1);
    let secret = world.find(&format!("{SECRETS}/robot-token"));
    let uid = &secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"];
    assert_eq!(uid, &account["metadata"]["uid"]);
    assert_eq!(secret["data"]["namespace"], "ZGVmYXVsdA==");
    let token = secret["data"]["token"].as_str().unwrap();
    assert!(token.len() > 100, "{token}");
    // It is of whom it says.
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {
        "token": String::from_utf8(decoded(token)).unwrap()}});
    let review = world.post("/apis/authentication.k8s.io/v1/tokenreviews", &review);
    assert_eq!(
        review["status"]["user"]["username"],
        "system:serviceaccount:default:robot"
    );
    world.delete("/api/v1/namespaces/default/serviceaccounts/robot");
    world.settle();
    assert_eq!(world.get(&format!("{SECRETS}/robot-token")), None);
}

#[test]
fn c2_a_token_secret_of_no_account_goes() {
    let mut world = World::new();
    token_secret(&world, "lost", "nobody");
    world.settle();
    assert_eq!(world.get(&format!("{SECRETS}/lost")), None);
}

#[test]
fn c2_an_account_no_longer_lists_a_token_secret_that_was_deleted() {
    let mut world = World::new();
    let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"},
        "secrets": [{"name": "robot-token"}, {"name": "other"}]});
    world.post("/api/v1/namespaces/default/serviceaccounts", &body);
    token_secret(&world, "robot-token", "robot");
    world.settle();
    world.delete(&format!("{SECRETS}/robot-token"));
    world.settle();
    let account = world.find("/api/v1/namespaces/default/serviceaccounts/robot");
    assert_eq!(account["secrets"], json!([{"name": "other"}]));
}

fn decoded(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.decode(text).unwrap()
}

/// Looks until it is there: the controllers of a running cluster work in a task of their own.
async fn eventually(maps: &kube::Api<k8s_openapi::api::core::v1::ConfigMap>) -> String {
    for _ in 0..500 {
        let found = maps.get_opt("kube-root-ca.crt").await.unwrap();
        if let Some(text) = found.and_then(|map| map.data?.get("ca.crt").cloned()) {
            return text;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("no kube-root-ca.crt was made");
}

#[tokio::test]
async fn c2_pods_are_told_the_authority_that_the_listener_shows() {
    let cluster = usher_embedded::Cluster::start(usher_embedded::Options::default()).unwrap();
    let maps = kube::Api::default_namespaced(cluster.client());
    let before = eventually(&maps).await;
    assert!(before.starts_with("-----BEGIN CERTIFICATE-----"), "{before}");
    cluster.listen(usher_embedded::ListenOptions::default()).await.unwrap();
    let kept = std::fs::read_to_string(cluster.folder().unwrap().join("ca.crt")).unwrap();
    assert_eq!(kept, before, "the listener takes over what pods were told before");
    assert_eq!(eventually(&maps).await, kept);
}
