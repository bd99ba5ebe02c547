//! `cargo xtask bench`: builds for release what is measured and what measures, and runs that. Never part of the tests: a
//! busy machine must not fail them.

use std::ffi::OsString;

use clap::Args;

use crate::error::{Error, Result};
use crate::setup;
use crate::{paths, process};

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// For `usher-benches`: `subnets`, `embedded`, `view` or `map`, and their flags. `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Bench {
    pub(crate) fn run(self) -> Result<()> {
        setup::ensure(&setup::Set::TESTS)?;
        let crates = ["-p", "usher", "-p", "xtask", "-p", "usher-benches"];
        let mut build = process::cargo();
        build.args(["build", "--release"]).args(crates);
        let mut benches = process::cargo();
        benches
            .args(["run", "--quiet", "--release", "-p", "usher-benches", "--"])
            .args(&self.arguments)
            .current_dir(paths::repository());
        for (name, mut command) in [("cargo build", build), ("usher-benches", benches)] {
            let status = process::run_group(&mut command, |_| Ok(()))?;
            if !status.success() {
                return Err(Error::Program {
                    program: name.into(),
                    status: status.to_string(),
                    output: String::new(),
                });
            }
        }
        Ok(())
    }
}
