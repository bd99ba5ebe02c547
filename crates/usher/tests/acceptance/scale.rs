//! Many at once: A4, A18, A19, and big blocks among many small ones (A5).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::ResourceExt;
use kube::api::{DeleteParams, PropagationPolicy};
use serde_json::json;
use usher_subnets::api::SubnetPhase;

use crate::support::history::Seen;
use crate::support::invariants::{net, overlap, phase};
use crate::support::world::eventually;
use crate::support::{Now, Operator, World};

/// Requests of the test under way at once: "as fast as the server can".
const AT_ONCE: usize = 64;
/// Enough for what a busy machine with two cores needs for ten thousand objects.
const LONG: Duration = Duration::from_secs(400);

/// The n-th /28 from 10.0.0.0.
fn block(n: u32) -> String {
    format!("{}/28", std::net::Ipv4Addr::from(0x0a00_0000 + n * 16))
}

async fn make_subnets(world: &World, numbers: impl IntoIterator<Item = u32>) {
    futures::stream::iter(numbers)
        .for_each_concurrent(AT_ONCE, |n| async move {
            world.subnet(&format!("s{n:05}"), "pool", &block(n)).await;
        })
        .await;
}

async fn delete_subnets(world: &World, names: Vec<String>) {
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    let params = &params;
    futures::stream::iter(names)
        .for_each_concurrent(AT_ONCE, |name| async move {
            world.subnets.delete(&name, params).await.unwrap();
        })
        .await;
}

/// Passes that ended as `result`; all, if that is empty.
fn passes(operator: &Operator, kind: &str, result: &str) -> f64 {
    operator.metric("usher_passes_total", &[&format!("kind=\"{kind}\""), result])
}

