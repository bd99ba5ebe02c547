//! The watch over all lives of the server.

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, WatchEvent, WatchParams};

use crate::ledger::{Ledger, Seen, fact, is_ours};

fn seen(event: WatchEvent<ConfigMap>) -> Option<Seen> {
    let (map, is_deleted) = match event {
        WatchEvent::Added(map) | WatchEvent::Modified(map) => (map, false),
        WatchEvent::Deleted(map) => (map, true),
        WatchEvent::Bookmark(_) => return None,
        // History of five minutes is kept, and a kill is no compaction.
        WatchEvent::Error(status) => panic!("the watch was told {status:?}"),
    };
    is_ours(&map).then(|| Seen {
        fact: fact(&map),
        is_deleted,
    })
}

/// Everything after a revision until the server is gone.
pub async fn follow(maps: Api<ConfigMap>, after: u64) -> Vec<Seen> {
    let mut all = Vec::new();
    let Ok(events) = maps.watch(&WatchParams::default(), &after.to_string()).await else {
        return all;
    };
    pin_mut!(events);
    while let Some(Ok(event)) = events.next().await {
        all.extend(seen(event));
    }
    all
}

/// Everything up to the marker. At revision 0 that is the present state, not history; so the first watch begins at 1.
pub async fn catch_up(maps: &Api<ConfigMap>, ledger: &mut Ledger, marker: &ConfigMap) {
    let marker = fact(marker);
    let after = ledger.seen().max(1).to_string();
    let events = maps.watch(&WatchParams::default(), &after).await.unwrap();
    pin_mut!(events);
    while ledger.seen() < marker.revision {
        let event = events.next().await.expect("the watch goes on").unwrap();
        ledger.saw(seen(event).into_iter().collect()).unwrap();
    }
}
