//! `usher up` under kill -9 while eight writers write and pods run (S4, S5, S6, N2, N12): every acknowledged write is there
//! afterwards, revisions never go back, a watch goes on where it was, pods run on and are found again. And on a disk that is full: writes are refused with a sentence, reads go
//! on, nothing is lost.
//!
//! `USHER_KILLS=100` for the full proof; `USHER_SEED` brings moments and choices back, as far as the processes allow.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "support/chance.rs"]
#[allow(dead_code)]
mod chance;
#[path = "up_kill/ledger.rs"]
mod ledger;
#[path = "up_kill/life.rs"]
mod life;
#[path = "up_kill/pods.rs"]
mod pods;
#[path = "up_kill/watcher.rs"]
mod watcher;
#[path = "up_kill/writer.rs"]
mod writer;

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ListParams, PostParams};
use nix::sys::signal::Signal;

use chance::{Chance, number};
use ledger::Ledger;
use life::Life;
use pods::Pods;
use writer::map;

const KILLS: usize = 12;
const WRITERS: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn s6_n12_after_kill_9_every_acknowledged_write_is_there_and_every_pod_runs_on() {
    let mut chance = Chance::from_environment();
    let home = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::default();
    let mut herd = Pods::new(home.path());
    let flags = ["--host-path".to_owned(), herd.folder().to_owned()];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let kills = number("USHER_KILLS", KILLS);
    let (mut starting, mut slowest) = (Duration::ZERO, Duration::ZERO);
    for kill in 0..=kills {
        // A fault: some die while they start.
        if chance.between(0, 3) == 0 {
            let life = Life::start(home.path(), &flags);
            tokio::time::sleep(Duration::from_millis(chance.between(0, 300))).await; // edge: a random moment of its start
            life.kill();
        }
        let begun = Instant::now();
        let mut life = Life::start(home.path(), &flags);
        life.until_it_answers();
        let client = life.client().await;
        let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
        let maps: Api<ConfigMap> = Api::namespaced(client, "default");
        let mut found = maps.list(&ListParams::default()).await.unwrap();
        found.items.retain(ledger::is_ours);
        starting += begun.elapsed();
        slowest = slowest.max(begun.elapsed());
        ledger
            .compare(&found)
            .unwrap_or_else(|why| panic!("after kill {kill}: {why}"));
        // The watch goes on from before the kill up to something that was written now.
        let marker = map(&format!("marker-{kill}"), kill as u64);
        let marker = maps.create(&PostParams::default(), &marker).await.unwrap();
        ledger.acknowledge(&marker).unwrap();
        watcher::catch_up(&maps, &mut ledger, &marker).await;
        ledger
            .check_history()
            .unwrap_or_else(|why| panic!("after kill {kill}: {why}"));
        herd.compare(&pods).await;
        if kill == kills {
            herd.end(&pods).await;
            break;
        }
        let watching = tokio::spawn(watcher::follow(maps, ledger.seen()));
        let mut writers = Vec::new();
        for (number, slots) in ledger.lend(WRITERS).into_iter().enumerate() {
            let client = life.client().await;
            writers.push(tokio::spawn(writer::write(client, number, slots, chance.fork())));
        }
        herd.stir(&pods, &mut chance).await;
        // The fault: a random moment.
        tokio::time::sleep(Duration::from_millis(chance.between(30, 500))).await; // edge: a random moment under load
        if chance.between(0, 3) == 0 {
            // Torn: it stands still while clients go on asking, and never goes on.
            life.signal(Signal::SIGSTOP);
            tokio::time::sleep(Duration::from_millis(chance.between(1, 60))).await; // edge: how long it stands still
        }
        life.kill();
        for writer in writers {
            ledger.take_back(writer.await.unwrap()).unwrap();
        }
        ledger.saw(watching.await.unwrap()).unwrap();
    }
    let (acknowledged, unanswered) = ledger.counts();
    let (made, adopted) = herd.counts();
    println!(
        "{kills} kills, {acknowledged} acknowledged writes, {unanswered} unanswered; {made} pods, which ran on {adopted} times; a start took {:?}, at most {slowest:?}",
        starting / u32::try_from(kills + 1).unwrap()
    );
    assert!(
        acknowledged > kills * WRITERS,
        "too few writes to prove anything: {acknowledged}"
    );
}

