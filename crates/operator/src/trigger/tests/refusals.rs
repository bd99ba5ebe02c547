//! Requests that are taken or refused at once.

use proptest::prelude::*;

use super::*;

#[tokio::test]
async fn who_may_is_told_the_value_that_was_written() {
    let office = Office::new();
    let (status, body) = office.kim(PATH).await;
    assert_eq!(status, 202);
    let value = office.annotation().unwrap();
    assert_eq!(body, json!({"greeting": "here/hello", "trigger": value}));
    assert_eq!(
        office.asked(),
        ["who", "may kim update greetings here/hello", "annotate here/hello"]
    );
    let letters = value.strip_prefix("2026-11-05T12:00:00Z-").unwrap();
    assert_eq!(letters.len(), 6, "{value}");
    office.kim(PATH).await;
    assert_ne!(office.annotation().unwrap(), value, "each has its own");
    let label = TriggerLabel {
        resource: "greetings",
        code: "202".to_owned(),
    };
    assert_eq!(office.counted.get_or_create(&label).get(), 2);
}

#[tokio::test]
async fn only_post_is_taken() {
    let office = Office::new();
    for method in [Method::GET, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS] {
        let request = http::Request::builder()
            .method(&method)
            .uri(PATH)
            .header("authorization", "Bearer token-of-kim");
        let response = office.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.headers()["allow"], "POST");
        let (status, body) = read(response).await;
        assert_eq!(status, 405, "{method}");
        assert_eq!(message(&body), "a trigger changes something: send it with POST");
    }
    assert!(office.asked().is_empty());
}

#[tokio::test]
async fn a_path_that_is_none_is_told_what_there_is() {
    let office = Office::new();
    for path in [
        "/",
        "/v1",
        "/v1/trigger",
        "/v1/trigger/",
        "/v1/trigger/others/here/hello",
        "/v1/trigger/greetings/here",
        "/v1/trigger/greetings/here/",
        "/v1/trigger/greetings//hello",
        "/v1/trigger/greetings/here/hello/",
        "/v1/trigger/greetings/here/hello/status",
        "/v1/trigger/greetings/here/../there",
        "/v1/trigger/greetings/here/..",
        "/v1/trigger/greetings/here/hel%6Co",
        "/v1/trigger/greetings/here/Hello",
        "/v1/trigger/greetings/he.re/hello",
        "//v1/trigger/greetings/here/hello",
    ] {
        let (status, body) = office.kim(path).await;
        assert_eq!(status, 404, "{path}");
        assert_eq!(
            message(&body),
            "nothing answers at this path; triggers are POSTed to /v1/trigger/greetings/NAMESPACE/NAME"
        );
    }
    assert!(office.asked().is_empty());
}

#[tokio::test]
async fn webhooks_on_the_same_port_have_their_own_paths_and_need_no_token() {
    let office = Office::new();
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "7", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"}, "name": "x", "namespace": "here",
        "operation": "CREATE", "userInfo": {"username": "kim"}, "object": null, "oldObject": null, "dryRun": false,
    }});
    let request = http::Request::post("/webhook").body(Body::from(review.to_string()));
    let (status, body) = read(office.send(request.unwrap()).await).await;
    assert_eq!((status, &body["response"]["allowed"]), (200, &json!(true)));
    assert_eq!(office.kim("/webhook/other").await.0, 404);
    assert_eq!(office.kim(PATH).await.0, 202);
}

#[tokio::test]
async fn a_wait_that_is_none_is_refused_before_anything_is_written() {
    let office = Office::new();
    for query in [
        "wait",
        "wait=",
        "wait=0",
        "wait=61",
        "wait=-1",
        "wait=+5",
        "wait=1.5",
        "wait=5s",
        "wait=%31",
        "wiat=5",
        "wait=5&wait=6",
        "wait=5&x=1",
        "wait=99999999999999999999999",
    ] {
        let (status, body) = office.kim(&format!("{PATH}?{query}")).await;
        assert_eq!(status, 400, "{query}");
        assert!(message(&body).contains("wait=SECONDS once, from 1 to 60"), "{body}");
    }
    assert!(office.asked().is_empty());
}

