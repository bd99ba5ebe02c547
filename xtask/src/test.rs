//! `cargo xtask test`: everything that must hold, in the order in which a failure is cheapest to find. CI runs the same.
//!
//! Two control planes serve the whole run, each in a temporary folder: a usual one, and a bare one without
//! kube-controller-manager. They are stopped at the end, after a failure, after Ctrl-C, and by their guards if this
//! process is killed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use crate::error::{Error, Result};
use crate::failures::Failures;
use crate::k8s::{self, Folder, Guarded, Wanted};
use crate::progress::{self, seconds};
use crate::{generate, paths, process, setup};

#[derive(Debug, Args)]
pub(crate) struct Test {
    /// Run only tests whose name contains this.
    #[arg(long, value_name = "NAME")]
    filter: Option<String>,
    /// For the test programs, such as `--nocapture`.
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl Test {
    pub(crate) fn run(self, xtask: &Path) -> Result<()> {
        let guarded = |name: &str| {
            let folder = Folder::locate(Some(paths::temporary_folder(name)?))?.create()?;
            Guarded::start(xtask, folder)
        };
        let mut run = Run {
            guarded: guarded("usher-test")?,
            bare: guarded("usher-bare")?,
            done: Vec::new(),
            started: Instant::now(),
        };
        let mut failures = Failures::default();
        let result = self.stages(&mut run, xtask, &mut failures);
        if result.is_err() {
            run.keep_logs(xtask);
        }
        for failure in failures.told() {
            progress::note(&format!("\n{failure}"));
        }
        run.summary(&result);
        result
    }

    fn stages(&self, run: &mut Run, xtask: &Path, failures: &mut Failures) -> Result<()> {
        // Every cargo command takes the whole workspace and the same profile, so that nothing is compiled twice.
        run.cargo("format", &["fmt", "--all", "--check"])?;
        let tools = run.stage("tools", |_| setup::ensure(&setup::Set::TESTS))?;
        run.cargo(
            "clippy",
            &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"],
        )?;
        run.cargo("build", &["build", "--workspace", "--all-targets"])?;
        run.stage("generated files", |_| {
            generate::with_built(xtask, generate::Mode::Check)
        })?;
        let kubeconfig = run.stage("control plane", |run| {
            k8s::up(run.guarded.folder.clone(), &tools, Wanted::USUAL)
        })?;
        let bare = run.stage("bare plane", |run| {
            k8s::up(run.bare.folder.clone(), &tools, Wanted::BARE)
        })?;
        run.stage("tests", |run| {
            let mut command = process::cargo();
            command
                .args(["test", "--workspace", "--no-fail-fast"])
                .args(&self.filter)
                .arg("--")
                .args(&self.arguments)
                .env("USHER_TEST_KUBECONFIG", &kubeconfig)
                .env("USHER_K8S_DIR", run.guarded.folder.path())
                .env("USHER_TEST_BARE_KUBECONFIG", &bare)
                .env("USHER_BARE_K8S_DIR", run.bare.folder.path())
                .env("USHER_XTASK", xtask)
                .env("USHER_TOOLS", &tools.bin)
                .stdout(Stdio::piped());
            // Ten screens of frames hide the words that say what is wrong; whoever wants them asks for them.
            if std::env::var_os("RUST_BACKTRACE").is_none_or(|asked| asked != "full") {
                command.env("RUST_BACKTRACE", "0");
            }
            // kubectl for those who have none of their own.
            if let Some(path) = std::env::var_os("PATH") {
                let folders = std::env::split_paths(&path).chain([tools.bin.clone()]);
                command.envs(std::env::join_paths(folders).map(|path| ("PATH", path)));
            }
            run.heard(&mut command, |line| {
                progress::say(line);
                failures.hear(line);
            })
        })
    }
}

#[derive(Debug)]
struct Run {
    /// Its guard also ends the stage that runs, if we are killed.
    guarded: Guarded,
    /// Without kube-controller-manager.
    bare: Guarded,
    done: Vec<(&'static str, Duration)>,
    started: Instant,
}

impl Run {
    fn stage<T>(&mut self, stage: &'static str, work: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        progress::note(&format!("\n==> {stage}"));
        let started = Instant::now();
        let result = work(self).map_err(|source| Error::Stage {
            stage,
            source: Box::new(source),
        });
        self.done.push((stage, started.elapsed()));
        result
    }

    fn cargo(&mut self, stage: &'static str, arguments: &[&str]) -> Result<()> {
        self.stage(stage, |run| run.heard(process::cargo().args(arguments), |_| ()))
    }

    /// `hear` is given the lines of its stdout, if that is piped.
    fn heard(&self, command: &mut Command, hear: impl FnMut(&str)) -> Result<()> {
        let status = process::run_heard(command, |stage| self.guarded.entrust(stage), hear)?;
        if status.success() {
            return Ok(());
        }
        let words: Vec<_> = command
            .get_args()
            .take_while(|word| *word != "--")
            .map(|word| word.to_string_lossy())
            .collect();
        let program = format!("cargo {}", words.join(" "));
        // What went wrong is on the screen already.
        Err(Error::Program {
            program,
            status: status.to_string(),
            output: String::new(),
        })
    }

    /// The servers' side of a failure, since their folder goes away.
    fn keep_logs(&self, xtask: &Path) {
        let Some(target) = xtask.parent().and_then(Path::parent) else {
            return;
        };
        for (plane, name) in [(&self.guarded, "k8s-logs"), (&self.bare, "k8s-logs-bare")] {
            let kept = target.join(name);
            if copy_logs(plane.folder.path(), &kept).is_ok_and(|count| count > 0) {
                progress::note(&format!("the control plane's logs are in {}", kept.display()));
            }
        }
    }

    fn summary(&self, result: &Result<()>) {
        progress::note("");
        for (index, (stage, time)) in self.done.iter().enumerate() {
            let last = index + 1 == self.done.len();
            let word = match result {
                Err(error) if last && error.is_interrupt() => "interrupted",
                Err(_) if last => "FAILED",
                _ => "ok",
            };
            progress::note(&format!("{stage:<16} {:>8}  {word}", seconds(*time)));
        }
        progress::note(&format!("{:<16} {:>8}", "total", seconds(self.started.elapsed())));
    }
}

fn copy_logs(from: &Path, to: &Path) -> Result<usize> {
    let logs: Vec<PathBuf> = from
        .read_dir()
        .map_err(Error::at("read", from))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    if !logs.is_empty() {
        // Not those of an earlier failure beside them.
        paths::remove(to)?;
        paths::create_private_folder(to)?;
    }
    for log in &logs {
        if let Some(name) = log.file_name() {
            std::fs::copy(log, to.join(name)).map_err(Error::at("copy", log))?;
        }
    }
    Ok(logs.len())
}
