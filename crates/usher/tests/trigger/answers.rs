//! Each answer, with its code.

use std::time::{Duration, Instant};

use futures::future::join_all;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::client::{Client, update};
use crate::support::World;
use crate::support::plane::left_out;

const RECALCULATE: &str = "usher.dev/recalculate";

async fn annotation(world: &World, pool: &str) -> Option<String> {
    let pool = world.pools.get(pool).await.unwrap();
    pool.annotations().get(RECALCULATE).cloned()
}

/// Until the pool carries another value than this one; what it is then.
async fn until_another(world: &World, pool: &str, than: Option<String>) -> String {
    let value = |pool: &usher_subnets::api::SubnetPool| pool.annotations().get(RECALCULATE).cloned();
    let mut found = None;
    world
        .until("another value is written", |now| {
            found = now.pools.get(pool).and_then(value);
            found.is_some() && found != than
        })
        .await;
    found.unwrap()
}

/// A standby writes the annotation and waits for the answer; who answers is the leader, here the test.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_gives_every_answer_of_the_specification() {
    let world = World::new().await;
    world.take_lease().await;
    world.pool("office", json!({"cidr": "10.0.0.0/16"})).await;
    let token = world.token("may", update(&["office", "not-there"])).await;
    let audit = world.audit();
    let operator = world.operator().standby().tls().verbose().ready().await;
    let client = Client::of(&world, &operator).await;
    let path = world.path("office");

    // 202: the value is on the pool before the answer is.
    let accepted = client.post(&path, &token).await;
    assert_eq!(accepted.status, 202, "{accepted:?}");
    let value = annotation(&world, "office").await.unwrap();
    assert_eq!(
        accepted.body,
        json!({"pool": format!("{}/office", world.namespace), "trigger": value})
    );
    let second = client.post(&path, &token).await;
    assert_ne!(second.body["trigger"], json!(value), "each has a value of its own");
    // 200, as soon as it is answered.
    let before = annotation(&world, "office").await;
    let answers = async {
        let value = until_another(&world, "office", before).await;
        let answer = json!({"trigger": value, "at": "2026-11-05T12:00:00Z", "drift": 2});
        world
            .scribble(&world.pools, "office", json!({"recalculated": answer}))
            .await;
        (value, Instant::now())
    };
    let path_waiting = format!("{path}?wait=60");
    let (answered, (value, written)) = tokio::join!(client.post(&path_waiting, &token), answers);
    println!("200 came {:.1?} after the answer was written", written.elapsed());
    assert_eq!(answered.status, 200, "{answered:?}");
    assert_eq!(answered.body["trigger"], json!(value));
    let recalculated = &answered.body["recalculated"];
    assert_eq!(
        *recalculated,
        json!({"trigger": value, "at": "2026-11-05T12:00:00Z", "drift": 2})
    );
    // 504 when nobody answers, and the trigger is written nevertheless.
    let begun = Instant::now();
    let unanswered = client.post(&format!("{path}?wait=1"), &token).await;
    assert_eq!(unanswered.status, 504, "{unanswered:?}");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let value = annotation(&world, "office").await.unwrap();
    assert!(unanswered.message().contains(&value), "{unanswered:?}");

    // 400, 404, 405.
    for query in ["wait=0", "wait=61", "wait=soon"] {
        let refused = client.post(&format!("{path}?{query}"), &token).await;
        assert_eq!(refused.status, 400, "{refused:?}");
    }
    let missing = client.post(&world.path("not-there"), &token).await;
    assert_eq!(missing.status, 404, "{missing:?}");
    assert!(
        missing
            .message()
            .starts_with(&format!("there is no SubnetPool {}/not-there", world.namespace)),
        "{missing:?}"
    );
    for method in ["GET", "PUT", "DELETE"] {
        let refused = client.send(method, &path, Some(&token)).await;
        assert_eq!(refused.status, 405, "{refused:?}");
        assert!(refused.head.contains("allow: post"), "{refused:?}");
    }
    let elsewhere = client.post("/v1/trigger/subnets/a/b", &token).await;
    assert_eq!(elsewhere.status, 404, "{elsewhere:?}");
    assert_eq!(
        annotation(&world, "office").await,
        Some(value),
        "none of these wrote anything"
    );

    // Through all this it was a standby, and its fenced connections wrote nothing.
    let requests = audit.requests(&world).await;
    let by = |role: &str| requests.iter().filter(|r| r.by(role) && r.is_write()).count();
    assert_eq!(by("writer"), 0);
    let patches = requests
        .iter()
        .filter(|r| r.by("trigger") && r.what() == "patch subnetpools");
    assert_eq!(patches.filter(|r| r.succeeded()).count(), 4);
    assert_eq!(operator.metric("usher_leader", &[]), 0.0);
    assert_eq!(operator.metric("usher_triggers_total", &["subnetpools", "202"]), 2.0);
    assert_secret(&operator.log(), &token);
}

