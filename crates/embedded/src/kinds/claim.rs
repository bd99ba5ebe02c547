use crate::registry::row::BuiltIn;
pub static RULES: BuiltIn = BuiltIn { ..BuiltIn::PLAIN };
