//! The operator is killed (-9) at random moments while users do what they do: everything ends right, with no manual step
//! (the first half of A15; I1, I2, I3, I6, I10). `USHER_KILLS=200` for the whole of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::load::{self, Load};
use crate::support::{Chance, World};

/// In a test run of everything; the acceptance run has 200.
const KILLS: usize = 40;

#[tokio::test(flavor = "multi_thread")]
async fn a15_killed_at_random_moments_everything_ends_right() {
    let kills = crate::support::chance::number("USHER_KILLS", KILLS);
    let mut chance = Chance::from_environment();
    let world = Arc::new(World::new().await);
    let begun = Instant::now();
    load::pools(&world).await;
    let load = Load::begin(&world, chance.fork());
    let launch = world.operator();
    let mut killed = 0;
    for _ in 0..kills {
        let mut operator = launch.start();
        // A moment is a number of changes from here, so that most fall between two writes of the operator; now and then
        // it is killed before it has seen anything.
        let moment = world.history.len() + usize::try_from(chance.between(0, 120)).unwrap();
        if chance.between(0, 9) > 0 {
            operator.until_ready().await;
            world.history.until_heard(moment, Duration::from_secs(2)).await;
        }
        tokio::time::sleep(Duration::from_micros(chance.between(0, 20_000))).await; // edge: the moment itself is random
        operator.kill();
        killed += 1;
    }
    let killing = begun.elapsed();
    let mut operator = launch.start();
    load.until_bound(&world, 2 * kills).await;
    let issued = load.issued();
    let live = load.end().await;
    let alive = live.len();
    let proof = load::ends_right(&world, live).await;
    println!("{killed} kills in {killing:.1?}, {issued} wishes, {alive} live at the end; {proof:?}");
    operator.assert_alive();
    assert_eq!((proof.gaps, killed), (0, kills));
    assert!(proof.claims_bound > 2 * kills, "too little happened: {proof:?}");
}
