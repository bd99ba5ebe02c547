//! Bad input (section 8): the API server refuses what can be seen at once, and says what to do instead; the operator says
//! of the rest which object, which field, and how to mend it. Nobody else is disturbed.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use usher_subnets::api::ClaimPhase;

use crate::support::World;

/// What the server says to a request it must refuse.
fn refusal<T: std::fmt::Debug>(what: &str, answer: kube::Result<T>) -> String {
    match answer {
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => status.message,
        other => panic!("{what}: must be refused, and is {other:?}"),
    }
}

fn says(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "{word:?} is missing in: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_malformed_is_refused_with_the_field_and_what_to_do() {
    let world = World::new().await;
    let many: Vec<String> = (0..257).map(|n| format!("10.0.{}.{}/32", n / 256, n % 256)).collect();
    let pools = [
        (json!({"cidr": "banana"}), &["spec.cidr"][..]),
        (json!({"cidr": "10.0.0.0/33"}), &["spec.cidr"]),
        (json!({"cidr": "10.0.0.0"}), &["spec.cidr"]),
        (json!({"cidr": "0.0.0.0/0"}), &["spec.cidr", "/1 or smaller"]),
        (
            json!({"cidr": "10.0.0.0/16", "minBlockSize": 28, "maxBlockSize": 24}),
            &["minBlockSize", "swap the two"],
        ),
        (
            json!({"cidr": "10.0.0.0/16", "defaultBlockSize": 0}),
            &["spec.defaultBlockSize", "greater than or equal to 1"],
        ),
        (
            json!({"cidr": "10.0.0.0/16", "maxBlockSize": 129}),
            &["spec.maxBlockSize", "less than or equal to 128"],
        ),
        (
            json!({"cidr": "10.0.0.0/16", "strategy": "Random"}),
            &["spec.strategy", "Linear", "Buddy"],
        ),
        (
            json!({"cidr": "10.0.0.0/16", "exclude": ["10.0.0.0/24", "x"]}),
            &["spec.exclude[1]"],
        ),
        (
            json!({"cidr": "10.0.0.0/16", "exclude": many}),
            &["spec.exclude", "256"],
        ),
        (
            json!({"cidr": "10.0.0.0/16", "reuseDelaySeconds": -1}),
            &["spec.reuseDelaySeconds"],
        ),
    ];
    for (spec, words) in pools {
        let what = format!("pool {spec}");
        // As text, past our own types: users write YAML.
        says(
            &refusal(&what, world.raw("subnetpools", "SubnetPool", "bad", &spec).await),
            words,
        );
    }
    let long = "x".repeat(64);
    let claims = [
        (json!({"poolRef": "", "clusterID": "c"}), &["spec.poolRef"][..]),
        (json!({"clusterID": "c"}), &["spec.poolRef", "Required"]),
        (json!({"poolRef": "p"}), &["spec.clusterID", "Required"]),
        (json!({"poolRef": "p", "clusterID": "Über"}), &["spec.clusterID"]),
        (json!({"poolRef": "p", "clusterID": long}), &["spec.clusterID"]),
        (
            json!({"poolRef": "p", "clusterID": "c", "blockSize": 0}),
            &["spec.blockSize"],
        ),
        (
            json!({"poolRef": "p", "clusterID": "c", "blockSize": 129}),
            &["spec.blockSize"],
        ),
        (
            json!({"poolRef": "p", "clusterID": "c", "requestedCIDR": "10.0.0.0/99"}),
            &["spec.requestedCIDR"],
        ),
        (
            json!({"poolRef": "p", "clusterID": "c", "blockSize": 24, "requestedCIDR": "10.0.0.0/24"}),
            &["blockSize and requestedCIDR are mutually exclusive", "set one of them"],
        ),
    ];
    for (spec, words) in claims {
        let what = format!("claim {spec}");
        says(
            &refusal(&what, world.raw("subnetclaims", "SubnetClaim", "bad", &spec).await),
            words,
        );
    }
    let subnet = json!({"poolRef": "p", "clusterID": "c", "cidr": "10.0.0.300/24"});
    says(
        &refusal("subnet", world.raw("subnets", "Subnet", "bad", &subnet).await),
        &["spec.cidr"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_bound_cannot_be_edited_and_the_refusal_says_what_to_do() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world.pool("pool", json!({"cidr": "10.0.0.0/24"})).await;
    world.claim("claim", json!({"poolRef": "pool", "blockSize": 28})).await;
    world.until_bound(&["claim"]).await;
    for edit in [
        json!({"blockSize": 26}),
        json!({"poolRef": "other"}),
        json!({"clusterID": "other"}),
    ] {
        let patch = Patch::Merge(json!({"spec": edit}));
        let answer = world.claims.patch("claim", &PatchParams::default(), &patch).await;
        says(
            &refusal("edit of a Bound claim", answer),
            &["Bound", "delete and re-create the claim"],
        );
    }
    let patch = Patch::Merge(json!({"spec": {"cidr": "10.0.0.16/28"}}));
    let answer = world
        .subnets
        .patch("pool-10-0-0-0-28", &PatchParams::default(), &patch)
        .await;
    says(
        &refusal("edit of a claim's Subnet", answer),
        &["delete and re-create the claim"],
    );
    // What is not the spec may change.
    let labels = Patch::Merge(json!({"metadata": {"labels": {"team": "red"}, "annotations": {"note": "mine"}}}));
    world
        .claims
        .patch("claim", &PatchParams::default(), &labels)
        .await
        .unwrap();
    world
        .until("it is labelled", |now| now.claims["claim"].metadata.labels.is_some())
        .await;
    world
        .history
        .now(|now| assert_eq!(now.range("claim"), Some("10.0.0.0/28")));
    world.history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pool_never_grants_is_an_error_with_the_limits_and_recovers_when_they_change() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world
        .pool(
            "pool",
            json!({"cidr": "10.0.0.0/16", "minBlockSize": 18, "exclude": ["10.0.9.0/24"]}),
        )
        .await;
    world
        .claim("bystander", json!({"poolRef": "pool", "blockSize": 24}))
        .await;
    world.until_bound(&["bystander"]).await;
    let asks: [(&str, Value, &[&str]); 7] = [
        (
            "too-big",
            json!({"blockSize": 17}),
            &["spec.blockSize /17", "/18 to /28"],
        ),
        (
            "too-small",
            json!({"blockSize": 30}),
            &["spec.blockSize /30", "/18 to /28"],
        ),
        ("wider-than-pool", json!({"blockSize": 8}), &["spec.blockSize /8"]),
        (
            "exact-too-small",
            json!({"requestedCIDR": "10.0.77.0/30"}),
            &["spec.requestedCIDR", "/18 to /28"],
        ),
        (
            "outside",
            json!({"requestedCIDR": "10.7.0.0/24"}),
            &["spec.requestedCIDR 10.7.0.0/24", "10.0.0.0/16"],
        ),
        (
            "excluded",
            json!({"requestedCIDR": "10.0.9.0/25"}),
            &["spec.requestedCIDR 10.0.9.0/25", "10.0.9.0/24"],
        ),
        (
            "other-family",
            json!({"requestedCIDR": "2001:db8::/64"}),
            &["spec.requestedCIDR 2001:db8::/64", "10.0.0.0/16"],
        ),
    ];
    for (name, ask, _) in &asks {
        let mut spec = ask.clone();
        spec["poolRef"] = json!("pool");
        world.claim(name, spec).await;
    }
    world
        .until("all are invalid", |now| {
            asks.iter().all(|(name, ..)| now.reason(name) == Some("InvalidRequest"))
        })
        .await;
    for (name, _, words) in &asks {
        world.history.now(|now| {
            assert_eq!(now.phase(name), Some(ClaimPhase::Error));
            says(now.message(name), words);
            says(now.message(name), &["pool pool"]);
            let conditions = &now.claims[*name].status.as_ref().unwrap().conditions;
            assert!(
                conditions.iter().any(|c| c.type_ == "Stalled"),
                "kstatus: it cannot go on without help"
            );
        });
        world.until_event("SubnetClaim", name, "Warning ValidationFailed").await;
    }
    world.until_exact("pool").await;
    world
        .history
        .now(|now| assert_eq!(now.pools["pool"].status.as_ref().unwrap().waiting_claims, 0));
    // R32: an Error recovers by itself when its cause goes.
    world
        .edit_pool("pool", json!({"maxBlockSize": 30, "exclude": []}))
        .await;
    world.until_bound(&["too-small", "exact-too-small", "excluded"]).await;
    world.history.now(|now| {
        let conditions = &now.claims["too-small"].status.as_ref().unwrap().conditions;
        assert!(
            conditions.iter().all(|c| c.type_ != "Stalled"),
            "A27: nothing stale is left"
        );
        assert_eq!(now.phase("too-big"), Some(ClaimPhase::Error));
        assert!(now.is_bound("bystander"));
    });
    world.until_exact("pool").await;
    world.history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_allows_no_size_says_so_and_serves_when_it_is_mended() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world
        .pool("pool", json!({"cidr": "10.0.0.0/26", "maxBlockSize": 24}))
        .await;
    world
        .until("it is an error", |now| {
            let ready = now.condition("pool", "Ready");
            let stalled = now.condition("pool", "Stalled");
            ready.is_some_and(|(status, reason, _)| (status.as_str(), reason.as_str()) == ("False", "Error"))
                && stalled.is_some_and(|(status, ..)| status == "True")
        })
        .await;
    world.history.now(|now| {
        says(
            &now.condition("pool", "Ready").unwrap().2,
            &["pool pool", "maxBlockSize"],
        )
    });
    world.claim("claim", json!({"poolRef": "pool", "blockSize": 28})).await;
    world
        .until("the claim is told", |now| now.reason("claim").is_some())
        .await;
    world.edit_pool("pool", json!({"maxBlockSize": 28})).await;
    world.until_bound(&["claim"]).await;
    world
        .until("the pool is well again", |now| {
            now.condition("pool", "Stalled").is_none()
        })
        .await;
    world.history.check();
}

/// A claim with so many labels: they are small, and as many as fit (annotations end at 256 KiB).
fn with_labels(name: &str, labels: usize, size: u8) -> Value {
    let label = |n: usize| {
        let key = format!("{}.example.com/{}-{n:05}", "x".repeat(60), "y".repeat(50));
        (key, json!("z".repeat(60)))
    };
    let labels: serde_json::Map<String, Value> = (0..labels).map(label).collect();
    json!({
        "apiVersion": "plexaubnet.io/v1alpha1", "kind": "SubnetClaim",
        "metadata": {"name": name, "labels": labels},
        "spec": {"poolRef": "pool", "clusterID": name, "blockSize": size},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_as_large_as_the_server_takes_is_served_and_a_larger_one_is_refused() {
    const LABELS: usize = 7_950;
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    let exclude: Vec<String> = (0..256).map(|n| format!("10.0.{n}.0/26")).collect();
    world
        .pool("pool", json!({"cidr": "10.0.0.0/16", "exclude": exclude}))
        .await;
    let too_large = world.post("subnetclaims", &with_labels("larger", 9_000, 25)).await;
    let Err(kube::Error::Api(refused)) = too_large else {
        panic!("a claim of 1.7 MiB was taken")
    };
    says(&refused.message, &["too large"]);

    let stored = world
        .post("subnetclaims", &with_labels("large", LABELS, 25))
        .await
        .unwrap();
    let bytes = serde_json::to_vec(&stored).unwrap().len();
    println!(
        "a claim of {bytes} bytes is served, a larger one is refused: {}",
        refused.message
    );
    assert!(bytes > 1_500_000, "the claim has only {bytes} bytes");
    world.until_bound(&["large"]).await;
    world.claim("small", json!({"poolRef": "pool", "blockSize": 26})).await;
    world.until_bound(&["small"]).await;
    world.history.now(|now| {
        let labels = now.claims["large"].metadata.labels.as_ref().unwrap();
        assert_eq!(labels.len(), LABELS, "our status write keeps what is the user's");
    });
    world.unclaim("large").await;
    world
        .until("it is given back", |now| {
            now.subnets.len() == 1 && !now.claims.contains_key("large")
        })
        .await;
    world.until_exact("pool").await;
    world.history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_with_no_room_left_for_its_status_says_so_in_an_event_and_is_bound_when_it_is_smaller() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world.pool("pool", json!({"cidr": "10.0.0.0/24"})).await;
    // The most labels that the server takes: less than one label below the limit, so that a status does not fit.
    let (mut fits, mut too_many) = (7_900, 9_000);
    while too_many - fits > 1 {
        let labels = usize::midpoint(fits, too_many);
        let taken = world.post("subnetclaims", &with_labels("brim", labels, 28)).await;
        if taken.is_ok() {
            world.unclaim("brim").await;
            fits = labels;
        } else {
            too_many = labels;
        }
    }
    world
        .post("subnetclaims", &with_labels("brim", fits, 28))
        .await
        .unwrap();
    world.until_event("SubnetClaim", "brim", "too large").await;
    let told = world.events("SubnetClaim", "brim").await.join("\n");
    says(&told, &["SubnetClaim", "brim", "remove labels or annotations"]);
    world.claim("small", json!({"poolRef": "pool", "blockSize": 28})).await;
    world.until_bound(&["small"]).await;
    let smaller = Patch::Merge(json!({"metadata": {"labels": null}}));
    world
        .claims
        .patch("brim", &PatchParams::default(), &smaller)
        .await
        .unwrap();
    world.until_bound(&["brim"]).await;
    world.until_exact("pool").await;
    world.history.check();
}
