//! CustomResourceDefinition: the row only. What a definition must be is `schema::crd`'s, which the registry calls.

use crate::registry::row::BuiltIn;

pub static RULES: BuiltIn = BuiltIn {
    unconditional_update: false,
    ..BuiltIn::PLAIN
};
