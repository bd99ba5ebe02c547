//! What can be done at a path, in the words that documents have for it.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    List,
    Create,
    DeleteCollection,
    Read,
    Replace,
    Delete,
    Patch,
    /// A stream, by either method.
    Connect(&'static str),
}

impl Action {
    /// The verb of a row that allows it.
    pub fn verb(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Create | Self::Connect(_) => "create",
            Self::DeleteCollection => "deletecollection",
            Self::Read => "get",
            Self::Replace => "update",
            Self::Delete => "delete",
            Self::Patch => "patch",
        }
    }

    /// `x-kubernetes-action`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "post",
            Self::Replace => "put",
            Self::Connect(_) => "connect",
            other => other.verb(),
        }
    }

    pub fn method(self) -> &'static str {
        match self {
            Self::List | Self::Read => "get",
            Self::Create => "post",
            Self::Replace => "put",
            Self::Delete | Self::DeleteCollection => "delete",
            Self::Patch => "patch",
            Self::Connect(method) => method,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Replace => "replace",
            Self::Patch => "partially update",
            _ => "read",
        }
    }
}

/// `AppsV1`, `RbacAuthorizationV1`, `BExampleOrgV1`.
pub fn camel(group: &str, version: &str) -> String {
    let group = match group {
        "" => "core",
        group => group.strip_suffix(".k8s.io").unwrap_or(group),
    };
    let words: String = group.split(['.', '-']).map(capital).collect();
    format!("{words}{}", capital(version))
}

/// `apps_v1`, `rbacAuthorization_v1`.
pub fn tag(group: &str, version: &str) -> String {
    let camel = camel(group, "");
    let mut letters = camel.chars();
    let first = letters.next().map(|first| first.to_ascii_lowercase());
    let group: String = first.into_iter().chain(letters).collect();
    format!("{group}_{version}")
}

pub fn capital(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
