//! Who takes over, and when nobody does.

use std::time::{Duration, Instant};

use usher_valkey::observe::seen::{Link, RoleSaid};
use usher_valkey::plan::step::ClusterStep;

use crate::town::{NEWEST, Town, VERSIONS, eventually};

/// R28: `OK` is no promise. Whether the primary hears of its new replica in time is a race, so it is tried until it was lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_does_not_know_its_replica_yet_lets_it_ask_in_vain() {
    let mut town = Town::form(NEWEST, 3, 0).await;
    let spare = town.join().await;
    let (primary, town) = (town.id(0).await, &town);
    let replicate = format!("CLUSTER REPLICATE {primary}");
    let mut tries = 0;
    loop {
        tries += 1;
        assert!(tries <= 10, "the primary was faster each time");
        town.tell_all(spare, &[&replicate, "CLUSTER FAILOVER"]).await;
        // A failover that has not come about after 5 s is given up by the replica itself.
        let began = Instant::now();
        let is_over = || began.elapsed() > Duration::from_secs(6);
        eventually("it took over, or gave up", 15, async || {
            is_over() || town.is_primary(spare).await
        })
        .await;
        if !town.is_primary(spare).await {
            break;
        }
        town.until_whole().await;
        town.hand_over(spare, 0).await;
        let on = town.server(spare).await;
        town.insist(&ClusterStep::Detach { on }).await;
        town.until_whole().await;
    }
    // Our guard waits until the primary lists it, and then it comes about.
    town.hand_over(0, spare).await;
    assert!(!town.is_primary(0).await);
}

/// R32.
#[tokio::test(flavor = "multi_thread")]
async fn without_its_primary_a_replica_takes_over_by_force_only() {
    for version in VERSIONS {
        let mut town = Town::new(version);
        // No vote of their own before we have looked.
        town.set("cluster-node-timeout", Some("20000"));
        town.grow(3, 1).await;
        town.kill(0);
        let now = &town;
        eventually("the link is down", 10, async || {
            matches!(now.says(3).await.role, RoleSaid::Replica { link: Link::Down, .. })
        })
        .await;
        let refused = town.ask(3, "CLUSTER FAILOVER").await.unwrap_err();
        assert!(refused.says("FORCE"), "{version}: {refused}");
        let force = ClusterStep::ForceFailover {
            shard: town.shard(3).await,
            to: town.server(3).await,
            takeover: false,
        };
        town.insist(&force).await;
        eventually("it has taken over", 15, async || now.is_primary(3).await).await;
        // Done already.
        town.perform(&force).await.unwrap();
    }
}

/// R32: without a majority nobody is elected, and TAKEOVER asks nobody.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_only_takeover_helps() {
    let mut town = Town::form(NEWEST, 3, 1).await;
    town.kill(0);
    town.kill(1);
    for (replica, takeover) in [(3, false), (3, true), (4, true)] {
        let step = ClusterStep::ForceFailover {
            shard: town.shard(replica).await,
            to: town.server(replica).await,
            takeover,
        };
        town.insist(&step).await;
        let now = &town;
        if takeover {
            eventually("it has taken over", 10, async || now.is_primary(replica).await).await;
        } else {
            assert!(!town.is_primary(replica).await);
        }
    }
    town.until_whole().await;
}
