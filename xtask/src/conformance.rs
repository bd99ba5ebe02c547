//! `cargo xtask conformance`: holds the embedded server against the reference's recorded answers; with `--record`, asks
//! the reference anew. The cases, their language and the comparison are in `crates/embedded/tests/conformance`.

use std::path::Path;
use std::process::Command;

use clap::Args;

use crate::error::{Error, Result};
use crate::k8s::{self, Folder, Guarded, Wanted};
use crate::{paths, process, progress};

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
        Self::record(xtask, command.arg("z3_").env("CONFORMANCE_RECORD", "1"))
    }

    /// Asks control planes that go away with this command, however it ends: one with controllers and a scheduler, one
    /// without, where nobody but the case itself writes, and, as root, one with a node. That one is in namespaces of its
    /// own, so its cases are played there.
    fn record(xtask: &Path, command: &mut Command) -> Result<()> {
        let guarded = |name: &str| {
            let folder = Folder::locate(Some(paths::temporary_folder(name)?))?.create()?;
            Guarded::start(xtask, folder)
        };
        let tools = k8s::tools(Wanted::USUAL)?;
        let usual = guarded("usher-conformance")?;
        let bare = guarded("usher-conformance-bare")?;
        command
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
        finish(process::run_group(command, |stage| bare.entrust(stage))?)?;
        if !nix::unistd::geteuid().is_root() {
            progress::note("cases whose pods run were not recorded: that takes root");
            return Ok(());
        }
        let node = guarded("usher-conformance-node")?;
        let tools = k8s::tools(Wanted::WITH_NODE)?;
        let kubeconfig = k8s::up(node.folder.clone(), &tools, Wanted::WITH_NODE)?;
        let mut inside = k8s::inside(&node.folder, command.get_program(), &paths::repository())?;
        inside
            .args(command.get_args())
            .env("USHER_TEST_NODE_KUBECONFIG", kubeconfig);
        for (name, value) in command.get_envs() {
            match value {
                // The other planes cannot be reached from there.
                Some(_) if name.as_encoded_bytes().starts_with(b"USHER_") => {}
                Some(value) => drop(inside.env(name, value)),
                None => drop(inside.env_remove(name)),
            }
        }
        finish(process::run_group(&mut inside, |stage| node.entrust(stage))?)
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