#[tokio::test]
async fn without_a_token_nothing_is_asked_and_a_token_of_nobody_is_refused() {
    let office = Office::new();
    let with = |value: &'static str| http::Request::post(PATH).header("authorization", value);
    for request in [
        http::Request::post(PATH),
        with("Bearer"),
        with("Bearer "),
        with("Bearer  "),
        with("Basic a2ltOmtpbQ=="),
        with("token-of-kim"),
        with("Bearer token-of-kim and more"),
        with("Bearer token-of-kim").header("authorization", "Bearer token-of-kim"),
    ] {
        let response = office.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
        assert_eq!(read(response).await.0, 401);
    }
    assert!(office.asked().is_empty());
    let (status, body) = office.ask(Method::POST, PATH, Some("made-up")).await;
    assert_eq!(status, 401);
    assert!(message(&body).contains("does not know this token"), "{body}");
    assert_eq!(
        office.asked(),
        ["who"],
        "nobody's rights are asked for, nothing is written"
    );
    // Any case of the scheme, as the standard says.
    let request = with("bEARER token-of-kim").body(Body::empty()).unwrap();
    assert_eq!(read(office.send(request).await).await.0, 202);
}

#[tokio::test]
async fn who_may_not_is_told_what_is_missing_and_not_whether_it_exists() {
    let office = Office::new();
    let ask = |name: &'static str| {
        let office = &office;
        async move {
            let path = format!("/v1/trigger/greetings/here/{name}");
            office.ask(Method::POST, &path, Some("token-of-lee")).await
        }
    };
    let (status, body) = ask("hello").await;
    assert_eq!(status, 403);
    assert_eq!(
        message(&body),
        "lee may not update greetings.test.usher.dev here/hello; grant the verb update on it with a Role in namespace here"
    );
    assert_eq!(ask("nothing").await.0, 403);
    assert!(!office.asked().iter().any(|asked| asked.starts_with("annotate")));
    assert_eq!(office.annotation(), None);
}

#[tokio::test]
async fn an_object_that_is_not_there_is_told_to_who_may() {
    let office = Office::new();
    let (status, body) = office.kim("/v1/trigger/greetings/here/nothing").await;
    assert_eq!(status, 404);
    assert_eq!(
        message(&body),
        "there is no Greeting here/nothing (any more); `kubectl get greetings -n here` lists what there is"
    );
}

#[tokio::test]
async fn an_operator_of_one_namespace_triggers_nothing_in_another() {
    let office = Office::of(Some("there"));
    let (status, body) = office.kim(PATH).await;
    assert_eq!(status, 404);
    assert!(message(&body).contains("looks after namespace there only"), "{body}");
    assert_eq!(office.annotation(), None);
    assert_eq!(Office::of(Some("here")).kim(PATH).await.0, 202);
}

#[tokio::test]
async fn ten_a_second_are_taken_and_the_next_is_told_to_come_again() {
    let office = Office::new();
    for _ in 0..10 {
        assert_eq!(office.kim(PATH).await.0, 202);
    }
    let request = http::Request::post(PATH).header("authorization", "Bearer token-of-kim");
    let response = office.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(response.headers()["retry-after"], "1");
    let before = office.annotation();
    assert_eq!(read(response).await.0, 429);
    assert_eq!(office.annotation(), before, "nothing was written");
    office.clock.0.fetch_add(100, Ordering::Relaxed);
    assert_eq!(office.kim(PATH).await.0, 202);
    assert_eq!(office.kim(PATH).await.0, 429);
}

/// Who sends wrong tokens by the hundred is stopped before the API server is, and does not use up what others may do.
#[tokio::test]
async fn wrong_tokens_cost_no_triggers_and_are_bounded_themselves() {
    let office = Office::new();
    for n in 0..60 {
        let (status, _) = office.ask(Method::POST, PATH, Some("made-up")).await;
        assert_eq!(status, if n < 50 { 401 } else { 429 }, "{n}");
    }
    assert_eq!(office.asked().len(), 50);
    office.clock.0.fetch_add(1_000, Ordering::Relaxed);
    for _ in 0..10 {
        assert_eq!(office.kim(PATH).await.0, 202);
    }
}

#[tokio::test]
async fn a_replica_that_is_not_ready_says_so_and_asks_nobody() {
    let office = Office::new();
    office
        .health
        .set("greetings", Err("greetings are not listed yet".to_owned()));
    let (status, body) = office.kim(PATH).await;
    assert_eq!(status, 503);
    assert!(message(&body).contains("not ready"), "{body}");
    assert!(office.asked().is_empty());
    office.health.set("greetings", Ok(()));
    assert_eq!(office.kim(PATH).await.0, 202);
    office
        .health
        .set("stopping", Err("the operator is stopping".to_owned()));
    assert_eq!(office.kim(PATH).await.0, 503);
}