/// A limit on the size of files is the full disk that needs no root. Signals that it raises are ignored in the child.
#[tokio::test(flavor = "multi_thread")]
async fn s4_on_a_full_disk_writes_are_refused_with_a_sentence_and_reads_go_on() {
    let home = tempfile::tempdir().unwrap();
    let mut life = Life::start_unkillable_by_size(home.path());
    life.until_it_answers();
    let maps: Api<ConfigMap> = Api::namespaced(life.client().await, "default");
    let mut acknowledged = Vec::new();
    for number in 0..20 {
        acknowledged.push(maps.create(&PostParams::default(), &large(number)).await.unwrap());
    }
    let size = std::fs::metadata(home.path().join("data/store.redb")).unwrap().len();
    life.limit_file_size(&size.to_string());
    // Some free pages are left in the file.
    let mut refused = None;
    for number in 20..2_000 {
        match maps.create(&PostParams::default(), &large(number)).await {
            Ok(made) => acknowledged.push(made),
            Err(error) => {
                refused = Some((number, error));
                break;
            }
        }
    }
    let (number, error) = refused.expect("no write was refused");
    let told = |error: kube::Error| match error {
        kube::Error::Api(status) => *status,
        other => panic!("no answer: {other}"),
    };
    let status = told(error);
    assert!(matches!(status.code, 500 | 507), "{status:?}");
    assert!(
        status
            .message
            .contains("store.redb may not grow any more: raise the limit of file sizes (ulimit -f) and try again"),
        "{}",
        status.message
    );
    // Again and again the same; reads go on.
    for again in 0..3 {
        let name = format!("m-{}", number + again);
        assert_eq!(
            told(
                maps.create(&PostParams::default(), &large(number + again))
                    .await
                    .unwrap_err()
            )
            .code,
            status.code
        );
        assert!(maps.get_opt(&name).await.unwrap().is_none(), "{name} was refused");
        let first = maps
            .get(acknowledged[0].metadata.name.as_deref().unwrap())
            .await
            .unwrap();
        assert_eq!(first, acknowledged[0]);
        assert_eq!(own(&maps).await, acknowledged);
    }
    // Space again: it goes on by itself.
    life.limit_file_size("unlimited");
    acknowledged.push(maps.create(&PostParams::default(), &large(number)).await.unwrap());
    // Full again, and killed.
    let size = std::fs::metadata(home.path().join("data/store.redb")).unwrap().len();
    life.limit_file_size(&size.to_string());
    for more in number + 1..number + 2_000 {
        match maps.create(&PostParams::default(), &large(more)).await {
            Ok(made) => acknowledged.push(made),
            Err(_) => break,
        }
    }
    life.kill();
    let mut life = Life::start(home.path(), &[]);
    life.until_it_answers();
    let maps: Api<ConfigMap> = Api::namespaced(life.client().await, "default");
    assert_eq!(own(&maps).await, acknowledged);
    let next = maps.create(&PostParams::default(), &map("after", 1)).await.unwrap();
    let revision = |map: &ConfigMap| {
        map.metadata
            .resource_version
            .as_deref()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    assert!(revision(&next) > revision(acknowledged.last().unwrap()));
}

fn large(number: u64) -> ConfigMap {
    let mut large = map(&format!("m-{number:04}"), number);
    let data = large.data.get_or_insert_default();
    data.insert("filling".to_owned(), "x".repeat(40_000));
    large
}

/// The test's own, in order of their names.
async fn own(maps: &Api<ConfigMap>) -> Vec<ConfigMap> {
    let mut items = maps.list(&ListParams::default()).await.unwrap().items;
    items.retain(|map| map.metadata.name.as_deref().is_some_and(|name| name.starts_with("m-")));
    items
}
