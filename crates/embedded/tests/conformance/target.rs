//! The servers cases are played against: a real kube-apiserver, or the embedded one.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// One server of a kind. Cases marked `controllers: true` need one with kube-controller-manager (or what embedded has for
/// it) beside it, all others one without.
pub struct Target {
    client: Client,
    controllers: bool,
    history: History,
}

/// Who makes the server forget.
enum History {
    /// `xtask k8s compact` on the control plane in this folder.
    Xtask { program: PathBuf, folder: PathBuf },
    /// Nobody.
    Kept,
}

impl Target {
    /// A server that answers in process.
    #[cfg(test)]
    pub fn over(client: Client) -> Self {
        Self {
            client,
            controllers: false,
            history: History::Kept,
        }
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    pub fn has_controllers(&self) -> bool {
        self.controllers
    }

    /// An answer that takes longer is none. Generous with a real server: it may share two cores with a compiler. The
    /// embedded one answers at once; what takes time there is a watch of three seconds.
    pub fn patience(&self) -> Duration {
        match self.history {
            History::Xtask { .. } | History::Kept => Duration::from_secs(20),
        }
    }

    pub async fn compact(&self) -> Result<(), String> {
        match &self.history {
            History::Kept => {
                Err("this server cannot be told to compact: set USHER_XTASK and USHER_BARE_K8S_DIR".into())
            }
            History::Xtask { program, folder } => {
                let mut command = Command::new(program);
                command.args(["k8s", "compact", "--dir"]).arg(folder);
                let output = command
                    .output()
                    .map_err(|error| format!("{}: {error}", program.display()))?;
                match output.status.success() {
                    true => Ok(()),
                    false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
                }
            }
        }
    }

    pub async fn version(&self) -> String {
        self.client
            .apiserver_version()
            .await
            .map_or_else(|error| error.to_string(), |info| info.git_version)
    }
}

/// The embedded server in process. THE ONE PLACE to wire: until there is a `usher_embedded::Cluster` this is `None`, and
/// the cases are not played against it. Then: start one in memory (with the garbage collector and the namespace controller
/// if `controllers`, else with none), return its client, keep the cluster in a new variant of [`History`] (dropped with
/// the target), call its `compact_now` in [`Target::compact`], and let [`Target::patience`] be five seconds. Its clock is
/// the real one: ages in Tables are compared as ages.
pub async fn embedded(_controllers: bool) -> Option<Target> {
    None
}

/// The real servers that the environment names: what `cargo xtask test` and `cargo xtask conformance` start.
pub async fn real(controllers: bool) -> Option<Target> {
    let (kubeconfig, folder) = match controllers {
        true => ("USHER_TEST_KUBECONFIG", "USHER_K8S_DIR"),
        false => ("USHER_TEST_BARE_KUBECONFIG", "USHER_BARE_K8S_DIR"),
    };
    let path = std::env::var(kubeconfig).ok()?;
    let kubeconfig = Kubeconfig::read_from(&path).unwrap_or_else(|error| panic!("{kubeconfig}={path}: {error}"));
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    // A 429 or 504 is an answer like any other.
    config.default_retry = false;
    let history = match (std::env::var_os("USHER_XTASK"), std::env::var_os(folder)) {
        (Some(program), Some(folder)) => History::Xtask {
            program: program.into(),
            folder: folder.into(),
        },
        _ => History::Kept,
    };
    Some(Target {
        client: Client::try_from(config).unwrap(),
        controllers,
        history,
    })
}
