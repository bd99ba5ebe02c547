//! What must hold for any input: laws of sets and applies, and that nothing panics.

use std::sync::LazyLock;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use usher_embedded::fields::{
    Apply, Element, Set, Track, apply, json_patch, keep_times, merge_patch, strategic_merge, track,
};
use usher_embedded::schema::Schema;

use crate::openapi;
use crate::recorded::file;

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| openapi::schema(&file("library.json")["schema"]));
static DEPLOYMENT: LazyLock<Schema> = LazyLock::new(|| openapi::schema(&file("server.json")["schemas"]["Deployment"]));

/// Any JSON, with names that mean something often enough.
fn anything() -> impl Strategy<Value = Value> {
    let names = prop_oneof![
        8 => prop::sample::select(vec![
            "metadata", "managedFields", "spec", "a", "m", "s", "l", "ll", "p", "any", "name", "port", "items", "tags",
            "manager", "operation", "apiVersion", "fieldsType", "fieldsV1", "time", "f:spec", "f:a", ".", "k:{\"name\":1}",
            "v:1", "i:0", "$patch", "$retainKeys", "$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers",
            "template", "containers", "finalizers", "env", "op", "path", "from", "value",
        ]).prop_map(str::to_owned),
        1 => ".{0,3}",
    ];
    let words = prop::sample::select(vec![
        "x",
        "delete",
        "replace",
        "merge",
        "Apply",
        "Update",
        "FieldsV1",
        "t.io/v1",
        "2020-01-01T00:00:00Z",
        "add",
        "copy",
        "move",
        "test",
        "remove",
        "/spec/a",
        "/s/-",
        "/",
        "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0..3i64).prop_map(Value::from),
        words.prop_map(Value::from),
        ".{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names.clone(), inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A spec of single fields, a map, a set, an atomic list and an atomic map.
fn flat() -> impl Strategy<Value = Value> {
    let word = || prop::sample::select(vec!["x", "y"]);
    let keys = || prop::collection::btree_map(prop::sample::select(vec!["k", "l", "m"]), word(), 0..3);
    (
        prop::option::of(word()),
        prop::option::of(0..2i64),
        prop::option::of(keys()),
        prop::option::of(prop::sample::subsequence(vec!["a", "b", "c"], 0..=3)),
        prop::option::of(prop::collection::vec(word(), 0..2)),
        prop::option::of(prop::collection::btree_map(word(), word(), 0..2)),
    )
        .prop_map(|(a, num, m, s, at, am)| {
            let mut spec = Map::new();
            spec.extend(a.map(|a| ("a".to_owned(), json!(a))));
            spec.extend(num.map(|num| ("num".to_owned(), json!(num))));
            spec.extend(m.filter(|m| !m.is_empty()).map(|m| ("m".to_owned(), json!(m))));
            spec.extend(s.filter(|s| !s.is_empty()).map(|s| ("s".to_owned(), json!(s))));
            spec.extend(at.map(|at| ("at".to_owned(), json!(at))));
            spec.extend(am.map(|am| ("am".to_owned(), json!(am))));
            Value::Object(spec)
        })
}

fn element() -> impl Strategy<Value = Element> {
    prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "c:", ".", "", "é\"\\"]).prop_map(Element::field),
        1 => (0..3i64).prop_map(Element::Index),
        1 => prop::sample::select(vec![json!("x"), json!(1), json!(1.5), json!(true), json!("<&>")])
            .prop_map(|value| Element::Value(Box::new(value))),
        1 => (0..3i64, any::<bool>()).prop_map(|(id, name)| {
            let id = ("id", json!(id));
            if name { Element::key(&[("name", json!("n")), id]) } else { Element::key(&[id]) }
        }),
    ]
}

fn set() -> impl Strategy<Value = Set> {
    prop::collection::vec(prop::collection::vec(element(), 1..4), 0..8).prop_map(|paths| {
        let mut set = Set::new();
        for path in paths {
            set.insert(&path);
        }
        set
    })
}

fn thing(spec: &Value) -> Value {
    json!({"apiVersion": "t.io/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": spec})
}

