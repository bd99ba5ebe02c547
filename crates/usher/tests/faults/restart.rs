//! An operator that starts where there is much already grants right from the first (A29, in small: 10,000 Subnets; the
//! benches have 300,000).

use std::time::Instant;

use crate::support::World;
use crate::support::world::manifest;
use futures::StreamExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use usher_subnets::api::Subnet;

const SUBNETS: u32 = 10_000;
/// The one block in the middle that nobody has.
const HOLE: u32 = 7_777;
const AT_ONCE: usize = 48;

fn block(number: u32) -> String {
    let address = (10 << 24) + number * 16;
    format!("{}/28", std::net::Ipv4Addr::from_bits(address))
}

/// A Subnet that has had its range for long.
async fn prepare(world: &World, number: u32) {
    let name = format!("s-{number:05}");
    let spec = json!({"poolRef": "big", "cidr": block(number), "clusterID": name});
    let subnet: Subnet = serde_json::from_value(manifest("Subnet", &name, spec)).unwrap();
    world.subnets.create(&PostParams::default(), &subnet).await.unwrap();
    let status = Patch::Merge(json!({"status": {"phase": "Allocated"}}));
    let params = PatchParams::default();
    world.subnets.patch_status(&name, &params, &status).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a29_beside_ten_thousand_subnets_the_first_grant_after_a_restart_is_right() {
    let world = World::new().await;
    world.pool("big", json!({"cidr": "10.0.0.0/14"})).await;
    let begun = Instant::now();
    let world = &world;
    futures::stream::iter((0..=SUBNETS).filter(|number| *number != HOLE))
        .for_each_concurrent(AT_ONCE, |number| prepare(world, number))
        .await;
    let prepared = begun.elapsed();
    let launch = world.operator();
    launch.ready().await.kill();

    // The claims are there before the operator is: what it sees first is what it must not forget when it grants.
    world.claim("first", json!({"poolRef": "big", "blockSize": 28})).await;
    // Its age has seconds only; the name decides within one.
    world.claim("second", json!({"poolRef": "big", "blockSize": 28})).await;
    let begun = Instant::now();
    let mut operator = launch.ready().await;
    let ready = begun.elapsed();
    let bound = world.until_bound(&["first", "second"]).await;
    let ranges = world.history.now(|now| {
        let range = |claim| now.range(claim).unwrap().to_owned();
        [range("first"), range("second")]
    });
    assert_eq!(ranges, [block(HOLE), block(SUBNETS + 1)], "the hole, then the end");
    let counted = world
        .until("the pool counts them", |now| {
            now.allocated("big") == Some(i64::from(SUBNETS) + 2)
        })
        .await;
    operator.assert_alive();
    println!(
        "{SUBNETS} Subnets prepared in {prepared:.1?}; ready {ready:.2?} after the start, the first grants Bound {bound:.2?} \
         later, counted {counted:.2?} after that"
    );
    let proof = world.history.check();
    assert_eq!((proof.gaps, proof.claims_bound), (0, 2), "{proof:?}");
}
