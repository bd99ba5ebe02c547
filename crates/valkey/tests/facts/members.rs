//! Who is a member, who was, and who comes back.

use usher_valkey::observe::seen::{Link, RoleSaid};
use usher_valkey::plan::step::ClusterStep;

use crate::town::{NEWEST, Town, VERSIONS, eventually, range};

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_every_version_form_a_cluster_by_our_steps() {
    for version in VERSIONS {
        let town = Town::form(version, 3, 1).await;
        let says = town.says(3).await;
        assert_eq!(says.version.to_string(), version);
        assert!(
            matches!(says.role, RoleSaid::Replica { link: Link::Up, .. }),
            "{version}"
        );
        assert_eq!(says.shard, town.shard(0).await, "{version}");
        assert_eq!(says.min_replicas, Some(0), "{version}");
        // Steps that are done already are done.
        let (from, to) = (town.server(0).await, town.server(1).await);
        town.perform(&ClusterStep::Meet { from, to }).await.unwrap();
        let (on, primary) = (town.server(3).await, town.id(0).await);
        town.perform(&ClusterStep::Replicate { on, primary }).await.unwrap();
    }
}

/// Why `replica-announce-ip` is fixed: many pods share one machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_on_loopback_that_does_not_announce_itself_is_listed_under_another_address() {
    let mut town = Town::new(NEWEST);
    town.set("replica-announce-ip", None);
    town.grow(3, 1).await;
    let RoleSaid::Primary { replicas, .. } = town.says(0).await.role else {
        panic!()
    };
    assert!(!replicas.contains_key(&town.ip(3)), "{replicas:?}");
    let town = Town::form(NEWEST, 3, 1).await;
    let RoleSaid::Primary { replicas, .. } = town.says(0).await.role else {
        panic!()
    };
    assert!(replicas.contains_key(&town.ip(3)), "{replicas:?}");
}

/// Why `cluster-allow-replica-migration` is fixed to no.
#[tokio::test(flavor = "multi_thread")]
async fn a_drained_primary_stays_a_primary_and_keeps_its_replica() {
    let town = Town::form(NEWEST, 3, 1).await;
    town.migrate(2, 0, &town.says(2).await.own_slots()).await;
    assert!(town.is_primary(2).await);
    let replica = town.says(5).await;
    assert_eq!(replica.myself().unwrap().primary, Some(town.id(2).await));
}

/// R9: the reason for CleanMember.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_only_reset_claims_the_slots_of_its_keys_after_a_restart() {
    for is_cleaned in [false, true] {
        let mut town = Town::form(NEWEST, 3, 1).await;
        let (key, _) = town.key_of(0).await;
        town.tell(0, &format!("SET {key} 1")).await;
        let now = &town;
        eventually("the replica has it", 10, async || now.says(3).await.keys == 1).await;
        // Out of the cluster, as if it came from another life.
        let (old, id) = (town.server(3).await, town.id(3).await);
        if is_cleaned {
            town.tell(3, "CLUSTER RESET HARD").await;
            let on = town.server(3).await;
            town.perform(&ClusterStep::CleanMember { on }).await.unwrap();
        } else {
            town.tell(3, "CLUSTER RESET HARD").await;
        }
        assert_ne!(town.id(3).await, id);
        let conflict = town.perform(&ClusterStep::CleanMember { on: old }).await;
        assert!(conflict.is_err(), "it is another one now");
        for number in 0..3 {
            let by = town.server(number).await;
            town.insist(&ClusterStep::Forget { member: id.clone(), by }).await;
        }
        town.kill(3);
        town.start(3).await;
        let says = town.says(3).await;
        assert_eq!(
            (says.keys, says.own_slots().is_empty()),
            (u64::from(!is_cleaned), is_cleaned)
        );
    }
}

/// R11: reset first, then forget.
#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_member_that_runs_comes_back_and_one_that_was_reset_does_not() {
    let mut town = Town::form(NEWEST, 3, 0).await;
    let (kept, reset) = (town.join().await, town.join().await);
    let ids = [town.id(kept).await, town.id(reset).await];
    let on = town.server(reset).await;
    town.perform(&ClusterStep::ResetMember { on }).await.unwrap();
    assert!(town.says(reset).await.is_alone());
    for member in &ids {
        for number in 0..3 {
            let by = town.server(number).await;
            let forget = ClusterStep::Forget {
                member: member.clone(),
                by,
            };
            town.perform(&forget).await.unwrap();
            // Unknown is success.
            town.perform(&forget).await.unwrap();
        }
    }
    let town = &town;
    let knows = async |id: &_| {
        let view = town.says(0).await.view;
        view.get(id).is_some_and(|peer| !peer.flags.handshake)
    };
    assert!(!knows(&ids[0]).await && !knows(&ids[1]).await);
    eventually("it came back by itself", 100, async || knows(&ids[0]).await).await;
    assert!(!knows(&ids[1]).await, "what was reset stays away");
}

