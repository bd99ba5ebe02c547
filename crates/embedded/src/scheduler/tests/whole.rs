//! Gangs in a cluster: random sizes, capacities and packs, in any order, beside rivals that come and go, with controllers
//! that are killed between any two of their writes.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use futures::{FutureExt, Stream};
use http::Request;
use http_body_util::{BodyExt, Full};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::model::{SmallGang, SmallNode};
use crate::clock::{Clock, ManualClock};
use crate::controllers::{Controller, Controllers};
use crate::registry::object;
use crate::store::{Key, Prefix, Snapshot, Store, Watcher};
use crate::{Cluster, Manual, Options};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// What was true after a write: the store, and which pods had a node.
type Moment = (Snapshot, BTreeMap<String, bool>);

/// Looks at the store after each write, be it one or a batch: a watcher is woken within it.
struct AfterEachWrite {
    store: Store,
    watcher: Mutex<Watcher>,
    seen: Mutex<Vec<Moment>>,
}

impl AfterEachWrite {
    fn on(store: &Store) -> Arc<Self> {
        let this = Arc::new(Self {
            store: store.clone(),
            watcher: Mutex::new(store.watch(Prefix::everything(), store.revision()).unwrap()),
            seen: Mutex::default(),
        });
        this.listen();
        this
    }

    fn listen(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        let mut watcher = self.watcher.lock().unwrap();
        while let Poll::Ready(Some(_)) = Pin::new(&mut *watcher).poll_next(&mut Context::from_waker(&waker)) {}
    }
}

impl Wake for AfterEachWrite {
    fn wake(self: Arc<Self>) {
        let moment = (self.store.snapshot(), bound(&self.store));
        self.seen.lock().unwrap().push(moment);
        self.listen();
    }
}

/// All pods, and whether they have a node.
fn bound(store: &Store) -> BTreeMap<String, bool> {
    let pods = store
        .list(&Key::prefix("", "pods", Some("default")), None, None, 0)
        .unwrap();
    pods.entries
        .iter()
        .map(|entry| {
            let pod = object::decode(entry).unwrap();
            (entry.key.name().to_owned(), object::at(&pod, "spec.nodeName").is_some())
        })
        .collect()
}

/// Chance from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }

    fn is(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

struct World {
    manual: Manual,
    chance: Chance,
    nodes: Vec<SmallNode>,
    gangs: Vec<SmallGang>,
    rivals: usize,
    kills: usize,
    batches: usize,
}

#[derive(Debug, Clone)]
enum Happening {
    Gang(usize),
    Pod(usize, usize, usize, u32),
    Rival(u32),
    RivalGoes,
}

fn ask(manual: &Manual, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let content_type = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let body = Full::new(bytes::Bytes::from(serde_json::to_vec(body).unwrap()));
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type);
    let answer = manual
        .service()
        .answer(request.body(body).unwrap())
        .now_or_never()
        .unwrap();
    let code = answer.status().as_u16();
    let bytes = answer.into_body().collect().now_or_never().unwrap().unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap())
}

fn make(manual: &Manual, path: &str, body: &Value) {
    let (code, answer) = ask(manual, "POST", path, body);
    assert_eq!(code, 201, "{path}: {answer}");
}

