//! The operator is killed (-9) at 50 random moments while claims come and go: everything ends right, with no manual step
//! (acceptance A15; I1, I3, I6).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use support::load::{self, Load};
use support::{Chance, World};

const KILLS: usize = 50;

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_fifty_random_moments_everything_ends_right() {
    let mut chance = Chance::from_environment();
    let world = Arc::new(World::new().await);
    let begun = Instant::now();
    load::pools(&world).await;
    let load = Load::begin(&world, chance.fork());
    let launch = world.operator();
    for _ in 0..KILLS {
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
    }
    let issued = load.issued();
    let live = load.end().await;
    let killing = begun.elapsed();
    let _operator = launch.start();
    let alive = live.len();
    let proof = load::ends_right(&world, live).await;
    println!("{KILLS} kills in {killing:.1?}, {issued} claims and deletions, {alive} live at the end; {proof:?}");
    assert_eq!(proof.gaps, 0);
    assert!(proof.claims_bound > 300, "too little happened: {proof:?}");
}