/// R26: a dead owner is forgotten before its slots are given anew.
#[tokio::test(flavor = "multi_thread")]
async fn slots_of_a_dead_owner_are_busy_until_it_is_forgotten() {
    let mut town = Town::form(NEWEST, 3, 0).await;
    let dead = town.id(2).await;
    let slots = town.says(2).await.own_slots();
    town.kill(2);
    let busy = town.ask(0, "CLUSTER ADDSLOTSRANGE 16000 16001").await.unwrap_err();
    assert!(busy.says("busy"), "{busy}");
    let add = ClusterStep::AddSlots {
        to: town.server(0).await,
        slots: slots.clone(),
    };
    let refused = town.perform(&add).await.unwrap_err().to_string();
    assert!(refused.contains("are owned by"), "{refused}");
    for number in 0..2 {
        // Our own step refuses: the dead one owns slots in every view. R26 says that it is provably gone.
        let by = town.server(number).await;
        let forget = ClusterStep::Forget {
            member: dead.clone(),
            by,
        };
        assert!(town.perform(&forget).await.is_err());
        town.tell(number, &format!("CLUSTER FORGET {dead}")).await;
    }
    town.insist(&add).await;
    assert!(slots.minus(&town.says(0).await.own_slots()).is_empty());
}

/// T9, and R16's way from a surplus replica to a new shard.
#[tokio::test(flavor = "multi_thread")]
async fn a_detached_replica_is_an_empty_primary_also_after_a_restart() {
    for version in VERSIONS {
        let mut town = Town::form(version, 3, 1).await;
        let (key, _) = town.key_of(0).await;
        town.tell(0, &format!("SET {key} 1")).await;
        let now = &town;
        eventually("the replica has it", 10, async || now.says(3).await.keys == 1).await;
        let (on, id) = (town.server(3).await, town.id(3).await);
        town.perform(&ClusterStep::Detach { on: on.clone() }).await.unwrap();
        town.perform(&ClusterStep::Detach { on }).await.unwrap();
        let says = town.says(3).await;
        assert!(
            town.is_primary(3).await && says.keys == 0 && says.own_slots().is_empty(),
            "{version}"
        );
        assert_ne!(says.shard, town.shard(0).await, "{version}");
        town.kill(3);
        town.start(3).await;
        town.until_whole().await;
        let says = town.says(3).await;
        println!(
            "{version}: after a restart {} keys, slots {}",
            says.keys,
            says.own_slots()
        );
        assert_eq!((says.id, says.keys), (id, 0), "{version}");
    }
}

/// R8.
#[tokio::test(flavor = "multi_thread")]
async fn one_changed_address_heals_itself_and_all_of_them_are_healed_by_meets() {
    let mut town = Town::form(NEWEST, 3, 1).await;
    let ids = [town.id(0).await, town.id(1).await];
    town.kill(5);
    town.readdress(5);
    town.start(5).await;
    town.until_known().await;
    town.until_whole().await;
    for number in 0..6 {
        town.kill(number);
        town.readdress(number);
    }
    for number in 0..6 {
        town.start(number).await;
    }
    assert!(!town.is_whole().await);
    for from in 0..6 {
        for to in 0..3 {
            let (from, to) = (town.server(from).await, town.server(to).await);
            if from.id != to.id {
                town.perform(&ClusterStep::Meet { from, to }).await.unwrap();
            }
        }
    }
    town.until_known().await;
    town.until_whole().await;
    assert_eq!([town.id(0).await, town.id(1).await], ids);
}

/// R46: what old servers can read of new ones.
#[tokio::test(flavor = "multi_thread")]
async fn all_nines_write_one_data_format() {
    for version in VERSIONS {
        let mut town = Town::new(version);
        let number = town.spawn().await;
        town.tell(number, "SAVE").await;
        let file = std::fs::read(town.folder(number).join("dump.rdb")).unwrap();
        assert!(
            file.starts_with(b"VALKEY080"),
            "{version}: {:?}",
            String::from_utf8_lossy(&file[..9])
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn guards_hold_where_the_world_is_another_than_planned() {
    let town = Town::form(NEWEST, 3, 1).await;
    let (primary, replica) = (town.server(0).await, town.server(3).await);
    let refused = async |step: ClusterStep, why: &str| {
        let failure = town.perform(&step).await.unwrap_err().to_string();
        assert!(failure.contains(why), "{step:?}: {failure}");
    };
    let slots = range(0, 5);
    refused(ClusterStep::ResetMember { on: primary.clone() }, "owns slots").await;
    refused(ClusterStep::CleanMember { on: primary.clone() }, "it is connected with").await;
    let replicate = ClusterStep::Replicate {
        on: primary.clone(),
        primary: town.id(1).await,
    };
    refused(replicate, "it owns slots").await;
    let forget = ClusterStep::Forget {
        member: primary.id.clone(),
        by: town.server(1).await,
    };
    refused(forget, "owns slots in its view").await;
    let add = ClusterStep::AddSlots {
        to: town.server(1).await,
        slots: slots.clone(),
    };
    refused(add, "slots 0-5 are owned by").await;
    let force = ClusterStep::ForceFailover {
        shard: town.shard(3).await,
        to: replica.clone(),
        takeover: false,
    };
    refused(force, "its primary still sends to it").await;
    let ClusterStep::MigrateSlots { from, to, shard, .. } = town.migration(0, 1, slots.clone()).await else {
        panic!()
    };
    let stale = ClusterStep::MigrateSlots {
        from,
        epoch: usher_valkey::words::Epoch(99),
        shard,
        to,
        slots,
    };
    refused(stale, "its epoch is another").await;
    let stale = ClusterStep::Detach {
        on: usher_valkey::plan::step::Server {
            id: primary.id.clone(),
            ..replica
        },
    };
    refused(stale, "it is").await;
    assert!(town.is_whole().await);
}
