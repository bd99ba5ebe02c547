//! Which object. A key cannot lack its namespace: there is no way to make one without.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::Text;

/// Namespace and name of one object. Both are non-empty by construction, so that a mapper that forgets the namespace
/// does not compile to a key that wakes nobody.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    namespace: Text,
    name: Text,
}

/// Why no key could be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The object has no namespace: it is cluster-scoped, or a reference was built without one.
    #[error("object {name:?} has no namespace; every Usher object lives in one")]
    NoNamespace {
        /// The name that came without a namespace.
        name: String,
    },
    /// The reference is empty.
    #[error("a reference in namespace {namespace:?} is empty; set it to an object's name")]
    NoName {
        /// Where the empty reference was found.
        namespace: String,
    },
}

impl ObjectKey {
    /// A key, or why there can be none.
    pub fn new(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Result<Self, KeyError> {
        let (namespace, name) = (namespace.as_ref(), name.as_ref());
        if namespace.is_empty() {
            return Err(KeyError::NoNamespace { name: name.to_owned() });
        }
        if name.is_empty() {
            return Err(KeyError::NoName {
                namespace: namespace.to_owned(),
            });
        }
        Ok(Self {
            namespace: namespace.into(),
            name: name.into(),
        })
    }

    /// Another object in the same namespace; `None` when the reference is empty.
    pub fn sibling(&self, name: &str) -> Option<Self> {
        (!name.is_empty()).then(|| Self {
            namespace: self.namespace.clone(),
            name: name.into(),
        })
    }

    /// The namespace; never empty.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name; never empty.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for ObjectKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_key_always_has_namespace_and_name(ns in ".{0,5}", name in ".{0,5}", other in ".{0,5}") {
            match ObjectKey::new(&ns, &name) {
                Ok(key) => {
                    prop_assert!(!key.namespace().is_empty() && !key.name().is_empty());
                    prop_assert_eq!(key.sibling(&other).is_some(), !other.is_empty());
                }
                Err(KeyError::NoNamespace { .. }) => prop_assert!(ns.is_empty()),
                Err(KeyError::NoName { .. }) => prop_assert!(name.is_empty()),
            }
        }
    }
}
