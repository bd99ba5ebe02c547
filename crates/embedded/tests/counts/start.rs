//! Reads of the file when a cluster starts on it.

use futures::executor::block_on;
use futures::future::join_all;

use super::asks::{config_map, create, on_disk};

/// Bytes that this thread has read so far, from files and wherever else.
fn bytes_read() -> u64 {
    let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.unwrap().parse().unwrap()
}

#[test]
fn a_start_reads_the_file_once() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = on_disk(folder.path());
    let maps: Vec<_> = (0..300).map(|n| config_map(&format!("map-{n}"), 10_000)).collect();
    block_on(join_all(maps.iter().map(|map| create(&cluster, map))));
    let stored = cluster.store_stats().live_bytes as u64;
    assert!(stored > 3_000_000, "{stored}");
    // The last handle waits until everything is on disk and the file is free.
    drop(cluster);
    let size = std::fs::metadata(folder.path().join("store.redb")).unwrap().len();
    let before = bytes_read();
    let cluster = on_disk(folder.path());
    let read = bytes_read() - before;
    assert_eq!(cluster.store_stats().live_bytes as u64, stored);
    assert!(
        read >= stored,
        "{read} bytes read of {stored}: are they counted at all?"
    );
    assert!(
        read <= size + stored / 10,
        "{read} bytes read of a file of {size} that holds {stored}"
    );
}
