//! How much work deletion is: counted, not timed.

use serde_json::json;

use crate::world::{MAPS, World, map, owner};

const MANY: usize = 1_000;

#[test]
fn c1_an_owner_of_a_thousand_takes_one_sync_and_one_write_for_each() {
    let mut world = World::new();
    let a = world.config_map("default", "a", vec![]);
    for number in 0..MANY {
        world.config_map("default", &format!("b{number}"), vec![owner(&a, None)]);
    }
    world.settle();
    let before = world.manual.cluster().store_stats();
    world.delete(&map("a"), "Background");
    let syncs = world.settle();
    let after = world.manual.cluster().store_stats();
    assert!(world.names(MAPS).is_empty());
    assert_eq!(syncs, MANY);
    assert_eq!(after.writes - before.writes, 1 + MANY as u64);
    // The dependent and its owner, by the collector; the dependent once more, by the delete.
    let reads = after.reads - before.reads;
    assert!(reads <= 5 * MANY as u64, "{reads} reads");
}

#[test]
fn c1_a_foreground_owner_of_a_thousand_is_not_looked_at_a_thousand_times_for_each() {
    let mut world = World::new();
    let a = world.config_map("default", "a", vec![]);
    for number in 0..MANY {
        world.config_map("default", &format!("b{number}"), vec![owner(&a, Some(true))]);
    }
    world.settle();
    let before = world.manual.cluster().store_stats();
    world.delete(&map("a"), "Foreground");
    let syncs = world.settle();
    let after = world.manual.cluster().store_stats();
    assert!(world.names(MAPS).is_empty());
    assert!(syncs <= 2 * MANY + 2, "{syncs} syncs");
    assert_eq!(after.writes - before.writes, 2 + MANY as u64);
    let reads = after.reads - before.reads;
    assert!(reads <= 7 * MANY as u64, "{reads} reads");
}

#[test]
fn o15_a_namespace_of_a_thousand_objects_takes_few_reads_for_each() {
    let mut world = World::new();
    world.namespace("full");
    for number in 0..MANY {
        world.config_map("full", &format!("b{number}"), vec![]);
    }
    world.settle();
    let before = world.manual.cluster().store_stats();
    world.ask("DELETE", "/api/v1/namespaces/full", None);
    let syncs = world.settle();
    let after = world.manual.cluster().store_stats();
    assert_eq!(world.get("/api/v1/namespaces/full"), None);
    assert!(syncs <= 3, "{syncs} syncs");
    // Each object; the mark, the conditions and the end of the namespace.
    assert_eq!(after.writes - before.writes, MANY as u64 + 3);
    let reads = after.reads - before.reads;
    assert!(reads <= 5 * MANY as u64, "{reads} reads");
}

#[test]
fn o15_finalizers_that_go_one_by_one_do_not_make_a_namespace_list_each_time() {
    let mut world = World::new();
    world.namespace("held");
    for number in 0..200 {
        world.config_map_with(
            "held",
            &format!("b{number}"),
            json!({"finalizers": ["example.com/hold"]}),
        );
    }
    world.ask("DELETE", "/api/v1/namespaces/held", None);
    world.settle();
    let mut syncs = 0;
    for number in 0..200 {
        let path = format!("/api/v1/namespaces/held/configmaps/b{number}");
        world.patch(&path, &json!({"metadata": {"finalizers": null}}));
        syncs += world.settle();
    }
    assert_eq!(world.get("/api/v1/namespaces/held"), None);
    assert!(syncs <= 2, "{syncs} syncs");
}
