//! Which kinds there are: the built-in rows, and one for each established CRD. A catalog is a value; a change makes a new one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use crate::kinds;
use crate::registry::row::{Row, Rules, Version};
use crate::schema::cel;
use crate::store::{Key, Prefix, Revision};

/// A kind that is served.
#[derive(Debug)]
pub struct Resource {
    pub row: Arc<Row>,
    /// Of each version, in the row's order. Empty for built-in kinds.
    pub(crate) cel: Vec<cel::Rules>,
    /// The revision in which the CRD's schemas came to be as they are: what was stored before is pruned and defaulted
    /// again when it is read (D2). 0 for built-in kinds.
    pub(crate) shaped: Revision,
    pub(crate) edition: Arc<Edition>,
    /// The CRD's revision of which this was made. 0 for built-in kinds.
    pub(crate) defined: Revision,
    /// The CRD's uid: instances of a CRD that was deleted and made again are not its instances.
    pub(crate) definition: Option<String>,
    /// The CRD is on its way out: nothing new is made.
    pub(crate) closing: bool,
}

/// What a kind is from one change of its definition to the next: with other names, versions, columns or schemas it is
/// another edition. Who watches one is told when it ends.
#[derive(Debug, Default)]
pub(crate) struct Edition {
    /// No two in a process have the same; 0 for built-in kinds.
    pub(crate) number: u64,
    /// One more than the last revision that it speaks for; 0: it has not ended.
    ended: AtomicU64,
}

impl Edition {
    pub(crate) fn new() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed) + 1,
            ended: AtomicU64::new(0),
        }
    }

    /// To be called before anybody can write by the next one.
    pub(crate) fn end(&self, last: Revision) {
        self.ended.store(last + 1, Ordering::Release);
    }

    /// The last revision that it speaks for, if it has ended.
    pub(crate) fn last(&self) -> Option<Revision> {
        self.ended.load(Ordering::Acquire).checked_sub(1)
    }
}

impl Resource {
    #[must_use]
    pub fn version(&self, name: &str) -> Option<&Version> {
        self.row
            .versions
            .iter()
            .find(|version| version.served && &*version.name == name)
    }

    /// The version that an object says it is of, served or not.
    pub(crate) fn version_of(&self, api_version: &str) -> Option<&Version> {
        let (group, name) = api_version.split_once('/').unwrap_or(("", api_version));
        let mut versions = self.row.versions.iter();
        versions.find(|version| &*version.name == name && &*self.row.group == group)
    }

    /// The version that is stored.
    #[must_use]
    pub fn storage(&self) -> Option<&Version> {
        self.row.versions.iter().find(|version| version.storage)
    }

    pub(crate) fn cel_of(&self, version: &str) -> Option<&cel::Rules> {
        let at = self.row.versions.iter().position(|v| &*v.name == version)?;
        self.cel.get(at)
    }

    #[must_use]
    pub fn is_custom(&self) -> bool {
        matches!(self.row.rules, Rules::Custom)
    }

    /// Where its objects are stored: another kind's place for a view of that kind (the two Events).
    pub(crate) fn place(&self) -> (&str, &str) {
        kinds::stored_as(&self.row).unwrap_or((&self.row.group, &self.row.plural))
    }

    pub(crate) fn key(&self, namespace: Option<&str>, name: &str) -> Key {
        let (group, plural) = self.place();
        Key::new(group, plural, namespace, name)
    }

    pub(crate) fn prefix(&self, namespace: Option<&str>) -> Prefix {
        let (group, plural) = self.place();
        Key::prefix(group, plural, namespace)
    }

    pub(crate) fn api_version(&self, version: &str) -> String {
        api_version(&self.row.group, version)
    }
}

/// `v1`, `apps/v1`.
#[must_use]
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// All kinds at one moment.
#[derive(Debug, Clone)]
pub struct Catalog {
    /// By group, then by plural.
    groups: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<Resource>>>,
}

/// Read once for each process.
static BUILT_IN: LazyLock<Catalog> = LazyLock::new(|| {
    let mut catalog = Catalog {
        groups: BTreeMap::new(),
    };
    for row in kinds::rows() {
        catalog.put(Resource {
            row: Arc::new(row),
            cel: Vec::new(),
            shaped: 0,
            edition: Arc::default(),
            defined: 0,
            definition: None,
            closing: false,
        });
    }
    catalog
});

impl Catalog {
    #[must_use]
    pub fn built_in() -> Self {
        BUILT_IN.clone()
    }

    #[must_use]
    pub fn find(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.groups.get(group)?.get(plural)
    }

    /// By kind, as owner references and bodies name it.
    #[must_use]
    pub fn of_kind(&self, group: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.of_group(group).find(|resource| &*resource.row.kind == kind)
    }

    /// The rows, as discovery and OpenAPI take them.
    #[must_use]
    pub fn rows(&self) -> Vec<Arc<Row>> {
        self.iter().map(|resource| resource.row.clone()).collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.values().flat_map(BTreeMap::values)
    }

    fn of_group(&self, group: &str) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.get(group).into_iter().flat_map(BTreeMap::values)
    }

    #[must_use]
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.of_group(group).any(|resource| resource.version(version).is_some())
    }

    /// Whether a group has built-in kinds.
    pub(crate) fn is_built_in(&self, group: &str) -> bool {
        self.of_group(group).any(|resource| !resource.is_custom())
    }

    #[must_use]
    pub fn with(&self, resource: Resource) -> Self {
        let mut next = self.clone();
        next.put(resource);
        next
    }

    fn put(&mut self, resource: Resource) {
        let (group, plural) = (resource.row.group.clone(), resource.row.plural.clone());
        self.groups.entry(group).or_default().insert(plural, Arc::new(resource));
    }

    #[must_use]
    pub fn without(&self, group: &str, plural: &str) -> Self {
        let mut next = self.clone();
        if let Some(kinds) = next.groups.get_mut(group) {
            kinds.remove(plural);
            if kinds.is_empty() {
                next.groups.remove(group);
            }
        }
        next
    }
}
