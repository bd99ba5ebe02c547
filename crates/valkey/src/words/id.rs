//! Who is who. A member is its node id (R1), never its pod, address or ordinal.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use usher_engine::Text;

/// Why a text is no id of a node or a shard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no id: 40 characters of a-z and 0-9 are")]
pub struct NotAnId(String);

/// Length of the ids that servers make.
const LENGTH: usize = 40;

fn checked(text: &str) -> Result<Text, NotAnId> {
    let fits = |c: char| c.is_ascii_digit() || c.is_ascii_lowercase();
    if text.len() == LENGTH && text.chars().all(fits) {
        Ok(text.into())
    } else {
        Err(NotAnId(text.to_owned()))
    }
}

/// A cluster node, as it calls itself (`CLUSTER MYID`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct NodeId(Text);

/// A shard, as its members call it (`CLUSTER MYSHARDID`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ShardId(Text);

macro_rules! id {
    ($name:ident) => {
        impl $name {
            /// Reads an id as servers print it.
            pub fn parse(text: &str) -> Result<Self, NotAnId> {
                checked(text).map(Self)
            }

            /// The whole id.
            pub fn as_str(&self) -> &str {
                self.0.as_str()
            }

            /// Its first eight characters: enough for people, never for comparing.
            pub fn short(&self) -> &str {
                self.as_str().get(..8).unwrap_or_default()
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::parse(&text).map_err(serde::de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "maxLength": LENGTH})
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.short())
            }
        }
    };
}
id!(NodeId);
id!(ShardId);

impl NodeId {
    /// A shard of its own, for a member of which nobody knows the shard: `CLUSTER NODES` does not tell it.
    pub fn as_shard(&self) -> ShardId {
        ShardId(self.0.clone())
    }
}

/// A pod's place in its StatefulSet. No ordinal has a role (R12): the set adds and removes at the end, that is all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Ordinal(pub u16);

impl fmt::Display for Ordinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A config epoch: among claims on a slot the highest wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct Epoch(pub u64);
