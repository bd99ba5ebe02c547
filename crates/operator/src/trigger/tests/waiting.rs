//! Requests that wait for the kind's answer.

use super::*;

#[tokio::test]
async fn who_waits_gets_the_answer_and_who_waits_in_vain_gets_504() {
    let office = Office::new();
    let answer = |object: &mut Value, looks: usize| {
        if looks == 3 {
            let value = object["metadata"]["annotations"][GREETINGS.annotation].clone();
            object["status"]["said"] = json!({"trigger": value, "at": "now", "drift": 0});
        }
    };
    office.cluster.known(|known| known.kind = Some(Box::new(answer)));
    let (status, body) = office.kim(&format!("{PATH}?wait=60")).await;
    let value = office.annotation().unwrap();
    assert_eq!(status, 200);
    assert_eq!(
        body,
        json!({"greeting": "here/hello", "trigger": value, "said": {"trigger": value, "at": "now", "drift": 0}})
    );

    office.cluster.known(|known| known.kind = None);
    let begun = std::time::Instant::now();
    let (status, body) = office.kim(&format!("{PATH}?wait=2")).await;
    assert_eq!(begun.elapsed().as_secs(), 2);
    assert_eq!(status, 504);
    let value = office.annotation().unwrap();
    assert_eq!(
        message(&body),
        format!(
            "trigger {value} is written on Greeting here/hello, but after 2 s status.said does not answer it; the leader \
             does so when it can, so read the status later"
        )
    );
}

/// One value is overwritten by the next before the kind came to it: both callers have what they wanted.
#[tokio::test]
async fn the_answer_to_a_later_trigger_will_do_and_an_old_one_will_not() {
    let office = Office::new();
    let later = |object: &mut Value, looks: usize| match looks {
        2 => object["metadata"]["annotations"][GREETINGS.annotation] = json!("later"),
        4 => object["status"]["said"] = json!({"trigger": "later"}),
        _ => {}
    };
    office.cluster.known(|known| known.kind = Some(Box::new(later)));
    let (status, body) = office.kim(&format!("{PATH}?wait=60")).await;
    assert_eq!((status, &body["said"]), (200, &json!({"trigger": "later"})));

    // By hand, to a value that was answered before: this says nothing about ours.
    let again = |object: &mut Value, _: usize| {
        object["metadata"]["annotations"][GREETINGS.annotation] = json!("later");
    };
    office.cluster.known(|known| known.kind = Some(Box::new(again)));
    assert_eq!(office.kim(&format!("{PATH}?wait=1")).await.0, 504);

    // An earlier one is answered while ours waits.
    let earlier = |object: &mut Value, _: usize| object["status"]["said"] = json!({"trigger": "earlier"});
    office.cluster.known(|known| known.kind = Some(Box::new(earlier)));
    assert_eq!(office.kim(&format!("{PATH}?wait=1")).await.0, 504);
}

#[tokio::test]
async fn an_object_that_goes_while_it_is_waited_for_is_404_also_if_another_takes_its_name() {
    for successor in [None, Some(json!({"metadata": {"uid": "2"}}))] {
        let office = Office::new();
        let path = format!("{PATH}?wait=60");
        let goes = async {
            office.until_looked_at(1).await;
            office.cluster.known(|known| {
                known.objects.remove("here/hello");
                known
                    .objects
                    .extend(successor.map(|object| ("here/hello".to_owned(), object)));
            });
        };
        let ((status, _), ()) = tokio::join!(office.kim(&path), goes);
        assert_eq!(status, 404);
    }
}

/// As the API server may be away while it is waited for, and come back.
#[tokio::test]
async fn trouble_while_waiting_is_waited_out() {
    let office = Office::new();
    let path = format!("{PATH}?wait=60");
    let away = async {
        office.until_looked_at(1).await;
        office.cluster.known(|known| known.trouble = Some(Trouble::NoAnswer));
        let asked = office.cluster.known(|known| known.asked.len());
        until(|| office.cluster.known(|known| known.asked.len()) > asked + 1).await;
        office.cluster.known(|known| {
            known.trouble = None;
            let object = known.objects.get_mut("here/hello").unwrap();
            object["status"]["said"]["trigger"] = object["metadata"]["annotations"][GREETINGS.annotation].clone();
        });
    };
    let ((status, _), ()) = tokio::join!(office.kim(&path), away);
    assert_eq!(status, 200);
}

#[tokio::test]
async fn nobody_waits_for_an_operator_that_stops() {
    let office = Office::new();
    let path = format!("{PATH}?wait=60");
    let stops = async {
        office.until_looked_at(1).await;
        office.stop.send(true).unwrap();
    };
    let ((status, body), ()) = tokio::join!(office.kim(&path), stops);
    assert_eq!(status, 503);
    assert!(message(&body).contains("stops now"), "{body}");
}

#[tokio::test]
async fn a_bounded_number_waits_and_the_others_are_told_before_anything_is_written() {
    let office = Office::new();
    let path = format!("{PATH}?wait=60");
    let mut waiting = Vec::new();
    for _ in 0..WAITING {
        let request = http::Request::post(&path).header("authorization", "Bearer token-of-kim");
        let request = request.body(Body::empty()).unwrap();
        waiting.push(tokio::spawn(office.router.clone().oneshot(request)));
        office.clock.0.fetch_add(100, Ordering::Relaxed);
        let asked = |known: &mut Known| known.asked.iter().filter(|asked| asked.starts_with("annotate")).count();
        until(|| office.cluster.known(asked) == waiting.len()).await;
    }
    office.clock.0.fetch_add(1_000, Ordering::Relaxed);
    let before = office.annotation();
    let (status, body) = office.kim(&path).await;
    assert_eq!(status, 429);
    assert!(message(&body).contains("leave out wait"), "{body}");
    assert_eq!(office.annotation(), before);
    assert_eq!(office.kim(PATH).await.0, 202, "without waiting");
    office.stop.send(true).unwrap();
    for waited in waiting {
        let status = waited.await.unwrap().unwrap().status();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_ne!(office.kim(&path).await.0, 429, "there is room again");
}
