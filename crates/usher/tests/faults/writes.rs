//! The operator is killed (-9) exactly before and after each of the three writes of an allocation takes effect (R19), in a
//! root pool and in a child pool: the next one finds what is there and finishes (the second half of A15).

use crate::support::World;
use crate::support::history::Now;
use crate::support::invariants::{net, settled};
use crate::support::proxy::{Held, Proxy, Seen, When, on};
use crate::support::world::eventually;
use kube::ResourceExt;
use serde_json::json;
use usher_subnets::api::ClaimPhase;

/// A write of R19, as the proxy sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Write {
    Create,
    Commit,
    Bind,
}

const WRITES: [Write; 3] = [Write::Create, Write::Commit, Write::Bind];

impl Write {
    fn when(self, claim: &str) -> When {
        match self {
            Write::Create => on("POST", "/subnets"),
            Write::Commit => on("PUT", "/subnets/").and("/status"),
            Write::Bind => on("PUT", format!("/subnetclaims/{claim}/status")),
        }
    }
}

/// Whether this is what there is after so many of the three writes.
fn stands(now: &Now, claim: &str, pool: &str, writes: usize) -> bool {
    let Some(claim) = now.claims.get(claim) else {
        return false;
    };
    let of_claim = |uid: &str| claim.uid().as_deref() == Some(uid);
    let subnets: Vec<_> = now
        .subnets
        .values()
        .filter(|s| s.spec.claim_ref.as_ref().is_some_and(|c| of_claim(&c.uid)))
        .collect();
    let bound = claim
        .status
        .as_ref()
        .is_some_and(|status| status.phase == Some(ClaimPhase::Bound));
    let allocated = subnets.iter().any(|s| settled(s));
    let counted = now.allocated(pool)
        == i64::try_from(
            now.subnets
                .values()
                .filter(|s| s.spec.pool_ref == pool && settled(s))
                .count(),
        )
        .ok();
    match writes {
        0 => subnets.is_empty() && !bound,
        1 => subnets.len() == 1 && !allocated && !bound,
        2 => subnets.len() == 1 && allocated && !bound,
        _ => subnets.len() == 1 && allocated && bound && counted,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a15_r19_killed_around_each_of_the_three_writes_the_next_operator_finishes() {
    let world = World::new().await;
    world.pool("root", json!({"cidr": "10.0.0.0/16"})).await;
    let claim = json!({"parentPoolRef": "root", "desiredBlockSize": 20});
    world
        .raw("subnetpoolclaims", "SubnetPoolClaim", "child", &claim)
        .await
        .unwrap();
    let plain = world.operator();
    let operator = plain.ready().await;
    let mut child = String::new();
    world
        .until("the child pool serves", |now| {
            let bound = now
                .pool_claims
                .get("child")
                .and_then(|c| c.status.as_ref()?.bound_pool_name.clone());
            child = bound.unwrap_or_default();
            now.condition(&child, "Ready")
                .is_some_and(|(_, reason, _)| reason == "CIDRAssigned")
        })
        .await;
    operator.kill();

    let mut killed = 0;
    for pool in ["root", child.as_str()] {
        for (done, write) in WRITES.into_iter().enumerate() {
            for after in [false, true] {
                let when = if after { "after" } else { "before" };
                let name = format!("{}-{write:?}-{when}", if pool == "root" { "root" } else { "child" }).to_lowercase();
                let proxy = Proxy::start(world.client.clone()).await;
                let fits = write.when(&name);
                let held = if after {
                    proxy.hold_answers(fits.clone(), 1)
                } else {
                    proxy.hold(fits.clone())
                };
                // The echo of a write may be faster than its answer; the next one would follow it.
                let next = WRITES[done + 1..].iter().map(|write| proxy.hold(write.when(&name)));
                let _next: Vec<Held> = next.collect();
                let operator = plain
                    .clone()
                    .with(&proxy.kubeconfig(&world.file("proxy")))
                    .ready()
                    .await;
                let made = world.claim(&name, json!({"poolRef": pool, "blockSize": 24})).await;
                world.history.until_revision(&made.resource_version().unwrap()).await;
                eventually(&format!("{name}: the write is under way"), async || {
                    let seen = proxy.seen(&fits);
                    seen.iter().any(|request| !after || Seen::took_effect(request))
                })
                .await;
                assert_eq!(held.rule.hits(), 1, "{name}: one write of its kind");
                operator.kill();
                killed += 1;
                drop(proxy);
                // Nothing but that was written, and it is there.
                let writes = done + usize::from(after);
                let what = format!("{name}: {writes} of three writes took effect");
                world
                    .until(&what, |now| {
                        stands(now, &name, pool, writes) || (writes == 3 && now.is_bound(&name))
                    })
                    .await;
                let _operator = plain.ready().await;
                let took = world
                    .until(&format!("{name}: the next one finishes"), |now| {
                        stands(now, &name, pool, 3)
                    })
                    .await;
                let range = world.history.now(|now| net(now.range(&name).unwrap()));
                println!("{name}: {writes} writes had taken effect; finished after {took:.1?} ({range})");
                world.until_exact(pool).await;
            }
        }
    }
    assert_eq!(killed, 12);
    let proof = world.history.check();
    assert_eq!((proof.gaps, proof.claims_bound), (0, 12 + 1), "{proof:?}");
}
