//! A request, understood: of which kind, which object, with which options, by whom.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::caller::Caller;
use crate::fault::{Fault, Subject};
use crate::registry::catalog::Resource;
use crate::registry::row::Version;
use crate::store::{self, Key, Revision};

/// What a request is about. The namespace is there if and only if the kind has one and the request named one.
#[derive(Debug, Clone)]
pub struct Target {
    pub resource: Arc<Resource>,
    pub version: Version,
    pub namespace: Option<String>,
    /// Empty for collections.
    pub name: String,
    pub subresource: Option<String>,
}

impl Target {
    pub(crate) fn key(&self) -> Key {
        self.key_of(&self.name)
    }

    pub(crate) fn key_of(&self, name: &str) -> Key {
        self.resource.key(self.namespace.as_deref(), name)
    }

    pub(crate) fn subject(&self) -> Subject {
        match crate::kinds::stored_as(&self.resource.row) {
            // A view speaks of what it shows.
            Some((group, _)) => Subject {
                group: group.to_owned(),
                kind: self.resource.row.kind.to_string(),
            },
            None => self.resource.row.subject(),
        }
    }

    pub(crate) fn plural(&self) -> Subject {
        self.resource.row.resource()
    }

    pub(crate) fn api_version(&self) -> String {
        self.resource.api_version(&self.version.name)
    }

    /// As the reference's messages write a key.
    pub(crate) fn registry_key(&self) -> String {
        let row = &self.resource.row;
        let group = if self.resource.is_custom() {
            format!("{}/", row.group)
        } else {
            String::new()
        };
        let namespace = self
            .namespace
            .as_ref()
            .map(|name| format!("{name}/"))
            .unwrap_or_default();
        format!("/registry/{group}{}/{namespace}{}", row.plural, self.name)
    }

    pub(crate) fn is_status(&self) -> bool {
        self.subresource.as_deref() == Some("status")
    }

    /// A CustomResourceDefinition.
    pub(crate) fn is_definition(&self) -> bool {
        &*self.resource.row.group == "apiextensions.k8s.io"
    }

    pub(crate) fn not_found(&self) -> Fault {
        Fault::not_found(&self.plural(), &self.name)
    }
}

/// How a write is asked for.
#[derive(Debug, Clone)]
pub struct Ask {
    pub caller: Caller,
    pub dry_run: bool,
    /// `fieldManager`, else the User-Agent up to its first `/`.
    pub manager: String,
    pub validation: FieldValidation,
    /// The options as admission webhooks are shown them.
    pub options: Value,
    /// Part of something that webhooks were asked about as a whole.
    pub is_admitted: bool,
    /// Nobody comes to own what it changes.
    pub is_untracked: bool,
}

impl Ask {
    /// One of our own writes.
    #[must_use]
    pub fn internal(manager: &str) -> Self {
        Self {
            caller: Caller::admin(),
            dry_run: false,
            manager: manager.to_owned(),
            validation: FieldValidation::Ignore,
            options: Value::Null,
            is_admitted: false,
            is_untracked: false,
        }
    }
}

/// A body that was read.
#[derive(Debug, Clone)]
pub struct Parsed {
    pub value: Value,
    /// The JSON it was read from, where keys have an order and may be given twice.
    pub text: Option<Bytes>,
}

impl From<Value> for Parsed {
    fn from(value: Value) -> Self {
        Self { value, text: None }
    }
}

/// What happens to fields that the schema does not know (O20).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// What a write came to.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// In the request's version, with resourceVersion (unless a dry run created it).
    pub object: Value,
    /// What was stored, and its revision: the same object, already written.
    pub stored: Option<(store::Value, Revision)>,
    pub created: bool,
    /// The object is gone; the answer may be a `Status`.
    pub deleted: bool,
    pub warnings: Vec<String>,
}
