//! What a schema says about merging: which maps and lists are owned as a whole, and by what a list's items are known.
//!
//! Every walk over an object goes through a [`Shape`], so built-in kinds, custom resources, preserved fields and the
//! metadata of both are told apart here and nowhere else.

use std::sync::{Arc, LazyLock};

use serde_json::Value;

use super::element::Element;
use crate::schema::{Additional, ListType, Schema, Type};

/// Walks stop here and take what is below as one leaf. The JSON reader takes 127 levels, so no object that came from
/// outside is deeper; this keeps values made in other ways from using up the stack.
pub(super) const DEEPEST: usize = 128;

/// How one place of an object merges.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape<'a> {
    /// The whole object.
    Root(&'a Schema),
    /// Its `metadata`, of which `managedFields` are no part.
    Metadata,
    /// A described place, and whether what is not described is kept there.
    Node(&'a Schema, bool),
    Scalar,
    /// Nothing is said: maps are owned field by field, lists as a whole.
    Deduced,
    /// Owned as a whole, whatever it is.
    Untyped,
    /// Left out of every walk.
    Skipped,
}

/// How a value at a place is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form<'a> {
    Scalar,
    Map { atomic: bool },
    List(List<'a>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List<'a> {
    Atomic,
    Set,
    Map(&'a [Arc<str>]),
}

/// A field of a map.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    pub shape: Shape<'a>,
    /// Described by name, not as any entry of a map.
    pub named: bool,
    /// `false`: the schema has no such field.
    pub declared: bool,
}

impl<'a> Shape<'a> {
    /// How to walk `value` here. A null or a value of the wrong type is walked as the schema says.
    pub fn form(self, value: Option<&Value>) -> Form<'a> {
        let schema = match self {
            Self::Root(schema) | Self::Node(schema, _) => schema,
            Self::Metadata => return Form::Map { atomic: false },
            Self::Scalar => return Form::Scalar,
            Self::Deduced => return by_value(value, Form::Map { atomic: false }, Form::List(List::Atomic)),
            Self::Untyped | Self::Skipped => {
                return by_value(value, Form::Map { atomic: true }, Form::List(List::Atomic));
            }
        };
        match schema.kind {
            Some(Type::Object) => Form::Map {
                atomic: schema.atomic_map || is_raw(schema),
            },
            Some(Type::Array) => Form::List(list(schema)),
            Some(_) => Form::Scalar,
            None if matches!(self, Self::Root(_)) => Form::Map { atomic: false },
            None if schema.int_or_string || schema.name.as_deref() == Some("Quantity") => Form::Scalar,
            None => by_value(
                value,
                Form::Map {
                    atomic: schema.atomic_map || is_raw(schema),
                },
                Form::List(list(schema)),
            ),
        }
    }

    pub fn field(self, key: &str) -> Field<'a> {
        let named = |shape| Field {
            shape,
            named: true,
            declared: true,
        };
        let other = |shape| Field {
            shape,
            named: false,
            declared: true,
        };
        let (schema, preserve) = match self {
            Self::Root(schema) => match key {
                "metadata" => return named(Self::Metadata),
                "apiVersion" | "kind" => return named(Self::Scalar),
                _ => (schema, false),
            },
            Self::Metadata if key == "managedFields" => return named(Self::Skipped),
            Self::Metadata => (&**OBJECT_META, false),
            Self::Node(schema, _) if schema.embedded_resource && key == "metadata" => {
                return named(Self::Node(&OBJECT_META, false));
            }
            Self::Node(schema, _) if schema.embedded_resource && matches!(key, "apiVersion" | "kind") => {
                return named(Self::Scalar);
            }
            Self::Node(schema, preserve) => (schema, preserve),
            Self::Untyped | Self::Skipped => return other(Self::Untyped),
            Self::Deduced | Self::Scalar => return other(Self::Deduced),
        };
        let preserve = preserve || schema.preserve_unknown;
        if let Some(field) = schema.properties.get(key) {
            return named(Self::Node(field, preserve));
        }
        match &schema.additional {
            Additional::Schema(entry) => other(Self::Node(entry, preserve)),
            Additional::Any => other(Self::Deduced),
            Additional::No => Field {
                shape: Self::Deduced,
                named: false,
                declared: preserve || schema.properties.is_empty(),
            },
        }
    }

    /// The shape of a list's items.
    pub fn items(self) -> Self {
        match self {
            Self::Node(schema, preserve) => match &schema.items {
                Some(items) => Self::Node(items, preserve || schema.preserve_unknown),
                None => Self::Untyped,
            },
            _ => Self::Untyped,
        }
    }

    /// The element by which an item of a set or map list is known.
    ///
    /// # Errors
    /// The reason why the item has none.
    pub fn item(self, list: List<'a>, item: &Value) -> Result<Element, String> {
        match list {
            List::Atomic => Err("invalid indexing of non-associative list".to_owned()),
            List::Set => match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
                scalar => Ok(Element::Value(Box::new(scalar.clone()))),
            },
            List::Map(keys) => {
                let map = match item {
                    Value::Object(map) => map,
                    Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
                    _ => return Err("associative list with keys may not have non-map elements".to_owned()),
                };
                let mut fields = Vec::with_capacity(keys.len());
                for key in keys {
                    let default = || match self.items() {
                        Self::Node(items, _) => items.properties.get(key).and_then(|field| field.default.as_ref()),
                        _ => None,
                    };
                    // A key that is absent and has no default is part of what tells the item apart.
                    if let Some(value) = map.get(&**key).or_else(default) {
                        fields.push((Box::from(&**key), value.clone()));
                    }
                }
                if fields.is_empty() && !keys.is_empty() {
                    let names: Vec<String> = keys.iter().map(|key| crate::fault::quote(key)).collect();
                    return Err(format!(
                        "associative list with keys has an element that omits all key fields [{}] (and doesn't have \
                         default values for any key fields)",
                        names.join(" ")
                    ));
                }
                Ok(Element::of_keys(fields))
            }
        }
    }
}