impl World {
    fn new(seed: u64) -> Self {
        let manual = Cluster::manual(Options {
            clock: Clock::Manual(ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap())),
            seed: Some(seed),
            controllers: Controllers::none()
                .with(Controller::Definitions)
                .with(Controller::Scheduler),
            ..Options::default()
        });
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        chance.below(2);
        let nodes = (0..2 + chance.below(3))
            .map(|_| SmallNode {
                cpus: 1 + u32::try_from(chance.below(4)).unwrap(),
                pods: 2 + chance.below(4),
                rack: Some(u8::try_from(chance.below(2)).unwrap()),
                taken: 0,
            })
            .collect();
        let gangs = (0..1 + chance.below(3))
            .map(|_| {
                let groups = (0..1 + chance.below(2)).map(|_| {
                    let asks = vec![1 + u32::try_from(chance.below(2)).unwrap(); 1 + chance.below(3)];
                    let needed = 1 + chance.below(asks.len());
                    (asks, needed)
                });
                SmallGang {
                    groups: groups.collect(),
                    whole_in_one_rack: chance.is(2),
                    groups_in_one_rack: Vec::new(),
                }
            })
            .collect();
        let mut world = Self {
            manual: manual.unwrap(),
            chance,
            nodes,
            gangs,
            rivals: 0,
            kills: 0,
            batches: 0,
        };
        world.set_up();
        world
    }

    fn set_up(&mut self) {
        make(
            &self.manual,
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            &json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "podgangs.scheduler.grove.io"},
                "spec": {"group": "scheduler.grove.io", "scope": "Namespaced",
                    "names": {"plural": "podgangs", "singular": "podgang", "kind": "PodGang", "listKind": "PodGangList"},
                    "versions": [{"name": "v1alpha1", "served": true, "storage": true,
                        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}),
        );
        for (index, node) in self.nodes.iter().enumerate() {
            let has = json!({"cpu": node.cpus.to_string(), "memory": "1Gi", "pods": node.pods.to_string()});
            let labels = json!({"rack": node.rack.unwrap().to_string()});
            make(
                &self.manual,
                "/api/v1/nodes",
                &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{index}"), "labels": labels},
                    "status": {"capacity": has, "allocatable": has}}),
            );
            let untainted = json!({"spec": {"taints": null}});
            ask(&self.manual, "PATCH", &format!("/api/v1/nodes/n{index}"), &untainted);
        }
        self.manual.settle().now_or_never().unwrap();
    }

    fn pod(&self, name: &str, cpus: u32, labels: &Value, scheduler: &str) {
        let requests = json!({"requests": {"cpu": cpus.to_string()}});
        make(
            &self.manual,
            PODS,
            &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
                "spec": {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i", "resources": requests}]}}),
        );
    }

    fn happen(&mut self, happening: &Happening) {
        match happening {
            Happening::Gang(number) => {
                let gang = &self.gangs[*number];
                let groups = gang.groups.iter().enumerate().map(|(group, (asks, needed))| {
                    let pods = (0..asks.len()).map(|pod| json!({"namespace": "default", "name": name(*number, group, pod)}));
                    json!({"name": format!("group-{group}"), "minReplicas": needed, "podReferences": pods.collect::<Vec<_>>()})
                });
                let mut spec = json!({"podgroups": groups.collect::<Vec<_>>()});
                if gang.whole_in_one_rack {
                    spec["topologyConstraint"] = json!({"packConstraint": {"required": "rack"}});
                }
                make(
                    &self.manual,
                    "/apis/scheduler.grove.io/v1alpha1/namespaces/default/podgangs",
                    &json!({"apiVersion": "scheduler.grove.io/v1alpha1", "kind": "PodGang",
                        "metadata": {"name": format!("gang-{number}")}, "spec": spec}),
                );
            }
            Happening::Pod(gang, group, pod, cpus) => {
                let labels = json!({"grove.io/podgang": format!("gang-{gang}")});
                self.pod(&name(*gang, *group, *pod), *cpus, &labels, "kai-scheduler");
            }
            Happening::Rival(cpus) => {
                self.pod(
                    &format!("rival-{}", self.rivals),
                    *cpus,
                    &json!({}),
                    "default-scheduler",
                );
                self.rivals += 1;
            }
            Happening::RivalGoes if self.rivals > 0 => {
                let rival = self.chance.below(self.rivals);
                self.delete(&format!("rival-{rival}"));
            }
            Happening::RivalGoes => {}
        }
    }

    fn delete(&self, pod: &str) {
        let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
        ask(&self.manual, "DELETE", &format!("{PODS}/{pod}"), &body);
    }

    /// One sync, whole or cut off after one of its writes. Every moment in it is looked at.
    fn step(&mut self) -> bool {
        let ready = self.manual.ready();
        if ready.is_empty() {
            return false;
        }
        let work = ready[self.chance.below(ready.len())].clone();
        let store = self.manual.cluster().registry().store.clone();
        let before = bound(&store).values().filter(|is_bound| **is_bound).count();
        let hook = AfterEachWrite::on(&store);
        assert!(self.manual.run(&work.id).now_or_never().unwrap());
        let moments = std::mem::take(&mut *hook.seen.lock().unwrap());
        for (_, pods) in &moments {
            self.check(pods);
        }
        let after = bound(&store).values().filter(|is_bound| **is_bound).count();
        self.batches += usize::from(after > before + 1);
        if !moments.is_empty() && self.chance.is(3) {
            let (snapshot, _) = &moments[self.chance.below(moments.len())];
            store.restore(snapshot).unwrap();
            self.manual.cluster().registry().reread_definitions();
            self.manual.restart_controllers();
            self.kills += 1;
        }
        true
    }

    /// K2: either nobody of a gang has a node, or every group has its minimum.
    fn check(&self, pods: &BTreeMap<String, bool>) {
        for (number, gang) in self.gangs.iter().enumerate() {
            let counts: Vec<usize> = gang
                .groups
                .iter()
                .enumerate()
                .map(|(group, (asks, _))| {
                    let bound = |pod: &usize| pods.get(&name(number, group, *pod)) == Some(&true);
                    (0..asks.len()).filter(bound).count()
                })
                .collect();
            let is_whole = gang
                .groups
                .iter()
                .zip(&counts)
                .all(|((_, needed), count)| count >= needed);
            let is_nothing = counts.iter().all(|count| *count == 0);
            assert!(
                is_whole || is_nothing,
                "a part of gang {number} is bound: {counts:?} of {gang:?}"
            );
        }
    }

    /// Lets everything come to its end.
    fn come_to_rest(&mut self) {
        let end = self.manual.clock().now() + SignedDuration::from_secs(60);
        loop {
            let mut steps = 0;
            while self.step() {
                steps += 1;
                assert!(steps < 5_000, "it never rests");
            }
            match self.manual.next_timer().filter(|next| *next <= end) {
                Some(next) => self.manual.advance(next),
                None => return,
            }
        }
    }

    fn has_minimum(&self, number: usize) -> bool {
        let pods = bound(&self.manual.cluster().registry().store);
        self.gangs[number]
            .groups
            .iter()
            .enumerate()
            .all(|(group, (asks, needed))| {
                let bound = |pod: &usize| pods.get(&name(number, group, *pod)) == Some(&true);
                (0..asks.len()).filter(bound).count() >= *needed
            })
    }
}

