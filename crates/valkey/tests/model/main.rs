//! The model, held to what was seen of real servers: the spec's ✓ facts (`tests/facts` holds the servers to them).

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod formed;

use formed::*;
use usher_valkey::model::{Setup, Stage, Sync, World};
use usher_valkey::observe::{Answer, Memory};
use usher_valkey::plan::step::ClusterStep;
use usher_valkey::words::{Ordinal, ServerVersion, Slot, SlotSet};

fn small() -> Setup {
    let mut setup = Setup::default();
    setup.habits.slots = 8;
    setup
}

fn seeded(seed: u64) -> Setup {
    Setup { seed, ..small() }
}

#[test]
fn a_cluster_forms_within_ten_seconds_and_serves() {
    for seed in 0..10 {
        let world = busy(seeded(seed), 3, 1);
        assert!(world.now < 25_000, "took {} ms", world.now);
        assert_eq!(world.served(), SlotSet::first(8));
        assert!(world.clients.acknowledged.len() == 8);
    }
}

#[test]
fn a_killed_primary_is_replaced_in_about_the_node_timeout_and_comes_back_as_a_replica() {
    for seed in 0..10 {
        let mut world = busy(seeded(seed), 3, 1);
        world.kube.stuck.insert(Ordinal(0), "held".into());
        world.kill(Ordinal(0));
        let took = until(&mut world, 20_000, "the replica takes over", |world| {
            server(world, 3).is_primary()
        });
        assert!((5_000..=10_500).contains(&took), "took {took} ms");
        world.kube.stuck.clear();
        until(&mut world, 30_000, "the old one follows", |world| {
            running(world, 6) && server(world, 0).primary() == Some(&id(world, 3)) && well(world, 6)
        });
        let outage = world.clients.troubles.iter().map(|trouble| trouble.at).max();
        assert!(outage.is_some(), "nobody noticed");
        let stale: Vec<_> = world
            .clients
            .troubles
            .iter()
            .filter(|t| t.what.contains("acknowledged"))
            .collect();
        assert!(stale.is_empty(), "{stale:?}");
        assert_eq!(world.served(), SlotSet::first(8));
    }
}

#[test]
fn a_planned_failover_takes_under_a_second_and_no_client_notices() {
    for seed in 0..20 {
        let mut world = busy(seeded(seed), 3, 1);
        failover(&mut world, 1, 4).unwrap();
        let took = until(&mut world, 5_000, "it takes over", |world| {
            server(world, 4).is_primary()
        });
        assert!(took <= 1_000, "took {took} ms");
        until(&mut world, 5_000, "all is well", |world| well(world, 6));
        assert_eq!(server(&world, 1).primary(), Some(&id(&world, 4)));
        assert_eq!(world.clients.troubles, []);
        assert!(world.clients.longest_hold_ms <= 1_000);
    }
}

#[test]
fn a_primary_that_does_not_list_the_replica_answers_ok_and_nothing_happens() {
    let mut world = busy(small(), 3, 1);
    // The primary does not hear of it: letters from 4 to 1 are lost, the stream is not.
    let other = id(&world, 2);
    let mut meant = world.clone();
    let replica = id(&meant, 4);
    meant
        .servers
        .get_mut(&1)
        .unwrap()
        .conf
        .peers
        .get_mut(&replica)
        .unwrap()
        .primary = Some(other);
    // Asked as the servers are, without a guard of ours.
    let primary = meant.servers.get_mut(&1).unwrap().clone();
    meant.faults.blind = true;
    failover(&mut meant, 1, 4).unwrap();
    meant.servers.insert(1, primary);
    meant.advance(60);
    assert!(meant.servers[&1].handing_over.is_none() && !server(&meant, 4).is_primary());
    // Our guard refuses it.
    world
        .servers
        .get_mut(&1)
        .unwrap()
        .conf
        .peers
        .get_mut(&replica)
        .unwrap()
        .primary = None;
    let refused = failover(&mut world, 1, 4).unwrap_err();
    assert!(refused.contains("does not list"), "{refused}");
}

