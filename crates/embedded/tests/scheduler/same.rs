//! The same seed and the same calls give the same bytes (E1), and a snapshot that is gone back to gives them again.

use jiff::SignedDuration;
use serde_json::{Value, json};
use usher_embedded::{NodeEntry, Stages};

use crate::world::{PODS, World, options};

fn nodes() -> Vec<NodeEntry> {
    vec![
        NodeEntry::hollow("h1", Stages::default()),
        NodeEntry::hollow("h2", Stages::crash_loop()).with_label("disk", "ssd"),
    ]
}

fn begin(seed: u64) -> World {
    let mut world = World::with(options(seed, nodes()));
    world.settle();
    world.untaint("h1");
    world.untaint("h2");
    world
}

fn script(world: &mut World) {
    world.define_gangs();
    for n in 0..10 {
        world.pod(&format!("p{n}"), 6_000, &Value::Null);
    }
    world.pod("picky", 100, &json!({"nodeSelector": {"disk": "ssd"}}));
    world.pod("never", 100, &json!({"nodeSelector": {"disk": "tape"}}));
    world.gang("g", &[("one", &["g-0", "g-1"], 2)], &Value::Null);
    world.member("g", "g-0", 3_000, &Value::Null);
    world.member("g", "g-1", 3_000, &Value::Null);
    world.pass(SignedDuration::from_secs(30));
}

fn goes_on(world: &mut World) {
    world.delete(&format!("{PODS}/p0"));
    world.pod("late", 6_000, &Value::Null);
    world.pass(SignedDuration::from_secs(30));
}

fn everything(world: &World) -> String {
    let paths = [
        "/api/v1/pods",
        "/api/v1/nodes",
        "/apis/events.k8s.io/v1/events",
        "/apis/coordination.k8s.io/v1/leases",
    ];
    paths.map(|path| world.get(path).to_string()).concat()
}

#[test]
fn e1_one_seed_gives_one_history_of_pods_and_events() {
    let run = |seed: u64| {
        let mut world = begin(seed);
        script(&mut world);
        goes_on(&mut world);
        everything(&world)
    };
    let first = run(1);
    assert_eq!(first, run(1));
    assert_ne!(first, run(2), "uids differ");
}

#[test]
fn e1_a_snapshot_that_is_gone_back_to_gives_the_same_again() {
    let mut world = begin(3);
    script(&mut world);
    let snapshot = world.manual.snapshot();
    goes_on(&mut world);
    let first = everything(&world);
    world.manual.restore(&snapshot).unwrap();
    goes_on(&mut world);
    assert_eq!(everything(&world), first);
}

#[test]
fn e3_controllers_that_are_killed_between_syncs_come_to_the_same_places() {
    let mut world = begin(1);
    script(&mut world);
    let places = |world: &World| -> Vec<(String, bool)> {
        let list = world.get("/api/v1/pods");
        let pods = list["items"].as_array().unwrap().clone();
        let row = |pod: &Value| (pod["metadata"]["name"].to_string(), pod["spec"]["nodeName"].is_string());
        pods.iter().map(row).collect()
    };
    let expected = places(&world);
    let mut killed = begin(1);
    killed.define_gangs();
    killed.manual.restart_controllers();
    script_with_kills(&mut killed);
    assert_eq!(places(&killed), expected);
}

/// The same script, with controllers that know nothing before each of their steps.
fn script_with_kills(world: &mut World) {
    for n in 0..10 {
        world.pod(&format!("p{n}"), 6_000, &Value::Null);
    }
    world.pod("picky", 100, &json!({"nodeSelector": {"disk": "ssd"}}));
    world.pod("never", 100, &json!({"nodeSelector": {"disk": "tape"}}));
    world.gang("g", &[("one", &["g-0", "g-1"], 2)], &Value::Null);
    world.member("g", "g-0", 3_000, &Value::Null);
    world.member("g", "g-1", 3_000, &Value::Null);
    for step in 0..120 {
        let ready = world.manual.ready();
        // Not always the first, so that one who cannot go on does not keep the others from going.
        let Some(work) = ready.get(step % ready.len().max(1)) else {
            break;
        };
        futures::FutureExt::now_or_never(world.manual.run(&work.id)).unwrap();
        world.manual.restart_controllers();
    }
    world.pass(SignedDuration::from_secs(30));
}
