//! Which field of which message is what in JSON: the `wire` marks of `kinds/definitions.txt`, read once, when the first
//! body in protobuf comes.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::LazyLock;

use crate::kinds::definition_lines;

/// All messages. They refer to each other by number.
#[derive(Debug, Default)]
pub(super) struct Messages {
    all: Vec<Message>,
    by_definition: HashMap<&'static str, usize>,
}

#[derive(Debug)]
pub(super) struct Message {
    /// As errors call it.
    pub(super) name: &'static str,
    fields: BTreeMap<u32, Field>,
}

#[derive(Debug)]
pub(super) struct Field {
    /// The name in JSON.
    pub(super) name: &'static str,
    /// As Go calls it, where that is not the name with a capital.
    go_name: Option<&'static str>,
    pub(super) kind: Kind,
    /// Empty is something else than absent.
    pub(super) is_pointer: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    One(Type),
    List(Type),
    Map(Type),
    /// Lists by name: in protobuf each is a message whose first field are the items.
    MapOfLists(Type),
    /// A message whose fields stand in the object itself.
    Inline(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    Bool,
    Int32,
    Int64,
    Double,
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// JSON within protobuf: `RawExtension`, `JSON`.
    Json,
    /// The same; what it says about managed fields is of no use if it cannot be read.
    Fields,
    SchemaOrList,
    SchemaOrBool,
    SchemaOrStrings,
    Message(usize),
}

static MESSAGES: LazyLock<Messages> = LazyLock::new(Messages::read);

/// What the schemas within a definition of a custom resource are.
const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

pub(super) fn all() -> &'static Messages {
    &MESSAGES
}

impl Messages {
    pub(super) fn of(&self, definition: &str) -> Option<&Message> {
        self.at(*self.by_definition.get(definition)?)
    }

    pub(super) fn schema(&self) -> Option<&Message> {
        self.of(SCHEMA)
    }

    pub(super) fn at(&self, index: usize) -> Option<&Message> {
        self.all.get(index)
    }

    fn read() -> Self {
        let mut messages = Self::default();
        let lines: Vec<_> = definition_lines().collect();
        // Those that others refer to must be known first.
        for (name, _) in &lines {
            let index = messages.add(name.rsplit('.').next().unwrap_or(name));
            messages.by_definition.insert(name, index);
        }
        for (name, fields) in lines {
            let Some(&index) = messages.by_definition.get(name) else {
                continue;
            };
            for line in fields.lines() {
                messages.read_field(index, line);
            }
        }
        messages
    }

    fn add(&mut self, name: &'static str) -> usize {
        self.all.push(Message {
            name,
            fields: BTreeMap::new(),
        });
        self.all.len() - 1
    }

    fn read_field(&mut self, mut message: usize, line: &'static str) -> Option<()> {
        let mut words = line.trim_start().split('\t');
        let (name, kind) = (words.next()?, words.next()?);
        let kind = self.kind(kind)?;
        let mark = |mark: &str| words.clone().find_map(|word| word.strip_prefix(mark));
        let is_pointer = mark("go:")?.starts_with('*');
        let mut path = mark("wire:")?;
        while let Some((holder, rest)) = path.split_once('.') {
            let (number, go_name) = holder.split_once('=')?;
            message = self.inline(message, number.parse().ok()?, go_name)?;
            path = rest;
        }
        let (number, go_name) = match path.split_once('=') {
            Some((number, go_name)) => (number, Some(go_name)),
            None => (path, None),
        };
        let field = Field {
            name,
            go_name,
            kind,
            is_pointer,
        };
        self.all.get_mut(message)?.fields.insert(number.parse().ok()?, field);
        Some(())
    }

    /// The message of this number within another, made when its first field is read.
    fn inline(&mut self, within: usize, number: u32, name: &'static str) -> Option<usize> {
        if let Some(Kind::Inline(known)) = self.at(within)?.fields.get(&number).map(|field| field.kind) {
            return Some(known);
        }
        let made = self.add(name);
        let field = Field {
            name,
            go_name: Some(name),
            kind: Kind::Inline(made),
            is_pointer: false,
        };
        self.all.get_mut(within)?.fields.insert(number, field);
        Some(made)
    }

    fn kind(&self, text: &str) -> Option<Kind> {
        Some(if let Some(items) = text.strip_prefix("{}[]") {
            Kind::MapOfLists(self.typed(items)?)
        } else if let Some(values) = text.strip_prefix("{}") {
            Kind::Map(self.typed(values)?)
        } else if let Some(items) = text.strip_prefix("[]") {
            Kind::List(self.typed(items)?)
        } else {
            Kind::One(self.typed(text)?)
        })
    }

    fn typed(&self, text: &str) -> Option<Type> {
        Some(match text {
            "string" => Type::Text,
            "boolean" => Type::Bool,
            "int32" => Type::Int32,
            "int64" => Type::Int64,
            "double" => Type::Double,
            "byte" => Type::Bytes,
            "date-time" => Type::Time,
            "micro-time" => Type::MicroTime,
            "quantity" => Type::Quantity,
            "int-or-string" => Type::IntOrString,
            "raw" | "json" => Type::Json,
            "fields" => Type::Fields,
            "schema-or-list" => Type::SchemaOrList,
            "schema-or-bool" => Type::SchemaOrBool,
            "schema-or-strings" => Type::SchemaOrStrings,
            reference => Type::Message(*self.by_definition.get(reference.strip_prefix('@')?)?),
        })
    }
}

impl Message {
    pub(super) fn field(&self, number: u32) -> Option<&Field> {
        self.fields.get(&number)
    }

    #[cfg(test)]
    pub(super) fn fields(&self) -> impl Iterator<Item = (u32, &Field)> {
        self.fields.iter().map(|(number, field)| (*number, field))
    }
}

/// As errors call it.
impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.go_name {
            return f.write_str(name);
        }
        let (first, rest) = self.name.split_at_checked(1).unwrap_or((self.name, ""));
        write!(f, "{}{rest}", first.to_ascii_uppercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a5_every_field_of_every_definition_is_a_field_of_its_message() {
        let messages = all();
        for (definition, fields) in definition_lines() {
            for line in fields.lines() {
                let name = line.trim_start().split('\t').next().unwrap();
                let message = messages.of(definition).unwrap();
                let mut holders = vec![message];
                holders.extend(message.fields.values().filter_map(|field| match field.kind {
                    Kind::Inline(index) => messages.at(index),
                    _ => None,
                }));
                let is_there = holders
                    .iter()
                    .any(|message| message.fields.values().any(|field| field.name == name));
                // The two that stand in the envelope.
                assert!(
                    is_there || matches!(name, "apiVersion" | "kind"),
                    "{definition}.{name} has no number, or is of a type that is not known"
                );
            }
        }
    }

    #[test]
    fn fields_that_json_has_in_the_object_itself_are_found_below_their_holder() {
        let messages = all();
        let volume = messages.of("io.k8s.api.core.v1.Volume").unwrap();
        let Kind::Inline(source) = volume.field(2).unwrap().kind else {
            panic!("a volume's source stands in the volume");
        };
        let source = messages.at(source).unwrap();
        assert_eq!(
            (source.name, source.field(19).unwrap().name),
            ("VolumeSource", "configMap")
        );
        let meta = messages.of("io.k8s.api.core.v1.ConfigMap").unwrap().field(1).unwrap();
        assert_eq!((meta.name, meta.to_string()), ("metadata", "ObjectMeta".to_owned()));
    }
}
