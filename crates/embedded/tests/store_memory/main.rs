//! How much memory the store takes for what it holds. Alone in its process, because it measures the whole of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![cfg(target_os = "linux")]

use jiff::Timestamp;
use serde_json::json;
use usher_embedded::store::{Change, Durability, Expect, Key, Options, Store, Value, Write};

/// Memory of this process that nobody else has, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

/// 10,000 pods of 4 KiB, half of them written twice.
fn fill(store: &Store) {
    let write = |n: usize, text: &str| {
        let key = Key::new("", "pods", Some("default"), &format!("pod-{n}"));
        let object = json!({"metadata": {"name": key.name()}, "text": text.repeat(4_000)});
        let change = Change::Put(Value::from_json(&object).unwrap());
        store
            .write(vec![Write {
                key,
                expect: Expect::Any,
                change,
            }])
            .unwrap()
    };
    for chunk in 0..100 {
        let commits: Vec<_> = (0..150)
            .map(|n| write(chunk * 100 + n % 100, if n < 100 { "a" } else { "b" }))
            .collect();
        commits.into_iter().for_each(|commit| assert!(commit.wait().is_ok()));
    }
}

#[test]
fn s2_the_heap_is_at_most_two_and_a_half_times_what_is_stored() {
    let options = || Options::new(|| Timestamp::UNIX_EPOCH);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    let check = |before: usize, store: &Store, where_: &str| {
        let stats = store.stats();
        let stored = stats.live_bytes + stats.old_bytes;
        assert!(
            stats.old_bytes > 19_000_000 && stats.live_bytes > 40_000_000,
            "{stats:?}"
        );
        let used = resident().saturating_sub(before);
        eprintln!("{where_}: {used} bytes for {stored}");
        assert!(used * 2 <= stored * 5, "{where_}: {used} bytes for {stored}");
    };
    let before = resident();
    let store = Store::memory(options());
    fill(&store);
    check(before, &store, "in memory");
    drop(store);
    let store = Store::open(&path, Durability::Relaxed, options()).unwrap();
    fill(&store);
    check(before, &store, "on disk");
    drop(store);
    let store = Store::open(&path, Durability::Relaxed, options()).unwrap();
    check(before, &store, "opened again");
}