#[test]
fn plain_failover_is_refused_without_a_primary_and_force_passes() {
    let mut world = busy(small(), 3, 1);
    world.habits.validity_factor = 0;
    world.kube.stuck.insert(Ordinal(0), "held".into());
    world.kill(Ordinal(0));
    until(&mut world, 20_000, "the primary is failed", |world| {
        server(world, 3)
            .conf
            .peers
            .values()
            .any(|peer| peer.failed_at.is_some())
    });
    let refused = world
        .with(3, |server, around| server.failover(around))
        .unwrap()
        .unwrap_err();
    assert!(refused.contains("FORCE"), "{refused}");
    let step = ClusterStep::ForceFailover {
        shard: shard(&world, 3),
        to: named(&world, 3),
        takeover: false,
    };
    if !server(&world, 3).is_primary() {
        world.apply(&step).unwrap();
    }
    until(&mut world, 10_000, "forced", |world| server(world, 3).is_primary());
}

#[test]
fn takeover_needs_nobody_and_two_with_one_epoch_settle_it() {
    let mut world = cluster(small(), 3, 1);
    for seat in [0, 1] {
        world.kube.stuck.insert(Ordinal(seat), "held".into());
        world.kill(Ordinal(seat));
    }
    world.advance(30_000);
    // Two of three are gone: nobody can vote.
    assert!(!server(&world, 3).is_primary() && !server(&world, 4).is_primary());
    assert!(!server(&world, 2).state_ok, "a minority does not serve");
    for seat in [3, 4] {
        let (shard, to) = (shard(&world, seat), named(&world, seat));
        let takeover = true;
        world
            .apply(&ClusterStep::ForceFailover { shard, to, takeover })
            .unwrap();
    }
    until(
        &mut world,
        20_000,
        "both have taken over, with different epochs",
        |world| {
            let (a, b, c) = (server(world, 3), server(world, 4), server(world, 2));
            let epochs = [a.epoch(), b.epoch(), c.epoch()];
            let mut distinct = epochs.to_vec();
            distinct.sort_unstable();
            distinct.dedup();
            distinct.len() == 3 && c.state_ok && a.slots().count() + b.slots().count() + c.slots().count() == 8
        },
    );
}

#[test]
fn slots_move_atomically_under_writes_and_a_fresh_destination_answers_clusterdown() {
    for seed in 0..10 {
        let mut world = busy(seeded(seed), 3, 0);
        world.kube.set.as_mut().unwrap().replicas = 4;
        until(&mut world, 5_000, "it starts", |world| running(world, 4));
        let (from, to) = (named(&world, 0), named(&world, 3));
        world.apply(&ClusterStep::Meet { from, to }).unwrap();
        until(&mut world, 10_000, "it joins", |world| all_know_all(world, 4));
        let give = server(&world, 0).slots().highest(1);
        let refused = migrate(&mut world, 0, 3, give.clone()).unwrap_err();
        assert!(refused.contains("cluster_state"), "{refused}");
        // Without the guard clients see errors for seconds (R21).
        let mut careless = world.clone();
        careless.faults.blind = true;
        migrate(&mut careless, 0, 3, give.clone()).unwrap();
        careless.advance(10_000);
        let down = careless
            .clients
            .troubles
            .iter()
            .filter(|t| t.what.contains("CLUSTERDOWN"));
        let down: Vec<u64> = down.map(|t| t.at).collect();
        let lasted = down.last().unwrap() - down.first().unwrap();
        assert!((500..=5_500).contains(&lasted), "lasted {lasted} ms");
        assert!(down.len() > 10);
        let ready = until(&mut world, 10_000, "it says ok itself", |world| {
            server(world, 3).state_ok
        });
        assert!(ready <= 6_000, "{ready}");
        migrate(&mut world, 0, 3, give.clone()).unwrap();
        until(&mut world, 5_000, "the job ends", |world| {
            server(world, 3).slots() == give
        });
        until(&mut world, 5_000, "all agree", |world| well(world, 4));
        assert_eq!(server(&world, 0).jobs[0].stage, Stage::Success);
        assert_eq!(world.clients.troubles, []);
    }
}