#[tokio::test]
async fn trouble_with_the_api_server_is_503_whatever_it_was_asked() {
    let office = Office::new();
    office.cluster.known(|known| known.trouble = Some(Trouble::NoAnswer));
    let (status, body) = office.kim(PATH).await;
    assert_eq!(status, 503);
    assert!(message(&body).contains("gave Usher no answer"), "{body}");
    let missing = Trouble::NoRight {
        missing: "create tokenreviews.authentication.k8s.io".to_owned(),
        see: "the ClusterRole",
    };
    office.cluster.known(|known| known.trouble = Some(missing));
    let (status, body) = office.kim(PATH).await;
    assert_eq!(status, 503, "it is Usher that may not, not the caller");
    assert!(
        message(&body).contains("create tokenreviews.authentication.k8s.io; an administrator grants it"),
        "{body}"
    );
}

#[tokio::test]
async fn an_api_server_that_hangs_is_not_waited_for() {
    let office = Office::new();
    office.cluster.known(|known| known.hangs = true);
    let (status, body) = office.kim(PATH).await;
    assert_eq!(status, 503);
    assert!(message(&body).contains("gave Usher no answer"), "{body}");
}

#[tokio::test]
async fn a_body_is_read_and_forgotten_within_bounds() {
    let office = Office::new();
    let with = |body: Body| {
        let request = http::Request::post(PATH).header("authorization", "Bearer token-of-kim");
        office.send(request.body(body).unwrap())
    };
    assert_eq!(read(with(Body::from(vec![b'x'; BODY_BYTES])).await).await.0, 202);
    office.asked();
    let (status, body) = read(with(Body::from(vec![b'x'; BODY_BYTES + 1])).await).await;
    assert_eq!(status, 413);
    assert!(message(&body).contains("a trigger needs none"), "{body}");
    let endless = futures::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    assert_eq!(read(with(Body::from_stream(endless)).await).await.0, 408);
    let broken = futures::stream::iter([Err::<Vec<u8>, _>(std::io::Error::other("cut"))]);
    assert_eq!(read(with(Body::from_stream(broken)).await).await.0, 408);
    assert!(office.asked().is_empty(), "nobody was asked meanwhile");
}

#[test]
fn a_token_shows_itself_to_nobody() {
    let head = http::Request::post(PATH)
        .header("authorization", "Bearer token-of-kim")
        .body(())
        .unwrap()
        .into_parts()
        .0;
    let ask = request::read(&[GREETINGS], &head).unwrap();
    assert_eq!(ask.token.as_ref().unwrap().reveal(), "token-of-kim");
    assert!(!format!("{ask:?}").contains("token-of"), "{ask:?}");
}

proptest! {
    /// Whatever comes in, what goes on to the API server is one segment each, of what names consist of.
    #[test]
    fn no_path_leads_anywhere_else(path in "(/v1/trigger/greetings/)?[a-z./%A-Z0-9;?#\\\\-]{0,40}") {
        let head = http::Request::post(path.replace('\\', "")).body(());
        prop_assume!(head.is_ok());
        let head = head.unwrap().into_parts().0;
        if let Ok(ask) = request::read(&[GREETINGS], &head) {
            let plain = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c));
            prop_assert!(plain(ask.key.namespace()) && plain(ask.key.name()));
            prop_assert!(!ask.key.name().starts_with('.') && !ask.key.namespace().contains('.'));
            prop_assert_eq!(head.uri.path(), format!("/v1/trigger/greetings/{}", ask.key));
        }
    }

    #[test]
    fn no_query_makes_anybody_wait_longer_than_a_minute(query in "(wait=)?[a-z0-9=&+-]{0,12}") {
        let uri = format!("{PATH}?{query}");
        let head = http::Request::post(uri).body(()).unwrap().into_parts().0;
        if let Ok(ask) = request::read(&[GREETINGS], &head) {
            let wait = ask.wait.unwrap_or(Duration::from_secs(1));
            prop_assert!((1..=60).contains(&wait.as_secs()));
        }
    }
}
