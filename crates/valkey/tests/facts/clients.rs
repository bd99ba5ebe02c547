//! What clients notice of what is done to servers.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use usher_valkey::load::{self, Options, Report};
use usher_valkey::plan::step::ClusterStep;

use crate::town::{NEWEST, Town, eventually, range, share};

/// Every test of this program shares two cores: enough to notice everything, and no more.
const RATE: u32 = 1_000;

/// Nobody dies here, so nobody shall seem to: a machine that stands still for some seconds is no dead primary.
async fn of_long_lived(primaries: usize, replicas: usize) -> Town {
    let mut town = Town::new(NEWEST);
    town.set("cluster-node-timeout", Some("30000"));
    town.grow(primaries, replicas).await;
    town
}

fn load_of(town: &Town) -> (watch::Sender<bool>, tokio::task::JoinHandle<Report>) {
    let options = Options {
        seeds: town.seeds(),
        keys: 2_000,
        rate: NonZeroU32::new(RATE),
        ..Options::default()
    };
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(async move { load::run(&options, stopped).await.unwrap() });
    (stop, running)
}

async fn ended(stop: watch::Sender<bool>, running: tokio::task::JoinHandle<Report>) -> Report {
    stop.send_replace(true);
    let report = running.await.unwrap();
    println!("{report}");
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_that_move_atomically_are_no_error_to_anybody() {
    let mut town = of_long_lived(3, 1).await;
    let (stop, running) = load_of(&town);
    let new = town.join().await;
    for (from, slots) in [
        (0, range(5_000, 5_400)),
        (1, range(10_000, 10_500)),
        (2, range(16_000, 16_383)),
    ] {
        town.migrate(from, new, &slots).await;
    }
    town.migrate(new, 0, &town.says(new).await.own_slots()).await;
    let report = ended(stop, running).await;
    assert_eq!(report.error_count(), 0, "{report}");
    assert!(report.moved > 0, "no client was moved: {report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_failover_is_no_error_to_anybody() {
    let town = of_long_lived(3, 1).await;
    let (stop, running) = load_of(&town);
    town.hand_over(0, 3).await;
    town.hand_over(1, 4).await;
    town.hand_over(3, 0).await;
    let report = ended(stop, running).await;
    assert_eq!(report.error_count(), 0, "{report}");
}

/// R36, as it is done with zero replicas: the spare takes over, the old primary restarts and is the next spare.
#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_with_one_spare_is_no_error_to_anybody() {
    let mut town = of_long_lived(3, 0).await;
    let (stop, running) = load_of(&town);
    let mut spare = town.join().await;
    for primary in 0..3 {
        town.replicate(spare, primary).await;
        town.hand_over(primary, spare).await;
        // Clients that had heard nothing yet are moved; then it has no connections that anybody uses.
        let mut quiet = (String::new(), Instant::now());
        eventually("clients have left", 15, async || {
            let reads = reads(&town, primary).await;
            if reads != quiet.0 {
                quiet = (reads, Instant::now());
            }
            quiet.1.elapsed() > Duration::from_secs(1)
        })
        .await;
        town.terminate(primary).await;
        town.start(primary).await;
        town.until_whole().await;
        let on = town.server(primary).await;
        town.insist(&ClusterStep::Detach { on }).await;
        town.until_whole().await;
        spare = primary;
    }
    let report = ended(stop, running).await;
    assert_eq!(report.error_count(), 0, "{report}");
}

/// What a server counts of clients' reads, those that it has sent on included. Its primary sends it writes only.
async fn reads(town: &Town, number: usize) -> String {
    let stats = town.ask(number, "INFO commandstats").await.unwrap();
    let stats = stats.text().unwrap().into_owned();
    let stats = usher_valkey::observe::parse::Info::read(&stats);
    stats.get("cmdstat_get").unwrap_or_default().to_owned()
}

/// Node timeout and 5 s (spec 11, X).
const BOUND: f64 = 10.0;

/// R31: only a crash shows, in one shard, for about the node timeout.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_is_killed_is_replaced_within_its_node_timeout_and_some_seconds() {
    let mut town = Town::form(NEWEST, 3, 1).await;
    let (stop, running) = load_of(&town);
    let report_of = async |town: &mut Town| {
        town.kill(0);
        let town_now = &*town;
        eventually("its replica has taken over", 15, async || town_now.is_primary(3).await).await;
        town.start(0).await;
        town.until_whole().await;
    };
    report_of(&mut town).await;
    assert!(!town.is_primary(0).await);
    let report = ended(stop, running).await;
    assert!(report.error_count() > 0, "{report}");
    let own = share(0, 3);
    for (kind, errors) in &report.errors {
        let (first, last) = errors.slots;
        assert!(
            range(first, last).minus(&own).is_empty(),
            "{kind} in another shard: {report}"
        );
        assert!(
            errors.last_seconds - errors.first_seconds < BOUND || kind == "lost write",
            "{report}"
        );
    }
}

/// R21: what a client is told by a member that has just joined, and what the guard waits for.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_has_just_joined_is_not_ready_for_slots_and_becomes_so_by_itself() {
    let mut town = Town::form(NEWEST, 3, 0).await;
    let new = town.spawn().await;
    assert!(!town.says(new).await.state_ok);
    town.introduce(new).await;
    let town = &town;
    let moving = town.migration(0, new, range(0, 10)).await;
    // It is the guard that waits: begun is what it was ready for.
    match town.perform(&moving).await {
        Err(refused) => assert!(refused.to_string().contains("changed since it was read"), "{refused}"),
        Ok(()) => assert!(town.says(new).await.state_ok),
    }
    eventually("it is ready", 15, async || town.says(new).await.state_ok).await;
    town.until_known().await;
    town.migrate(0, new, &range(0, 10)).await;
}

/// Where R30 comes too late.
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_hands_over_and_breaks_connections() {
    let mut town = Town::form(NEWEST, 3, 1).await;
    let began = Instant::now();
    town.terminate(0).await;
    let town = &town;
    eventually("its replica has taken over", 3, async || town.is_primary(3).await).await;
    println!("taken over after {:?}", began.elapsed());
    assert!(town.ask(0, "PING").await.is_err());
}