#[tokio::test(flavor = "multi_thread")]
async fn a4_a_thousand_claims_in_parallel_are_all_bound_and_all_unique() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world.pool("pool", json!({"cidr": "10.0.0.0/14"})).await;
    let begun = Instant::now();
    let ask = |n: u32| (format!("c{n:04}"), json!({"poolRef": "pool", "blockSize": 24}));
    world.claim_all((0..1000).map(ask)).await;
    world
        .until_within(LONG, "all are Bound, allocatedCount is 1000", |now| {
            now.allocated("pool") == Some(1000) && now.claims.keys().all(|name| now.is_bound(name))
        })
        .await;
    println!("1,000 claims are Bound after {:.1?}", begun.elapsed());
    let ranges: BTreeSet<String> = world.history.now(|now| {
        now.claims
            .keys()
            .map(|name| now.range(name).unwrap().to_owned())
            .collect()
    });
    assert_eq!(ranges.len(), 1000, "1,000 /24 that differ do not overlap");
    world.until_exact("pool").await;
    let proof = world.proof().await;
    assert_eq!(
        (proof.claims_bound, proof.subnets_allocated, proof.gaps),
        (1000, 1000, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a18_a_status_of_12345_subnets_is_exact_and_small_and_lists_them_again_at_400() {
    const MANY: u32 = 12_345;
    let world = World::new().await;
    let operator = world.operator().ready().await;
    world.pool("pool", json!({"cidr": "10.0.0.0/8"})).await;
    let begun = Instant::now();
    make_subnets(&world, 0..MANY).await;
    println!("{MANY} Subnets made after {:.1?}", begun.elapsed());
    let is_exactly = |n: u32| move |now: &Now| now.allocated("pool") == Some(i64::from(n));
    world
        .until_within(LONG, "allocatedCount is 12345", is_exactly(MANY))
        .await;
    println!("and counted after {:.1?}", begun.elapsed());
    world.until_exact("pool").await;
    world.history.now(|now| {
        let status = now.pools["pool"].status.clone().unwrap();
        let bytes = serde_json::to_string(&status).unwrap().len();
        println!("the status has {bytes} bytes");
        assert!(status.allocated_cidrs_omitted && status.allocated_cidrs.is_empty());
        assert!(bytes < 64 * 1024);
        // 12,345 of 2^20.
        assert_eq!(status.free_count_by_size["28"], (1 << 20) - i64::from(MANY));
    });
    // Down to 401 the map stays away, at 400 it is back; and it is whole.
    let names = |range: std::ops::Range<u32>| range.map(|n| format!("s{n:05}")).collect::<Vec<_>>();
    let begun = Instant::now();
    delete_subnets(&world, names(401..MANY)).await;
    world.until_within(LONG, "401 are left", is_exactly(401)).await;
    println!(
        "{} Subnets deleted and counted after {:.1?}",
        MANY - 401,
        begun.elapsed()
    );
    world.history.now(|now| {
        let status = now.pools["pool"].status.clone().unwrap();
        assert!(status.allocated_cidrs_omitted && status.allocated_cidrs.is_empty());
    });
    delete_subnets(&world, names(400..401)).await;
    world.until("400 are left", is_exactly(400)).await;
    world.until_exact("pool").await;
    world.history.now(|now| {
        let status = now.pools["pool"].status.clone().unwrap();
        assert!(!status.allocated_cidrs_omitted);
        assert_eq!(status.allocated_cidrs.len(), 400);
        assert!(serde_json::to_string(&status).unwrap().len() < 64 * 1024);
    });
    // The seed's race: made, and deleted 200 ms later.
    let errors = |operator: &Operator| {
        ["SubnetPool", "Subnet", "SubnetClaim"]
            .map(|kind| passes(operator, kind, "result=\"error\""))
            .iter()
            .sum::<f64>()
    };
    let before = errors(&operator);
    make_subnets(&world, 20_000..20_050).await;
    tokio::time::sleep(Duration::from_millis(200)).await; // edge: the 200 ms of A18
    delete_subnets(&world, names(20_000..20_050)).await;
    world.until("they are gone", |now| now.subnets.len() == 400).await;
    world.until("the count is right", is_exactly(400)).await;
    world.until_exact("pool").await;
    assert_eq!(
        errors(&operator),
        before,
        "no pass ended in an error:\n{}",
        operator.log()
    );
    let proof = world.proof().await;
    assert!(proof.most_at_once >= MANY as usize, "{proof:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a19_deleting_a_thousand_subnets_and_ten_child_pools_costs_few_passes_and_fewer_writes() {
    let world = World::new().await;
    let operator = world.operator().ready().await;
    world.pool("pool", json!({"cidr": "10.0.0.0/8"})).await;
    make_subnets(&world, 0..1000).await;
    for n in 0..10 {
        let cidr = format!("10.{}.0.0/16", 100 + n);
        world
            .child_pool(&format!("child-{n}"), "pool", json!({"cidr": cidr}))
            .await;
    }
    world
        .until_within(LONG, "all are there", |now| {
            let status = now.pools["pool"].status.clone().unwrap_or_default();
            let children = (0..10).all(|n| now.is_ready(&format!("child-{n}")));
            (status.allocated_count, status.child_pools) == (1010, 10) && children
        })
        .await;
    world.until_exact("pool").await;
    let audit = world.audit();
    let (begun, before) = (Instant::now(), passes(&operator, "SubnetPool", ""));
    let pools = async {
        for n in 0..10 {
            let name = format!("child-{n}");
            world.pools.delete(&name, &DeleteParams::default()).await.unwrap();
        }
    };
    let names = (0..1000).map(|n| format!("s{n:05}")).collect();
    tokio::join!(pools, delete_subnets(&world, names));
    world
        .until("all are gone, and the status says so", |now| {
            let status = now.pools["pool"].status.clone().unwrap_or_default();
            let empty = (status.allocated_count, status.child_pools) == (0, 0);
            empty && now.subnets.is_empty() && now.pools.len() == 1
        })
        .await;
    let seconds = begun.elapsed().as_secs_f64();
    let passed = passes(&operator, "SubnetPool", "") - before;
    let requests = audit.requests(&world).await;
    let written = requests
        .iter()
        .filter(|r| r.by("writer") && r.name == "pool" && r.what() == "update subnetpools/status")
        .count();
    println!("{seconds:.1} s: {passed} pool passes, {written} status writes of the parent");
    // The parent's; its children have a few of their own, which are counted with them.
    let most = 100.0 * seconds.ceil() + 10.0 * 20.0;
    assert!(passed <= most, "{passed} passes in {seconds} s");
    assert!(
        written as f64 <= seconds.ceil() + 10.0,
        "R48: {written} status writes in {seconds} s"
    );
    world.until_exact("pool").await;
    let proof = world.proof().await;
    assert_eq!((proof.pools_held, proof.subnets_allocated), (10, 1010));
}

/// A5 with 15 seconds in place of the 5 minutes of R15, by the operator's own flag, and lives of seconds instead of 20
/// minutes of churn: what is decided and in which order is the same.
#[tokio::test(flavor = "multi_thread")]
async fn a5_a_big_claim_is_served_after_its_target_empties_while_small_ones_use_other_space() {
    const BLOCKS: usize = 512;
    let world = World::new().await;
    let operator = world.operator().flag("--subnets-target-after", 15).ready().await;
    world.pool("pool", json!({"cidr": "10.0.0.0/19"})).await;
    let ask = |n: usize| (format!("s{n:05}"), json!({"poolRef": "pool", "blockSize": 28}));
    let name = |n: usize| format!("s{n:05}");
    world.claim_all((0..BLOCKS).map(ask)).await;
    world
        .until_within(LONG, "the pool is full of /28", |now| {
            now.allocated("pool") == Some(512)
        })
        .await;
    world.claim("big", json!({"poolRef": "pool", "blockSize": 20})).await;
    world
        .until("the big one waits", |now| now.reason("big") == Some("PoolExhausted"))
        .await;
    // Others are served over its head, which it alone would not suffer.
    let (mut oldest, mut next) = (0, BLOCKS);
    world.unclaim(&name(oldest)).await;
    world.claim_all([ask(next)]).await;
    world.until_bound(&[&name(next)]).await;
    (oldest, next) = (oldest + 1, next + 1);
    // The upper half has fewer addresses held now; nobody asks, until the target is chosen.
    let upper: Vec<String> = world.history.now(|now| {
        let high = |name: &&String| net("10.0.16.0/20").contains(&net(now.range(name).unwrap_or("0.0.0.0/32")));
        now.claims.keys().filter(high).take(8).cloned().collect()
    });
    assert_eq!(upper.len(), 8);
    world.unclaim_all(upper).await;
    // R15: the one with the fewest held addresses. Nothing moves now, so that whatever is placed later was granted later.
    let target = net("10.0.16.0/20");
    eventually("a block is kept", async || operator.log().contains("a block is kept")).await;
    let log = operator.log();
    let line = log.lines().find(|line| line.contains("a block is kept")).unwrap();
    assert!(line.contains("big") && line.contains("cidr=10.0.16.0/20"), "{line}");
    let chosen = world.history.caught_up(&world.client, &world.namespace).await;
    // Small ones come and go, the oldest go first, until the big one is served.
    let mut rounds = 0;
    while !world.history.now(|now| now.is_bound("big")) {
        assert!(oldest < next, "all that were there are gone, and the big one waits");
        let live_ones: Vec<usize> = world.history.now(|now| {
            (oldest..next)
                .filter(|n| now.claims.contains_key(&name(*n)))
                .take(24)
                .collect()
        });
        let dying = live_ones.iter().map(|n| name(*n)).collect::<Vec<_>>();
        oldest = live_ones.last().map_or(next, |n| n + 1);
        world.unclaim_all(dying.clone()).await;
        world.claim_all((next..next + 12).map(ask)).await;
        next += 12;
        world
            .until("they are gone", |now| {
                dying.iter().all(|name| !now.claims.contains_key(name))
            })
            .await;
        rounds += 1;
    }
    world.until_bound(&["big"]).await;
    world
        .history
        .now(|now| assert_eq!(now.range("big"), Some("10.0.16.0/20")));
    // From the history: after the choice, nothing but the big claim was placed inside the target, and others were outside.
    let (mut inside, mut outside) = (BTreeSet::new(), BTreeSet::new());
    let mut known = BTreeSet::new();
    for entry in world.history.entries() {
        let Seen::Subnet(subnet) = &entry.object else { continue };
        if !known.insert(subnet.uid()) || entry.revision <= chosen {
            continue;
        }
        let claim = subnet.spec.claim_ref.clone().unwrap().name;
        match overlap(&net(&subnet.spec.cidr), &target) {
            true => inside.insert(claim),
            false => outside.insert(claim),
        };
    }
    println!(
        "{rounds} rounds; {} small ones were served elsewhere meanwhile",
        outside.len()
    );
    assert_eq!(inside.into_iter().collect::<Vec<_>>(), ["big"]);
    assert!(
        outside.len() > 50,
        "younger ones did use other space: {}",
        outside.len()
    );
    // Nobody is kept out for longer than that.
    world
        .until("the small ones that wait are served again where there is room", |now| {
            let free = now.pools["pool"].status.as_ref().unwrap().free_count_by_size["28"];
            let waiting = now.pools["pool"].status.as_ref().unwrap().waiting_claims;
            free == 0 || waiting == 0
        })
        .await;
    world.history.now(|now| {
        let big = now.claims["big"].status.clone().unwrap();
        let subnet = &now.subnets[&big.subnet_ref.unwrap()];
        assert_eq!((big.message, phase(subnet)), (None, Some(SubnetPhase::Allocated)));
    });
    world.until_exact("pool").await;
    world.proof().await;
}