#[test]
fn a_job_that_fails_at_any_stage_leaves_everything_as_it_was() {
    for stage in Stage::WAY {
        let mut world = busy(small(), 3, 0);
        let before: Vec<SlotSet> = (0..3).map(|seat| server(&world, seat).slots()).collect();
        world.faults.jobs_fail_at = Some(stage);
        let give = server(&world, 0).slots().highest(1);
        migrate(&mut world, 0, 1, give.clone()).unwrap();
        until(&mut world, 15_000, "it fails", |world| {
            server(world, 0).jobs[0].stage.over()
        });
        let job = server(&world, 0).jobs[0].clone();
        assert_eq!(job.stage, Stage::Failed, "{stage:?}");
        let after: Vec<SlotSet> = (0..3).map(|seat| server(&world, seat).slots()).collect();
        assert_eq!(before, after);
        world.faults.jobs_fail_at = None;
        migrate(&mut world, 0, 1, give.clone()).unwrap();
        until(&mut world, 5_000, "and then does not", |world| !world.moving());
        assert!(server(&world, 1).slots().contains(give.lowest().unwrap()));
        world.advance(1_000);
        assert_eq!(world.clients.troubles, [], "{stage:?}");
    }
}

#[test]
fn the_job_log_is_in_memory_and_a_killed_giver_ends_the_takers_job() {
    let mut world = busy(small(), 3, 0);
    world.habits.job_stage_ms = 3_000;
    let give = server(&world, 0).slots().highest(1);
    migrate(&mut world, 0, 1, give).unwrap();
    world.advance(4_000);
    assert!(server(&world, 1).jobs.iter().any(|job| !job.stage.over()));
    world.kill(Ordinal(0));
    until(&mut world, 10_000, "it is back", |world| running(world, 3));
    assert!(server(&world, 0).jobs.is_empty());
    world.advance(500);
    assert!(server(&world, 1).jobs.iter().all(|job| job.stage == Stage::Failed));
}

#[test]
fn key_by_key_clients_see_ask_and_no_error() {
    let mut world = busy(small(), 3, 0);
    let slot = server(&world, 0).slots().lowest().unwrap();
    let (source, target) = (id(&world, 0), id(&world, 1));
    world
        .with(1, |server, _| server.set_importing(slot, &source))
        .unwrap()
        .unwrap();
    world
        .with(0, |server, _| server.set_migrating(slot, &target))
        .unwrap()
        .unwrap();
    world.advance(1_000);
    assert_eq!(world.clients.troubles, []);
    let (from, to) = (named(&world, 0), named(&world, 1));
    let shard = shard(&world, 0);
    world
        .apply(&ClusterStep::MoveSlotByKeys { slot, from, shard, to })
        .unwrap();
    assert!(server(&world, 1).slots().contains(slot));
    until(&mut world, 5_000, "all agree", |world| well(world, 3));
    assert!(server(&world, 1).conf.importing.is_empty() && server(&world, 0).conf.migrating.is_empty());
    assert_eq!(world.clients.troubles, []);
}

#[test]
fn a_forgotten_server_that_runs_on_comes_back_by_itself_within_a_minute() {
    let mut world = cluster(small(), 3, 0);
    world.kube.set.as_mut().unwrap().replicas = 4;
    until(&mut world, 5_000, "it starts", |world| running(world, 4));
    let (from, to) = (named(&world, 0), named(&world, 3));
    world.apply(&ClusterStep::Meet { from, to }).unwrap();
    until(&mut world, 10_000, "it joins", |world| all_know_all(world, 4));
    let member = id(&world, 3);
    // One FORGET is enough: it travels with gossip.
    let by = named(&world, 0);
    let known = |world: &World, member: &_| {
        let knows = |seat: u16| server(world, seat).conf.peers.contains_key(member);
        (0..3).filter(|seat| knows(*seat)).count()
    };
    world
        .apply(&ClusterStep::Forget {
            member: member.clone(),
            by,
        })
        .unwrap();
    until(&mut world, 10_000, "all have forgotten it", |world| {
        known(world, &member) == 0
    });
    let back = until(&mut world, 61_000, "it is back", |world| known(world, &member) > 0);
    assert!(back >= 1_000, "{back}");
    // A reset one stays away, and its old id is nobody any more.
    let mut world = world.clone();
    let on = named(&world, 3);
    world.apply(&ClusterStep::ResetMember { on }).unwrap();
    until(&mut world, 20_000, "the old id has no address", |world| {
        let entries = (0..3).filter_map(|seat| server(world, seat).conf.peers.get(&member));
        entries.into_iter().all(|entry| entry.address.is_none())
    });
    for seat in 0..3 {
        let by = named(&world, seat);
        world
            .apply(&ClusterStep::Forget {
                member: member.clone(),
                by,
            })
            .unwrap();
    }
    world.advance(120_000);
    assert_eq!(known(&world, &member), 0);
}

