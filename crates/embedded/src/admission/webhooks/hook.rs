//! One webhook of a configuration, read once, and which writes it is asked about.

use base64::Engine as _;
use serde_json::Value;

use crate::admission::{Operation, Review};
use crate::kinds::selector;
use crate::registry::object;
use crate::schema::cel::{Condition, Conditions, Unanswered};

/// What conditions may speak of.
pub(in crate::admission) const NAMES: [&str; 3] = ["object", "oldObject", "request"];
/// The reference's default, and the most it takes.
const DEFAULT_TIMEOUT_SECONDS: u64 = 10;
const MOST_TIMEOUT_SECONDS: u64 = 30;

#[derive(Debug)]
pub(super) struct Hook {
    pub(super) name: String,
    rules: Vec<Rule>,
    /// Whether other versions of a resource are meant too.
    is_equivalent: bool,
    namespaces: Value,
    objects: Value,
    /// Compiled, or why not.
    conditions: Vec<Result<Condition, String>>,
    /// `failurePolicy: Ignore`.
    pub(super) fails_open: bool,
    pub(super) timeout_seconds: u64,
    pub(super) takes_dry_runs: bool,
    /// The newest version of AdmissionReview that it reads and we write.
    pub(super) review_version: Option<&'static str>,
    /// `reinvocationPolicy: IfNeeded`.
    pub(super) is_reinvocable: bool,
    pub(super) place: Place,
}

/// Where a webhook is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// As messages show it, and as in-process handlers are named.
    pub(super) url: String,
    pub(super) service: Option<Service>,
    /// PEM; empty: nobody is trusted but by the system, which this server does not ask.
    pub(super) authorities: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Service {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) port: u16,
}

#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    let list = value.get(field).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

