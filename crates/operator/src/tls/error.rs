//! What can keep the TLS port from opening, or its certificates from being kept.

use usher_engine::ErrorClass;

use super::issue::IssueError;
use super::names::NameError;
use crate::serve::ServeError;

/// Every message names the object and the fix; none can contain a key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The address cannot be listened on.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The server's names.
    #[error(transparent)]
    Names(#[from] NameError),
    /// Two reviewers at one path, or a path that is none.
    #[error("{problem}")]
    Routes {
        /// What is wrong, and the fix.
        problem: String,
    },
    /// Lifetimes that cannot work.
    #[error("the TLS port's certificates cannot be kept so: {problem}")]
    Lifetimes {
        /// Which, and how they must be.
        problem: String,
    },
    /// No certificate could be made.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// The object belongs to somebody else.
    #[error("{object} holds something that Usher did not put there: choose another name with --tls-name, or delete it")]
    Foreign {
        /// Which.
        object: String,
    },
    /// Others write it as fast as we do.
    #[error("{object} changes whenever Usher writes it: see in its managedFields who else does, and stop them")]
    Contested {
        /// Which.
        object: String,
    },
    /// An object that must be there is not.
    #[error("{verb} {object}: it is not there; create it (and its namespace) with `usher install`")]
    Absent {
        /// What was tried.
        verb: &'static str,
        /// On what.
        object: String,
    },
    /// We lack the right.
    #[error("{verb} {object}: forbidden ({problem}); grant it with `usher install`, or see deploy/rbac.yaml")]
    Forbidden {
        /// What was tried.
        verb: &'static str,
        /// On what.
        object: String,
        /// The server's words.
        problem: String,
    },
    /// The API server did not do it, this time.
    #[error("{verb} {object}: {problem}; trying again")]
    Api {
        /// What was tried.
        verb: &'static str,
        /// On what.
        object: String,
        /// What happened.
        problem: String,
    },
    /// The TLS library refuses its configuration.
    #[error("the TLS port cannot be set up ({problem}); this is a bug in Usher, please report it")]
    Setup {
        /// The library's words.
        problem: String,
    },
}

impl TlsError {
    /// What it means for what happens next.
    pub fn class(&self) -> ErrorClass {
        match self {
            TlsError::Serve(error) => error.class(),
            // Granted, installed or calmed by a person without us being told: tried again, at the slowest pace.
            TlsError::Contested { .. }
            | TlsError::Absent { .. }
            | TlsError::Forbidden { .. }
            | TlsError::Foreign { .. }
            | TlsError::Api { .. } => ErrorClass::Transient,
            TlsError::Names(_) | TlsError::Routes { .. } | TlsError::Lifetimes { .. } => ErrorClass::Validation,
            TlsError::Issue(_) | TlsError::Setup { .. } => ErrorClass::Permanent,
        }
    }

    /// Whether it stays so until a person does something. What is only late comes by itself.
    pub(super) fn needs_a_person(&self) -> bool {
        matches!(
            self,
            TlsError::Absent { .. }
                | TlsError::Forbidden { .. }
                | TlsError::Foreign { .. }
                | TlsError::Contested { .. }
        )
    }

    pub(super) fn from_client(verb: &'static str, object: String, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 404 => TlsError::Absent { verb, object },
            kube::Error::Api(status) if matches!(status.code, 401 | 403) => TlsError::Forbidden {
                verb,
                object,
                problem: status.message.clone(),
            },
            kube::Error::Api(status) => TlsError::Api {
                verb,
                object,
                problem: status.message.clone(),
            },
            other => TlsError::Api {
                verb,
                object,
                problem: other.to_string(),
            },
        }
    }
}