/// The log at its most talkative, and the parts of a token: neither the whole nor its signature may be there.
fn assert_secret(log: &str, token: &str) {
    assert!(log.contains("TRACE"), "the log is not as talkative as it can be");
    assert!(log.contains("triggered"), "who triggered what is in the log");
    for part in [token, token.rsplit('.').next().unwrap()] {
        let shown = log.lines().find(|line| line.contains(part));
        assert_eq!(shown, None, "a token is in the log");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_known_gets_401() {
    let world = World::new().await;
    world.take_lease().await;
    world.pool("mine", json!({"cidr": "10.0.0.0/16"})).await;
    let token = world.token("may", update(&["mine"])).await;
    let reader = world.token("reader", reads()).await;
    let operator = world.operator().standby().tls().verbose().ready().await;
    let client = Client::of(&world, &operator).await;
    let path = world.path("mine");

    let nobody = client.send("POST", &path, None).await;
    assert_eq!(nobody.status, 401, "{nobody:?}");
    assert!(nobody.head.contains("www-authenticate: bearer"), "{nobody:?}");
    // Signed by nobody; signed for somebody else, with the signature of another; and no token at all.
    let (head, signature) = token.rsplit_once('.').unwrap();
    let forged = format!("{head}.{}", signature.chars().rev().collect::<String>());
    let borrowed = format!("{}.{signature}", reader.rsplit_once('.').unwrap().0);
    for wrong in ["made-up", &forged, &borrowed, "a.b.c"] {
        let refused = client.post(&path, wrong).await;
        assert_eq!(refused.status, 401, "{refused:?}");
        assert!(refused.message().contains("does not know this token"), "{refused:?}");
    }
    assert_eq!(annotation(&world, "mine").await, None, "nothing was written");
    assert_eq!(client.post(&path, &token).await.status, 202);
    for secret in [&token, &forged, &borrowed] {
        assert_secret(&operator.log(), secret);
    }
}

/// All rights on pools but `update`.
fn reads() -> Value {
    json!([{"apiGroups": ["plexaubnet.io"], "resources": ["subnetpools"],
        "verbs": ["get", "list", "watch", "patch", "create", "delete"]}])
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_gets_403() {
    if left_out("who_may_not_gets_403") {
        return;
    }
    let world = World::new().await;
    world.take_lease().await;
    for pool in ["mine", "theirs"] {
        world.pool(pool, json!({"cidr": "10.0.0.0/16"})).await;
    }
    let token = world.token("may", update(&["mine"])).await;
    let reader = world.token("reader", reads()).await;
    let operator = world.operator().standby().tls().verbose().ready().await;
    let client = Client::of(&world, &operator).await;
    let path = world.path("mine");
    // `update` of this very pool is the right that counts, in this namespace.
    let other = World::new().await;
    for (path, token) in [
        (world.path("theirs"), &token),
        (world.path("mine"), &reader),
        (world.path("not-there"), &reader),
        (other.path("mine"), &token),
    ] {
        let refused = client.post(&path, token).await;
        assert_eq!(refused.status, 403, "{path}: {refused:?}");
        assert!(
            refused.message().contains("may not update subnetpools.plexaubnet.io"),
            "{refused:?}"
        );
        assert!(
            refused
                .message()
                .contains(&format!("system:serviceaccount:{}", world.namespace))
        );
    }
    for pool in ["mine", "theirs"] {
        assert_eq!(annotation(&world, pool).await, None, "nothing was written");
    }
    assert_eq!(client.post(&path, &token).await.status, 202);
    for secret in [&token, &reader] {
        assert_secret(&operator.log(), secret);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_triggers_a_second_are_taken_over_all_and_the_rest_get_429() {
    let world = World::new().await;
    world.take_lease().await;
    for pool in ["one", "two"] {
        world.pool(pool, json!({"cidr": "10.0.0.0/16"})).await;
    }
    let tokens = [
        world.token("kim", update(&["one"])).await,
        world.token("lee", update(&["two"])).await,
    ];
    let operator = world.operator().standby().tls().ready().await;
    let client = Client::of(&world, &operator).await;
    let begun = Instant::now();
    let paths = [world.path("one"), world.path("two")];
    let answers = join_all((0..40).map(|n| client.post(&paths[n % 2], &tokens[n % 2]))).await;
    let took = begun.elapsed();
    let of = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
    let most = 10.0 + 10.0 * took.as_secs_f64() + 1.0;
    println!("40 triggers in {took:.1?}: {} taken, {} refused", of(202), of(429));
    assert!(of(202) >= 10 && (of(202) as f64) <= most, "{} in {took:?}", of(202));
    assert!(of(429) > 0);
    assert_eq!(of(202) + of(429), 40);
    let refused = answers.iter().find(|answer| answer.status == 429).unwrap();
    assert!(refused.head.contains("retry-after: 1"), "{refused:?}");
}

/// Every replica answers, the leader too; and both present what the same authority signed.
#[tokio::test(flavor = "multi_thread")]
async fn the_leader_and_the_standby_answer_with_one_authority() {
    let world = World::new().await;
    world.pool("office", json!({"cidr": "10.0.0.0/16"})).await;
    let token = world.token("may", update(&["office"])).await;
    let leader = world.operator().lease("first").tls().ready().await;
    world.until_exact("office").await;
    let standby = world.operator().lease("second").tls().ready().await;
    assert_eq!(
        (leader.metric("usher_leader", &[]), standby.metric("usher_leader", &[])),
        (1.0, 0.0)
    );
    world.claim("claim", json!({"poolRef": "office"})).await;
    world.until_bound(&["claim"]).await;
    for (who, operator) in [("leader", &leader), ("standby", &standby)] {
        let client = Client::of(&world, operator).await;
        let answer = client.post(&world.path("office"), &token).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        assert_eq!(json!(annotation(&world, "office").await), answer.body["trigger"]);
        // By the names of its Service, too.
        let service = format!("usher-operator.{}.svc", world.namespace);
        drop(client.connect(&service).unwrap());
        // The leader counts anew, whoever was asked; and who comes at the same time need not be counted for again.
        let waiting = format!("{}?wait=60", world.path("office"));
        let begun = Instant::now();
        let answers = join_all((0..5).map(|_| client.post(&waiting, &token))).await;
        println!(
            "five triggers of the {who} were answered within {:.1?}",
            begun.elapsed()
        );
        for answer in answers {
            assert_eq!(
                (answer.status, &answer.body["recalculated"]["drift"]),
                (200, &json!(0)),
                "{answer:?}"
            );
        }
    }
    // A trigger outlives the one who took it.
    standby.kill();
    assert!(annotation(&world, "office").await.is_some());
    world.history.check();
}

/// Until all is listed, there is nothing to count anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_not_ready_gives_503() {
    if left_out("a_replica_that_is_not_ready_gives_503") {
        return;
    }
    let world = World::new().await;
    world.pool("office", json!({"cidr": "10.0.0.0/16"})).await;
    let token = world.token("may", update(&["office"])).await;
    // May do everything but list Subnets.
    let mut lacking = crate::support::rights::all();
    lacking[0]["resources"] = json!([
        "subnetpools",
        "subnetpools/status",
        "subnetclaims",
        "subnetclaims/status"
    ]);
    let own = json!({"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get", "create", "update"]});
    lacking.as_array_mut().unwrap().push(own);
    world.grant(lacking).await;
    let kubeconfig = world.account("usher").await;
    let operator = world.operator().with(&kubeconfig).tls().start();
    let client = Client::of(&world, &operator).await;
    let refused = client.post(&world.path("office"), &token).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.message().contains("not ready"), "{refused:?}");
    assert!(refused.head.contains("retry-after"), "{refused:?}");
    assert_eq!(annotation(&world, "office").await, None);
    let _: Value = refused.body;
}
