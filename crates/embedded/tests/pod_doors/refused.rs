//! What is not served: SPDY, attach, port-forward, metrics. Each has a sentence that says what to do.

use super::World;

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_port_forward_attach_and_top_get_a_sentence() {
    let world = World::new().await;
    let complaint = world.complains(&["port-forward", "p", "18080:8080"]).await;
    assert!(
        complaint.contains("connect to the pod's address 127.64.1.5:8080 directly"),
        "{complaint}"
    );
    let complaint = world.complains(&["attach", "p"]).await;
    assert!(
        complaint.contains("kubectl logs -f p shows what the pod writes"),
        "{complaint}"
    );
    // Without a group metrics.k8s.io kubectl asks nothing further and says this by itself.
    for what in ["pods", "nodes"] {
        assert_eq!(
            world.complains(&["top", what]).await,
            "error: Metrics API not available\n"
        );
    }
}

#[tokio::test]
async fn who_asks_for_exec_otherwise_than_by_websocket_is_told_how() {
    let world = World::new().await;
    let exec = "/api/v1/namespaces/default/pods/p/exec?command=ls&stdout=true";
    let spdy = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
    let (status, body) = world.ask("POST", exec, &spdy).await;
    assert_eq!(status, 400);
    assert!(body.contains("use kubectl 1.31 or later"), "{body}");
    let (status, body) = world.ask("POST", exec, &[]).await;
    assert_eq!(status, 400);
    assert!(body.contains("Upgrade request required"), "{body}");
    // The same findings for old and new clients: kubectl tries SPDY when a WebSocket is refused.
    for (path, told) in [
        (
            "p/exec?command=ls",
            "you must specify at least 1 of stdin, stdout, stderr",
        ),
        ("p/exec?stdout=true", "you must specify at least one command"),
        (
            "p/exec?command=ls&stdout=true&container=x",
            "container x is not valid for pod p",
        ),
        ("none/exec?command=ls&stdout=true", "not found"),
        ("none/attach", "not found"),
    ] {
        let (status, body) = world
            .ask("POST", &format!("/api/v1/namespaces/default/pods/{path}"), &spdy)
            .await;
        assert!(status == 400 || status == 404, "{path}: {status}");
        assert!(body.contains(told), "{path}: {body}");
    }
    let (status, _) = world.get("/api/v1/namespaces/default/pods/p/portforward").await;
    assert_eq!(status, 501);
    let (status, _) = world.get("/api/v1/namespaces/default/pods/p/nonsense").await;
    assert_eq!(status, 404);
}
