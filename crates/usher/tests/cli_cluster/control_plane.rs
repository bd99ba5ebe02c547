//! A control plane to talk to, and the programs that talk to it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::plane::{self, PLANE, Plane};
use crate::support::{self, Server};

/// Longest wait for anything that a healthy server does within a second or two.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a program said.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Answer {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Its output, if it did what it should.
    pub(crate) fn done(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        self.out
    }

    /// Its complaint, if it refused: one sentence, exit code 1.
    pub(crate) fn refused(self) -> String {
        assert_eq!(self.code, 1, "{}{}", self.out, self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        self.err
    }
}

/// Somebody with a kubeconfig.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) kubeconfig: PathBuf,
}

impl Caller {
    /// The administrator of the server that all tests share, with our CRDs on it.
    pub(crate) fn shared() -> Self {
        let caller = Self {
            kubeconfig: Server::shared().kubeconfig,
        };
        // The same for whoever does it first: nothing changes for the others.
        let crds = caller.usher(&["crds"]).done();
        caller.apply(&crds);
        caller
            .kubectl(&["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"])
            .done();
        caller
    }

    pub(crate) fn usher(&self, arguments: &[&str]) -> Answer {
        let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig);
        Answer::of(command.output().unwrap())
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Answer {
        let mut command = Command::new("kubectl");
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig);
        Answer::of(command.output().expect("kubectl must be in PATH"))
    }

    pub(crate) fn apply(&self, manifest: &str) {
        let mut kubectl = Command::new("kubectl")
            .args(["apply", "--server-side", "--force-conflicts", "-f", "-"])
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl must be in PATH");
        kubectl.stdin.take().unwrap().write_all(manifest.as_bytes()).unwrap();
        Answer::of(kubectl.wait_with_output().unwrap()).done();
    }

    /// One object, or `None`.
    pub(crate) fn get(&self, arguments: &[&str]) -> Option<Value> {
        let answer = self.kubectl(&[&["get", "-o", "json", "--ignore-not-found"], arguments].concat());
        let text = answer.done();
        (!text.is_empty()).then(|| serde_json::from_str(&text).unwrap())
    }

    /// A token of a ServiceAccount, and a caller that has it.
    pub(crate) fn service_account(&self, namespace: &str, name: &str, folder: &Path) -> (Self, String) {
        let token = self
            .kubectl(&["create", "token", name, "-n", namespace])
            .done()
            .trim()
            .to_owned();
        (self.with_token(name, namespace, &token, folder), token)
    }

    /// The same server, somebody else.
    pub(crate) fn with_token(&self, user: &str, namespace: &str, token: &str, folder: &Path) -> Self {
        let view: Value = serde_json::from_str(
            &self
                .kubectl(&["config", "view", "--raw", "--minify", "--flatten", "-o", "json"])
                .done(),
        )
        .unwrap();
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": view["clusters"][0]["cluster"]}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": user, "namespace": namespace}}],
        });
        let path = folder.join(format!("{user}.kubeconfig"));
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        Self { kubeconfig: path }
    }

    /// The server's audit log: what one user, or one client, asked for.
    pub(crate) fn audited(&self, who: &str) -> Vec<Value> {
        let log = self.kubeconfig.parent().unwrap().join("audit.log");
        let text = std::fs::read_to_string(&log).unwrap_or_else(|e| panic!("{}: {e}", log.display()));
        let entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let is = |entry: &Value| {
            entry["user"]["username"] == who || entry["userAgent"].as_str().is_some_and(|agent| agent.contains(who))
        };
        entries.filter(is).collect()
    }
}

/// A namespace that goes away with the test.
#[derive(Debug)]
pub(crate) struct Namespace {
    caller: Caller,
    pub(crate) name: String,
}

impl Namespace {
    pub(crate) fn new(caller: &Caller, purpose: &str) -> Self {
        let name = format!("cli-{purpose}-{}", std::process::id());
        caller.kubectl(&["create", "namespace", &name]).done();
        Self {
            caller: caller.clone(),
            name,
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Whatever of ours is in it must not keep it: no operator runs here.
        for kind in ["subnets", "subnetpools", "subnetclaims"] {
            self.caller
                .kubectl(&["delete", kind, "--all", "-n", &self.name, "--wait=false"]);
        }
        self.caller
            .kubectl(&["delete", "namespace", &self.name, "--wait=false"]);
    }
}

/// A control plane of the test's own; stopped and removed with it, also after a panic.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    /// For files of the test.
    pub(crate) folder: tempfile::TempDir,
    pub(crate) admin: Caller,
    _running: Running,
}

#[derive(Debug)]
enum Running {
    Real { _plane: support::ControlPlane },
    Embedded { _plane: plane::Embedded },
}

impl ControlPlane {
    pub(crate) fn up() -> Self {
        let (server, running) = match PLANE {
            Plane::Embedded => {
                let plane = plane::Embedded::start();
                (plane.server.clone(), Running::Embedded { _plane: plane })
            }
            Plane::Usual | Plane::Bare => {
                let plane = support::ControlPlane::start();
                (plane.server.clone(), Running::Real { _plane: plane })
            }
        };
        Self {
            folder: tempfile::tempdir().unwrap(),
            admin: Caller {
                kubeconfig: server.kubeconfig,
            },
            _running: running,
        }
    }
}

/// An operator process; killed with the test.
#[derive(Debug)]
pub(crate) struct Operator(Child);

impl Operator {
    /// With a short lease, so that its death is noticed within the test's time.
    pub(crate) fn start(caller: &Caller, more: &[&str]) -> Self {
        let log = std::fs::File::create(caller.kubeconfig.with_extension("operator.log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
        command
            .args([
                "operator",
                "--health-address=127.0.0.1:0",
                "--lease-seconds=3",
                "--lease-renew-ms=500",
            ])
            .args(["--lease-margin-ms=1000"])
            .args(more)
            .env("KUBECONFIG", &caller.kubeconfig)
            .stderr(log);
        Self(command.spawn().unwrap())
    }

    /// Without a farewell: its lease stays behind.
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a condition, and for nothing else.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {} s: {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(50));
    }
}
