//! The servers cases are played against: a real kube-apiserver, or the embedded one.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::case::Needs;

/// One server of a kind, with what cases may need beside it: nothing, controllers and a scheduler, or a node as well.
pub struct Target {
    client: Client,
    needs: Needs,
    history: History,
}

/// Who makes the server forget.
enum History {
    /// `xtask k8s compact` on the control plane in this folder.
    Xtask { program: PathBuf, folder: PathBuf },
    /// The embedded cluster itself.
    Embedded(usher_embedded::Cluster),
    /// Nobody.
    Kept,
}

impl Target {
    /// A server that answers in process.
    #[cfg(test)]
    pub fn over(client: Client) -> Self {
        Self {
            client,
            needs: Needs::Nothing,
            history: History::Kept,
        }
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// What it is there for.
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// An answer that takes longer is none. Generous: a server may share two cores with a compiler and with other tests,
    /// and nothing that ends well waits for this.
    pub const PATIENCE: Duration = Duration::from_secs(60);

    pub async fn compact(&self) -> Result<(), String> {
        match &self.history {
            History::Embedded(cluster) => {
                cluster.compact_now();
                Ok(())
            }
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

/// What `busybox` is on the embedded cluster's node: the host's tools.
const IMAGES: &str = "images:\n- match: \"busybox:*\"\n  bin: [\"/usr/bin\", \"/bin\"]\n  cmd: [sh]\n";

/// The embedded server in process, a new one for each program.
pub fn embedded(needs: Needs) -> Target {
    // Always the same names and addresses: none of them is by chance one that a case asks for.
    let mut options = usher_embedded::Options {
        seed: Some(0),
        ..usher_embedded::Options::default()
    };
    if needs == Needs::Nothing {
        // The reference's API server cleans up after definitions by itself.
        options.controllers = usher_embedded::Controllers::none().with(usher_embedded::Controller::Definitions);
    }
    if needs == Needs::Node {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_usher-pod"));
        options.process = Some(usher_embedded::ProcessOptions::new(program));
        options.nodes = usher_embedded::NodeEntry::processes(1);
        for node in &mut options.nodes {
            // The real node is nowhere: its pods are told no zone and no region.
            node.labels.retain(|key, _| !key.starts_with("topology.kubernetes.io/"));
        }
    }
    let cluster = usher_embedded::Cluster::start(options).unwrap();
    if needs == Needs::Node {
        std::fs::write(cluster.folder().unwrap().join("images.yaml"), IMAGES).unwrap();
    }
    // A real server's first revisions are long forgotten, too.
    cluster.compact_now();
    Target {
        client: cluster.client(),
        needs,
        history: History::Embedded(cluster),
    }
}

/// The embedded server with one process node, `node-1`, whose image table has `busybox:*` for the host's tools.
///
/// Given back when pods may be put there: a real node has long been ready, too.
pub async fn node() -> Target {
    let target = embedded(Needs::Node);
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(target.client());
    let is_open = |node: Option<&k8s_openapi::api::core::v1::Node>| {
        let is_ready = node
            .and_then(|node| node.status.as_ref()?.conditions.as_ref())
            .is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"));
        let spec = node.and_then(|node| node.spec.as_ref());
        is_ready && spec.is_none_or(|spec| spec.taints.as_ref().is_none_or(Vec::is_empty))
    };
    let opened = kube::runtime::wait::await_condition(nodes, "node-1", is_open);
    tokio::time::timeout(Target::PATIENCE, opened).await.unwrap().unwrap();
    target
}

/// The real servers that the environment names: what `cargo xtask test` and `cargo xtask conformance` start.
pub async fn real(needs: Needs) -> Option<Target> {
    let (kubeconfig, folder) = match needs {
        Needs::Nothing => ("USHER_TEST_BARE_KUBECONFIG", "USHER_BARE_K8S_DIR"),
        Needs::Controllers | Needs::Scheduler => ("USHER_TEST_KUBECONFIG", "USHER_K8S_DIR"),
        Needs::Node => ("USHER_TEST_NODE_KUBECONFIG", "USHER_NODE_K8S_DIR"),
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
        needs,
        history,
    })
}
