//! The operator as a process: what it costs the API server, which rights it needs, where it acts, how it stops.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt;
use serde_json::json;

use crate::support::World;
use crate::support::audit::Request;
use crate::support::plane::left_out;
use crate::support::rights;

/// Requests of the operators in this world, by what they are.
fn by_what<'r>(requests: impl IntoIterator<Item = &'r Request>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in requests {
        *counts.entry(request.what()).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn i11_a_bound_claim_costs_three_writes_a_release_two_and_no_reads() {
    const CLAIMS: usize = 60;
    let world = World::new().await;
    world.pool("linear", json!({"cidr": "10.0.0.0/16"})).await;
    world
        .pool("buddy", json!({"cidr": "10.1.0.0/16", "strategy": "Buddy"}))
        .await;
    let _operator = world.operator().ready().await;
    world.until_exact("linear").await;
    world.until_exact("buddy").await;
    let audit = world.audit();
    let names: Vec<String> = (0..CLAIMS).map(|n| format!("c{n:02}")).collect();
    // In small groups, so that none is young and unserved for long: one that is says so, which is one more write.
    for group in names.chunks(6) {
        let ask = |name: &String| {
            let pool = if name.ends_with(['0', '2', '4', '6', '8']) {
                "linear"
            } else {
                "buddy"
            };
            (
                name.clone(),
                json!({"poolRef": pool, "blockSize": 20 + name.as_bytes()[2] % 9}),
            )
        };
        world.claim_all(group.iter().map(ask)).await;
        let group: Vec<&str> = group.iter().map(String::as_str).collect();
        world.until_bound(&group).await;
    }
    world.until_exact("linear").await;
    world.until_exact("buddy").await;
    let placed = audit.requests(&world).await;
    let writes: Vec<&Request> = placed.iter().filter(|r| r.by("writer") && r.is_write()).collect();
    let counts = by_what(writes.iter().copied());
    println!("writes for {CLAIMS} claims: {counts:?}");
    assert_eq!(counts.get("create subnets"), Some(&CLAIMS), "I11, write 1 of R19");
    assert_eq!(
        counts.get("update subnets/status"),
        Some(&CLAIMS),
        "I11, write 2 of R19"
    );
    assert_eq!(
        counts.get("update subnetclaims/status"),
        Some(&CLAIMS),
        "I11, write 3 of R19"
    );
    let pool_writes = |counts: &BTreeMap<String, usize>| {
        let of_pools = |what: &str| what.ends_with("subnetpools/status") || what.ends_with("subnetpools");
        counts
            .iter()
            .filter(|(what, _)| of_pools(what))
            .map(|(_, n)| n)
            .sum::<usize>()
    };
    assert_eq!(
        writes.len(),
        3 * CLAIMS + pool_writes(&counts),
        "nothing else is written: {counts:?}"
    );
    assert!(writes.iter().all(|r| r.succeeded()), "no write is in vain: {counts:?}");

    let audit = world.audit();
    world.unclaim_all(names).await;
    world.until("all is given back", |now| now.subnets.is_empty()).await;
    world.until_exact("linear").await;
    world.until_exact("buddy").await;
    let released = audit.requests(&world).await;
    let writes: Vec<&Request> = released.iter().filter(|r| r.by("writer") && r.is_write()).collect();
    let counts = by_what(writes.iter().copied());
    println!("writes for {CLAIMS} releases: {counts:?}");
    // The garbage collector may be the one who marks a Subnet.
    assert!(writes.len() <= 2 * CLAIMS + pool_writes(&counts), "I11: {counts:?}");

    // No reads after start; but whoever is told that somebody was quicker (409) may look once.
    let quicker = |r: &Request| writes.iter().any(|w| w.code == 409 && w.name == r.name);
    let ours = |r: &&Request| (r.by("writer") || r.by("watch")) && !r.is_write();
    let reads = placed.iter().filter(ours);
    let reads: Vec<&Request> = reads
        .chain(released.iter().filter(ours).filter(|r| !quicker(r)))
        .collect();
    assert!(reads.is_empty(), "I11: no reads after start: {reads:#?}");
    world.history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_named_and_once_granted_all_goes_on_without_a_restart() {
    if left_out("a_missing_right_is_named_and_once_granted_all_goes_on_without_a_restart") {
        return;
    }
    let world = World::new().await;
    let mut lacking = rights::all();
    lacking[0] = json!({
        "apiGroups": ["plexaubnet.io"],
        "resources": ["subnets", "subnets/finalizers", "subnetpools", "subnetpools/status", "subnetclaims",
                      "subnetclaims/status", "subnetclaims/finalizers", "subnetpoolclaims", "subnetpoolclaims/status",
                      "subnetpoolclaims/finalizers"],
        "verbs": ["*"],
    });
    world.grant(lacking).await;
    let kubeconfig = world.account("usher").await;
    let mut operator = world.operator().with(&kubeconfig).ready().await;
    let pid = operator.pid();
    world.pool("pool", json!({"cidr": "10.0.0.0/24"})).await;
    world.claim("claim", json!({"poolRef": "pool", "blockSize": 28})).await;
    world.until_event("Subnet", "pool-10-0-0-0-28", "subnets/status").await;
    let told = world.events("Subnet", "pool-10-0-0-0-28").await.join("\n");
    assert!(
        told.contains("cannot update resource \"subnets/status\""),
        "the right is named: {told}"
    );
    assert!(told.contains("usher install"), "and what to do: {told}");
    assert!(
        operator.log().contains("cannot update resource \"subnets/status\""),
        "also in the log"
    );
    world.history.now(|now| assert!(!now.is_bound("claim")));
    world.grant(rights::all()).await;
    let took = world.until_bound(&["claim"]).await;
    println!("after the right was granted, the claim was Bound in {took:.1?}");
    operator.assert_alive();
    assert_eq!(operator.pid(), pid);
    world.history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_of_one_namespace_touches_no_other() {
    let (here, there) = (World::new().await, World::new().await);
    let audit = there.audit();
    // Rights in its own namespace are all it needs; a watch of all namespaces would be refused.
    here.grant(rights::all()).await;
    let kubeconfig = here.account("usher").await;
    let _operator = here.operator().with(&kubeconfig).lease("usher").ready().await;
    for world in [&there, &here] {
        world.pool("pool", json!({"cidr": "10.0.0.0/24"})).await;
        world.claim("claim", json!({"poolRef": "pool", "blockSize": 28})).await;
    }
    here.until_bound(&["claim"]).await;
    here.until_exact("pool").await;
    there
        .until("both are there", |now| !now.pools.is_empty() && !now.claims.is_empty())
        .await;
    there.history.now(|now| {
        assert!(now.subnets.is_empty() && now.claims["claim"].status.is_none() && now.pools["pool"].status.is_none());
        assert!(now.pools["pool"].finalizers().is_empty());
    });
    let asked = audit.requests(&there).await;
    let ours: Vec<_> = asked.iter().filter(|r| r.agent.starts_with("usher/")).collect();
    assert!(ours.is_empty(), "{ours:?}");
    here.history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_under_load_ends_in_order_and_gives_the_lease_back() {
    let world = World::new().await;
    world.pool("pool", json!({"cidr": "10.0.0.0/16"})).await;
    let first = world.operator().lease("first").ready().await;
    let names: Vec<String> = (0..300).map(|n| format!("c{n:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let asks = world.claim_all(
        names
            .iter()
            .map(|name| ((*name).to_owned(), json!({"poolRef": "pool", "blockSize": 28}))),
    );
    let stops = async {
        world
            .until("it is in the middle of the work", |now| {
                names.iter().filter(|name| now.is_bound(name)).count() > 60
            })
            .await;
        first.terminate().await
    };
    let ((), (status, took)) = tokio::join!(asks, stops);
    assert_eq!(status.code(), Some(0), "SIGTERM is an orderly end");
    assert!(took < Duration::from_secs(10), "it took {took:?}");
    world
        .until("the lease has no holder", |now| {
            let spec = now.leases.get("usher-operator").and_then(|lease| lease.spec.clone());
            spec.is_some_and(|spec| spec.holder_identity.unwrap_or_default().is_empty())
        })
        .await;
    let bound = world
        .history
        .now(|now| names.iter().filter(|name| now.is_bound(name)).count());
    let _second = world.operator().lease("second").ready().await;
    let rest = world.until_bound(&names).await;
    println!("SIGTERM with {bound} of 300 Bound: ended after {took:.1?}; the next one bound the rest in {rest:.1?}");
    world.until_exact("pool").await;
    let proof = world.history.check();
    assert_eq!((proof.claims_bound, proof.subnets_allocated), (300, 300));
}
