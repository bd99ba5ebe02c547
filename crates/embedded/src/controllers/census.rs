//! How many objects there are of each kind, in each namespace: counted from the log, so that nobody lists to find out
//! whether anything is left.

use std::collections::{BTreeMap, HashMap};

use crate::store::{Entry, Key, Kind, LogEntry};

/// Group and plural, as the store's keys say them.
pub(super) type GroupResource = (Box<str>, Box<str>);

#[derive(Debug, Default)]
pub(crate) struct Census {
    kinds: HashMap<GroupResource, usize>,
    namespaces: HashMap<Box<str>, BTreeMap<GroupResource, usize>>,
}

impl Census {
    pub(super) fn of(state: &[Entry]) -> Self {
        let mut census = Self::default();
        for entry in state {
            census.add(&entry.key);
        }
        census
    }

    pub(super) fn count(&mut self, line: &LogEntry) {
        match line.kind {
            Kind::Create => self.add(&line.key),
            Kind::Delete => self.take(&line.key),
            Kind::Update => {}
        }
    }

    fn add(&mut self, key: &Key) {
        let kind = kind_of(key);
        if let Some(namespace) = key.namespace() {
            let inside = self.namespaces.entry(namespace.into()).or_default();
            *inside.entry(kind.clone()).or_default() += 1;
        }
        *self.kinds.entry(kind).or_default() += 1;
    }

    fn take(&mut self, key: &Key) {
        let kind = kind_of(key);
        if let Some(namespace) = key.namespace()
            && let Some(inside) = self.namespaces.get_mut(namespace)
        {
            take(inside.get_mut(&kind));
            inside.retain(|_, count| *count > 0);
            if inside.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
        take(self.kinds.get_mut(&kind));
    }

    /// Objects of a kind, everywhere.
    pub(super) fn of_kind(&self, group: &str, plural: &str) -> usize {
        self.kinds
            .get(&(group.into(), plural.into()))
            .copied()
            .unwrap_or_default()
    }

    /// Objects of a kind in a namespace.
    pub(super) fn inside(&self, namespace: &str, group: &str, plural: &str) -> usize {
        self.namespaces
            .get(namespace)
            .and_then(|inside| inside.get(&(group.into(), plural.into())))
            .copied()
            .unwrap_or_default()
    }

    pub(super) fn is_empty(&self, namespace: &str) -> bool {
        !self.namespaces.contains_key(namespace)
    }
}

pub(super) fn kind_of(key: &Key) -> GroupResource {
    (key.group().into(), key.resource().into())
}

fn take(count: Option<&mut usize>) {
    if let Some(count) = count {
        *count = count.saturating_sub(1);
    }
}
