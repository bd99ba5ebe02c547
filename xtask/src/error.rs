//! Everything that can go wrong in a developer command, each as one sentence that says what to do next.

use std::path::{Path, PathBuf};

pub(crate) type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot {action}: {source}")]
    Io { action: String, source: std::io::Error },

    #[error("{program} failed ({status}){}", indented(output))]
    Program {
        program: String,
        status: String,
        output: String,
    },

    /// A precondition on this machine; the sentence names what to install or change.
    #[error("{0}")]
    Machine(String),

    #[error("{component} {what}\n  log: {}{}{}", log.display(), indented(tail), causes_list(causes))]
    Component {
        component: String,
        what: String,
        log: PathBuf,
        tail: String,
        causes: Vec<String>,
    },

    #[error("no control plane in {}; start one with `cargo xtask k8s up`", .0.display())]
    NotRunning(PathBuf),

    #[error("not healthy: {0}")]
    Unhealthy(String),

    #[error("generated files have drifted:{}\nrun `cargo xtask generate` and commit the result", indented(&.0.join("\n")))]
    Drift(Vec<String>),

    #[error("stage `{stage}` failed: {source}")]
    Stage { stage: &'static str, source: Box<Error> },

    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// For `map_err`: keeps the operating system's reason and adds what was being done.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }

    pub(crate) fn at(verb: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        Self::io(format!("{verb} {}", path.display()))
    }

    pub(crate) fn is_interrupt(&self) -> bool {
        match self {
            Self::Interrupted => true,
            Self::Stage { source, .. } => source.is_interrupt(),
            _ => false,
        }
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("\n    {line}")).collect()
}

fn causes_list(causes: &[String]) -> String {
    causes
        .iter()
        .map(|cause| format!("\n  likely cause: {cause}"))
        .collect()
}
