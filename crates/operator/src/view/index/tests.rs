//! The index against the slow way, with values that hash alike.

use jiff::Timestamp;
use kube::api::DynamicObject;
use proptest::prelude::*;

use super::*;
use crate::record::{ApiType, Meta};

#[derive(Debug, PartialEq)]
struct Leaf {
    meta: Meta,
    values: Vec<Text>,
}

impl Record for Leaf {
    const TYPE: ApiType = ApiType {
        group: "test.usher.dev",
        version: "v1",
        kind: "Leaf",
        plural: "leaves",
    };

    fn read(_: Meta, _: &DynamicObject) -> Result<Self, String> {
        Err("not read here".to_owned())
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

fn leaf(namespace: u8, name: u8, values: &[u8]) -> Arc<Leaf> {
    let meta = Meta {
        key: ObjectKey::new(format!("ns-{namespace}"), format!("leaf-{name}")).unwrap(),
        uid: "u".into(),
        revision: 1,
        generation: 1,
        created: Timestamp::UNIX_EPOCH.into(),
        deleting: None,
        owners: Box::default(),
        finalizers: Arc::default(),
        status_hash: None,
    };
    let values = values.iter().map(|value| format!("v{value}").into()).collect();
    Arc::new(Leaf { meta, values })
}

fn index(hash: Hash64) -> Index<Leaf> {
    Index {
        hash,
        ..Index::new(|leaf| leaf.values.clone())
    }
}

/// Everything alike; the value alone, so that namespaces meet; as it is.
const HASHES: [Hash64; 3] = [
    |_, _| 7,
    |_, value| value.len() as u64 + u64::from(value.ends_with('1')),
    hash,
];

fn same(index: &Index<Leaf>, all: &BTreeSet<ByKey<Arc<Leaf>>>) -> Result<(), TestCaseError> {
    for (namespace, value) in (0..2).flat_map(|namespace| (0..4).map(move |value| (namespace, value))) {
        let (namespace, value) = (format!("ns-{namespace}"), format!("v{value}"));
        let found: Vec<_> = index
            .get(&namespace, value.as_str().into())
            .map(|leaf| leaf.meta.key.clone())
            .collect();
        let has =
            |leaf: &Arc<Leaf>| leaf.meta.key.namespace() == namespace && leaf.values.iter().any(|v| **v == *value);
        let expected: Vec<_> = all.iter().map(|ByKey(leaf)| leaf).filter(|leaf| has(leaf)).collect();
        prop_assert_eq!(
            found,
            expected.iter().map(|leaf| leaf.meta.key.clone()).collect::<Vec<_>>()
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn it_finds_what_the_slow_way_finds_also_where_values_hash_alike(
        at_first in prop::collection::vec((0u8..2, 0u8..5, prop::collection::vec(0u8..4, 0..3)), 0..8),
        then in prop::collection::vec((0u8..2, 0u8..5, prop::option::of(prop::collection::vec(0u8..4, 0..3))), 0..20),
        hash in prop::sample::select(HASHES.to_vec()),
    ) {
        let mut all: BTreeSet<ByKey<Arc<Leaf>>> = at_first.iter().map(|(ns, name, of)| ByKey(leaf(*ns, *name, of))).collect();
        let mut index = index(hash);
        index.fill(all.iter().map(|ByKey(leaf)| leaf));
        same(&index, &all)?;
        for (ns, name, values) in then {
            let new = leaf(ns, name, values.as_deref().unwrap_or_default());
            if let Some(ByKey(old)) = all.take(&new.meta.key) {
                index.remove(&old);
            }
            if values.is_some() {
                index.insert(&new);
                all.insert(ByKey(new));
            }
            same(&index, &all)?;
        }
        for ByKey(leaf) in all {
            index.remove(&leaf);
        }
        prop_assert!(index.buckets.is_empty(), "nothing is left: {:?}", index.buckets);
    }
}
