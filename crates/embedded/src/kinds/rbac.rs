use crate::registry::row::BuiltIn;
pub static ROLE: BuiltIn = BuiltIn { ..BuiltIn::PLAIN };
pub static ROLE_BINDING: BuiltIn = BuiltIn { ..BuiltIn::PLAIN };
pub static CLUSTER_ROLE: BuiltIn = BuiltIn { ..BuiltIn::PLAIN };
pub static CLUSTER_ROLE_BINDING: BuiltIn = BuiltIn { ..BuiltIn::PLAIN };
