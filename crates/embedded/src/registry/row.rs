//! A kind as a row: what it is called, what it may hold, what can be done with it. CRDs add rows at run time.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::fault::{FieldError, Subject};
use crate::schema::Schema;

/// A kind, with all of its served versions.
#[derive(Debug, Clone)]
pub struct Row {
    /// Empty for the core group.
    pub group: Arc<str>,
    pub kind: Arc<str>,
    pub list_kind: Arc<str>,
    pub plural: Arc<str>,
    pub singular: Arc<str>,
    pub short_names: Vec<Arc<str>>,
    pub categories: Vec<Arc<str>>,
    pub namespaced: bool,
    /// What discovery lists: `create delete deletecollection get list patch update watch`; reviews have `create` alone.
    pub verbs: &'static [&'static str],
    /// Newest first, as discovery lists them. Never empty.
    pub versions: Vec<Version>,
    pub rules: Rules,
}

/// One served version of a kind.
#[derive(Debug, Clone)]
pub struct Version {
    pub name: Arc<str>,
    pub served: bool,
    /// The one that is stored.
    pub storage: bool,
    /// The warning that its use is answered with.
    pub deprecated: Option<Arc<str>>,
    pub schema: Arc<Schema>,
    pub has_status: bool,
    pub scale: Option<ScalePaths>,
    pub columns: Columns,
    /// Field selectors beside `metadata.name` and `metadata.namespace`: dotted paths.
    pub selectable: Vec<Arc<str>>,
}

/// Where `/scale` finds its numbers: dotted paths such as `spec.replicas`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: Arc<str>,
    pub status_replicas: Arc<str>,
    pub selector: Option<Arc<str>>,
}

/// What decides beyond the schema.
#[derive(Debug, Clone, Copy)]
pub enum Rules {
    BuiltIn(&'static BuiltIn),
    /// A custom resource: schema and CEL say everything.
    Custom,
}

/// What a built-in kind adds to the life that all objects share. Pure functions of values; each has a default that does
/// nothing, see [`BuiltIn::PLAIN`].
#[derive(Debug, Clone, Copy)]
pub struct BuiltIn {
    /// Fills in what the reference's defaulting fills in.
    pub default: fn(&mut Value),
    /// Before a create is checked: a status that users cannot set is replaced by its first value.
    pub on_create: fn(&mut Value),
    /// Before an update is checked: `(new, old)`. Status is taken from `old` by the registry where the kind has the
    /// subresource.
    pub on_update: fn(&mut Value, &Value),
    /// Rules on one object. Metadata (names, labels, annotations, owners, finalizers) is checked by the registry.
    pub check: fn(&Value) -> Vec<FieldError>,
    /// Rules on an object that is created; `check` is called beside it.
    pub check_create: fn(&Value) -> Vec<FieldError>,
    /// Rules on a change: `(new, old)`; `check` is called beside it.
    pub check_update: fn(&Value, &Value) -> Vec<FieldError>,
    /// Rules on a change of status: `(new, old)`.
    pub check_status: fn(&Value, &Value) -> Vec<FieldError>,
    /// Warnings on create (`None`) and update.
    pub warn: fn(&Value, Option<&Value>) -> Vec<String>,
    /// Field selectors beside `metadata.name` and `metadata.namespace`, each with the text it selects on.
    pub fields: &'static [(&'static str, FieldText)],
    /// Whether `metadata.generation` is kept (kinds with a spec).
    pub has_generation: bool,
    /// The part of metadata whose changes also count in the generation; empty: none.
    pub generation_counts: &'static str,
    /// The part of metadata that a write of the status leaves alone; empty: none.
    pub status_leaves: &'static str,
    pub name: NameRule,
    /// Whether PUT may leave out resourceVersion.
    pub unconditional_update: bool,
    /// Whether PUT may create.
    pub create_on_update: bool,
    /// Subresources beside `status` and `scale`: `eviction`, `binding`, `token`, `finalize`, `log`, …
    pub subresources: &'static [&'static str],
    /// Seconds after which an object goes by itself (Events: 3,600).
    pub ttl_seconds: Option<u32>,
}

impl BuiltIn {
    /// A kind with nothing of its own.
    pub const PLAIN: Self = Self {
        default: |_| {},
        on_create: |_| {},
        on_update: |_, _| {},
        check: |_| Vec::new(),
        check_create: |_| Vec::new(),
        check_update: |_, _| Vec::new(),
        check_status: |_, _| Vec::new(),
        warn: |_, _| Vec::new(),
        fields: &[],
        has_generation: true,
        generation_counts: "",
        status_leaves: "",
        name: NameRule::Subdomain,
        unconditional_update: true,
        create_on_update: false,
        subresources: &[],
        ttl_seconds: None,
    };
}

/// The text of a field, for selectors.
pub type FieldText = fn(&Value) -> String;

/// What a name may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// DNS-1123 subdomain.
    Subdomain,
    /// DNS-1123 label.
    Label,
    /// DNS-1035 label (Service).
    Dns1035,
    /// Anything that can be one segment of a path (RBAC).
    Segment,
}

/// What `kubectl get` shows.
#[derive(Debug, Clone)]
pub enum Columns {
    BuiltIn {
        columns: &'static [Column],
        /// One cell for each column. The time is now, for ages.
        cells: fn(&Value, Timestamp) -> Vec<Value>,
    },
    Custom(Arc<[CustomColumn]>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    /// `string`, `integer`, …
    pub kind: &'static str,
    /// `name` for the name's column, else empty.
    pub format: &'static str,
    pub description: &'static str,
    /// 0: always shown; 1: with `-o wide`.
    pub priority: u8,
}

/// One of a CRD's `additionalPrinterColumns`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomColumn {
    pub name: String,
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i32,
    pub json_path: String,
}

impl Row {
    /// For messages about a resource: `deployments.apps`.
    #[must_use]
    pub fn resource(&self) -> Subject {
        Subject {
            group: self.group.to_string(),
            kind: self.plural.to_string(),
        }
    }

    /// For messages about a kind: `Deployment.apps`.
    #[must_use]
    pub fn subject(&self) -> Subject {
        Subject {
            group: self.group.to_string(),
            kind: self.kind.to_string(),
        }
    }
}
