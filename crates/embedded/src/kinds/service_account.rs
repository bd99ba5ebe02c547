//! ServiceAccount: its secrets and pull secrets are names, about which there is no rule.

use crate::registry::row::BuiltIn;

pub static RULES: BuiltIn = BuiltIn {
    has_generation: false,
    subresources: &["token"],
    ..BuiltIn::PLAIN
};
