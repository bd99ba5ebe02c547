//! What is done to a write before it is stored, beyond its kind's own rules: built-in steps, then webhooks.
//!
//! The registry calls [`Registry::admit`] before the rules (steps may change the object) and [`Registry::validate`] after
//! them (nothing changes any more). The order: defaults (decoding did them), built-in steps ([`steps`]), mutating
//! webhooks ([`webhooks`]), addresses of Services ([`services`]), the rules, validating webhooks.

mod nodes;
mod pods;
mod services;
mod steps;
mod storage;
mod webhooks;

use serde_json::Value;

use crate::fault::Fault;
use crate::registry::Registry;
use crate::registry::ask::{Ask, Target};
use services::Book;
pub(crate) use services::Reserved;
use webhooks::Webhooks;

/// Where Services have their addresses unless somebody says otherwise: 127.64.224.0/19 (W1).
const FIRST_BLOCK: u8 = 64;

/// What admission keeps for itself.
#[derive(Debug)]
pub struct Admission {
    book: Book,
    webhooks: Webhooks,
}

impl Default for Admission {
    fn default() -> Self {
        Self::in_block(FIRST_BLOCK)
    }
}

impl Admission {
    /// With Services in 127.`block`.224.0/19 (W1).
    #[must_use]
    pub fn in_block(block: u8) -> Self {
        Self {
            book: Book::new(block),
            webhooks: Webhooks::default(),
        }
    }
}

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
    /// What its name is generated from: refusals before the reference has named it call it so. Empty when it was named.
    pub(crate) base: &'a str,
    /// What is there now; `None` on create.
    pub(crate) old: Option<&'a Value>,
    pub(crate) ask: &'a Ask,
}

impl<'a> Review<'a> {
    /// Of a command: something that is made at an object, and not stored.
    pub(crate) fn command(target: &'a Target, ask: &'a Ask) -> Self {
        Self {
            operation: Operation::Create,
            target,
            name: &target.name,
            base: "",
            old: None,
            ask,
        }
    }
}

impl Registry {
    /// Built-in steps and mutating webhooks. What is returned is held until the object is stored or refused.
    pub(crate) async fn admit(
        &self,
        review: &Review<'_>,
        object: &mut Value,
        warnings: &mut Vec<String>,
    ) -> Result<Reserved, Fault> {
        self.built_in_steps(review, object)?;
        self.mutate(review, object, warnings).await?;
        self.give_addresses(review, object)
    }

    /// Validating webhooks. `object` is `None` for a delete.
    pub(crate) async fn validate(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Fault> {
        self.built_in_checks(review, object)?;
        self.judge(review, object, warnings).await
    }
}
