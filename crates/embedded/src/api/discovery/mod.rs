//! Discovery (A3): which groups, versions and resources are served, in the old form (a list for each group-version) and
//! in the new (one list of everything). Also `/version`.
//!
//! All answers are pure functions of the rows, which change only with a CRD: the router keeps them until then. The
//! order of groups, versions and resources, and every verb, equal the reference's.

mod order;
pub(crate) mod subresources;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine as _;
use ring::digest::{SHA256, SHA512, digest};
use serde_json::{Map, Value, json};

use crate::registry::row::{Row, Rules, Version};
use subresources::{ResponseKind, subresources};

/// The version of group `apidiscovery.k8s.io` that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Aggregated {
    V2,
    V2Beta1,
}

impl Aggregated {
    /// `v2` and `v2beta1`; there is no other.
    #[must_use]
    pub fn parse(version: &str) -> Option<Self> {
        match version {
            "v2" => Some(Self::V2),
            "v2beta1" => Some(Self::V2Beta1),
            _ => None,
        }
    }

    #[must_use]
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V2 => "apidiscovery.k8s.io/v2",
            Self::V2Beta1 => "apidiscovery.k8s.io/v2beta1",
        }
    }

    /// What the answer says of itself: clients take the old form for anything else.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::V2 => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            Self::V2Beta1 => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        }
    }
}

/// Which half of the API an aggregated list is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Half {
    /// `/api`: the core group.
    Core,
    /// `/apis`: all others.
    Groups,
}

/// `/api`: the core group's versions. `address` is where this server listens.
#[must_use]
pub fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`.
#[must_use]
pub fn group_list(rows: &[Arc<Row>]) -> Value {
    let groups: Vec<Value> = group_names(rows)
        .into_iter()
        .map(|name| group_body(rows, name))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/G`. `None`: there is no such group.
#[must_use]
pub fn group(rows: &[Arc<Row>], name: &str) -> Option<Value> {
    if name.is_empty() || versions(rows, name).is_empty() {
        return None;
    }
    let mut body = group_body(rows, name);
    if let Some(body) = body.as_object_mut() {
        body.insert("kind".into(), "APIGroup".into());
        body.insert("apiVersion".into(), "v1".into());
    }
    Some(body)
}

/// `/api/v1` and `/apis/G/V`. `None`: there is no such group-version.
#[must_use]
pub fn resource_list(rows: &[Arc<Row>], group: &str, version: &str) -> Option<Value> {
    let served = served(rows, group, version);
    if served.is_empty() {
        return None;
    }
    let mut resources = Vec::new();
    for (row, version) in served {
        resources.push(resource(row));
        for sub in subresources(row, version) {
            let mut body = json!({
                "name": format!("{}/{}", row.plural, sub.name),
                "singularName": "",
                "namespaced": row.namespaced,
                "kind": sub.response.kind(row),
                "verbs": sub.verbs,
            });
            if let (ResponseKind::Of { group, version, .. }, Some(body)) = (sub.response, body.as_object_mut()) {
                body.insert("group".into(), group.into());
                body.insert("version".into(), version.into());
            }
            resources.push(body);
        }
    }
    let mut list = json!({
        "kind": "APIResourceList",
        "groupVersion": group_version(group, version),
        "resources": resources,
    });
    // The core group's list has always been without its own version.
    if let (false, Some(list)) = (group.is_empty(), list.as_object_mut()) {
        list.insert("apiVersion".into(), "v1".into());
    }
    Some(list)
}

/// `/api` and `/apis` in one list of everything: `APIGroupDiscoveryList`.
#[must_use]
pub fn aggregated(rows: &[Arc<Row>], half: Half, form: Aggregated) -> Value {
    let names = match half {
        Half::Core => vec![""],
        Half::Groups => group_names(rows),
    };
    let items: Vec<Value> = names
        .into_iter()
        .map(|name| {
            let versions: Vec<Value> = versions(rows, name)
                .into_iter()
                .map(|version| aggregated_version(rows, name, version))
                .collect();
            let metadata = match name {
                "" => json!({}),
                name => json!({"name": name}),
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": form.api_version(), "metadata": {}, "items": items})
}

/// The tag of an answer, quoted as the header has it. It changes with every byte of the content.
#[must_use]
pub fn etag(body: &[u8]) -> String {
    format!("\"{}\"", hex(digest(&SHA512, body).as_ref()))
}

/// Upper-case hexadecimal, as the reference writes its hashes.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// `/version` (A2). `own` is this crate's version.
#[must_use]
pub fn version(own: &str) -> Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": format!("v1.36.0+usher.{own}"),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{architecture}", std::env::consts::OS),
    })
}

/// `v1` or `apps/v1`.
#[must_use]
pub fn group_version(group: &str, version: &str) -> String {
    match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    }
}