fn name(gang: usize, group: usize, pod: usize) -> String {
    format!("pod-{gang}-{group}-{pod}")
}

/// One world. Gives back how often controllers were killed, and how many writes bound several pods.
fn play(seed: u64) -> (usize, usize) {
    let mut world = World::new(seed);
    let mut happenings: Vec<Happening> = Vec::new();
    for (number, gang) in world.gangs.iter().enumerate() {
        happenings.push(Happening::Gang(number));
        for (group, (asks, _)) in gang.groups.iter().enumerate() {
            happenings.extend(
                asks.iter()
                    .enumerate()
                    .map(|(pod, cpus)| Happening::Pod(number, group, pod, *cpus)),
            );
        }
    }
    happenings.extend([
        Happening::Rival(1),
        Happening::Rival(2),
        Happening::RivalGoes,
        Happening::RivalGoes,
    ]);
    while !happenings.is_empty() {
        let next = happenings.swap_remove(world.chance.below(happenings.len()));
        world.happen(&next);
        for _ in 0..world.chance.below(6) {
            world.step();
        }
        if world.chance.is(4) {
            let later = world.manual.clock().now() + SignedDuration::from_secs(3);
            world.manual.advance(later);
        }
    }
    world.come_to_rest();
    // Alone on an empty cluster, each gang that fits is bound; it is asked of one that waited, if there is one.
    let waited = (0..world.gangs.len())
        .find(|number| !world.has_minimum(*number))
        .unwrap_or_default();
    for rival in 0..world.rivals {
        world.delete(&format!("rival-{rival}"));
    }
    for number in (0..world.gangs.len()).filter(|number| *number != waited) {
        let gang = world.gangs[number].clone();
        for (group, (asks, _)) in gang.groups.iter().enumerate() {
            for pod in 0..asks.len() {
                world.delete(&name(number, group, pod));
            }
        }
    }
    // Those that are gone are no longer to be whole.
    let alone = world.gangs[waited].clone();
    let others = world.gangs.clone();
    for number in (0..others.len()).filter(|number| *number != waited) {
        world.gangs[number].groups.clear();
    }
    world.come_to_rest();
    assert_eq!(
        world.has_minimum(waited),
        alone.fits(&world.nodes),
        "seed {seed}: {alone:?} on {:?}",
        world.nodes
    );
    (world.kills, world.batches)
}

#[test]
fn k2_no_part_of_a_gang_is_ever_bound_and_a_gang_that_fits_alone_is_bound_in_the_end() {
    let (mut kills, mut batches) = (0, 0);
    for seed in 0..16 {
        let (killed, bound) = play(seed);
        kills += killed;
        batches += bound;
    }
    assert!(kills > 50, "{kills} kills: were they between writes?");
    assert!(batches > 5, "{batches} gangs bound at once: was anything tried?");
}
