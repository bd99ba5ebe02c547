//! Random owner graphs, deleted in random ways: what is left is what the rules keep.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::world::World;

const NAMESPACES: [&str; 2] = ["one", "two"];

/// A reference of one object to another, by number; `Err`: to an owner that never was.
#[derive(Debug, Clone)]
struct Edge {
    from: usize,
    to: Result<usize, ()>,
    block: Option<bool>,
}

#[derive(Debug, Clone)]
struct Script {
    /// The namespace of each object.
    places: Vec<usize>,
    edges: Vec<Edge>,
    /// Object and policy.
    deletes: Vec<(usize, usize)>,
}

fn script() -> impl Strategy<Value = Script> {
    (2_usize..9).prop_flat_map(|count| {
        // Mostly one namespace: what refers to the other does not live long.
        let places = prop::collection::vec(prop_oneof![5 => Just(0_usize), 1 => Just(1)], count);
        let to = prop_oneof![8 => (0..count).prop_map(Ok), 1 => Just(Err(()))];
        let block = prop_oneof![Just(None), Just(Some(false)), Just(Some(true))];
        let edge = (0..count, to, block).prop_map(|(from, to, block)| Edge { from, to, block });
        let edges = prop::collection::vec(edge, 0..count * 2);
        let deletes = prop::collection::vec((0..count, 0_usize..3), 0..4);
        (places, edges, deletes).prop_map(|(places, edges, deletes)| Script { places, edges, deletes })
    })
}

/// What the rules keep, told without any of the machinery: an object with references lives while one of them leads to
/// an object that lives, where the owner must be in the same namespace.
#[derive(Debug, Clone, Default)]
struct Model {
    alive: BTreeSet<usize>,
    references: BTreeMap<usize, Vec<Result<usize, ()>>>,
}

impl Model {
    fn settle(&mut self, places: &[usize]) {
        loop {
            let alive = self.alive.clone();
            let is_there = |from: usize, to: &Result<usize, ()>| {
                to.is_ok_and(|to| alive.contains(&to) && places[to] == places[from])
            };
            let doomed: Vec<usize> = alive
                .iter()
                .copied()
                .filter(|from| {
                    let references = self.references.get(from).map(Vec::as_slice).unwrap_or_default();
                    !references.is_empty() && !references.iter().any(|to| is_there(*from, to))
                })
                .collect();
            if doomed.is_empty() {
                break;
            }
            for object in doomed {
                self.alive.remove(&object);
            }
        }
        // Whoever has an owner left forgets those that are lost.
        let alive = &self.alive;
        for (from, references) in &mut self.references {
            references.retain(|to| to.is_ok_and(|to| alive.contains(&to) && places[to] == places[*from]));
        }
    }

    fn delete(&mut self, object: usize, orphan: bool) {
        self.alive.remove(&object);
        if orphan {
            for references in self.references.values_mut() {
                references.retain(|to| *to != Ok(object));
            }
        }
    }
}

fn path(script: &Script, object: usize) -> String {
    let namespace = NAMESPACES[script.places[object]];
    format!("/api/v1/namespaces/{namespace}/configmaps/o{object}")
}

/// Which objects are there, and which references each of them has.
fn state(world: &World, script: &Script, uids: &[Value]) -> BTreeMap<usize, Vec<Result<usize, ()>>> {
    let mut state = BTreeMap::new();
    for object in 0..script.places.len() {
        let Some(live) = world.get(&path(script, object)) else {
            continue;
        };
        let references = live["metadata"]["ownerReferences"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let to = |reference: &Value| uids.iter().position(|uid| *uid == reference["uid"]).ok_or(());
        state.insert(object, references.iter().map(to).collect());
    }
    state
}

/// How the controllers are run.
#[derive(Debug, Clone, Copy)]
enum Drive {
    InOrder,
    /// Restarted before each run.
    Restarted,
    /// In an order that chance chooses.
    AnyOrder(u64),
}

impl Drive {
    fn settle(self, world: &mut World) {
        match self {
            Self::InOrder => {}
            Self::Restarted => world.manual.restart_controllers(),
            Self::AnyOrder(mut chance) => {
                while let ready = world.manual.ready()
                    && !ready.is_empty()
                {
                    chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let at = usize::try_from(chance >> 33).unwrap() % ready.len();
                    assert!(futures::executor::block_on(world.manual.run(&ready[at].id)));
                }
            }
        }
        world.settle();
    }
}

fn play(script: &Script, drive: Drive) -> Result<(), TestCaseError> {
    let mut world = World::new();
    for namespace in NAMESPACES {
        world.namespace(namespace);
    }
    let mut model = Model::default();
    let mut uids = Vec::new();
    for (object, place) in script.places.iter().enumerate() {
        let made = world.config_map(NAMESPACES[*place], &format!("o{object}"), vec![]);
        uids.push(made["metadata"]["uid"].clone());
        model.alive.insert(object);
    }
    world.settle();
    // All references come at once, so that there can be cycles.
    for from in 0..script.places.len() {
        let mut seen = BTreeSet::new();
        let mut references = Vec::new();
        for edge in script
            .edges
            .iter()
            .filter(|edge| edge.from == from && edge.to != Ok(from) && seen.insert(edge.to))
        {
            let mut reference = match edge.to {
                Ok(to) => json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("o{to}"), "uid": uids[to]}),
                Err(()) => json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "ghost",
                    "uid": "11111111-2222-4333-8444-555555555555"}),
            };
            if let Some(block) = edge.block {
                reference["blockOwnerDeletion"] = block.into();
            }
            references.push(reference);
            model.references.entry(from).or_default().push(edge.to);
        }
        if !references.is_empty() {
            world.patch(
                &path(script, from),
                &json!({"metadata": {"ownerReferences": references}}),
            );
        }
    }
    let check = |world: &mut World, model: &mut Model| {
        drive.settle(world);
        model.settle(&script.places);
        let wanted: BTreeMap<usize, Vec<Result<usize, ()>>> = model
            .alive
            .iter()
            .map(|object| {
                let references = model.references.get(object).map(Vec::as_slice).unwrap_or_default();
                (*object, references.to_vec())
            })
            .collect();
        prop_assert_eq!(state(world, script, &uids), wanted);
        Ok(())
    };
    check(&mut world, &mut model)?;
    for (object, policy) in &script.deletes {
        if !model.alive.contains(object) {
            continue;
        }
        let policy = ["Background", "Foreground", "Orphan"][*policy];
        world.delete(&path(script, *object), policy);
        model.delete(*object, policy == "Orphan");
        check(&mut world, &mut model)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn c1_exactly_what_the_rules_keep_is_left(script in script()) {
        play(&script, Drive::InOrder)?;
    }

    #[test]
    fn e3_controllers_that_are_restarted_before_they_run_come_to_the_same(script in script()) {
        play(&script, Drive::Restarted)?;
    }

    #[test]
    fn e3_work_done_in_any_order_comes_to_the_same(script in script(), chance in any::<u64>()) {
        play(&script, Drive::AnyOrder(chance))?;
    }
}