#[test]
fn one_changed_address_heals_itself_and_all_changed_need_a_meet() {
    let mut world = cluster(small(), 3, 0);
    world.lose_pod(Ordinal(1));
    let healed = until(&mut world, 40_000, "one is back", |world| {
        running(world, 3) && well(world, 3)
    });
    assert!(healed <= 20_000, "{healed}");
    for ordinal in 0..3 {
        world.lose_pod(Ordinal(ordinal));
    }
    until(&mut world, 10_000, "all run", |world| running(world, 3));
    world.advance(60_000);
    assert!(
        (0..3).all(|seat| !server(&world, seat).state_ok),
        "nobody finds anybody"
    );
    for (from, to) in [(0, 1), (0, 2), (1, 2)] {
        let (from, to) = (named(&world, from), named(&world, to));
        world.apply(&ClusterStep::Meet { from, to }).unwrap();
    }
    let took = until(&mut world, 30_000, "they have found each other", |world| well(world, 3));
    assert!(took <= 15_000, "{took}");
    assert_eq!(world.served(), SlotSet::first(8));
}

#[test]
fn reset_alone_leaves_keys_in_the_aof_which_claim_their_slots_at_the_next_start() {
    let mut world = busy(small(), 3, 1);
    world.clients.on = false;
    world.advance(200);
    world
        .with(3, |server, around| server.reset(true, around))
        .unwrap()
        .unwrap();
    assert_eq!(server(&world, 3).store.keys.count(), 0);
    world.kill(Ordinal(3));
    until(&mut world, 5_000, "it is back", |world| running(world, 6));
    assert!(!server(&world, 3).slots().is_empty(), "it claims slots: its keys'");
    // Cleaned, it stays empty.
    let mut world = world.clone();
    let on = named(&world, 3);
    world.apply(&ClusterStep::CleanMember { on }).unwrap();
    world.kill(Ordinal(3));
    until(&mut world, 5_000, "it is back", |world| running(world, 6));
    assert!(server(&world, 3).slots().is_empty() && server(&world, 3).store.keys.count() == 0);
}

#[test]
fn slots_of_the_dead_are_busy_until_the_dead_are_forgotten() {
    let mut world = cluster(small(), 3, 0);
    let (lost, dead) = (server(&world, 2).slots(), id(&world, 2));
    world.lose_volume(Ordinal(2));
    until(&mut world, 10_000, "somebody new sits there", |world| running(world, 3));
    let (from, to) = (named(&world, 0), named(&world, 2));
    world.apply(&ClusterStep::Meet { from, to }).unwrap();
    until(&mut world, 10_000, "it joins", |world| all_know_all(world, 3));
    // A newcomer hears of the dead one, and not of what it owned: for it those slots are free.
    let heard = server(&world, 2).conf.peers[&dead].clone();
    assert!(heard.slots.is_empty() && heard.epoch == 0);
    let busy = world.with(0, |server, _| server.add_slots(&lost)).unwrap().unwrap_err();
    assert!(busy.contains("busy"), "{busy}");
    // Our guard does not forget an owner; R26 does, in the end.
    world.faults.blind = true;
    for seat in 0..3 {
        let by = named(&world, seat);
        world
            .apply(&ClusterStep::Forget {
                member: dead.clone(),
                by,
            })
            .unwrap();
    }
    world.with(2, |server, _| server.add_slots(&lost)).unwrap().unwrap();
    until(&mut world, 15_000, "all is well", |world| well(world, 3));
}

