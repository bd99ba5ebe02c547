use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use proptest::prelude::*;

use super::*;

const A: Rank = Rank(1);
const B: Rank = Rank(2);
const C: Rank = Rank(3);

/// What a reader would write who has all the time in the world: a list in order of arrival, searched from its start.
#[derive(Default)]
struct Reference {
    places: usize,
    inside: Vec<u64>,
    waiting: Vec<(u64, Rank, u64)>,
    started: u64,
}

impl Reference {
    fn fill(&mut self) -> Option<u64> {
        if self.inside.len() == self.places || self.waiting.is_empty() {
            return None;
        }
        let oldest_is_due = self.started - self.waiting[0].2 >= PATIENCE;
        let most_urgent = self.waiting.iter().map(|(_, rank, _)| *rank).min().unwrap();
        let at = if oldest_is_due {
            0
        } else {
            self.waiting
                .iter()
                .position(|(_, rank, _)| *rank == most_urgent)
                .unwrap()
        };
        let (id, ..) = self.waiting.remove(at);
        self.inside.push(id);
        self.started += 1;
        Some(id)
    }
}

#[derive(Debug, Clone)]
enum Deed {
    Arrive(u8),
    /// One of those inside is done.
    Finish(usize),
    /// One of those who wait gives up.
    GiveUp(usize),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        5 => (0u8..6).prop_map(Deed::Arrive),
        4 => any::<usize>().prop_map(Deed::Finish),
        1 => any::<usize>().prop_map(Deed::GiveUp),
    ];
    prop::collection::vec(deed, 0..400)
}

proptest! {
    /// R20: by rank, then by arrival, never more than there are places, and none empty while somebody waits.
    #[test]
    fn r20_turns_are_taken_as_the_reference_takes_them(places in 1usize..5, deeds in deeds()) {
        let mut turns = Turns::new(places);
        let mut reference = Reference { places, ..Reference::default() };
        let mut tickets: BTreeMap<u64, Ticket> = BTreeMap::new();
        for (id, deed) in (0u64..).zip(deeds) {
            match deed {
                Deed::Arrive(rank) => {
                    tickets.insert(id, turns.arrive(Rank(rank)));
                    let started = reference.started;
                    reference.waiting.push((id, Rank(rank), started));
                    reference.fill();
                }
                Deed::Finish(which) => {
                    if reference.inside.is_empty() { continue }
                    let at = which % reference.inside.len();
                    let done = reference.inside.remove(at);
                    let next = turns.leave(tickets[&done]);
                    prop_assert_eq!(next, reference.fill().map(|next| tickets[&next]));
                }
                Deed::GiveUp(which) => {
                    if reference.waiting.is_empty() { continue }
                    let at = which % reference.waiting.len();
                    let (gone, ..) = reference.waiting.remove(at);
                    prop_assert_eq!(turns.leave(tickets[&gone]), None);
                }
            }
            let inside: Vec<u64> = tickets.iter().filter(|(_, t)| turns.is_inside(**t)).map(|(id, _)| *id).collect();
            let mut expected = reference.inside.clone();
            expected.sort_unstable();
            prop_assert_eq!(inside, expected);
            prop_assert_eq!(turns.waiting(), reference.waiting.len());
            prop_assert!(reference.inside.len() == places || turns.waiting() == 0, "an empty place and somebody waits");
        }
    }
}

#[test]
fn r20_what_is_begun_is_finished_first() {
    let mut turns = Turns::new(1);
    let first = turns.arrive(C);
    let waiting = [C, A, B, A].map(|rank| turns.arrive(rank));
    assert!(turns.is_inside(first));
    let mut order = Vec::new();
    let mut inside = first;
    while let Some(next) = turns.leave(inside) {
        order.push(waiting.iter().position(|t| *t == next).unwrap());
        inside = next;
    }
    assert_eq!(order, [1, 3, 2, 0]);
}

/// Urgent writes come without end: one of no rank starts all the same, and late by no more than said.
#[test]
fn nobody_waits_for_ever() {
    let mut turns = Turns::new(1);
    let mut inside = turns.arrive(A);
    let patient = turns.arrive(C);
    for started in 0.. {
        turns.arrive(A);
        inside = turns.leave(inside).unwrap();
        if inside == patient {
            assert_eq!(started, PATIENCE);
            return;
        }
        assert!(started < PATIENCE, "{started} others started");
    }
}

#[test]
fn without_places_there_is_still_one() {
    let mut turns = Turns::new(0);
    let only = turns.arrive(B);
    assert!(turns.is_inside(only));
}

/// Lets everything run that can.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Passes that time out while they wait, at the moment they are called, or inside: afterwards every place is there.
    #[test]
    fn no_place_is_lost_whatever_is_cancelled(
        places in 1usize..4, ranks in prop::collection::vec(0u8..4, 1..40), cancels in prop::collection::vec(any::<usize>(), 0..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let stile = Arc::new(Turnstile::new(places));
            let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let mut tasks: Vec<_> = ranks.iter().map(|rank| {
                let (stile, inside, most, rank) = (stile.clone(), inside.clone(), most.clone(), Rank(*rank));
                tokio::spawn(async move {
                    let _turn = stile.turn(rank).await;
                    let within = Within::enter(inside);
                    most.fetch_max(within.0.load(Ordering::SeqCst), Ordering::SeqCst);
                    for _ in 0..7 { tokio::task::yield_now().await }
                })
            }).collect();
            for cancel in cancels {
                if tasks.is_empty() { break }
                let at = cancel % tasks.len();
                // Some before anybody ran, some while others are inside, some when a place has just been given to them.
                match cancel % 3 { 0 => {}, 1 => tokio::task::yield_now().await, _ => settle().await }
                tasks.swap_remove(at).abort();
            }
            // A lost place is a failure, not a test that hangs.
            for _ in 0..ranks.len() { settle().await }
            assert!(tasks.iter().all(|task| task.is_finished()), "somebody waits for a place that is lost");
            assert_eq!((inside.load(Ordering::SeqCst), stile.waiting()), (0, 0));
            assert!(most.load(Ordering::SeqCst) <= places);
            assert!(stile.lock().wakers.is_empty(), "wakers are kept no longer than their tasks wait");
            // All places are there, and not one more.
            let mut held = Vec::new();
            for _ in 0..places {
                held.push(stile.turn(A).now_or_never().expect("a place is lost"));
            }
            assert!(stile.turn(A).now_or_never().is_none(), "a place too many");
        });
    }
}

/// Counts who is inside, also those who are cancelled there.
struct Within(Arc<AtomicUsize>);

impl Within {
    fn enter(inside: Arc<AtomicUsize>) -> Self {
        inside.fetch_add(1, Ordering::SeqCst);
        Self(inside)
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The place is given to one that is cancelled before it runs: it goes on to the next.
#[tokio::test]
async fn a_turn_that_nobody_takes_up_goes_to_the_next() {
    let stile = Arc::new(Turnstile::new(1));
    let held = stile.turn(A).await;
    let wait = |rank| {
        let stile = stile.clone();
        tokio::spawn(async move { drop(stile.turn(rank).await) })
    };
    let (called, next) = (wait(A), wait(B));
    settle().await;
    assert_eq!(stile.waiting(), 2);
    // It is this one's turn from here on, and it has not run yet.
    drop(held);
    called.abort();
    settle().await;
    assert!(next.is_finished(), "the place went with the one that was cancelled");
    assert!(called.await.unwrap_err().is_cancelled());
}
