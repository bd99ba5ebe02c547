//! Read your own writes: a resource is not planned again until the view has seen what we last wrote for it.
//!
//! Without this, a pass that runs before its own echo arrives sees the world as it was and does the same thing twice.
//! A plain value; the runtime tells it of writes and asks it before each pass.

use std::collections::{BTreeMap, BTreeSet};

use usher_engine::{ObjectKey, Uid};

use crate::record::ApiType;
use crate::view::View;

/// Who wrote: the resource whose pass it was.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reader {
    /// Its kind's name.
    pub kind: &'static str,
    /// Its key.
    pub key: ObjectKey,
}

/// What the view must show before the writer's next pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// The type at this revision or later: the echo of our write.
    Revision(u64),
    /// The object in another version than this one: our write was refused because we had an old one.
    Newer(u64),
    /// The object of this uid gone.
    Gone(Uid),
}

#[derive(Debug, Clone)]
struct Pending {
    expect: Expect,
    /// The view's event count when the write was answered: a list that began later contains it.
    after: u64,
}

/// All writes whose echo has not been seen. Bounded by the writes in flight between an answer and its echo.
#[derive(Debug, Default)]
pub struct Written {
    /// A later write to an object does not stand for an earlier one: it may be seen where that is not (a conflict, say,
    /// with a version older than ours).
    by_reader: BTreeMap<Reader, BTreeMap<(ApiType, ObjectKey), Vec<Pending>>>,
    by_object: BTreeMap<(ApiType, ObjectKey), BTreeSet<Reader>>,
}

impl Written {
    /// Notes a write that was answered.
    pub fn note(&mut self, reader: &Reader, kind: ApiType, object: &ObjectKey, expect: Expect, view: &View) {
        let at = (kind, object.clone());
        self.by_object.entry(at.clone()).or_default().insert(reader.clone());
        let pending = Pending {
            expect,
            after: view.seen(),
        };
        let of_reader = self.by_reader.entry(reader.clone()).or_default();
        of_reader.entry(at).or_default().push(pending);
    }

    /// What the view has not shown yet of this reader's writes; what it has shown is forgotten.
    pub fn unseen(&mut self, reader: &Reader, view: &View) -> Option<(ApiType, ObjectKey)> {
        let pending = self.by_reader.get_mut(reader)?;
        pending.retain(|(kind, object), pending| {
            pending.retain(|pending| !is_seen(view, *kind, object, pending));
            let seen = pending.is_empty();
            if seen && let Some(readers) = self.by_object.get_mut(&(*kind, object.clone())) {
                readers.remove(reader);
                if readers.is_empty() {
                    self.by_object.remove(&(*kind, object.clone()));
                }
            }
            !seen
        });
        let first = pending.keys().next().cloned();
        if first.is_none() {
            self.by_reader.remove(reader);
        }
        first
    }

    /// Who waits for this object; woken when it changes.
    pub fn waiting_for(&self, kind: ApiType, object: &ObjectKey) -> impl Iterator<Item = &Reader> {
        self.by_object.get(&(kind, object.clone())).into_iter().flatten()
    }

    /// Who waits for anything of this type; woken when the whole type has moved on.
    pub fn waiting_for_any(&self, kind: ApiType) -> BTreeSet<Reader> {
        self.by_object
            .iter()
            .filter(|((t, _), _)| *t == kind)
            .flat_map(|(_, readers)| readers)
            .cloned()
            .collect()
    }

    /// Number of writes whose echo is outstanding.
    pub fn outstanding(&self) -> usize {
        let pending = self.by_reader.values().flat_map(BTreeMap::values);
        pending.map(Vec::len).sum()
    }
}

fn is_seen(view: &View, kind: ApiType, object: &ObjectKey, pending: &Pending) -> bool {
    let current = view.identity(kind, object);
    // A list that began later shows what there is, be it the same version, or an object brought back from a backup.
    let listed = || view.has_seen(kind, u64::MAX, pending.after);
    match &pending.expect {
        Expect::Revision(revision) => view.has_seen(kind, *revision, pending.after),
        Expect::Newer(than) => listed() || current.is_none_or(|(_, revision)| revision != *than),
        Expect::Gone(uid) => listed() || current.is_none_or(|(now, _)| now != *uid),
    }
}
