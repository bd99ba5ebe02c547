//! The options of a delete: read from a body whole or not at all, since a precondition or a dry run that is passed over
//! deletes what was meant to stay. Used for DELETE of objects and collections, and by evictions.

use serde_json::Value;

use crate::fault::{Fault, FieldError, Path, Subject};
use crate::kinds;
use crate::registry::object;

const DEFINITION: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// The body or query of a delete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) propagation: Option<String>,
    pub(crate) orphan_dependents: Option<bool>,
    /// As given: [`Self::check`] says whether it makes sense.
    pub(crate) dry_run: Vec<String>,
    /// As given, for webhooks.
    pub(crate) raw: Value,
}

impl DeleteOptions {
    /// From a body. The error is one of types, in the reference's words.
    pub(crate) fn read(mut body: Value) -> Result<Self, String> {
        if body.is_null() {
            body = Value::Object(serde_json::Map::new());
        }
        if let Some(schema) = kinds::definition(DEFINITION) {
            kinds::decode(&schema, &mut body)?;
        }
        let map = object::as_map(&mut body);
        map.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
        map.insert("kind".to_owned(), "DeleteOptions".into());
        let text = |path: &str| object::at(&body, path).and_then(Value::as_str).map(str::to_owned);
        let dry_run = body.get("dryRun").and_then(Value::as_array).into_iter().flatten();
        Ok(Self {
            grace_seconds: body.get("gracePeriodSeconds").and_then(Value::as_i64),
            uid: text("preconditions.uid"),
            resource_version: text("preconditions.resourceVersion"),
            propagation: text("propagationPolicy"),
            orphan_dependents: body.get("orphanDependents").and_then(Value::as_bool),
            dry_run: dry_run
                .map(|word| word.as_str().unwrap_or_default().to_owned())
                .collect(),
            raw: body,
        })
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        !self.dry_run.is_empty()
    }

    /// Rules on the options themselves.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let mut errors = Vec::new();
        let root = Path::root();
        if self.propagation.is_some() && self.orphan_dependents.is_some() {
            errors.push(FieldError::invalid(
                &root.field("propagationPolicy"),
                self.propagation.clone().unwrap_or_default(),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        if let Some(policy) = &self.propagation
            && !matches!(policy.as_str(), "Orphan" | "Background" | "Foreground")
        {
            errors.push(FieldError::not_supported(
                &root.field("propagationPolicy"),
                policy.as_str(),
                &["Foreground", "Background", "Orphan", "nil"],
            ));
        }
        errors.extend(check_dry_run(&self.dry_run));
        if errors.is_empty() {
            return Ok(());
        }
        let subject = Subject {
            group: "meta.k8s.io".to_owned(),
            kind: "DeleteOptions".to_owned(),
        };
        Err(Fault::invalid(&subject, "", &errors))
    }

    pub(super) fn orphans(&self) -> Option<bool> {
        match self.propagation.as_deref() {
            Some(policy) => Some(policy == "Orphan"),
            None => self.orphan_dependents,
        }
    }
}

/// `dryRun` knows one word. What is none of it was meant to keep something from happening.
pub(crate) fn check_dry_run(words: &[String]) -> Option<FieldError> {
    let is_wrong = words.iter().any(|word| word != "All");
    is_wrong.then(|| FieldError::not_supported(&Path::new("dryRun"), words.to_vec(), &["All"]))
}
