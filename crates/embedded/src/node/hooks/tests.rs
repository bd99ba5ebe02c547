use super::*;
use serde_json::{Value, json};

fn pod() -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "web-0", "namespace": "shop", "uid": "u-1"}})).unwrap()
}

fn container() -> Container {
    serde_json::from_value(json!({"name": "c", "lifecycle": {
        "postStart": {"exec": {"command": ["touch", "/x"]}}, "preStop": {"sleep": {"seconds": 3}}}}))
    .unwrap()
}

async fn ran(hook: Value, code: i32, output: &str) -> Result<(), String> {
    let hook: LifecycleHandler = serde_json::from_value(hook).unwrap();
    let output = output.as_bytes().to_vec();
    let exec = async |_: Vec<String>| Ok(Executed { code, output });
    run(&hook, &pod(), &container(), "127.0.0.1", exec)
        .await
        .map_err(|failure| failure.to_string())
}

#[test]
fn a_hook_is_found_by_its_moment_and_its_failure_shows_no_output() {
    assert!(Moment::PostStart.of(&container()).unwrap().exec.is_some());
    assert!(Moment::PreStop.of(&container()).unwrap().sleep.is_some());
    assert!(Moment::PreStop.of(&Container::default()).is_none());
    assert_eq!(Moment::PostStart.failed_reason(), "FailedPostStartHook");
    assert_eq!(Moment::PostStart.failed_message(), "PostStartHook failed");
    assert_eq!(Moment::PreStop.failed_reason(), "FailedPreStopHook");
    assert_eq!(Moment::PreStop.failed_message(), "PreStopHook failed");
}

#[tokio::test]
async fn n8_a_command_that_fails_is_told_with_its_code_and_output() {
    let hook = json!({"exec": {"command": ["sh", "-c", "exit 3"]}});
    assert_eq!(ran(hook.clone(), 0, "").await, Ok(()));
    assert_eq!(
        ran(hook, 3, "no \"luck\"\n").await.unwrap_err(),
        "Exec lifecycle hook ([sh -c exit 3]) for Container \"c\" in Pod \"web-0_shop(u-1)\" failed - error: command 'sh \
         -c exit 3' exited with 3: no \"luck\"\n, message: \"no \\\"luck\\\"\\n\""
    );
}

#[tokio::test]
async fn n8_a_request_that_nobody_hears_is_told_with_its_path() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    assert_eq!(
        ran(json!({"httpGet": {"path": "/bye", "port": port}}), 0, "")
            .await
            .unwrap_err(),
        format!(
            "HTTP lifecycle hook (/bye) for Container \"c\" in Pod \"web-0_shop(u-1)\" failed - error: Get \
             \"http://127.0.0.1:{port}/bye\": dial tcp 127.0.0.1:{port}: connect: connection refused"
        )
    );
}

#[tokio::test]
async fn n8_a_sleep_sleeps_its_seconds() {
    let start = tokio::time::Instant::now();
    assert_eq!(ran(json!({"sleep": {"seconds": 1}}), 0, "").await, Ok(()));
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn n8_a_hook_that_says_nothing_fails() {
    assert!(
        ran(json!({}), 0, "")
            .await
            .unwrap_err()
            .starts_with("Cannot run handler: invalid handler")
    );
}
