//! The test programs of the workspace, side by side where they do not share a control plane.
//!
//! `cargo test` runs one program after the other, and most of the long ones wait: for leases, for grace periods, for
//! watches. Here those that need a control plane are one lane, and those that need none another; documentation tests come
//! last. Two planes under load at once are too much for two cores: etcd gives up. What a program says is shown whole when it
//! ends.
//!
//! Run by `cargo xtask test` as a process of its own (`xtask programs`), so that its children are one process group, which
//! is ended as a whole.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::Args;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::process;
use crate::progress::seconds;

#[derive(Debug, Args)]
pub(crate) struct Programs {
    /// For the test programs.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// What a test program needs for itself while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Needs {
    Nothing,
    /// The usual control plane.
    Usual,
    /// The one without kube-controller-manager.
    Bare,
    Both,
}

/// Package and test program. One that is not named here is not told where the control planes are.
const NEEDS: [(&str, &str, Needs); 14] = [
    ("usher", "acceptance", Needs::Usual),
    ("usher", "acceptance_bare", Needs::Bare),
    ("usher", "cli_cluster", Needs::Usual),
    ("usher", "docs", Needs::Usual),
    ("usher", "faults", Needs::Usual),
    ("usher", "monitoring", Needs::Usual),
    ("usher", "trigger", Needs::Usual),
    ("usher-operator", "events", Needs::Usual),
    ("usher-operator", "faults", Needs::Usual),
    ("usher-operator", "kind", Needs::Usual),
    ("usher-operator", "lease", Needs::Usual),
    ("usher-operator", "webhook", Needs::Usual),
    ("usher-embedded", "conformance", Needs::Both),
    ("usher-embedded", "kubectl", Needs::Both),
];

/// By which programs find the planes.
const USUAL: [&str; 2] = ["USHER_TEST_KUBECONFIG", "USHER_K8S_DIR"];
const BARE: [&str; 2] = ["USHER_TEST_BARE_KUBECONFIG", "USHER_BARE_K8S_DIR"];

impl Needs {
    /// What a program must not know.
    fn hidden(self) -> &'static [&'static [&'static str]] {
        match self {
            Needs::Nothing => &[&USUAL, &BARE],
            Needs::Usual => &[&BARE],
            Needs::Bare => &[&USUAL],
            Needs::Both => &[],
        }
    }
}

/// One program that cargo built.
#[derive(Debug, Clone)]
struct Program {
    package: String,
    name: String,
    file: PathBuf,
    /// Where cargo would run it.
    folder: PathBuf,
}

impl Program {
    fn needs(&self) -> Needs {
        NEEDS
            .iter()
            .find(|(package, name, _)| *package == self.package && *name == self.name)
            .map_or(Needs::Nothing, |(_, _, needs)| *needs)
    }

    fn run(&self, arguments: &[String], out: &Mutex<()>) -> Result<bool> {
        let started = Instant::now();
        say(out, format!("     Started {} {}\n", self.package, self.name).as_bytes());
        let mut command = Command::new(&self.file);
        for variable in self.needs().hidden().iter().copied().flatten() {
            command.env_remove(variable);
        }
        let output = command
            .args(arguments)
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .stdin(Stdio::null())
            .output()
            .map_err(Error::at("start", &self.file))?;
        let verdict = if output.status.success() { "ok" } else { "FAILED" };
        let mut told = format!("     Running {} {}\n", self.package, self.name).into_bytes();
        told.extend(output.stdout);
        told.extend(output.stderr);
        let took = seconds(started.elapsed());
        told.extend(
            format!(
                "     Ended {} {}: {verdict} ({}) after {took}\n",
                self.package, self.name, output.status
            )
            .bytes(),
        );
        say(out, &told);
        Ok(output.status.success())
    }
}

/// Whole texts, one at a time.
fn say(out: &Mutex<()>, text: &[u8]) {
    let _turn = out.lock().unwrap_or_else(PoisonError::into_inner);
    let mut stdout = std::io::stdout().lock();
    // Whoever listens may be gone.
    let _ = stdout.write_all(text).and_then(|()| stdout.flush());
}

