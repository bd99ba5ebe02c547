//! What can go wrong with the Lease, and whom it concerns.

use std::fmt;
use std::time::Duration;

use usher_engine::ErrorClass;

use super::LeaseConfig;
use crate::leadership::TimingError;

/// What was asked of the API server, in RBAC's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Read it.
    Get,
    /// Make it.
    Create,
    /// Replace it.
    Update,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Get => "get",
            Verb::Create => "create",
            Verb::Update => "update",
        })
    }
}

/// Why the lease could not be read, held or kept.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The durations do not go together.
    #[error(transparent)]
    Timing(#[from] TimingError),
    /// Nobody could tell who holds it.
    #[error("no identity to hold lease {lease} under; set --identity to a name no other process has")]
    NoIdentity {
        /// Namespace and name.
        lease: String,
    },
    /// The right is missing.
    #[error(
        "may not {verb} leases.coordination.k8s.io in namespace {namespace} (lease {name}): {problem}. The operator's \
         role must allow get, create and update there; `usher install` creates it"
    )]
    Forbidden {
        /// What was asked.
        verb: Verb,
        /// Where.
        namespace: String,
        /// The Lease's name.
        name: String,
        /// The server's words.
        problem: String,
    },
    /// There is no place for a Lease.
    #[error(
        "cannot create lease {name}: namespace {namespace} does not exist; `usher install` creates it, or set \
         --lease-namespace to one that exists"
    )]
    NoNamespace {
        /// Where.
        namespace: String,
        /// The Lease's name.
        name: String,
    },
    /// The server says the Lease we wrote is wrong.
    #[error(
        "{verb} lease {lease}: refused as invalid ({problem}); delete the lease if somebody edited it, else report a bug"
    )]
    Invalid {
        /// What was asked.
        verb: Verb,
        /// Namespace and name.
        lease: String,
        /// The server's words.
        problem: String,
    },
    /// The Lease is not what the write expected. Not an error: the protocol looks again.
    #[error("{verb} lease {lease}: it changed since it was read; looking again")]
    Moved {
        /// What was asked.
        verb: Verb,
        /// Namespace and name.
        lease: String,
    },
    /// No answer in time; it may or may not have taken effect.
    #[error("{verb} lease {lease}: no answer within {limit:?}; trying again. Is the API server overloaded?")]
    NoAnswer {
        /// What was asked.
        verb: Verb,
        /// Namespace and name.
        lease: String,
        /// How long we waited.
        limit: Duration,
    },
    /// Anything else; it may or may not have taken effect.
    #[error("{verb} lease {lease}: {problem}; trying again. Is the API server reachable?")]
    Unreachable {
        /// What was asked.
        verb: Verb,
        /// Namespace and name.
        lease: String,
        /// What happened.
        problem: String,
    },
}

impl LeaseError {
    /// What it means for what happens next.
    pub fn class(&self) -> ErrorClass {
        match self {
            LeaseError::Timing(error) => error.class(),
            LeaseError::NoIdentity { .. } => ErrorClass::Validation,
            LeaseError::Forbidden { .. } | LeaseError::NoNamespace { .. } | LeaseError::Invalid { .. } => {
                ErrorClass::Permanent
            }
            LeaseError::Moved { .. } | LeaseError::NoAnswer { .. } | LeaseError::Unreachable { .. } => {
                ErrorClass::Transient
            }
        }
    }

    /// Sorts a client error. 401 is transient: tokens are renewed while we run.
    pub(super) fn from_client(verb: Verb, config: &LeaseConfig, error: kube::Error) -> Self {
        let LeaseConfig { namespace, name, .. } = config;
        let lease = || format!("{namespace}/{name}");
        let status = match error {
            kube::Error::Api(status) => status,
            other => {
                return LeaseError::Unreachable {
                    verb,
                    lease: lease(),
                    problem: with_causes(&other),
                };
            }
        };
        let problem = status.message.clone();
        match (status.code, verb) {
            (403, _) => LeaseError::Forbidden {
                verb,
                namespace: namespace.clone(),
                name: name.clone(),
                problem,
            },
            (404, Verb::Create) => LeaseError::NoNamespace {
                namespace: namespace.clone(),
                name: name.clone(),
            },
            (404 | 409, _) => LeaseError::Moved { verb, lease: lease() },
            (400 | 405 | 413 | 415 | 422, _) => LeaseError::Invalid {
                verb,
                lease: lease(),
                problem,
            },
            (code, _) => LeaseError::Unreachable {
                verb,
                lease: lease(),
                problem: format!("{code}: {problem}"),
            },
        }
    }
}

/// An error with what caused it. A client that cannot connect says only that; why is further down.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}
