//! Reflectors with both list strategies, under random writes, cut lines and a compaction.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::sync::Notify;

use crate::line::Line;
use crate::{World, soon};

/// A reflector at work.
struct Mirror {
    name: &'static str,
    store: Store<ConfigMap>,
    changed: Arc<Notify>,
    /// How often it began anew.
    lists: Arc<AtomicUsize>,
    work: tokio::task::JoinHandle<()>,
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.work.abort();
    }
}

type State = BTreeMap<String, Option<String>>;

fn state<'a>(maps: impl Iterator<Item = &'a ConfigMap>) -> State {
    maps.map(|map| (map.name_any(), map.resource_version())).collect()
}

impl Mirror {
    fn of(name: &'static str, maps: Api<ConfigMap>, config: watcher::Config) -> Self {
        let (store, writer) = reflector::store();
        let (changed, lists) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let (notify, count) = (changed.clone(), lists.clone());
        let work = async move {
            let events = reflector::reflector(writer, watcher(maps, config)).default_backoff();
            events
                .for_each(|event| {
                    if matches!(event, Ok(watcher::Event::Init)) {
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                    notify.notify_one();
                    std::future::ready(())
                })
                .await;
        };
        Self {
            name,
            store,
            changed,
            lists,
            work: tokio::spawn(work),
        }
    }

    async fn shows(&self, wanted: &State) {
        let shown = || state(self.store.state().iter().map(|map| &**map));
        soon(self.name, async {
            while shown() != *wanted {
                self.changed.notified().await;
            }
        })
        .await;
    }
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

async fn write(maps: &Api<ConfigMap>, dice: &mut Dice) {
    let name = format!("map-{}", dice.below(12));
    let number = dice.below(1_000).to_string();
    let known = maps.get_opt(&name).await.unwrap();
    match (known, dice.below(3)) {
        (None, _) => {
            let map = json!({"metadata": {"name": name, "labels": {"mirrored": "yes"}}, "data": {"number": number}});
            let map = serde_json::from_value(map).unwrap();
            maps.create(&PostParams::default(), &map).await.unwrap();
        }
        (Some(_), 0) => {
            maps.delete(&name, &DeleteParams::default()).await.unwrap();
        }
        (Some(known), 1) => {
            // In and out of sight of whoever selects by it.
            let label = (!known.labels().contains_key("mirrored")).then_some("yes");
            let patch = Patch::Merge(json!({"metadata": {"labels": {"mirrored": label}}}));
            maps.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        }
        (Some(_), _) => {
            let patch = Patch::Merge(json!({"data": {"number": number}}));
            maps.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        }
    }
}

pub async fn stay_equal_to_the_server(world: &World) {
    let maps: Api<ConfigMap> = Api::default_namespaced(world.client.clone());
    let (line, client) = Line::to(world.client.clone());
    let there: Api<ConfigMap> = Api::default_namespaced(client);
    let mut dice = Dice(7);
    for _ in 0..20 {
        write(&maps, &mut dice).await;
    }
    let plain = watcher::Config::default();
    let mirrors = [
        Mirror::of("list and watch", there.clone(), plain.clone()),
        Mirror::of("list in pages of three", there.clone(), plain.clone().page_size(3)),
        Mirror::of("list at any version", there.clone(), plain.clone().any_semantic()),
        Mirror::of("streaming list", there.clone(), plain.clone().streaming_lists()),
    ];
    let few = plain.labels("mirrored=yes");
    let selecting = [
        Mirror::of("list by label", there.clone(), few.clone()),
        Mirror::of("streaming list by label", there, few.streaming_lists()),
    ];
    let equal = async || {
        let all = maps.list(&ListParams::default()).await.unwrap();
        let some = maps.list(&ListParams::default().labels("mirrored=yes")).await.unwrap();
        for mirror in &mirrors {
            mirror.shows(&state(all.iter())).await;
        }
        for mirror in &selecting {
            mirror.shows(&state(some.iter())).await;
        }
    };
    let lists = || -> Vec<usize> {
        let all = mirrors.iter().chain(&selecting);
        all.map(|mirror| mirror.lists.load(Ordering::SeqCst)).collect()
    };
    equal().await;
    for _ in 0..5 {
        for _ in 0..20 {
            write(&maps, &mut dice).await;
        }
        equal().await;
    }
    assert_eq!(lists(), [1; 6], "each listed once");

    // A cut line: whoever comes back goes on where it was.
    line.cut();
    for _ in 0..10 {
        write(&maps, &mut dice).await;
    }
    line.mend();
    equal().await;
    assert_eq!(lists(), [1; 6], "nobody had to list again");

    // And if the history is gone by then (410), it begins anew.
    line.cut();
    for _ in 0..10 {
        write(&maps, &mut dice).await;
    }
    world.cluster.compact_now();
    line.mend();
    equal().await;
    assert_eq!(lists(), [2; 6], "everybody had to list again");
    for _ in 0..20 {
        write(&maps, &mut dice).await;
    }
    equal().await;
}