#[test]
fn a_drained_primary_stays_an_empty_primary_and_its_replicas_stay_with_it() {
    let mut world = busy(small(), 3, 1);
    let all = server(&world, 0).slots();
    for slot in all.iter() {
        let to = if slot.0 % 2 == 0 { 1 } else { 2 };
        migrate(&mut world, 0, to, SlotSet::one(slot)).unwrap();
        until(&mut world, 5_000, "it moves", |world| !world.moving());
        until(&mut world, 5_000, "all agree", |world| well(world, 6));
    }
    world.advance(60_000);
    assert!(server(&world, 0).is_primary() && server(&world, 0).slots().is_empty());
    assert_eq!(server(&world, 3).primary(), Some(&id(&world, 0)));
    assert_eq!(world.clients.troubles, []);
}

#[test]
fn one_job_that_takes_everything_leaves_an_empty_primary_too() {
    let mut world = busy(small(), 3, 0);
    world.kube.set.as_mut().unwrap().replicas = 4;
    until(&mut world, 5_000, "it starts", |world| running(world, 4));
    let (from, to) = (named(&world, 0), named(&world, 3));
    world.apply(&ClusterStep::Meet { from, to }).unwrap();
    until(&mut world, 20_000, "it joins", |world| {
        all_know_all(world, 4) && server(world, 3).state_ok
    });
    let all = server(&world, 0).slots();
    migrate(&mut world, 0, 3, all.clone()).unwrap();
    until(&mut world, 5_000, "it has them", |world| {
        server(world, 3).slots() == all
    });
    world.advance(5_000);
    assert!(server(&world, 0).is_primary() && well(&world, 4));
    assert_eq!(world.clients.troubles, []);
}

#[test]
fn replicate_no_one_makes_an_empty_primary_in_a_shard_of_its_own() {
    let mut world = busy(small(), 3, 1);
    let on = named(&world, 3);
    world.apply(&ClusterStep::Detach { on }).unwrap();
    assert!(server(&world, 3).is_primary() && server(&world, 3).store.keys.count() == 0);
    assert_ne!(shard(&world, 3), shard(&world, 0));
    until(&mut world, 5_000, "all agree", |world| well(world, 6));
}

#[test]
fn a_demoted_primary_goes_on_where_it_was_without_a_full_sync() {
    let mut world = busy(small(), 3, 1);
    failover(&mut world, 0, 3).unwrap();
    until(&mut world, 5_000, "it takes over", |world| {
        server(world, 0).primary().is_some()
    });
    let mut full = false;
    until(&mut world, 5_000, "all is well", |world| well(world, 6));
    full |= matches!(server(&world, 0).sync, Sync::Full(_));
    assert!(!full);
    // All the data takes longer than this.
    assert!(world.habits.sync_ms > 500);
}

#[test]
fn a_deleted_primary_with_nobody_to_relieve_it_breaks_connections_for_a_moment_only() {
    let mut world = busy(small(), 3, 1);
    world.kube.delete_pod(Ordinal(0), world.now);
    until(&mut world, 30_000, "the replica has taken over", |world| {
        server(world, 3).is_primary()
    });
    until(&mut world, 30_000, "all is well", |world| {
        running(world, 6) && well(world, 6)
    });
    let troubles = &world.clients.troubles;
    let (first, last) = (troubles.first().unwrap().at, troubles.last().unwrap().at);
    assert!(last - first <= 1_000, "{} ms", last - first);
    assert!(
        troubles.iter().all(|trouble| !trouble.what.contains("acknowledged")),
        "{troubles:?}"
    );
}

#[test]
fn a_primary_without_files_comes_back_as_somebody_new_and_never_empties_its_replicas() {
    let mut setup = small();
    (setup.habits.aof, setup.habits.rdb) = (false, false);
    let mut world = busy(setup, 3, 1);
    let (old, keys) = (id(&world, 0), server(&world, 3).store.keys.count());
    world.kill(Ordinal(0));
    until(&mut world, 20_000, "the replica takes over", |world| {
        server(world, 3).is_primary()
    });
    until(&mut world, 20_000, "it runs", |world| running(world, 6));
    assert_ne!(id(&world, 0), old);
    assert!(server(&world, 3).store.keys.count() >= keys);
}