impl Programs {
    pub(crate) fn run(&self) -> Result<()> {
        let (free, mut bound): (Vec<Program>, Vec<Program>) = built()?
            .into_iter()
            .partition(|program| program.needs() == Needs::Nothing);
        bound.sort_by_key(Program::needs);
        let out = Mutex::new(());
        let lane = |programs: &[Program]| -> Result<Vec<String>> {
            let mut failed = Vec::new();
            for program in programs {
                if !program.run(&self.arguments, &out)? {
                    failed.push(format!("{} {}", program.package, program.name));
                }
            }
            Ok(failed)
        };
        let mut failed = Vec::new();
        std::thread::scope(|scope| {
            let running = [&bound, &free].map(|programs| scope.spawn(|| lane(programs)));
            for lane in running {
                failed.extend(
                    lane.join()
                        .unwrap_or_else(|_| Err(Error::Machine("a lane of test programs panicked".to_owned())))?,
                );
            }
            Ok(())
        })?;
        let mut docs = process::cargo();
        let docs = docs.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
        if !docs.status().map_err(Error::io("start cargo"))?.success() {
            failed.push("documentation".to_owned());
        }
        if failed.is_empty() {
            return Ok(());
        }
        Err(Error::Program {
            program: "these test programs".to_owned(),
            status: failed.join(", "),
            output: String::new(),
        })
    }
}

/// Every test program of the workspace, in cargo's order.
fn built() -> Result<Vec<Program>> {
    let mut cargo = process::cargo();
    cargo.args([
        "test",
        "--workspace",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    let output = cargo
        .stderr(Stdio::inherit())
        .output()
        .map_err(Error::io("start cargo"))?;
    if !output.status.success() {
        return Err(Error::Program {
            program: "cargo test --no-run".to_owned(),
            status: output.status.to_string(),
            output: String::new(),
        });
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let programs: Vec<Program> = said
        .lines()
        .filter_map(|line| program(&serde_json::from_str(line).ok()?))
        .collect();
    if programs.is_empty() {
        return Err(Error::Machine(
            "cargo built no test programs; run `cargo test --workspace --no-run` to see why".to_owned(),
        ));
    }
    Ok(programs)
}

/// The test program that a line of cargo's speaks of, if it does.
fn program(message: &Value) -> Option<Program> {
    let text = |path: &str| message.pointer(path).and_then(Value::as_str);
    if message.pointer("/profile/test") != Some(&Value::Bool(true)) {
        return None;
    }
    let manifest = PathBuf::from(text("/manifest_path")?);
    let folder = manifest.parent()?.to_owned();
    Some(Program {
        package: package(text("/package_id")?, &folder)?,
        name: text("/target/name")?.to_owned(),
        file: PathBuf::from(text("/executable")?),
        folder,
    })
}

/// `path+file:///a/b#name@1.0`, or `path+file:///a/name#1.0` where the folder has the name.
fn package(id: &str, folder: &std::path::Path) -> Option<String> {
    match id.rsplit_once('#')?.1.split_once('@') {
        Some((name, _)) => Some(name.to_owned()),
        None => Some(folder.file_name()?.to_str()?.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(package: &str, name: &str) -> Value {
        json!({"reason": "compiler-artifact", "package_id": package, "manifest_path": "/w/crates/usher/Cargo.toml",
            "target": {"name": name}, "profile": {"test": true}, "executable": "/t/x-1"})
    }

    #[test]
    fn a_program_is_known_by_its_package_and_name() {
        let known = program(&message("path+file:///w/crates/usher#0.1.0", "acceptance_bare")).unwrap();
        assert_eq!((known.package.as_str(), known.needs()), ("usher", Needs::Bare));
        let other = program(&message(
            "path+file:///w/crates/embedded#usher-embedded@0.1.0",
            "conformance",
        ))
        .unwrap();
        assert_eq!((other.package.as_str(), other.needs()), ("usher-embedded", Needs::Both));
        let unit = program(&message("path+file:///w/crates/usher#0.1.0", "usher")).unwrap();
        assert_eq!(unit.needs(), Needs::Nothing);
    }

    #[test]
    fn what_is_no_test_program_is_passed_over() {
        let mut library = message("path+file:///w/crates/usher#0.1.0", "usher");
        library["profile"]["test"] = false.into();
        assert!(program(&library).is_none());
        assert!(program(&json!({"reason": "build-finished", "success": true})).is_none());
    }
}
