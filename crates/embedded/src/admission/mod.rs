//! What is done to a write before it is stored, beyond its kind's own rules: built-in steps, then webhooks.
//!
//! The registry calls [`Registry::admit`] before the rules (steps may change the object) and [`Registry::validate`] after
//! them (nothing changes any more).

mod steps;

use serde_json::Value;

use crate::fault::Fault;
use crate::registry::Registry;
use crate::registry::ask::{Ask, Target};

/// What admission keeps for itself.
#[derive(Debug, Default)]
pub struct Admission {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

/// One write, as admission sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Review<'a> {
    pub(crate) operation: Operation,
    pub(crate) target: &'a Target,
    /// The object's name; on create it may have been generated.
    pub(crate) name: &'a str,
    /// What is there now; `None` on create.
    pub(crate) old: Option<&'a Value>,
    pub(crate) ask: &'a Ask,
}

impl Registry {
    /// Built-in steps and mutating webhooks.
    pub(crate) async fn admit(
        &self,
        review: &Review<'_>,
        object: &mut Value,
        warnings: &mut Vec<String>,
    ) -> Result<(), Fault> {
        let _ = warnings;
        self.built_in_steps(review, object)
    }

    /// Validating webhooks. `object` is `None` for a delete.
    pub(crate) async fn validate(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Fault> {
        let _ = (review, object, warnings);
        Ok(())
    }
}