fn applied(live: Option<&Value>, object: &Value, manager: &str, second: i64) -> Value {
    let request = Apply {
        live,
        applied: object,
        schema: &SCHEMA,
        manager,
        subresource: "",
        api_version: "t.io/v1",
        force: true,
        now: Timestamp::from_second(second).unwrap(),
        ignored: &[],
    };
    apply(request).unwrap()
}

fn updated(live: Option<&Value>, object: &Value, manager: &str, second: i64) -> Value {
    let mut new = object.clone();
    track(Track {
        old: live,
        new: &mut new,
        schema: &SCHEMA,
        manager,
        subresource: "",
        api_version: "t.io/v1",
        now: Timestamp::from_second(second).unwrap(),
        ignored: &[],
    });
    new
}

/// What a manager owns.
fn owned(object: &Value, whose: impl Fn(&str) -> bool) -> Set {
    let entries = object["metadata"]
        .get("managedFields")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    entries
        .filter(|entry| whose(entry["manager"].as_str().unwrap()))
        .map(|entry| Set::from_fields_v1(&entry["fieldsV1"]).unwrap())
        .fold(Set::new(), |all, fields| all.union(&fields))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn o18_applying_the_same_again_changes_nothing(before in flat(), first in flat()) {
        let live = updated(None, &thing(&before), "u", 1);
        let once = applied(Some(&live), &thing(&first), "a", 2);
        let twice = applied(Some(&once), &thing(&first), "a", 3);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn o18_who_applies_nothing_loses_exactly_what_nobody_else_owns(
        before in flat(), mine in flat(), theirs in flat(), update in any::<bool>(),
    ) {
        let live = updated(None, &thing(&before), "u", 1);
        let live = applied(Some(&live), &thing(&mine), "a", 2);
        let live = if update {
            updated(Some(&live), &thing(&theirs), "b", 3)
        } else {
            applied(Some(&live), &thing(&theirs), "b", 3)
        };
        let nothing = json!({"apiVersion": "t.io/v1", "kind": "Thing", "metadata": {"name": "x"}});
        let after = applied(Some(&live), &nothing, "a", 4);
        let leaves = |object: &Value| Set::of(object, &SCHEMA).leaves();
        let gone = owned(&live, |name| name == "a").difference(&owned(&live, |name| name != "a"));
        // A container that lost all it had is left as null, and that is a leaf of its own.
        let kept = leaves(&live).difference(&gone);
        prop_assert_eq!(leaves(&after).intersection(&leaves(&live)), kept);
        prop_assert!(owned(&after, |name| name == "a").is_empty());
        prop_assert_eq!(owned(&after, |name| name != "a"), owned(&live, |name| name != "a"));
    }

    #[test]
    fn o19_after_an_update_every_changed_field_is_the_updaters(before in flat(), after in flat()) {
        let old = applied(None, &thing(&before), "a", 1);
        let new = updated(Some(&old), &thing(&after), "u", 2);
        let own = owned(&new, |name| name == "u");
        for path in Set::of(&new, &SCHEMA).leaves().paths() {
            let pointer = |object: &Value| {
                path.iter().try_fold(object.clone(), |value, element| match element {
                    Element::Field(name) => value.get(&**name).cloned(),
                    Element::Value(item) => value.as_array()?.contains(item).then(|| (**item).clone()),
                    _ => None,
                })
            };
            // An emptied `spec` is a leaf that nobody changed.
            if path.first() == Some(&Element::field("spec")) && path.len() > 1 {
                prop_assert_eq!(own.has(&path), pointer(&old) != pointer(&new), "{:?}", path);
            }
        }
    }

    #[test]
    fn o18_fields_v1_reads_back(set in set()) {
        prop_assert_eq!(&Set::from_fields_v1(&set.to_fields_v1()).unwrap(), &set);
        let text: Value = serde_json::from_str(&set.to_text()).unwrap();
        prop_assert_eq!(text, set.to_fields_v1());
    }

    #[test]
    fn o18_sets_obey_the_laws_of_sets(a in set(), b in set(), c in set()) {
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.union(&b).union(&c), a.union(&b.union(&c)));
        prop_assert_eq!(a.union(&a), a.clone());
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.intersection(&a), a.clone());
        prop_assert!(a.difference(&a).is_empty());
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert_eq!(a.difference(&b.union(&c)), a.difference(&b).difference(&c));
        prop_assert_eq!(a.intersection(&b.union(&c)), a.intersection(&b).union(&a.intersection(&c)));
        prop_assert_eq!(a.union(&b).len() + a.intersection(&b).len(), a.len() + b.len());
        prop_assert_eq!(a.meets(&b), !a.intersection(&b).is_empty());
        prop_assert_eq!(a.without(&b).union(&a.difference(&b)), a.difference(&b));
        prop_assert!(a.leaves().difference(&a).is_empty());
        for path in a.paths() {
            prop_assert!(a.has(&path));
            prop_assert_eq!(a.without(&b).has(&path), !(1..=path.len()).any(|length| b.has(&path[..length])));
        }
        prop_assert_eq!(a.paths().len(), a.len());
    }

    #[test]
    fn no_json_panics(live in anything(), other in anything(), managed in anything()) {
        hold(&live, &other, &managed);
    }
}

