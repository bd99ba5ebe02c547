//! Two operators at once, without a lease, under a mixed load, killed (-9) and paused (SIGSTOP) at random: the commit rule
//! alone keeps every range unique, no grant is lost, everybody is served, and no count drifts (R21 to R26, the first half of
//! A16). With a lease: `leader`. `USHER_SOAK_SECONDS=300` for the whole of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::load::{self, Load};
use crate::support::{Chance, Operator, World};
use nix::sys::signal::Signal;

/// In a test run of everything; the acceptance run has 300, and pauses of up to a minute.
const SECONDS: usize = 30;

/// What the operators met and did, read before each is killed.
#[derive(Debug, Default)]
struct Tally {
    kills: usize,
    pauses: usize,
    paused: Duration,
    longest: Duration,
    /// Writes that came second and were refused.
    late: f64,
}

impl Tally {
    fn read(&mut self, operator: &Operator) {
        let refused = |result: &str| operator.metric("usher_api_writes_total", &[&format!("result=\"{result}\"")]);
        self.late += refused("conflict") + refused("exists");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a16_two_operators_without_a_lease_never_give_one_range_twice_and_lose_none() {
    let seconds = crate::support::chance::number("USHER_SOAK_SECONDS", SECONDS);
    let lasting = Duration::from_secs(seconds as u64);
    let longest_pause = (seconds as u64 * 1000 / 5).min(60_000);
    let mut chance = Chance::from_environment();
    let world = Arc::new(World::new().await);
    load::pools(&world).await;
    let launch = world.operator();
    let mut pair = [launch.start(), launch.start()];
    for operator in &mut pair {
        operator.until_ready().await;
    }
    let load = Load::begin(&world, chance.fork());
    let mut tally = Tally::default();
    let begun = Instant::now();
    // On a busy machine, and with one of the two stopped most of the time, there is one a second.
    let enough = || world.history.bound_order().len() > seconds;
    while begun.elapsed() < lasting || (!enough() && begun.elapsed() < lasting + load::PROOF) {
        let at = usize::try_from(chance.between(0, 1)).unwrap();
        // In the middle of their work: a random number of changes from here, and a little more.
        let moment = world.history.len() + usize::try_from(chance.between(1, 80)).unwrap();
        world.history.until_heard(moment, Duration::from_secs(1)).await;
        tokio::time::sleep(Duration::from_micros(chance.between(0, 20_000))).await; // edge: the moment itself is random
        if chance.between(0, 2) == 0 {
            tally.read(&pair[at]);
            std::mem::replace(&mut pair[at], launch.start()).kill();
            tally.kills += 1;
            if chance.between(0, 3) > 0 {
                pair[at].until_ready().await;
            }
            continue;
        }
        // Most pauses are short, so that there are many; some are as long as they may be.
        let most = if chance.between(0, 4) == 0 {
            longest_pause
        } else {
            1_500
        };
        let pause = Duration::from_millis(chance.between(20, most));
        pair[at].signal(Signal::SIGSTOP);
        // The other one works meanwhile; then this one goes on, with a view as old as the pause.
        tokio::time::sleep(pause).await; // edge: how long it is stopped
        pair[at].signal(Signal::SIGCONT);
        tally.pauses += 1;
        tally.paused += pause;
        tally.longest = tally.longest.max(pause);
    }
    let issued = load.issued();
    let live = load.end().await;
    let (took, alive) = (begun.elapsed(), live.len());
    let proof = load::ends_right(&world, live).await;
    for operator in &mut pair {
        operator.assert_alive();
        tally.read(operator);
    }
    println!("{took:.1?}: {tally:?}; {issued} wishes, {alive} live at the end; {proof:?}");
    assert!(tally.late > 0.0, "the two never met");
    assert!(tally.kills > 0 && tally.pauses > 0, "too few faults: {tally:?}");
    assert_eq!(proof.gaps, 0);
    assert!(proof.claims_bound > seconds, "too little happened: {proof:?}");
}