#[test]
fn a_stale_primary_that_was_cut_off_stops_serving_and_follows() {
    let mut world = busy(small(), 3, 1);
    world.isolate(0, true);
    until(&mut world, 20_000, "the replica takes over", |world| {
        server(world, 3).is_primary()
    });
    assert!(!server(&world, 0).state_ok, "it is with a minority");
    world.isolate(0, false);
    until(&mut world, 30_000, "it follows", |world| well(world, 6));
    assert_eq!(server(&world, 0).primary(), Some(&id(&world, 3)));
}

#[test]
fn r46_no_older_server_reads_a_newer_ones_data() {
    let old = ServerVersion::parse("8.1.3").unwrap();
    let mut world = cluster(small(), 3, 0);
    world.kube.set.as_mut().unwrap().version = old;
    world.kube.set.as_mut().unwrap().replicas = 4;
    until(&mut world, 5_000, "it starts", |world| running(world, 4));
    let (from, to) = (named(&world, 0), named(&world, 3));
    world.apply(&ClusterStep::Meet { from, to }).unwrap();
    until(&mut world, 10_000, "it joins", |world| all_know_all(world, 4));
    let (on, primary) = (named(&world, 3), id(&world, 0));
    world.apply(&ClusterStep::Replicate { on, primary }).unwrap();
    world.advance(20_000);
    assert_eq!(server(&world, 3).sync, Sync::Down);
}

#[test]
fn what_is_seen_is_what_servers_say() {
    let mut world = cluster(small(), 3, 1);
    let seen = world.observe(&Memory::default());
    assert_eq!((seen.pods.len(), seen.answers.len(), seen.slots), (6, 6, 8));
    let says = seen.says(Ordinal(4)).unwrap();
    assert!(!says.is_alone() && says.state_ok && says.own_slots().is_empty());
    assert_eq!(says.myself().unwrap().primary, Some(id(&world, 1)));
    world.kill(Ordinal(1));
    let seen = world.observe(&seen.memory);
    let uid = pod(&world, 1);
    assert!(matches!(seen.answers[&uid], Answer::Silent { .. }));
}

#[test]
fn the_same_seed_is_the_same_world_and_other_ids_are_other_ids_only() {
    let run = |setup: Setup| {
        let mut world = busy(setup, 3, 1);
        world.kill(Ordinal(2));
        world.advance(20_000);
        let says = |seat: u16| (server(&world, seat).is_primary(), server(&world, seat).slots());
        (
            (0..6).map(says).collect::<Vec<_>>(),
            id(&world, 0),
            world.clients.troubles.len(),
        )
    };
    assert_eq!(run(seeded(3)), run(seeded(3)));
    let other = Setup { salt: 9, ..seeded(3) };
    let (one, two) = (run(seeded(3)), run(other));
    assert_eq!(one.0, two.0);
    assert_ne!(one.1, two.1);
}

#[test]
fn slots_without_keys_and_open_markers_are_closed() {
    let mut world = busy(small(), 3, 0);
    let (slot, source) = (server(&world, 0).slots().lowest().unwrap(), id(&world, 0));
    world
        .with(1, |server, _| server.set_importing(slot, &source))
        .unwrap()
        .unwrap();
    world.with(1, |server, _| {
        server.store.keys.set(slot, 77, 1);
        server.store.keys.set(slot, 0, 1);
    });
    let (on, owner) = (named(&world, 1), Some(named(&world, 0)));
    let newest = server(&world, 0).store.keys.get(slot, 0);
    world.apply(&ClusterStep::StabilizeSlot { slot, on, owner }).unwrap();
    assert_eq!(server(&world, 0).store.keys.get(slot, 77), Some(1), "what it lacked");
    assert_eq!(server(&world, 0).store.keys.get(slot, 0), newest, "what clients read");
    assert!(server(&world, 1).conf.importing.is_empty());
    assert_eq!(server(&world, 1).store.keys.get(Slot(slot.0), 77), None);
}