/// Every served group-version, groups and versions in the order of discovery, the core group first.
#[must_use]
pub fn group_versions(rows: &[Arc<Row>]) -> Vec<(&str, &str)> {
    std::iter::once("")
        .chain(group_names(rows))
        .flat_map(|group| versions(rows, group).into_iter().map(move |version| (group, version)))
        .collect()
}

/// The rows that serve a group-version, by their plural.
#[must_use]
pub fn served<'a>(rows: &'a [Arc<Row>], group: &str, version: &str) -> Vec<(&'a Row, &'a Version)> {
    let mut served: Vec<(&Row, &Version)> = rows
        .iter()
        .filter(|row| &*row.group == group)
        .filter_map(|row| {
            let version = row.versions.iter().find(|v| v.served && &*v.name == version)?;
            Some((&**row, version))
        })
        .collect();
    served.sort_by(|(one, _), (other, _)| one.plural.cmp(&other.plural));
    served
}

/// Groups beside core, those with a higher priority first.
fn group_names(rows: &[Arc<Row>]) -> Vec<&str> {
    let names: BTreeSet<&str> = rows
        .iter()
        .filter(|row| !row.group.is_empty() && row.versions.iter().any(|version| version.served))
        .map(|row| &*row.group)
        .collect();
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_by_key(|name| std::cmp::Reverse(order::group_priority(name)));
    names
}

/// The versions that any row of the group serves, newest and most stable first: the first is the preferred one.
fn versions<'a>(rows: &'a [Arc<Row>], group: &str) -> Vec<&'a str> {
    let versions: BTreeSet<&str> = rows
        .iter()
        .filter(|row| &*row.group == group)
        .flat_map(|row| row.versions.iter().filter(|version| version.served))
        .map(|version| &*version.name)
        .collect();
    let mut versions: Vec<&str> = versions.into_iter().collect();
    versions.sort_by_key(|version| order::Stability::of(version));
    versions
}

fn group_body(rows: &[Arc<Row>], name: &str) -> Value {
    let versions: Vec<Value> = versions(rows, name)
        .into_iter()
        .map(|version| json!({"groupVersion": group_version(name, version), "version": version}))
        .collect();
    let preferred = versions.first().cloned().unwrap_or_default();
    json!({"name": name, "versions": versions, "preferredVersion": preferred})
}

fn resource(row: &Row) -> Value {
    let mut body = json!({
        "name": *row.plural,
        "singularName": *row.singular,
        "namespaced": row.namespaced,
        "kind": *row.kind,
        "verbs": row.verbs,
    });
    if let Some(body) = body.as_object_mut() {
        insert_names(body, row);
        if let Some(hash) = storage_version_hash(row) {
            body.insert("storageVersionHash".into(), hash.into());
        }
    }
    body
}

fn insert_names(body: &mut Map<String, Value>, row: &Row) {
    for (field, names) in [("shortNames", &row.short_names), ("categories", &row.categories)] {
        if !names.is_empty() {
            body.insert(field.into(), names.iter().map(|name| Value::from(&**name)).collect());
        }
    }
}

fn aggregated_version(rows: &[Arc<Row>], group: &str, version: &str) -> Value {
    let resources: Vec<Value> = served(rows, group, version)
        .into_iter()
        .map(|(row, version)| aggregated_resource(row, version))
        .collect();
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

fn aggregated_resource(row: &Row, version: &Version) -> Value {
    let mut body = json!({
        "resource": *row.plural,
        "responseKind": ResponseKind::Own.body(row, version),
        "scope": if row.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": *row.singular,
        "verbs": row.verbs,
    });
    let subresources: Vec<Value> = subresources(row, version)
        .into_iter()
        .map(
            |sub| json!({"subresource": sub.name, "responseKind": sub.response.body(row, version), "verbs": sub.verbs}),
        )
        .collect();
    if let Some(body) = body.as_object_mut() {
        insert_names(body, row);
        if !subresources.is_empty() {
            body.insert("subresources".into(), subresources.into());
        }
    }
    body
}

/// A hash that changes when objects are stored in another version. Only what is stored has one; a custom resource that
/// does not serve its storage version has none either.
fn storage_version_hash(row: &Row) -> Option<String> {
    if !row.verbs.contains(&"list") {
        return None;
    }
    let version = row.versions.iter().find(|version| version.storage)?;
    if matches!(row.rules, Rules::Custom) && !version.served {
        return None;
    }
    // The reference stores some kinds as others: both views of an event as one, definitions in an old version.
    let (group, version) = match (&*row.group, &*row.kind) {
        ("events.k8s.io", "Event") => ("", "v1"),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => ("apiextensions.k8s.io", "v1beta1"),
        (group, _) => (group, &*version.name),
    };
    let hash = digest(&SHA256, format!("{group}/{version}/{}", row.kind).as_bytes());
    let first = hash.as_ref().get(..8)?;
    Some(base64::engine::general_purpose::STANDARD.encode(first))
}