impl Hook {
    pub(super) fn read(hook: &Value) -> Self {
        let rules = hook.get("rules").and_then(Value::as_array).into_iter().flatten();
        let conditions = hook
            .get("matchConditions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let seconds = hook.get("timeoutSeconds").and_then(Value::as_u64);
        Self {
            name: text(hook, "name").to_owned(),
            rules: rules.map(Rule::read).collect(),
            is_equivalent: text(hook, "matchPolicy") != "Exact",
            namespaces: hook.get("namespaceSelector").cloned().unwrap_or_default(),
            objects: hook.get("objectSelector").cloned().unwrap_or_default(),
            conditions: conditions
                .map(|condition| Condition::compile(text(condition, "expression"), &NAMES))
                .collect(),
            fails_open: text(hook, "failurePolicy") == "Ignore",
            timeout_seconds: seconds
                .unwrap_or(DEFAULT_TIMEOUT_SECONDS)
                .clamp(1, MOST_TIMEOUT_SECONDS),
            takes_dry_runs: matches!(text(hook, "sideEffects"), "None" | "NoneOnDryRun"),
            review_version: texts(hook, "admissionReviewVersions")
                .iter()
                .find_map(|version| match version.as_str() {
                    "v1" => Some("v1"),
                    "v1beta1" => Some("v1beta1"),
                    _ => None,
                }),
            is_reinvocable: text(hook, "reinvocationPolicy") == "IfNeeded",
            place: Place::read(hook.get("clientConfig").unwrap_or(&Value::Null)),
        }
    }

    /// The version in which the webhook wants to see the write; `None`: it is not asked.
    pub(super) fn wanted_version(&self, review: &Review<'_>) -> Option<String> {
        let asked = &*review.target.version.name;
        if self.rules.iter().any(|rule| rule.covers(review, asked)) {
            return Some(asked.to_owned());
        }
        if !self.is_equivalent {
            return None;
        }
        let served = || {
            review
                .target
                .resource
                .row
                .versions
                .iter()
                .filter(|version| version.served)
        };
        self.rules.iter().find_map(|rule| {
            let version = served().find(|version| rule.covers(review, &version.name))?;
            Some(version.name.to_string())
        })
    }

    /// `namespaceSelector` and `objectSelector`. Kinds without namespaces are never left out by the first.
    pub(super) fn selects(&self, labels: Option<&Value>, object: Option<&Value>, old: Option<&Value>) -> bool {
        let is_selected = |object: Option<&Value>| {
            object.is_some_and(|object| {
                let labels = object::meta(object).get("labels").unwrap_or(&Value::Null);
                selector::selects(&self.objects, labels)
            })
        };
        let in_namespace = selector::selects_all(&self.namespaces)
            || labels.is_none_or(|labels| selector::selects(&self.namespaces, labels));
        in_namespace && (selector::selects_all(&self.objects) || is_selected(object) || is_selected(old))
    }

    pub(super) fn has_namespace_selector(&self) -> bool {
        !selector::selects_all(&self.namespaces)
    }

    pub(super) fn has_conditions(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// `matchConditions`: one that is false decides; else one that fails is told.
    pub(super) fn is_meant(&self, values: &[(&str, &Value)]) -> Result<bool, String> {
        let mut wrong = Vec::new();
        let mut conditions = Conditions::begin();
        for condition in &self.conditions {
            match condition {
                Ok(condition) => match condition.holds(values, &mut conditions) {
                    Ok(true) => {}
                    Ok(false) => return Ok(false),
                    Err(Unanswered::Failed(why)) => wrong.push(why),
                    Err(Unanswered::Spent(_)) if self.fails_open => return Ok(false),
                    Err(Unanswered::Spent(why)) => return Err(why),
                },
                Err(why) => wrong.push(format!("compilation error: {why}")),
            }
        }
        match wrong.as_slice() {
            [] => Ok(true),
            _ if self.fails_open => Ok(false),
            [one] => Err(one.clone()),
            more => Err(format!("[{}]", more.join(", "))),
        }
    }
}

impl Rule {
    fn read(rule: &Value) -> Self {
        Self {
            operations: texts(rule, "operations"),
            groups: texts(rule, "apiGroups"),
            versions: texts(rule, "apiVersions"),
            resources: texts(rule, "resources"),
            scope: text(rule, "scope").to_owned(),
        }
    }

    fn covers(&self, review: &Review<'_>, version: &str) -> bool {
        let row = &review.target.resource.row;
        let in_scope = match self.scope.as_str() {
            "Namespaced" => row.namespaced,
            "Cluster" => !row.namespaced,
            _ => true,
        };
        let subresource = review.target.subresource.as_deref().unwrap_or_default();
        in_scope
            && has(&self.operations, review.operation.name())
            && has(&self.groups, &row.group)
            && has(&self.versions, version)
            && self.resources.iter().any(|pattern| {
                let (resource, sub) = pattern.split_once('/').unwrap_or((pattern, ""));
                (resource == "*" || resource == &*row.plural) && (sub == "*" || sub == subresource)
            })
    }
}

impl Operation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

impl Place {
    fn read(client: &Value) -> Self {
        let authorities = base64::engine::general_purpose::STANDARD
            .decode(text(client, "caBundle"))
            .unwrap_or_default();
        let Some(service) = client.get("service").filter(|service| service.is_object()) else {
            return Self {
                url: text(client, "url").to_owned(),
                service: None,
                authorities,
            };
        };
        let port = service.get("port").and_then(Value::as_u64);
        let service_at = Service {
            namespace: text(service, "namespace").to_owned(),
            name: text(service, "name").to_owned(),
            port: port.and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
        };
        let path = text(service, "path");
        let slash = if path.starts_with('/') || path.is_empty() {
            ""
        } else {
            "/"
        };
        Self {
            url: format!("https://{}:{}{slash}{path}", service_at.host(), service_at.port),
            service: Some(service_at),
            authorities,
        }
    }
}

impl Service {
    /// The name that the certificate must be for.
    pub(super) fn host(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::registry::ask::{Ask, Target};
    use crate::registry::catalog::{Catalog, Resource};

    /// ConfigMaps, as if they had a second version.
    fn target(asked: &str) -> Target {
        let catalog = Catalog::built_in();
        let mut row = catalog.find("", "configmaps").unwrap().row.as_ref().clone();
        let mut older = row.versions[0].clone();
        older.name = "v1beta1".into();
        let mut retired = older.clone();
        (retired.name, retired.served) = ("v0".into(), false);
        row.versions.extend([older, retired]);
        let resource = Resource {
            row: Arc::new(row),
            cel: Vec::new(),
            shaped: 0,
            edition: std::sync::Arc::default(),
            defined: 0,
            definition: None,
            closing: false,
        };
        Target {
            version: resource.version(asked).unwrap().clone(),
            resource: Arc::new(resource),
            namespace: Some("n".to_owned()),
            name: "m".to_owned(),
            subresource: None,
        }
    }

    #[test]
    fn a_rule_for_one_version_means_the_others_too_unless_it_says_exactly() {
        let wanted = |versions: &[&str], policy: &str, asked: &str| {
            let rules =
                json!([{"operations": ["*"], "apiGroups": [""], "apiVersions": versions, "resources": ["configmaps"]}]);
            let target = target(asked);
            let ask = Ask::internal("test");
            let review = Review {
                operation: Operation::Create,
                target: &target,
                name: "m",
                base: "",
                old: None,
                ask: &ask,
            };
            Hook::read(&json!({"name": "h", "matchPolicy": policy, "rules": rules})).wanted_version(&review)
        };
        assert_eq!(wanted(&["v1"], "Equivalent", "v1").as_deref(), Some("v1"));
        assert_eq!(wanted(&["v1"], "Equivalent", "v1beta1").as_deref(), Some("v1"));
        assert_eq!(wanted(&["v1beta1", "v1"], "Equivalent", "v1").as_deref(), Some("v1"));
        assert_eq!(wanted(&["v1"], "Exact", "v1beta1"), None);
        assert_eq!(wanted(&["*"], "Exact", "v1beta1").as_deref(), Some("v1beta1"));
        assert_eq!(wanted(&["v0"], "Equivalent", "v1"), None);
    }

    #[test]
    fn side_effects_and_timeouts_are_read_with_the_references_defaults() {
        let hook = Hook::read(&json!({"name": "h", "sideEffects": "Some"}));
        assert_eq!(
            (hook.takes_dry_runs, hook.timeout_seconds, hook.fails_open),
            (false, 10, false)
        );
        let hook = Hook::read(
            &json!({"name": "h", "sideEffects": "NoneOnDryRun", "timeoutSeconds": 3, "failurePolicy": "Ignore"}),
        );
        assert_eq!(
            (hook.takes_dry_runs, hook.timeout_seconds, hook.fails_open),
            (true, 3, true)
        );
    }
}
