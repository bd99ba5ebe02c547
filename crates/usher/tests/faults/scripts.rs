//! A load of the shape of upstream's scripts (A24): many pools at once, written with host bits; many claims at once, each
//! polled for the name of its Subnet; updates; Subnets made by hand outside their pool. No request fails, every claim finds
//! its Subnet by `status.subnetRef`, and how long that takes is said.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::World;
use crate::support::invariants::net;
use futures::StreamExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use usher_subnets::api::{ClaimPhase, SubnetPhase};

const POOLS: usize = 20;
const CLAIMS: usize = 15;
const AT_ONCE: usize = 20;
/// Between two looks at a claim, as the scripts do.
const LOOK: Duration = Duration::from_millis(100);
/// The spec wants p95 below 3 s on a quiet machine. That is printed; what fails is a machine's worth more.
const P95: Duration = Duration::from_secs(20);

/// Requests that were answered well.
#[derive(Default)]
struct Requests(AtomicUsize);

impl Requests {
    fn ok<T>(&self, answer: kube::Result<T>) -> T {
        self.0.fetch_add(1, Ordering::Relaxed);
        answer.expect("no request fails")
    }
}

/// One claim of a script's user: created, polled until it names its Subnet, which is then read and is the claim's.
async fn claim(world: &World, requests: &Requests, pool: usize, number: usize) -> Duration {
    let (pool_name, name) = (format!("pool-{pool}"), format!("claim-{pool}-{number}"));
    let begun = Instant::now();
    requests.ok(world
        .try_claim(&name, json!({"poolRef": pool_name, "blockSize": 24}))
        .await);
    let (range, named) = loop {
        let claim = requests.ok(world.claims.get(&name).await);
        let status = claim.status.unwrap_or_default();
        if let Some(named) = status.subnet_ref {
            assert_eq!(status.phase, Some(ClaimPhase::Bound));
            break (status.allocated_cidr.unwrap(), named);
        }
        assert!(
            begun.elapsed() < crate::support::history::DEADLINE,
            "{name} has no subnetRef"
        );
        tokio::time::sleep(LOOK).await; // edge: it polls, as the scripts do
    };
    let took = begun.elapsed();
    let subnet = requests.ok(world.subnets.get(&named).await);
    let status = subnet.status.unwrap();
    assert_eq!(
        (subnet.spec.cidr, subnet.spec.cluster_id),
        (range.clone(), name.clone())
    );
    assert_eq!(status.phase, Some(SubnetPhase::Allocated));
    assert!(net(&format!("10.{pool}.0.0/16")).contains(&net(&range)), "{range}");
    let label = Patch::Merge(json!({"metadata": {"labels": {"updated": "yes"}}}));
    requests.ok(world.claims.patch(&name, &PatchParams::default(), &label).await);
    took
}

#[tokio::test(flavor = "multi_thread")]
async fn a24_a_load_of_the_shape_of_upstreams_scripts_runs_without_a_failed_request() {
    let world = World::new().await;
    let mut operator = world.operator().ready().await;
    let requests = Requests::default();
    let begun = Instant::now();
    // Ours are borrowed by every task below.
    let (world, requests) = (&world, &requests);
    futures::stream::iter(0..POOLS)
        .for_each_concurrent(AT_ONCE, |pool| async move {
            let (name, cidr) = (format!("pool-{pool}"), format!("10.{pool}.7.9/16"));
            requests.ok(world
                .try_pool(&name, json!({"cidr": cidr, "defaultBlockSize": 24}))
                .await);
        })
        .await;
    let claims = (0..POOLS).flat_map(|pool| (0..CLAIMS).map(move |number| (pool, number)));
    let claimed = futures::stream::iter(claims)
        .map(|(pool, number)| claim(world, requests, pool, number))
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<Duration>>();
    let outside = futures::stream::iter(0..POOLS).for_each_concurrent(4, |pool| async move {
        let (name, cidr) = (format!("outside-{pool}"), format!("172.16.{pool}.0/24"));
        requests.ok(world.try_subnet(&name, &format!("pool-{pool}"), &cidr).await);
        let note = Patch::Merge(json!({"metadata": {"annotations": {"note": "updated"}}}));
        let pool = format!("pool-{pool}");
        requests.ok(world.pools.patch(&pool, &PatchParams::default(), &note).await);
    });
    let (mut took, ()) = tokio::join!(claimed, outside);
    let wall = begun.elapsed();
    world
        .until("every Subnet outside its pool is Failed, and says so", |now| {
            (0..POOLS).all(|pool| {
                let status = now
                    .subnets
                    .get(&format!("outside-{pool}"))
                    .and_then(|s| s.status.clone());
                status.is_some_and(|status| {
                    status.phase == Some(SubnetPhase::Failed) && status.reason.as_deref() == Some("OutOfRange")
                })
            })
        })
        .await;
    for pool in 0..POOLS {
        world.until_exact(&format!("pool-{pool}")).await;
    }
    took.sort();
    let p = |percent: usize| took[(took.len() - 1) * percent / 100];
    println!(
        "{} requests, none failed, in {wall:.1?}; {} claims over {POOLS} pools, created to subnetRef seen: p50 {:.2?}, \
         p95 {:.2?}, longest {:.2?} (looked at every {LOOK:?})",
        requests.0.load(Ordering::Relaxed),
        took.len(),
        p(50),
        p(95),
        p(100)
    );
    assert!(p(95) < P95, "p95 is {:?}", p(95));
    let all = ListParams::default();
    requests.ok(world.claims.delete_collection(&DeleteParams::default(), &all).await);
    for pool in 0..POOLS {
        let name = format!("outside-{pool}");
        requests.ok(world.subnets.delete(&name, &DeleteParams::default()).await);
    }
    world
        .until("every range is given back", |now| now.subnets.is_empty())
        .await;
    operator.assert_alive();
    let proof = world.history.check();
    assert_eq!((proof.gaps, proof.claims_bound), (0, POOLS * CLAIMS), "{proof:?}");
}
