//! Structural schemas: what a field may be. One type serves built-in kinds and custom resources.
//!
//! A schema is a tree of shared nodes, without references and without cycles (the one recursive built-in definition,
//! JSONSchemaProps, is cut where it meets itself and keeps what it does not know).

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
    pub pattern: Option<Arc<str>>,
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
