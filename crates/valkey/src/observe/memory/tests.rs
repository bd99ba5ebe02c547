use std::net::IpAddr;

use super::*;
use crate::observe::seen::{Flags, Link, Peer, PodPhase, PodSeen, Says};
use crate::words::{Epoch, Ordinal, ServerVersion, SlotSet};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn id(n: u8) -> NodeId {
    NodeId::parse(&format!("{n:040}")).unwrap()
}

fn shard(n: u8) -> ShardId {
    ShardId::parse(&format!("{n:040}")).unwrap()
}

fn pod(n: u8) -> Uid {
    format!("pod-{n}").as_str().into()
}

/// Primaries 0 and 1 with slots, primary 2 without.
fn world() -> Observation {
    let slots = |n| match n {
        0 => SlotSet::first(4),
        1 => SlotSet::first(8).minus(&SlotSet::first(4)),
        _ => SlotSet::new(),
    };
    let peer = |n: u8| Peer {
        address: Some(IpAddr::from([127, 0, 0, n + 1])),
        flags: Flags {
            primary: true,
            ..Flags::default()
        },
        connected: true,
        epoch: Epoch(u64::from(n) + 1),
        slots: slots(n),
        ..Peer::default()
    };
    let mut seen = Observation {
        slots: 8,
        ..Observation::default()
    };
    for n in 0..3 {
        let says = Says {
            id: id(n),
            shard: shard(n),
            version: ServerVersion::V9,
            role: RoleSaid::Primary {
                offset: 0,
                replicas: BTreeMap::new(),
            },
            state_ok: true,
            current_epoch: Epoch(3),
            view: (0..3).map(|other| (id(other), peer(other))).collect(),
            keys: 0,
            min_replicas: None,
            jobs: Vec::new(),
        };
        seen.answers.insert(pod(n), Answer::Says(Box::new(says)));
        let pod = PodSeen {
            name: format!("c-{n}").as_str().into(),
            uid: pod(n),
            revision: 1,
            address: Some(IpAddr::from([127, 0, 0, n + 1])),
            node: None,
            phase: PodPhase::Running,
            ready: true,
            ready_changed: at(0),
            deleting: None,
            template: None,
            trouble: None,
            labelled: BTreeMap::new(),
        };
        seen.pods.insert(Ordinal(n.into()), pod);
    }
    seen
}

fn says(seen: &mut Observation, n: u8) -> &mut Says {
    match seen.answers.get_mut(&pod(n)) {
        Some(Answer::Says(says)) => says,
        other => panic!("{other:?}"),
    }
}

fn job(name: &str, state: JobState, remaining: u64) -> Job {
    Job {
        name: name.into(),
        exports: true,
        source: id(0),
        target: id(1),
        slots: SlotSet::first(1),
        state,
        message: String::new(),
        updated: Some(at(5)),
        remaining: Some(remaining),
    }
}

#[test]
fn what_goes_on_keeps_its_beginning_and_what_ends_is_forgotten() {
    let mut seen = world();
    for n in [0, 2] {
        says(&mut seen, n).view.get_mut(&id(1)).unwrap().flags.failed = true;
    }
    seen.pods.values_mut().for_each(|pod| pod.ready = false);
    let silent = Answer::Silent {
        error: "no".into(),
        since: at(1),
        refused: false,
    };
    seen.answers.insert(pod(1), silent);
    let first = Memory::default().after(&seen, at(10));
    let later = first.after(&seen, at(20));
    assert_eq!(later.began, Some(at(10)));
    assert_eq!(later.silent_since, BTreeMap::from([(pod(1), at(10))]));
    assert_eq!(later.failed_since, BTreeMap::from([(id(1), at(10))]));
    assert_eq!(later.slotless_since, BTreeMap::from([(id(2), at(10))]));
    assert_eq!(later.none_ready_since, Some(at(10)));
    let well = later.after(&world(), at(30));
    assert!(well.silent_since.is_empty() && well.failed_since.is_empty() && well.none_ready_since.is_none());
    assert_eq!(well.began, Some(at(10)));
}

