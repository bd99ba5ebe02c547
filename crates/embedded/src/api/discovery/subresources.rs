//! What each subresource is called, can do and answers with.

use serde_json::{Value, json};

use crate::registry::row::{Row, Rules, Version};

const READ_WRITE: &[&str] = &["get", "patch", "update"];
const CREATE: &[&str] = &["create"];
const CONNECT: &[&str] = &["create", "get"];

/// One subresource of a row's version.
#[derive(Debug, Clone, Copy)]
pub struct Subresource {
    pub name: &'static str,
    pub response: ResponseKind,
    pub verbs: &'static [&'static str],
}

/// The kind that is read and written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseKind {
    /// The row's own.
    Own,
    /// Another of the row's group-version.
    Beside(&'static str),
    /// One of another group.
    Of {
        group: &'static str,
        version: &'static str,
        kind: &'static str,
    },
}

impl ResponseKind {
    pub fn kind(self, row: &Row) -> &str {
        match self {
            Self::Own => &row.kind,
            Self::Beside(kind) | Self::Of { kind, .. } => kind,
        }
    }

    /// In the aggregated form built-in kinds leave their own group and version empty; custom resources name them.
    pub fn body(self, row: &Row, version: &Version) -> Value {
        let (own_group, own_version) = match row.rules {
            Rules::BuiltIn(_) => ("", ""),
            Rules::Custom => (&*row.group, &*version.name),
        };
        let (group, version) = match self {
            Self::Of { group, version, .. } => (group, version),
            Self::Own | Self::Beside(_) => (own_group, own_version),
        };
        json!({"group": group, "version": version, "kind": self.kind(row)})
    }
}

/// In the reference's order: by name for built-in kinds; status before scale for custom resources.
pub fn subresources(row: &Row, version: &Version) -> Vec<Subresource> {
    let mut names: Vec<&'static str> = Vec::new();
    if version.has_status {
        names.push("status");
    }
    if version.scale.is_some() {
        names.push("scale");
    }
    if let Rules::BuiltIn(built_in) = row.rules {
        names.extend(built_in.subresources);
        names.sort_unstable();
        names.dedup();
    }
    names.into_iter().map(subresource).collect()
}

pub fn subresource(name: &'static str) -> Subresource {
    let verbs = match name {
        "eviction" | "token" | "binding" => CREATE,
        "exec" | "attach" | "portforward" => CONNECT,
        "log" => &["get"],
        "finalize" => &["update"],
        _ => READ_WRITE,
    };
    Subresource {
        name,
        response: response_kind(name),
        verbs,
    }
}

/// The kind that is read and written at a subresource.
pub fn response_kind(name: &str) -> ResponseKind {
    match name {
        "scale" => of("autoscaling", "v1", "Scale"),
        "eviction" => of("policy", "v1", "Eviction"),
        "token" => of("authentication.k8s.io", "v1", "TokenRequest"),
        "binding" => ResponseKind::Beside("Binding"),
        "exec" => ResponseKind::Beside("PodExecOptions"),
        "attach" => ResponseKind::Beside("PodAttachOptions"),
        "portforward" => ResponseKind::Beside("PodPortForwardOptions"),
        _ => ResponseKind::Own,
    }
}

const fn of(group: &'static str, version: &'static str, kind: &'static str) -> ResponseKind {
    ResponseKind::Of { group, version, kind }
}
