//! Every failure as one sentence that says what to do.

use std::fmt::Display;
use std::io;
use std::path::Path;

pub(crate) type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot {what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{program} failed: {said}")]
    Program { program: String, said: String },
    #[error("the API server did not do as asked ({what}): {problem}")]
    Api { what: String, problem: String },
    #[error("etcd did not do as asked ({what}): {problem}")]
    Etcd { what: &'static str, problem: String },
    #[error("{what} did not happen within {seconds} s; see {log}")]
    Late { what: String, seconds: u64, log: String },
    #[error("{0}")]
    Wrong(String),
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    pub(crate) fn at(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        Self::io(format!("{what} {}", path.display()))
    }

    pub(crate) fn api(what: impl Display, problem: impl Display) -> Self {
        Self::Api {
            what: what.to_string(),
            problem: problem.to_string(),
        }
    }
}
