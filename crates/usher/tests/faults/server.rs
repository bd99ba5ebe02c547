//! The API server is killed, slow, and forgets: the operator recovers in the same process, and everything ends right.
//! On a control plane of its own, since nobody else would like this one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::load::{self, Load};
use crate::support::world::eventually;
use crate::support::{Chance, ControlPlane, Operator, World};

const SERVER: &str = "kube-apiserver";
const KILLS: usize = 3;
/// Claims that must have been bound for the rest to prove something.
const ENOUGH: usize = 100;

/// Waits until claims are bound again that did not exist before.
async fn work_goes_on(world: &World, operator: &mut Operator, after: &str) {
    let known = world
        .history
        .now(|now| now.claims.keys().filter(|name| name.starts_with("c")).max().cloned());
    let took = world
        .until(&format!("work goes on after {after}"), |now| {
            let ours = now.claims.keys().filter(|name| name.starts_with("c"));
            let new = ours.filter(|name| Some(*name) > known.as_ref());
            new.filter(|name| now.is_bound(name)).count() >= 5
        })
        .await;
    operator.assert_alive();
    operator.until_ready().await;
    println!("after {after}: new claims are Bound within {took:.1?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_hangs_or_forgets_is_survived_without_a_restart() {
    let mut chance = Chance::from_environment();
    let plane = ControlPlane::start();
    let world = Arc::new(World::on(plane.server.clone()).await);
    load::pools(&world).await;
    let mut operator = world.operator().ready().await;
    let pid = operator.pid();
    let begun = Instant::now();
    let load = Load::begin(&world, chance.fork());
    let moment = async |chance: &mut Chance| {
        let changes = world.history.len() + usize::try_from(chance.between(20, 200)).unwrap();
        world.history.until_heard(changes, Duration::from_secs(10)).await;
    };

    // Killed: every watch is cut, answers are lost after the write took effect, and versions are forgotten.
    for _ in 0..KILLS {
        moment(&mut chance).await;
        tokio::task::block_in_place(|| plane.kill(SERVER));
        eventually("the operator says that it is not ready", async || !operator.is_ready()).await;
        tokio::task::block_in_place(|| plane.revive(SERVER));
        work_goes_on(&world, &mut operator, "kill -9 of the API server").await;
    }

    // Slow: there, and silent; for longer than a call may take (10 s), so that outcomes are unknown (R29).
    for seconds in [2, 12] {
        moment(&mut chance).await;
        plane.signal(SERVER, Signal::SIGSTOP);
        tokio::time::sleep(Duration::from_secs(seconds)).await; // edge: how long the server is silent
        plane.signal(SERVER, Signal::SIGCONT);
        work_goes_on(&world, &mut operator, &format!("{seconds} s of silence")).await;
    }

    // Forgotten: while the operator is stopped, claims go on, etcd drops its history, and the server starts without any.
    moment(&mut chance).await;
    let lists = operator.metric("usher_lists_total", &[]);
    operator.signal(Signal::SIGSTOP);
    let changes = world.history.len() + 20;
    world.history.until_heard(changes, Duration::from_secs(10)).await;
    tokio::task::block_in_place(|| {
        plane.compact();
        plane.kill(SERVER);
        plane.revive(SERVER);
        plane.compact();
    });
    operator.signal(Signal::SIGCONT);
    work_goes_on(&world, &mut operator, "a compaction").await;
    let log = operator.log();
    assert!(log.contains("410"), "no watch was told that its version is gone");
    let lists = operator.metric("usher_lists_total", &[]) - lists;

    load.until_bound(&world, ENOUGH).await;
    let issued = load.issued();
    let live = load.end().await;
    let took = begun.elapsed();
    let alive = live.len();
    let proof = load::ends_right(&world, live).await;
    operator.assert_alive();
    assert_eq!(operator.pid(), pid, "no restart");
    println!(
        "{KILLS} kills, 2 silences, 1 compaction ({lists} lists after it) in {took:.1?}; {issued} claims and deletions, \
         {alive} live at the end; {proof:?}"
    );
    assert!(proof.claims_bound > ENOUGH, "too little happened: {proof:?}");
}
