//! How slots move, and what is left of a move that was interrupted.

use usher_valkey::observe::reply::Reply;
use usher_valkey::observe::seen::JobState;
use usher_valkey::plan::step::ClusterStep;
use usher_valkey::words::{Slot, SlotSet};

use crate::town::{NEWEST, Town, VERSIONS, eventually, range};

#[tokio::test(flavor = "multi_thread")]
async fn an_atomic_move_is_told_by_both_ends_and_can_be_called_off() {
    for version in VERSIONS {
        let town = Town::form(version, 3, 0).await;
        let slots = range(0, 100).union(&range(200, 210));
        town.migrate(0, 1, &slots).await;
        for number in [0, 1] {
            let jobs = town.says(number).await.jobs;
            assert_eq!(jobs.len(), 1, "{version}");
            assert_eq!(
                (&jobs[0].slots, &jobs[0].state),
                (&slots, &JobState::Success),
                "{version}"
            );
        }
        // Done already, with the epoch that it was planned for.
        let again = town.migration(0, 1, slots).await;
        town.perform(&again).await.unwrap();
        // Nothing to call off, which 9.0 answers with an error.
        let cancel = ClusterStep::CancelMigrations {
            on: town.server(0).await,
            why: String::new(),
        };
        town.perform(&cancel).await.unwrap();
    }
}

/// R23: what the server says of worlds that moved.
#[tokio::test(flavor = "multi_thread")]
async fn moves_that_cannot_be_are_refused_in_known_words() {
    for version in VERSIONS {
        let town = Town::form(version, 3, 1).await;
        let (first, second, unknown) = (town.id(0).await, town.id(1).await, "f".repeat(40));
        for (on, words, said) in [
            (1, format!("SLOTSRANGE 0 1 NODE {first}"), "not served by this node"),
            (0, format!("SLOTSRANGE 0 1 NODE {unknown}"), "unknown node"),
            (3, format!("SLOTSRANGE 0 1 NODE {second}"), "only be used on primary"),
        ] {
            let refused = town
                .ask(on, &format!("CLUSTER MIGRATESLOTS {words}"))
                .await
                .unwrap_err();
            assert!(refused.says(said), "{version}: {refused}");
        }
        town.tell(1, &format!("CLUSTER SETSLOT 7 IMPORTING {first}")).await;
        town.tell(0, &format!("CLUSTER SETSLOT 7 MIGRATING {second}")).await;
        let words = format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 9 NODE {second}");
        let refused = town.ask(0, &words).await.unwrap_err();
        assert!(refused.says("manually migrated"), "{version}: {refused}");
    }
}

async fn write(town: &Town, on: usize, slot: Slot, count: usize) {
    // All in one slot, by their tag.
    let tag = (0..)
        .map(|n| format!("t{n}"))
        .find(|tag| usher_valkey::load::slot_of(tag.as_bytes()) == slot);
    let tag = tag.unwrap();
    for n in 0..count {
        town.tell(on, &format!("SET {{{tag}}}:{n} {n}")).await;
    }
}

async fn keys(town: &Town, on: usize, slot: Slot) -> i64 {
    let counted = town.ask(on, &format!("CLUSTER COUNTKEYSINSLOT {}", slot.0)).await;
    counted.unwrap().number().unwrap()
}

fn slot_moved(from: usize, to: usize, slot: Slot) -> impl AsyncFn(&Town) -> bool {
    async move |town: &Town| {
        let gone = !town.says(from).await.own_slots().contains(slot);
        gone && town.says(to).await.own_slots().contains(slot)
    }
}

