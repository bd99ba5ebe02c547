//! The counts of the spec's section 13 that are about memory, through the API. Alone in its process, because it measures
//! the whole of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![cfg(target_os = "linux")]

#[path = "../counts/asks.rs"]
mod asks;

use std::sync::{Mutex, PoisonError};

use futures::executor::block_on;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use asks::{CONFIG_MAPS, config_map, create, in_memory, on_disk, send};

/// One test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// A line of /proc/self/status, in bytes.
fn status(line: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let found = status.lines().find(|text| text.starts_with(line)).unwrap();
    found.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
fn s2_the_heap_is_at_most_two_and_a_half_times_what_is_stored_also_through_the_api() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cluster = in_memory();
    let pod = |n: usize, text: &str| -> Value {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("pod-{n}"), "annotations": {"text": text.repeat(2_400)}},
            "spec": {"containers": [{"name": "main", "image": "registry.example/main:1", "env": [
                {"name": "A", "value": "a"}, {"name": "B", "value": "b"}, {"name": "C", "value": "c"}]}]}})
    };
    let pods = "/api/v1/namespaces/default/pods";
    let write = |n: usize, method: Method, text: &str| {
        let mut object = pod(n, text);
        let (path, media) = match method {
            Method::POST => (pods.to_owned(), "application/json"),
            _ => {
                object.as_object_mut().unwrap().remove("spec");
                (format!("{pods}/pod-{n}"), "application/merge-patch+json")
            }
        };
        let body = object.to_string();
        block_on(send(&cluster, method, &path, &[("content-type", media)], body));
    };
    // What is made once for each process is not counted.
    write(0, Method::POST, "a");
    write(0, Method::PATCH, "b");
    let before = status("RssAnon:");
    for n in 1..=1_000 {
        write(n, Method::POST, "a");
        if n % 2 == 0 {
            write(n, Method::PATCH, "b");
        }
    }
    let stats = cluster.store_stats();
    let stored = stats.live_bytes + stats.old_bytes;
    assert!((4_000_000..5_500_000).contains(&stats.live_bytes), "{stats:?}");
    assert!(stats.old_bytes > 2_000_000, "{stats:?}");
    let used = status("RssAnon:").saturating_sub(before);
    assert!(used * 2 <= stored * 5, "{used} bytes for {stored}");
}

#[test]
fn a_list_copies_each_object_once() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cluster = in_memory();
    for n in 0..500 {
        block_on(create(&cluster, &config_map(&format!("map-{n:03}"), 40_000)));
    }
    let stored = cluster.store_stats().live_bytes;
    // From here on the kernel notes anew the most that is resident.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmHWM:");
    let mut body = block_on(send(&cluster, Method::GET, CONFIG_MAPS, &[], String::new())).into_body();
    let mut listed = 0;
    while let Some(frame) = block_on(body.frame()) {
        listed += frame.unwrap().into_data().unwrap().len();
    }
    let most = status("VmHWM:").saturating_sub(before);
    assert!(listed > 20_000_000, "{listed}");
    // Half a copy more is what everything else may take; a second copy is too much.
    assert!(
        most >= listed / 2,
        "{most} bytes for {listed}: are they counted at all?"
    );
    assert!(most * 2 <= stored * 3, "{most} bytes for a list of {listed}");
}

#[test]
fn a_start_takes_no_more_than_what_it_reads() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let cluster = on_disk(folder.path());
    block_on(futures::future::join_all((0..200).map(|n| {
        let cluster = cluster.clone();
        async move { create(&cluster, &config_map(&format!("map-{n}"), 40_000)).await }
    })));
    let stored = cluster.store_stats().live_bytes;
    drop(cluster);
    let before = status("RssAnon:");
    let cluster = on_disk(folder.path());
    let used = status("RssAnon:").saturating_sub(before);
    assert_eq!(cluster.store_stats().live_bytes, stored);
    assert!(used * 2 <= stored * 5, "{used} bytes for {stored}");
}
