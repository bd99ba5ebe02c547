//! What an apply is told when others own what it wants: one conflict for each field, grouped by owner.

use std::fmt;

use super::element::Element;
use super::managed::{Entry, Operation};
use crate::fault::{Fault, quote};

/// A field that another manager owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The owner as messages name it: `"kubectl" using v1`, `"m" with subresource "status"`.
    pub owner: String,
    /// `.spec.replicas`
    pub field: String,
    pub(super) path: Vec<Element>,
}

/// Why an apply without `force` changed nothing. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

impl Conflicts {
    /// From the owners' entries, each holding only the fields in conflict.
    pub(super) fn of(mut owners: Vec<Entry>) -> Self {
        owners.sort_by_key(Entry::identity);
        let mut conflicts = Vec::new();
        for entry in owners {
            let owner = name(&entry);
            for path in entry.fields.paths() {
                let field = path.iter().map(Element::to_string).collect();
                conflicts.push(Conflict {
                    owner: owner.clone(),
                    field,
                    path,
                });
            }
        }
        Self(conflicts)
    }
}

fn name(entry: &Entry) -> String {
    let mut text = quote(&entry.manager);
    if !entry.subresource.is_empty() {
        text.push_str(&format!(" with subresource {}", quote(&entry.subresource)));
    }
    // Appliers are one whatever their version.
    if entry.operation == Operation::Update {
        text.push_str(&format!(" using {}", entry.api_version));
    }
    text
}

impl fmt::Display for Conflicts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [one] = self.0.as_slice() {
            return write!(
                formatter,
                "Apply failed with 1 conflict: conflict with {}: {}",
                one.owner, one.field
            );
        }
        write!(formatter, "Apply failed with {} conflicts: ", self.0.len())?;
        let mut last = None;
        for conflict in &self.0 {
            if last != Some(&conflict.owner) {
                let line = if last.is_none() { "" } else { "\n" };
                write!(formatter, "{line}conflicts with {}:", conflict.owner)?;
                last = Some(&conflict.owner);
            }
            write!(formatter, "\n- {}", conflict.field)?;
        }
        Ok(())
    }
}

impl std::error::Error for Conflicts {}

impl From<Conflicts> for Fault {
    fn from(conflicts: Conflicts) -> Self {
        let fault = Self::new(409, "Conflict", conflicts.to_string());
        conflicts.0.iter().fold(fault, |fault, conflict| {
            fault.cause(
                "FieldManagerConflict",
                &format!("conflict with {}", conflict.owner),
                &conflict.field,
            )
        })
    }
}