/// R24: whatever of it was done before, the same step goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_moves_key_by_key_from_wherever_it_was_left() {
    let town = Town::form(NEWEST, 3, 1).await;
    let slot = Slot(100);
    write(&town, 0, slot, 2_500).await;
    let step = ClusterStep::MoveSlotByKeys {
        slot,
        shard: town.shard(0).await,
        from: town.server(0).await,
        to: town.server(1).await,
    };
    // Begun by hand, at both ends.
    town.tell(1, &format!("CLUSTER SETSLOT 100 IMPORTING {}", town.id(0).await))
        .await;
    town.perform(&step).await.unwrap();
    let left = keys(&town, 0, slot).await;
    assert!((1..2_500).contains(&left), "one step moves a part: {left} are left");
    // A client that asks for one that has gone already is sent after it.
    let moved = town.ask(1, "CLUSTER GETKEYSINSLOT 100 1").await.unwrap();
    let key = moved.list().unwrap()[0].text().unwrap().into_owned();
    let asked = town.ask(0, &format!("GET {key}")).await.unwrap_err();
    assert!(asked.says("ASK 100"), "{asked}");
    let (moved, now) = (slot_moved(0, 1, slot), &town);
    eventually("the slot has moved", 30, async || {
        now.insist(&step).await;
        moved(now).await
    })
    .await;
    assert_eq!((keys(&town, 0, slot).await, keys(&town, 1, slot).await), (0, 2_500));
    town.until_whole().await;
    assert!(town.says(0).await.myself().unwrap().open.is_empty());
    assert!(town.says(1).await.myself().unwrap().open.is_empty());
    town.perform(&step).await.unwrap();
}

/// R25.
#[tokio::test(flavor = "multi_thread")]
async fn open_slots_are_closed_and_their_keys_end_up_with_the_owner() {
    let town = Town::form(NEWEST, 3, 0).await;
    let slot = Slot(100);
    let (owner, other) = (town.server(0).await, town.server(1).await);
    let close = |on: &_, owner: Option<&_>| ClusterStep::StabilizeSlot {
        slot,
        on: Clone::clone(on),
        owner: owner.cloned(),
    };
    let is_closed = async |number: usize| town.says(number).await.myself().unwrap().open.is_empty();
    // One marker, no keys.
    town.tell(0, &format!("CLUSTER SETSLOT 100 MIGRATING {}", other.id))
        .await;
    assert!(!is_closed(0).await);
    town.perform(&close(&owner, None)).await.unwrap();
    town.perform(&close(&owner, None)).await.unwrap();
    assert!(is_closed(0).await);
    // An importer with keys: one that the owner has too, one that it lacks.
    write(&town, 0, slot, 2).await;
    let listed = town.ask(0, "CLUSTER GETKEYSINSLOT 100 2").await.unwrap();
    let listed: Vec<String> = listed
        .list()
        .unwrap()
        .iter()
        .map(|key| key.text().unwrap().into_owned())
        .collect();
    town.tell(1, &format!("CLUSTER SETSLOT 100 IMPORTING {}", owner.id))
        .await;
    town.tell(0, &format!("CLUSTER SETSLOT 100 MIGRATING {}", other.id))
        .await;
    let (ip, first) = (town.ip(1), &listed[0]);
    town.tell(0, &format!("MIGRATE {ip} 6379 {first} 0 5000")).await;
    town.tell(0, "CLUSTER SETSLOT 100 STABLE").await;
    town.tell(0, &format!("SET {} mine", listed[1])).await;
    let copied = town
        .ask(0, &format!("MIGRATE {ip} 6379 {} 0 5000 COPY", listed[1]))
        .await;
    assert_eq!(copied, Ok(Reply::of("OK")));
    town.tell(0, &format!("SET {} newer", listed[1])).await;
    assert_eq!((keys(&town, 0, slot).await, keys(&town, 1, slot).await), (1, 2));
    town.perform(&close(&other, Some(&owner))).await.unwrap();
    assert!(is_closed(1).await);
    assert_eq!((keys(&town, 0, slot).await, keys(&town, 1, slot).await), (2, 0));
    assert_eq!(town.ask(0, &format!("GET {}", listed[1])).await, Ok(Reply::of("newer")));
    town.until_whole().await;
}

/// Which slots a member has is what its own line says, whatever it was asked for.
#[tokio::test(flavor = "multi_thread")]
async fn slots_that_nobody_owns_can_be_given_in_ranges() {
    let mut town = Town::new(NEWEST);
    let number = town.spawn().await;
    let add = ClusterStep::AddSlots {
        to: town.server(number).await,
        slots: range(0, 9).union(&range(20, 29)),
    };
    town.perform(&add).await.unwrap();
    let more = ClusterStep::AddSlots {
        to: town.server(number).await,
        slots: SlotSet::first(30),
    };
    town.perform(&more).await.unwrap();
    assert_eq!(town.says(number).await.own_slots(), SlotSet::first(30));
}
