//! Structural schemas: what a field may be. One type serves built-in kinds and custom resources.
//!
//! A schema is a tree of shared nodes, without references and without cycles (the one recursive built-in definition,
//! JSONSchemaProps, is cut where it meets itself and keeps what it does not know).
//!
//! An object of a custom resource goes through, in this order (D2): [`prune`], [`default`], [`validate`], then its
//! CEL rules. All of them are pure functions over JSON values, called by the registry; none of them panics whatever
//! the value is, and each recursion ends with the schema, whose depth [`parse`] bounds.

pub mod cel;
mod check;
pub mod crd;
mod default;
mod field_path;
mod format;
pub mod jsonpath;
mod listtype;
pub(crate) mod metadata;
mod names;
mod openapi;
mod parse;
mod pattern;
mod prune;
mod ratchet;

pub use check::{blocks_rules, validate, validate_status};
pub use default::{default, settle_numbers};
pub use pattern::Pattern;
pub use prune::prune;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Number, Value};

/// A node of the tree.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Schema {
    /// For built-in kinds the definition's last word, such as `PodSpec`: decode errors name it.
    pub name: Option<Arc<str>>,
    /// `None`: any type (`x-kubernetes-int-or-string`, preserved fields, raw JSON).
    pub kind: Option<Type>,
    pub properties: BTreeMap<Arc<str>, Arc<Schema>>,
    pub additional: Additional,
    pub items: Option<Arc<Schema>>,
    pub required: Vec<Arc<str>>,
    pub nullable: bool,
    pub default: Option<Value>,
    pub format: Option<Arc<str>>,
    pub list_type: ListType,
    /// `x-kubernetes-list-map-keys`.
    pub list_map_keys: Vec<Arc<str>>,
    /// `x-kubernetes-map-type: atomic`.
    pub atomic_map: bool,
    pub preserve_unknown: bool,
    pub int_or_string: bool,
    pub embedded_resource: bool,
    /// `x-kubernetes-patch-merge-key` and `-strategy`, for strategic merge of built-ins.
    pub patch_merge_key: Option<Arc<str>>,
    pub patch_strategy: Option<Arc<str>>,
    pub description: Option<Arc<str>>,
    /// Bounds and combinations; boxed, since most nodes have none.
    pub bounds: Option<Box<Bounds>>,
    /// `x-kubernetes-validations`.
    pub rules: Vec<Rule>,
    /// What says nothing about values but is published; boxed, since most nodes have none.
    pub notes: Option<Box<Notes>>,
    /// For fields of built-in kinds: when the field is written.
    pub written: Written,
    /// For fields of built-in kinds: what the reference's decode errors call the type, such as `*int32`. A leading `*`
    /// says that absent differs from empty.
    pub go_type: Option<&'static str>,
}

/// When a field of a built-in kind is written: the reference decodes into a struct and writes that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Written {
    /// Unless it is absent or null.
    #[default]
    Given,
    /// Unless it is empty: `0`, `false`, `""`, `[]`, `{}`.
    NotEmpty,
    /// Always; absent becomes the type's empty value.
    Always,
}

/// Keywords that no check asks for: kept so that a schema is published as it was given.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Notes {
    pub title: Option<Arc<str>>,
    pub example: Option<Value>,
    pub external_docs: Option<Value>,
    /// `x-kubernetes-list-type: atomic` was written, not left out.
    pub says_atomic_list: bool,
    /// `x-kubernetes-map-type: granular` was written, not left out.
    pub says_granular_map: bool,
    /// `x-kubernetes-preserve-unknown-fields: false` was written, not left out.
    pub says_no_preserve: bool,
}

/// How deep a schema or a value may nest (S8): deeper ones are refused before anything walks them.
pub const DEPTH_LIMIT: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// `additionalProperties`.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Additional {
    /// Not given: only `properties`.
    #[default]
    No,
    /// `true`.
    Any,
    Schema(Arc<Schema>),
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ListType {
    #[default]
    Atomic,
    Set,
    Map,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bounds {
    pub maximum: Option<Number>,
    pub exclusive_maximum: bool,
    pub minimum: Option<Number>,
    pub exclusive_minimum: bool,
    pub multiple_of: Option<Number>,
    pub max_length: Option<u64>,
    pub min_length: Option<u64>,
    pub pattern: Option<Pattern>,
    pub max_items: Option<u64>,
    pub min_items: Option<u64>,
    pub unique_items: bool,
    pub max_properties: Option<u64>,
    pub min_properties: Option<u64>,
    pub allowed: Vec<Value>,
    pub all_of: Vec<Schema>,
    pub any_of: Vec<Schema>,
    pub one_of: Vec<Schema>,
    pub not: Option<Box<Schema>>,
}

/// One CEL rule.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rule {
    pub rule: String,
    pub message: Option<String>,
    pub message_expression: Option<String>,
    pub reason: Option<String>,
    pub field_path: Option<String>,
    pub optional_old_self: bool,
}

impl Type {
    /// As a schema writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }
}

impl Schema {
    /// The schema of a property, or of any entry of a map.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&Self> {
        match (self.properties.get(name), &self.additional) {
            (Some(schema), _) | (None, Additional::Schema(schema)) => Some(schema),
            (None, Additional::No | Additional::Any) => None,
        }
    }
}
