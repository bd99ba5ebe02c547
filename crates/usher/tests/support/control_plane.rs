//! Which API server: the one of the test run, or one of our own that may be killed, stopped and compacted.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::plane::{self, PLANE, Plane};

/// An API server that runs.
#[derive(Debug, Clone)]
pub struct Server {
    pub kubeconfig: PathBuf,
    /// Its folder: `audit.log` and `state.json` are there.
    pub dir: PathBuf,
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!(
            "{name} is not set: this test needs a real API server. `cargo xtask test` starts what it needs and sets it; by \
             hand: `cargo xtask k8s up`, then USHER_TEST_KUBECONFIG=<kubeconfig> USHER_K8S_DIR=<its folder> \
             USHER_XTASK=target/debug/xtask; for `acceptance_bare` also `cargo xtask k8s up --no-controller-manager` \
             with another --dir, then USHER_TEST_BARE_KUBECONFIG and USHER_BARE_K8S_DIR"
        )
    })
}

impl Server {
    /// The one of this test run, shared by all tests; never disturbed. Which one that is depends on the test program.
    pub fn shared() -> Self {
        let (kubeconfig, dir) = match PLANE {
            Plane::Bare => ("USHER_TEST_BARE_KUBECONFIG", "USHER_BARE_K8S_DIR"),
            Plane::Usual => ("USHER_TEST_KUBECONFIG", "USHER_K8S_DIR"),
            Plane::Embedded => return plane::embedded().clone(),
        };
        Self {
            kubeconfig: variable(kubeconfig).into(),
            dir: variable(dir).into(),
        }
    }

    pub async fn config(&self) -> kube::Config {
        config(&self.kubeconfig).await
    }

    /// A client with connections of its own.
    pub async fn client(&self) -> Client {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Client::try_from(self.config().await).unwrap()
    }

    /// Applies what `usher crds` prints, and waits until the server serves it. Idempotent, also beside others.
    pub async fn apply_crds(&self, client: &Client) {
        let printed = Command::new(env!("CARGO_BIN_EXE_usher"))
            .args(["crds", "--output", "json"])
            .output()
            .unwrap();
        assert!(printed.status.success(), "usher crds: {printed:?}");
        let list: Value = serde_json::from_slice(&printed.stdout).unwrap();
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in list["items"].as_array().unwrap() {
            let name = crd["metadata"]["name"].as_str().unwrap();
            let params = PatchParams::apply("usher-tests").force();
            crds.patch(name, &params, &Patch::Apply(crd)).await.unwrap();
            super::world::eventually(&format!("CRD {name} is served"), async || {
                let served = crds.get(name).await.unwrap();
                let conditions = served.status.and_then(|status| status.conditions).unwrap_or_default();
                conditions
                    .iter()
                    .any(|c| c.type_ == "Established" && c.status == "True")
            })
            .await;
        }
        // Established, and still unknown to the path for a moment.
        let subnets: Api<usher_subnets::api::SubnetPoolClaim> = Api::namespaced(client.clone(), "default");
        super::world::eventually("the API answers", async || {
            subnets.list(&ListParams::default().limit(1)).await.is_ok()
        })
        .await;
    }
}

async fn config(path: &Path) -> kube::Config {
    let kubeconfig = kube::config::Kubeconfig::read_from(path)
        .unwrap_or_else(|e| panic!("kubeconfig {} cannot be read: {e}", path.display()));
    kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default())
        .await
        .unwrap()
}

/// A control plane of one test, taken down with it, also when the test panics or is killed.
#[derive(Debug)]
pub struct ControlPlane {
    pub server: Server,
    xtask: PathBuf,
    guard: Option<Child>,
    // After `drop` below: the folder is empty by then.
    _dir: tempfile::TempDir,
}

impl ControlPlane {
    pub fn start() -> Self {
        let xtask = PathBuf::from(variable("USHER_XTASK"));
        let dir = tempfile::Builder::new().prefix("usher-k8s-").tempdir().unwrap();
        // The folder must be made by xtask itself, which then knows it as its own.
        let folder = dir.path().join("plane");
        let mut plane = Self {
            server: Server {
                kubeconfig: folder.join("kubeconfig"),
                dir: folder.clone(),
            },
            xtask,
            guard: None,
            _dir: dir,
        };
        plane.command(&["up"]);
        plane.guard = Some(plane.guard());
        plane
    }

    /// `kill -9` of this test leaves no last word: a process of xtask's own takes the control plane down then.
    fn guard(&self) -> Child {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let start_ticks = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap();
        Command::new(&self.xtask)
            .args(["k8s", "guard", "--pid", &std::process::id().to_string()])
            .args(["--start-ticks", start_ticks, "--dir"])
            .arg(&self.server.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// `kill -9`, and dead until [`ControlPlane::revive`].
    pub fn kill(&self, component: &str) {
        self.command(&["kill", component]);
    }

    /// Its port may have been given to somebody else meanwhile, who may go again.
    pub fn revive(&self, component: &str) {
        let begun = Instant::now();
        loop {
            let output = self.run(&["start", component]).unwrap();
            if output.status.success() {
                return;
            }
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let taken = said.contains("address already in use") && begun.elapsed() < Duration::from_secs(60);
            assert!(taken, "xtask k8s start {component}: {said}");
        }
    }

    /// etcd forgets all history up to now.
    pub fn compact(&self) {
        self.command(&["compact"]);
    }

    /// SIGSTOP or SIGCONT: the server is there and does not answer.
    pub fn signal(&self, component: &str, signal: Signal) {
        let state: Value =
            serde_json::from_str(&std::fs::read_to_string(self.server.dir.join("state.json")).unwrap()).unwrap();
        let components = state["components"].as_array().unwrap();
        let found = components.iter().find(|c| c["component"] == component).unwrap();
        let pid = i32::try_from(found["process"]["pid"].as_i64().unwrap()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    fn command(&self, words: &[&str]) {
        let output = self.run(words).unwrap();
        assert!(
            output.status.success(),
            "xtask k8s {words:?}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn run(&self, words: &[&str]) -> std::io::Result<std::process::Output> {
        Command::new(&self.xtask)
            .arg("k8s")
            .args(words)
            .arg("--dir")
            .arg(&self.server.dir)
            .stdin(Stdio::null())
            .output()
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // A stopped server cannot be stopped gently.
        if self.server.dir.join("state.json").exists() {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                self.signal("kube-apiserver", Signal::SIGCONT)
            }));
        }
        match self.run(&["down"]) {
            Ok(output) if output.status.success() => {}
            other => eprintln!("the control plane in {} is left: {other:?}", self.server.dir.display()),
        }
        if let Some(guard) = &mut self.guard {
            let _ = guard.kill();
            let _ = guard.wait();
        }
    }
}
