use crate::registry::row::BuiltIn;
pub static MUTATING: BuiltIn = BuiltIn { ..BuiltIn::PLAIN };
pub static VALIDATING: BuiltIn = BuiltIn { ..BuiltIn::PLAIN };
