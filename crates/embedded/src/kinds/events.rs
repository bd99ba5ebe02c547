use crate::registry::row::BuiltIn;
pub static CORE_RULES: BuiltIn = BuiltIn { ..BuiltIn::PLAIN };
pub static RULES: BuiltIn = BuiltIn { ..BuiltIn::PLAIN };
