//! The names under which objects are stored, and the prefixes by which they are listed and watched.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// What stands for the empty group, since a key has no empty parts.
const CORE: &str = "core";
/// What stands for the namespace of an object that has none; no namespace can be called so.
const CLUSTER: &str = "-";

/// The key of an object: `group/resource/namespace/name`, `core` for the empty group, `-` for cluster scope.
///
/// Keys are ordered as this text is, which is the order in which etcd, and so the reference, lists objects: the pods
/// of namespace `a-b` come before those of `a`. All keys of one [`Prefix`] are neighbours, because a prefix ends in `/`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// No part of what is stored holds a `/`: the registry has checked names by then. Who asks for such a name, in a
    /// selector or an owner reference, asks for what cannot be there.
    pub fn new(group: &str, resource: &str, namespace: Option<&str>, name: &str) -> Key {
        let group = if group.is_empty() { CORE } else { group };
        let namespace = namespace.unwrap_or(CLUSTER);
        if [group, resource, namespace, name].iter().any(|part| part.contains('/')) {
            let plain = |part: &str| part.replace('/', "\0");
            return Key(format!(
                "{}/{}/{}/{}",
                plain(group),
                plain(resource),
                plain(namespace),
                plain(name)
            )
            .into());
        }
        Key(format!("{group}/{resource}/{namespace}/{name}").into())
    }

    /// All objects of a resource, or those of one namespace.
    pub fn prefix(group: &str, resource: &str, namespace: Option<&str>) -> Prefix {
        Prefix::new(group, resource, namespace)
    }

    /// A key as it was written to disk; `None` when it does not have four parts.
    pub fn parse(text: &str) -> Option<Key> {
        let mut parts = text.split('/');
        let whole = (0..4).all(|_| parts.next().is_some_and(|part| !part.is_empty())) && parts.next().is_none();
        whole.then(|| Key(text.into()))
    }

    fn part(&self, index: usize) -> &str {
        self.0.splitn(4, '/').nth(index).unwrap_or_default()
    }

    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        match self.part(0) {
            CORE => "",
            group => group,
        }
    }

    pub fn resource(&self) -> &str {
        self.part(1)
    }

    /// `None` for an object of cluster scope.
    pub fn namespace(&self) -> Option<&str> {
        Some(self.part(2)).filter(|namespace| *namespace != CLUSTER)
    }

    pub fn name(&self) -> &str {
        self.part(3)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `group/resource/`: what the watch hub files watchers under.
    pub(super) fn kind(&self) -> &str {
        kind_of(&self.0)
    }
}

/// The first two parts of a key or prefix with their slashes; empty when it has not two.
fn kind_of(text: &str) -> &str {
    text.match_indices('/')
        .nth(1)
        .and_then(|(slash, _)| text.get(..=slash))
        .unwrap_or_default()
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The objects of a resource, of one namespace of it, or all there are.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Prefix(Arc<str>);

impl Prefix {
    pub fn new(group: &str, resource: &str, namespace: Option<&str>) -> Prefix {
        debug_assert!(
            [group, resource, namespace.unwrap_or_default()]
                .iter()
                .all(|part| !part.contains('/'))
        );
        let group = if group.is_empty() { CORE } else { group };
        Prefix(match namespace {
            Some(namespace) => format!("{group}/{resource}/{namespace}/").into(),
            None => format!("{group}/{resource}/").into(),
        })
    }

    /// Every object of every kind.
    pub fn everything() -> Prefix {
        Prefix("".into())
    }

    pub fn contains(&self, key: &Key) -> bool {
        key.0.starts_with(&*self.0)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The `group/resource/` it lies in; empty for everything.
    pub(super) fn kind(&self) -> &str {
        kind_of(&self.0)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}*", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1_a_key_gives_back_its_parts() {
        let pod = Key::new("", "pods", Some("default"), "web-0");
        assert_eq!(pod.as_str(), "core/pods/default/web-0");
        assert_eq!(
            (pod.group(), pod.resource(), pod.namespace(), pod.name()),
            ("", "pods", Some("default"), "web-0")
        );
        let role = Key::new("rbac.authorization.k8s.io", "clusterroles", None, "system:node");
        assert_eq!(role.as_str(), "rbac.authorization.k8s.io/clusterroles/-/system:node");
        assert_eq!((role.namespace(), role.name()), (None, "system:node"));
        assert_eq!(Key::parse(role.as_str()), Some(role));
        assert_eq!(Key::parse("a/b/c"), None);
        assert_eq!(Key::parse("a/b/c/d/e"), None);
        assert_eq!(Key::parse("a//c/d"), None);
    }

    #[test]
    fn a_prefix_holds_its_own_objects_and_no_neighbours() {
        let all = Key::prefix("", "pods", None);
        let one = Key::prefix("", "pods", Some("a"));
        for (key, in_all, in_one) in [
            (Key::new("", "pods", Some("a"), "x"), true, true),
            (Key::new("", "pods", Some("a-b"), "x"), true, false),
            (Key::new("", "podsx", Some("a"), "x"), false, false),
        ] {
            assert_eq!((all.contains(&key), one.contains(&key)), (in_all, in_one), "{key}");
            assert!(Prefix::everything().contains(&key));
        }
        assert_eq!(
            (all.kind(), one.kind(), Prefix::everything().kind()),
            ("core/pods/", "core/pods/", "")
        );
    }
}