/// Calls everything with anything.
fn hold(live: &Value, other: &Value, managed: &Value) {
    let mut tracked = live.clone();
    if let Value::Object(map) = &mut tracked {
        map.insert("metadata".to_owned(), json!({"name": "x", "managedFields": managed}));
    }
    for schema in [&*SCHEMA, &*DEPLOYMENT, &Schema::default()] {
        for (live, applied) in [
            (None, live),
            (Some(live), other),
            (Some(&tracked), other),
            (Some(other), &tracked),
        ] {
            for force in [false, true] {
                let merged = apply(Apply {
                    live,
                    applied,
                    schema,
                    manager: "kubectl",
                    subresource: "",
                    api_version: "t.io/v1",
                    force,
                    now: Timestamp::UNIX_EPOCH,
                    ignored: &[&["status"], &["spec", "a"]],
                });
                if let (Ok(mut merged), Some(live)) = (merged, live) {
                    keep_times(live, &mut merged);
                }
            }
            let mut new = applied.clone();
            track(Track {
                old: live,
                new: &mut new,
                schema,
                manager: "",
                subresource: "status",
                api_version: "",
                now: Timestamp::UNIX_EPOCH,
                ignored: &[],
            });
        }
        let _ = strategic_merge(live, other, schema);
        let _ = Set::of(live, schema).union(&Set::of(other, schema));
    }
    let _ = json_patch(live, other);
    let _ = json_patch(live, &json!([other, {"op": "add", "path": "/a", "value": live}]));
    let _ = merge_patch(live, other);
    let _ = Set::from_fields_v1(managed);
}

#[test]
fn nothing_is_too_deep() {
    // Requests are refused at 128 levels; this is what could be made in other ways.
    let deep = |key: &str| {
        (0..500).fold(json!("x"), |value, level| match (key, level % 2) {
            ("list", _) | ("both", 0) => json!([value]),
            _ => json!({ "a": value }),
        })
    };
    for kind in ["list", "map", "both"] {
        let value = deep(kind);
        hold(
            &thing(&json!({"p": value, "any": value})),
            &thing(&json!({"p": value, "a": value})),
            &value,
        );
        hold(
            &json!({"spec": {"template": value}}),
            &json!({"spec": {"template": value}}),
            &json!([{"fieldsV1": value}]),
        );
    }
    let path = "/a".repeat(10_000);
    assert!(json_patch(&deep("map"), &json!([{"op": "add", "path": path, "value": 1}])).is_err());
}

#[test]
fn s8_a_json_patch_cannot_nest_without_end() {
    // Each pair of moves wraps the document once more.
    let wrap = [
        json!({"op": "add", "path": "/b", "value": {}}),
        json!({"op": "move", "from": "/a", "path": "/b/c"}),
        json!({"op": "move", "from": "/b", "path": "/a"}),
    ];
    let patch = |times: usize| Value::from(vec![wrap.clone(); times].concat());
    let live = json!({"a": {}});
    assert!(json_patch(&live, &patch(100)).is_ok());
    assert_eq!(json_patch(&live, &patch(3000)).unwrap_err().code, 422);
}
