//! Against a recording of kube-apiserver 1.36.3: rows are made of what it says about the kinds we serve
//! (`tests/print/discovery-1.36.json`), and every form of discovery must come out of them as it was recorded.

use super::*;
use crate::registry::row::{BuiltIn, Columns, ScalePaths};

const RECORDED: &str = include_str!("../../../tests/print/discovery-1.36.json");

fn recorded() -> Value {
    serde_json::from_str(RECORDED).unwrap()
}

fn texts(value: &Value) -> Vec<Arc<str>> {
    let items = value.as_array().into_iter().flatten();
    items.map(|item| item.as_str().unwrap().into()).collect()
}

fn version_of(name: &str, storage: bool, subresources: &[Arc<str>]) -> Version {
    let has = |name: &str| subresources.iter().any(|sub| &**sub == name);
    Version {
        name: name.into(),
        served: true,
        storage,
        deprecated: None,
        schema: Arc::default(),
        has_status: has("status"),
        scale: has("scale").then(|| ScalePaths {
            spec_replicas: "spec.replicas".into(),
            status_replicas: "status.replicas".into(),
            selector: None,
        }),
        columns: Columns::Custom(Arc::new([])),
        selectable: Vec::new(),
    }
}

/// In a test, what lives as long as the program may be leaked.
fn leaked(names: &[Arc<str>]) -> &'static [&'static str] {
    Vec::leak(names.iter().map(|name| &*String::leak(name.to_string())).collect())
}

pub fn rows() -> Vec<Arc<Row>> {
    let recorded = recorded();
    let groups = [&recorded["api"], &recorded["apis"]];
    let mut rows: Vec<Arc<Row>> = Vec::new();
    for group in groups.into_iter().flat_map(|list| list["items"].as_array().unwrap()) {
        let name = group["metadata"]["name"].as_str().unwrap_or_default();
        for resource in group["versions"][0]["resources"].as_array().unwrap() {
            let subresources = resource["subresources"].as_array().into_iter().flatten();
            let subresources: Vec<Arc<str>> = subresources
                .map(|sub| sub["subresource"].as_str().unwrap().into())
                .collect();
            rows.push(Arc::new(row(name, group, resource, &subresources)));
        }
    }
    // Order of arrival must not matter.
    rows.reverse();
    rows
}

fn row(group: &str, recorded: &Value, resource: &Value, subresources: &[Arc<str>]) -> Row {
    let custom = group.ends_with("example.org");
    let others: Vec<Arc<str>> = subresources
        .iter()
        .filter(|sub| !matches!(&***sub, "status" | "scale"))
        .cloned()
        .collect();
    let kind = resource["responseKind"]["kind"].as_str().unwrap();
    Row {
        group: group.into(),
        kind: kind.into(),
        list_kind: format!("{kind}List").into(),
        plural: resource["resource"].as_str().unwrap().into(),
        singular: resource["singularResource"].as_str().unwrap().into(),
        short_names: texts(&resource["shortNames"]),
        categories: texts(&resource["categories"]),
        namespaced: resource["scope"] == "Namespaced",
        verbs: leaked(&texts(&resource["verbs"])),
        versions: recorded["versions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|v| v["version"].as_str().unwrap())
            .map(|v| version_of(v, v == "v1" || !custom, subresources))
            .rev()
            .collect(),
        rules: match custom {
            true => Rules::Custom,
            false => Rules::BuiltIn(Box::leak(Box::new(BuiltIn {
                subresources: leaked(&others),
                ..BuiltIn::PLAIN
            }))),
        },
    }
}

#[test]
fn a3_the_lists_of_each_group_version_are_the_references() {
    let rows = rows();
    for (path, list) in recorded()["resources"].as_object().unwrap() {
        let (group, version) = match path.strip_prefix("/apis/") {
            Some(rest) => rest.split_once('/').unwrap(),
            None => ("", "v1"),
        };
        assert_eq!(&resource_list(&rows, group, version).unwrap(), list, "{path}");
    }
    assert_eq!(resource_list(&rows, "apps", "v2"), None);
    assert_eq!(resource_list(&rows, "nowhere", "v1"), None);
}

#[test]
fn a3_groups_their_versions_and_their_order_are_the_references() {
    let rows = rows();
    assert_eq!(group_list(&rows), recorded()["groups"]);
    for name in ["apps", "b.example.org"] {
        assert_eq!(group(&rows, name).unwrap(), recorded()["group"][name]);
    }
    assert_eq!(group(&rows, "nowhere"), None);
    assert_eq!(group(&rows, ""), None);
}

#[test]
fn a3_the_aggregated_lists_are_the_references() {
    let rows = rows();
    assert_eq!(aggregated(&rows, Half::Core, Aggregated::V2), recorded()["api"]);
    assert_eq!(aggregated(&rows, Half::Groups, Aggregated::V2), recorded()["apis"]);
    let old = aggregated(&rows, Half::Groups, Aggregated::V2Beta1);
    assert_eq!(old["apiVersion"], "apidiscovery.k8s.io/v2beta1");
    assert_eq!(old["items"], recorded()["apis"]["items"]);
}

#[test]
fn a3_tags_change_with_the_content_alone() {
    let rows = rows();
    let body = |rows: &[Arc<Row>]| aggregated(rows, Half::Groups, Aggregated::V2).to_string();
    let tag = etag(body(&rows).as_bytes());
    let mut others = rows.clone();
    others.reverse();
    assert_eq!(etag(body(&others).as_bytes()), tag);
    others.retain(|row| &*row.kind != "Widget");
    assert_ne!(etag(body(&others).as_bytes()), tag);
    assert_eq!(tag.len(), 2 + 128);
}

#[test]
fn versions_that_are_not_served_are_not_shown() {
    let mut rows = rows();
    for row in &mut rows {
        let row = Arc::make_mut(row);
        if &*row.kind == "Widget" {
            row.versions
                .iter_mut()
                .for_each(|version| version.served = &*version.name == "v1beta1");
        }
        if &*row.kind == "Gadget" {
            row.versions.iter_mut().for_each(|version| version.served = false);
        }
    }
    assert_eq!(group(&rows, "a.example.org"), None);
    assert_eq!(
        group(&rows, "b.example.org").unwrap()["preferredVersion"]["version"],
        "v1beta1"
    );
    // Its storage version is not served: no hash, as the reference has it.
    let list = resource_list(&rows, "b.example.org", "v1beta1").unwrap();
    assert_eq!(list["resources"][0].get("storageVersionHash"), None);
}

#[test]
fn a2_the_version_is_of_the_form_clients_parse() {
    assert_eq!(version("0.1.0")["gitVersion"], "v1.36.0+usher.0.1.0");
    assert_eq!(version("0.1.0")["minor"], "36");
}

#[test]
fn group_versions_begin_with_core() {
    let rows = rows();
    let all = group_versions(&rows);
    assert_eq!(all.first(), Some(&("", "v1")));
    assert_eq!(all.get(1), Some(&("apps", "v1")));
    assert_eq!(all.last(), Some(&("b.example.org", "v1beta1")));
}
