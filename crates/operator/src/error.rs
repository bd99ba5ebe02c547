//! What can go wrong while a kind observes or acts, and what that means for the next pass.

use std::time::Duration;

use usher_engine::ErrorClass;

/// A call, or a step, that did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The object changed since we looked. Not an error: plan again when the newer one is in view.
    #[error("{object} changed since it was read; planning again from the newer version")]
    Conflict {
        /// Kind and key.
        object: String,
    },
    /// The name is taken.
    #[error("{object} exists already")]
    Exists {
        /// Kind and key.
        object: String,
    },
    /// The object is gone.
    #[error("{object} does not exist (any more)")]
    Gone {
        /// Kind and key.
        object: String,
    },
    /// Another operator leads, or our lease is about to end.
    #[error("not the leader: no write was begun for {object}")]
    NotLeader {
        /// Kind and key.
        object: String,
    },
    /// The request may or may not have taken effect.
    #[error("{verb} {object}: no answer ({problem}); it may or may not have taken effect, looking again")]
    Unknown {
        /// What was asked.
        verb: &'static str,
        /// Kind and key.
        object: String,
        /// What happened.
        problem: String,
    },
    /// The server asks us to slow down.
    #[error("{verb} {object}: the API server asks to wait {} s", wait.as_secs())]
    TooMany {
        /// What was asked.
        verb: &'static str,
        /// Kind and key.
        object: String,
        /// How long.
        wait: Duration,
    },
    /// We lack the right.
    #[error("{verb} {object}: forbidden ({problem}); {}", remedy(problem))]
    Forbidden {
        /// What was asked.
        verb: &'static str,
        /// Kind and key.
        object: String,
        /// The server's words.
        problem: String,
    },
    /// The namespace is being deleted: nothing can be created there any more.
    #[error("{object}: its namespace is being deleted, nothing is created there any more")]
    NamespaceEnding {
        /// Kind and key.
        object: String,
    },
    /// The server says that what we wrote is wrong.
    #[error("{verb} {object}: refused ({problem})")]
    Invalid {
        /// What was asked.
        verb: &'static str,
        /// Kind and key.
        object: String,
        /// The server's words.
        problem: String,
    },
    /// Something a kind found wrong itself.
    #[error("{message}")]
    Kind {
        /// What it means.
        class: ErrorClass,
        /// A sentence that names the object and the fix.
        message: String,
    },
}

impl Failure {
    /// What it means for what happens next.
    pub fn class(&self) -> ErrorClass {
        match self {
            Failure::Conflict { .. }
            | Failure::Exists { .. }
            | Failure::Gone { .. }
            | Failure::NotLeader { .. }
            | Failure::Unknown { .. }
            | Failure::TooMany { .. }
            // Rights and quotas are granted by a person, without us being told: look again, at the slowest pace.
            | Failure::Forbidden { .. } => ErrorClass::Transient,
            Failure::NamespaceEnding { .. } => ErrorClass::Permanent,
            Failure::Invalid { .. } => ErrorClass::Validation,
            Failure::Kind { class, .. } => *class,
        }
    }

    /// As it appears in metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Failure::Conflict { .. } => "conflict",
            Failure::Exists { .. } => "exists",
            Failure::Gone { .. } => "gone",
            Failure::NotLeader { .. } => "not_leader",
            Failure::Unknown { .. } => "unknown",
            Failure::TooMany { .. } => "too_many",
            Failure::Forbidden { .. } => "forbidden",
            Failure::NamespaceEnding { .. } => "namespace_ending",
            Failure::Invalid { .. } => "invalid",
            Failure::Kind { .. } => "kind",
        }
    }

    /// Sorts a client error by what it means. Only the server's own "no" is a no; anything else leaves open whether
    /// the request took effect.
    pub(crate) fn from_client(verb: &'static str, object: String, error: kube::Error) -> Self {
        let status = match error {
            kube::Error::Api(status) => status,
            kube::Error::Service(inner) if inner.is::<crate::client::NotLeading>() => {
                return Failure::NotLeader { object };
            }
            other => {
                return Failure::Unknown {
                    verb,
                    object,
                    problem: words(&other),
                };
            }
        };
        let problem = status.message.clone();
        let ending = status
            .details
            .iter()
            .flat_map(|d| &d.causes)
            .any(|c| c.reason == "NamespaceTerminating");
        // A 404 that names no object is about the type: its CRD, or a subresource of it, is not served (yet).
        let named = status.details.as_ref().is_some_and(|d| !d.name.is_empty());
        match status.code {
            404 if named => Failure::Gone { object },
            409 if status.reason == "AlreadyExists" => Failure::Exists { object },
            // What does not exist yet has no other version: a quota was counted by somebody else at the same time.
            409 if verb != "create" => Failure::Conflict { object },
            403 if ending => Failure::NamespaceEnding { object },
            401 | 403 => Failure::Forbidden { verb, object, problem },
            429 => {
                let seconds = status.details.as_ref().map_or(1, |d| d.retry_after_seconds.max(1));
                Failure::TooMany {
                    verb,
                    object,
                    wait: Duration::from_secs(u64::from(seconds.min(120))),
                }
            }
            // The server's own limit; or etcd's (1.5 MiB), which the API server passes on as an error of its own.
            code if code == 413 || (code == 500 && problem.contains("request is too large")) => Failure::Invalid {
                verb,
                object,
                problem: format!("{problem}: remove labels or annotations from it"),
            },
            400 | 405 | 415 | 422 => Failure::Invalid { verb, object, problem },
            code => Failure::Unknown {
                verb,
                object,
                problem: format!("{code}: {problem}"),
            },
        }
    }
}

/// What to do about a 401 or 403. The API server has one code for three things.
fn remedy(problem: &str) -> &'static str {
    if problem.contains("quota") {
        "raise the namespace's ResourceQuota, or free some of it"
    } else if problem.contains("Unauthorized") {
        "the operator's credentials are not accepted: check its kubeconfig or ServiceAccount token"
    } else {
        "grant it with `usher install`, or see deploy/rbac.yaml"
    }
}

/// An error with its causes: "client error (Connect)" alone does not say that the connection was refused.
pub(crate) fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