fn by_value<'a>(value: Option<&Value>, map: Form<'a>, list: Form<'a>) -> Form<'a> {
    match value {
        Some(Value::Array(_)) => list,
        Some(Value::Object(_) | Value::Null) | None => map,
        Some(_) => Form::Scalar,
    }
}

/// RawExtension is the one built-in object that is owned as a whole without saying so.
fn is_raw(schema: &Schema) -> bool {
    schema.name.as_deref() == Some("RawExtension")
}

fn list(schema: &Schema) -> List<'_> {
    match schema.list_type {
        ListType::Set => List::Set,
        ListType::Map => List::Map(&schema.list_map_keys),
        ListType::Atomic => List::Atomic,
    }
}

/// The schema of `metadata`, for custom resources, whose schemas do not have it.
pub(super) static OBJECT_META: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let scalar = |kind| {
        Arc::new(Schema {
            kind: Some(kind),
            ..Schema::default()
        })
    };
    let text_map = || {
        Arc::new(Schema {
            kind: Some(Type::Object),
            additional: Additional::Schema(scalar(Type::String)),
            ..Schema::default()
        })
    };
    let empty = |text: &str| {
        Arc::new(Schema {
            kind: Some(Type::String),
            default: Some(text.into()),
            ..Schema::default()
        })
    };
    let owner = Schema {
        kind: Some(Type::Object),
        atomic_map: true,
        properties: ["apiVersion", "kind", "name", "uid"]
            .into_iter()
            .map(|name| (name.into(), empty("")))
            .chain(["controller", "blockOwnerDeletion"].map(|name| (name.into(), scalar(Type::Boolean))))
            .collect(),
        ..Schema::default()
    };
    let listed = |items, list_type, key: Option<&str>| {
        Arc::new(Schema {
            kind: Some(Type::Array),
            items: Some(items),
            list_type,
            list_map_keys: key.iter().map(|key| Arc::from(*key)).collect(),
            patch_strategy: (list_type != ListType::Atomic).then(|| "merge".into()),
            patch_merge_key: key.map(Arc::from),
            ..Schema::default()
        })
    };
    let texts = [
        "name",
        "namespace",
        "generateName",
        "selfLink",
        "uid",
        "resourceVersion",
    ];
    let times = ["creationTimestamp", "deletionTimestamp"];
    let numbers = ["generation", "deletionGracePeriodSeconds"];
    let fields = texts
        .into_iter()
        .chain(times)
        .map(|name| (Arc::from(name), scalar(Type::String)));
    let fields = fields.chain(numbers.map(|name| (Arc::from(name), scalar(Type::Integer))));
    let fields = fields.chain([
        (Arc::from("labels"), text_map()),
        (Arc::from("annotations"), text_map()),
        (
            Arc::from("finalizers"),
            listed(scalar(Type::String), ListType::Set, None),
        ),
        (
            Arc::from("ownerReferences"),
            listed(Arc::new(owner), ListType::Map, Some("uid")),
        ),
        (
            Arc::from("managedFields"),
            listed(Arc::new(Schema::default()), ListType::Atomic, None),
        ),
    ]);
    Arc::new(Schema {
        name: Some("ObjectMeta".into()),
        kind: Some(Type::Object),
        properties: fields.collect(),
        ..Schema::default()
    })
});

/// The object as it is before anything is written into it: what the reference compares a new object with.
///
/// Built-in kinds have structs that are always there (their schemas say `default: {}`) and lists that are null before
/// they are something; custom resources have nothing.
pub(super) fn nothing(schema: &Schema) -> Value {
    fn zero(schema: &Schema, depth: usize) -> Value {
        let mut map = serde_json::Map::new();
        for (name, field) in &schema.properties {
            let always = field
                .default
                .as_ref()
                .is_some_and(|default| default.as_object().is_some_and(|map| map.is_empty()));
            if always && depth < DEEPEST {
                map.insert(name.to_string(), zero(field, depth + 1));
            } else if schema.required.contains(name) && matches!(field.kind, Some(Type::Array | Type::Object)) {
                map.insert(name.to_string(), Value::Null);
            }
        }
        Value::Object(map)
    }
    if schema.name.is_none() {
        return Value::Object(serde_json::Map::new());
    }
    let mut empty = zero(schema, 0);
    // And what an empty object of the type is written as; it cannot fail to be read.
    let mut written = Value::Object(serde_json::Map::new());
    let _ = crate::kinds::decode(schema, &mut written);
    add_missing(&mut empty, written);
    empty
}

/// Adds what the one has and the other lacks.
fn add_missing(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        for (field, value) in from {
            match into.get_mut(&field) {
                Some(there) => add_missing(there, value),
                None => {
                    into.insert(field, value);
                }
            }
        }
    }
}
