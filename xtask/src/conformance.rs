//! `cargo xtask conformance`: holds the embedded server against the reference's recorded answers; with `--record`, asks
//! the reference anew. The cases, their language and the comparison are in `crates/embedded/tests/conformance`.

use std::path::Path;

use clap::Args;

use crate::error::{Error, Result};
use crate::k8s::{self, Folder, Guarded, Wanted};
use crate::{paths, process, setup};

#[derive(Debug, Args)]
pub(crate) struct Conformance {
    /// Write down what a real control plane answers, in place of what was recorded before.
    #[arg(long)]
    record: bool,
    /// Only cases whose `area/name` contains this.
    #[arg(value_name = "CASES")]
    filter: Option<String>,
}

impl Conformance {
    pub(crate) fn run(self, xtask: &Path) -> Result<()> {
        let mut command = process::cargo();
        command.args(["test", "--quiet", "-p", "usher-embedded", "--test", "conformance", "--"]);
        // What differs tells more than where the test noticed it.
        command.env("RUST_BACKTRACE", "0");
        if let Some(filter) = &self.filter {
            command.env("CONFORMANCE", filter);
        }
        if !self.record {
            return finish(process::run_group(command.arg("f3_"), |_| Ok(()))?);
        }
        // One with controllers, for garbage collection and the end of namespaces, and one without, where nobody but the
        // case itself writes. Both go away with this command, however it ends.
        let tools = setup::ensure(&[setup::Set::Kubernetes])?;
        let guarded = |name: &str| {
            let folder = Folder::locate(Some(paths::temporary_folder(name)?))?.create()?;
            Guarded::start(xtask, folder)
        };
        let usual = guarded("usher-conformance")?;
        let bare = guarded("usher-conformance-bare")?;
        command
            .arg("z3_")
            .env("CONFORMANCE_RECORD", "1")
            .env(
                "USHER_TEST_KUBECONFIG",
                k8s::up(usual.folder.clone(), &tools, Wanted::USUAL)?,
            )
            .env("USHER_K8S_DIR", usual.folder.path())
            .env(
                "USHER_TEST_BARE_KUBECONFIG",
                k8s::up(bare.folder.clone(), &tools, Wanted::BARE)?,
            )
            .env("USHER_BARE_K8S_DIR", bare.folder.path())
            .env("USHER_XTASK", xtask);
        finish(process::run_group(&mut command, |stage| bare.entrust(stage))?)
    }
}

fn finish(status: std::process::ExitStatus) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    // What went wrong is on the screen already.
    Err(Error::Program {
        program: "the conformance suite".into(),
        status: status.to_string(),
        output: String::new(),
    })
}
