//! A20: the map is counted anew when somebody asks (R50), and held against the records by itself (R51).

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{Now, World};

const ANNOTATION: &str = "usher.dev/recalculate";

/// Trigger and drift of the last recalculation.
fn recalculated(now: &Now, pool: &str) -> Option<(String, i64)> {
    let answer = now.pools.get(pool)?.status.as_ref()?.recalculated.clone()?;
    Some((answer.trigger, answer.drift))
}

async fn some_claims(world: &World) {
    world
        .pool(
            "pool",
            json!({"cidr": "10.0.0.0/27", "exclude": ["10.0.0.16/28"], "maxBlockSize": 30}),
        )
        .await;
    for n in 0..3 {
        let name = format!("c{n}");
        world.claim(&name, json!({"poolRef": "pool", "blockSize": 30})).await;
        world.until_bound(&[&name]).await;
    }
    world.subnet("by-hand", "pool", "10.0.0.12/30").await;
    world
        .until("the pool is full", |now| now.allocated("pool") == Some(4))
        .await;
    world.claim("waits", json!({"poolRef": "pool", "blockSize": 30})).await;
    world
        .until("there is no room", |now| now.reason("waits") == Some("PoolExhausted"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a20_every_new_value_of_the_annotation_recalculates_once_and_finds_no_drift() {
    let world = World::new().await;
    let operator = world.operator().ready().await;
    some_claims(&world).await;
    let audit = world.audit();
    for value in ["monday", "tuesday"] {
        world.annotate_pool("pool", ANNOTATION, json!(value)).await;
        world
            .until("it is answered", |now| {
                recalculated(now, "pool") == Some((value.to_owned(), 0))
            })
            .await;
    }
    world.until_event("SubnetPool", "pool", "Normal Recalculated").await;
    world.until_exact("pool").await;
    // The same value, written again after a restart, asks for nothing.
    let lists = |requests: &[crate::support::audit::Request]| {
        let ours = requests.iter().filter(|r| r.by("writer") && r.verb == "list");
        ours.map(|r| r.resource.clone()).collect::<Vec<_>>()
    };
    let asked = lists(&audit.requests(&world).await);
    assert_eq!(
        asked,
        ["subnets", "subnetclaims", "subnets", "subnetclaims"],
        "R50: quorum lists of both"
    );
    drop(operator);
    let _operator = world.operator().ready().await;
    world.annotate_pool("pool", "usher.dev/other", json!("x")).await;
    world.unclaim("c0").await;
    world.until_bound(&["waits"]).await;
    world.until_exact("pool").await;
    assert_eq!(
        lists(&audit.requests(&world).await).len(),
        asked.len(),
        "once per value"
    );
    // Two at once: the last one counts.
    world.annotate_pool("pool", ANNOTATION, json!("wednesday")).await;
    world.annotate_pool("pool", ANNOTATION, json!("thursday")).await;
    world
        .until("the last is answered", |now| {
            recalculated(now, "pool") == Some(("thursday".to_owned(), 0))
        })
        .await;
    world
        .history
        .now(|now| assert!(now.is_ready("pool") && now.range("waits") == Some("10.0.0.0/30")));
    let told = world.events("SubnetPool", "pool").await;
    assert!(!told.iter().any(|line| line.contains("DriftRepaired")), "{told:?}");
    world.proof().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a20_a_damaged_map_is_found_by_the_check_and_repaired_and_nobody_gets_what_is_taken() {
    let world = World::new().await;
    let operator = world
        .operator()
        .switch("--test-damage-on-signal")
        .flag("--subnets-check-every", 1)
        .ready()
        .await;
    some_claims(&world).await;
    operator.signal(Signal::SIGUSR1);
    world
        .until("the difference is found and repaired", |now| {
            recalculated(now, "pool").is_some_and(|(_, drift)| drift > 0)
        })
        .await;
    world.until_event("SubnetPool", "pool", "Warning DriftRepaired").await;
    let log = operator.log();
    assert!(log.contains("the maps are damaged"), "the test did what it says");
    assert!(
        log.contains("the map differs from the records") && log.contains("the map was wrong"),
        "{log}"
    );
    world.until_exact("pool").await;
    // The map forgot a Subnet whose claim is Bound: its range is held by that claim too, and nobody else was given it.
    world
        .history
        .now(|now| assert_eq!(now.reason("waits"), Some("PoolExhausted")));
    // And it is whole: the next request finds no drift, and room is given where there is some.
    world.annotate_pool("pool", ANNOTATION, json!("after")).await;
    world
        .until("no drift is left", |now| {
            recalculated(now, "pool") == Some(("after".to_owned(), 0))
        })
        .await;
    let given = world.history.now(|now| now.range("c1").unwrap().to_owned());
    world.unclaim("c1").await;
    world.until_bound(&["waits"]).await;
    world
        .history
        .now(|now| assert_eq!(now.range("waits"), Some(given.as_str())));
    world.until_exact("pool").await;
    let proof = world.proof().await;
    assert_eq!(proof.claims_bound, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a20_a_request_repairs_what_the_check_has_not_found_yet() {
    let world = World::new().await;
    // The next check is ten minutes away.
    let operator = world.operator().switch("--test-damage-on-signal").ready().await;
    some_claims(&world).await;
    world.unclaim("waits").await;
    world
        .until("nobody waits", |now| !now.claims.contains_key("waits"))
        .await;
    operator.signal(Signal::SIGUSR1);
    crate::support::world::eventually("the map is damaged", async || {
        operator.log().contains("the maps are damaged")
    })
    .await;
    world.annotate_pool("pool", ANNOTATION, json!("please")).await;
    world
        .until("it is found", |now| {
            recalculated(now, "pool").is_some_and(|(trigger, drift)| trigger == "please" && drift > 0)
        })
        .await;
    world.until_event("SubnetPool", "pool", "Warning DriftRepaired").await;
    world.until_exact("pool").await;
    world.proof().await;
}