#[test]
fn one_that_gets_slots_and_loses_them_again_is_slotless_anew() {
    let mut seen = world();
    let first = Memory::default().after(&seen, at(10));
    for n in 0..3 {
        let view = &mut says(&mut seen, n).view;
        view.get_mut(&id(2)).unwrap().slots = SlotSet::first(1);
        view.get_mut(&id(0)).unwrap().slots = SlotSet::first(4).minus(&SlotSet::first(1));
    }
    let owning = first.after(&seen, at(20));
    assert!(owning.slotless_since.is_empty());
    assert_eq!(owning.after(&world(), at(30)).slotless_since[&id(2)], at(30));
}

#[test]
fn r3_disagreement_has_a_beginning() {
    let mut seen = world();
    says(&mut seen, 2).view.get_mut(&id(0)).unwrap().slots = SlotSet::new();
    let first = Memory::default().after(&seen, at(10));
    assert_eq!(first.after(&seen, at(12)).disagreeing_since, Some(at(10)));
    assert_eq!(first.after(&world(), at(12)).disagreeing_since, None);
}

#[test]
fn r22_a_job_stands_still_since_it_last_moved() {
    let in_flight = |left| {
        let mut seen = world();
        says(&mut seen, 0).jobs = vec![job("a", JobState::InFlight("snapshotting".into()), left)];
        seen
    };
    let first = Memory::default().after(&in_flight(9), at(10));
    assert!(first.still_since.is_empty());
    let still = first.after(&in_flight(9), at(20)).after(&in_flight(9), at(30));
    assert_eq!(still.still_since, BTreeMap::from([("a".into(), at(20))]));
    assert!(still.after(&in_flight(8), at(40)).still_since.is_empty());
    assert!(still.after(&world(), at(40)).still_since.is_empty());
}

#[test]
fn r23_a_job_is_judged_in_the_one_pass_that_first_sees_it_over() {
    let with = |name: &str| {
        let mut seen = world();
        says(&mut seen, 0).jobs = vec![job(name, JobState::Failed, 0)];
        seen
    };
    // What was over before we looked for the first time is nobody's business any more.
    let first = Memory::default().after(&with("old"), at(10));
    assert!(first.judged.contains(&Text::from("old")));
    let second = first.after(&with("new"), at(20));
    assert!(!second.judged.contains(&Text::from("new")));
    let third = second.after(&with("new"), at(30));
    assert!(third.judged.contains(&Text::from("new")));
    // A server that does not speak may still list it.
    let mut silent = with("new");
    let loading = Answer::Loading { since: at(35) };
    silent.answers.insert(pod(0), loading);
    let fourth = third.after(&silent, at(40));
    assert!(fourth.judged.contains(&Text::from("new")));
    assert!(fourth.after(&world(), at(50)).judged.is_empty());
}

#[test]
fn r28_a_failover_is_remembered_until_it_came_about_or_a_minute_is_over() {
    let memories = Memories::default();
    let cluster: Uid = "c".into();
    memories.note(&cluster, |memory| memory.note_failover(shard(0), id(1), at(10)));
    memories.note(&cluster, |memory| memory.note_failover(shard(0), id(1), at(20)));
    let mut seen = world();
    says(&mut seen, 1).role = RoleSaid::Replica {
        link: Link::Up,
        offset: 0,
    };
    assert_eq!(
        memories.look(&cluster, &seen, at(25)).failovers,
        BTreeMap::from([(shard(0), (at(20), 2))])
    );
    let expired = memories.of(&cluster).after(&seen, at(85));
    assert!(expired.failovers.is_empty() && expired.promised.is_empty());
    assert!(memories.look(&cluster, &world(), at(26)).failovers.is_empty());
    memories.forget(&cluster);
    assert_eq!(memories.of(&cluster), Memory::default());
}

#[test]
fn r8_a_meet_is_remembered_for_a_while() {
    let mut memory = Memory::default();
    memory.note_met(id(1), at(10));
    assert!(memory.after(&world(), at(14)).met.contains_key(&id(1)));
    assert!(memory.after(&world(), at(100)).met.is_empty());
}
