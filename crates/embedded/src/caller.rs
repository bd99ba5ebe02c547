//! Who asks.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// An authenticated user, as reviews, webhooks and the audit log name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Who the admin token and every in-process client are (X1).
pub const ADMIN: &str = "usher-admin";

impl Caller {
    #[must_use]
    pub fn admin() -> Self {
        Self {
            name: ADMIN.to_owned(),
            uid: String::new(),
            groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
            extra: BTreeMap::new(),
        }
    }

    #[must_use]
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            uid: String::new(),
            groups: vec!["system:unauthenticated".to_owned()],
            extra: BTreeMap::new(),
        }
    }

    /// `UserInfo`, as reviews carry it.
    #[must_use]
    pub fn info(&self) -> Value {
        let mut info = json!({"username": self.name, "groups": self.groups});
        if let Value::Object(map) = &mut info {
            if !self.uid.is_empty() {
                map.insert("uid".to_owned(), self.uid.clone().into());
            }
            if !self.extra.is_empty() {
                map.insert("extra".to_owned(), json!(self.extra));
            }
        }
        info
    }
}
