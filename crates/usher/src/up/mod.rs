//! `usher up`: a small Kubernetes and the operator in one process, for one user on one machine.
//!
//! [`place`] says where its data is, [`nodes`] which nodes it has, [`examples`] what it shows. Order of starting: the store
//! (whose lock says that the folder is ours), the nodes, the listener, the CRDs, the operator. Stopping goes the other way:
//! the operator's passes finish, pods are stopped unless they are to be kept, then the API ends its watches and answers what
//! is under way, then everything is on disk. A second Ctrl-C ends the process at once, which loses nothing that was
//! acknowledged, and leaves pods running.

mod examples;
mod nodes;
mod place;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use usher_embedded::serve::kubeconfig::{Access, CONTEXT};
use usher_embedded::{AuditOptions, Cluster, ListenOptions, Options, Storage, store};
use usher_operator::run::{Operator, Settings};
use usher_subnets::kinds::Pools;

use crate::cluster::ClusterArgs;
use crate::install::apply::{Applier, wait_established};
use crate::install::objects;
use crate::kubeconfig::Located;
use crate::output::{self, Format, Progress};
use crate::{Failed, WrongUsage};
use nodes::NodeFlags;

/// Where it is kept, and where it listens.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
It is for one user on one machine: whoever has the token may do everything, and RBAC is stored but not enforced.
Ctrl-C stops the operator, then pods, then the API; a second Ctrl-C ends it at once and leaves pods running. All acknowledged
writes are on disk then.")]
pub(crate) struct Args {
    /// Folder for objects, token, keys and logs; made if it does not exist. Default: usher/default in the user's data folder
    /// ($XDG_DATA_HOME or ~/.local/share).
    #[arg(long, value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    data: Option<PathBuf>,
    /// Keeps nothing: all is gone when it stops.
    #[arg(long, conflicts_with = "durability")]
    memory: bool,
    /// Where the API answers. Port 0: any free port.
    #[arg(long, default_value = "127.0.0.1:6443", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Allows --listen on addresses that other machines can reach.
    #[arg(long)]
    listen_unsafe: bool,
    /// When a write counts as done: when it is on disk, or up to 100 ms before.
    #[arg(long, value_enum, default_value_t = Durability::Fsync)]
    durability: Durability,
    // The flag that all commands have, with another meaning here: it is written, not read.
    /// Adds context `usher` to this kubeconfig, and touches nothing else in it.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    kubeconfig: Option<PathBuf>,
    /// Applies an example of every kind that this machine can run, and shows what becomes of them until they are Ready.
    #[arg(long)]
    examples: bool,
    /// Ends when all examples are Ready, for scripts.
    #[arg(long, requires = "examples")]
    exit: bool,
    #[command(flatten)]
    nodes: NodeFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Durability {
    /// On disk.
    Fsync,
    /// On disk within 100 ms.
    Relaxed,
}

impl Args {
    fn storage(&self) -> Result<Storage, Failed> {
        if self.memory {
            return Ok(Storage::Memory);
        }
        let path = match &self.data {
            Some(path) => path.clone(),
            None => place::default_folder()?,
        };
        let durability = match self.durability {
            Durability::Fsync => store::Durability::Fsync,
            Durability::Relaxed => store::Durability::Relaxed,
        };
        Ok(Storage::Folder { path, durability })
    }

    /// What is true of the objects and pods when nobody waited for them.
    fn last_words(&self) -> &'static str {
        match (self.memory, self.durability) {
            (true, _) => "what was in memory is gone, and pods end with it",
            (false, Durability::Fsync) => "what was acknowledged is on disk, and pods that ran run on",
            (false, Durability::Relaxed) => {
                "what was acknowledged more than a moment ago is on disk, and pods that ran run on"
            }
        }
    }

    fn options(&self) -> Result<Options, Failed> {
        let storage = self.storage()?;
        let nodes = self.nodes.entries()?;
        let data = match &storage {
            Storage::Folder { path, .. } => Some(path.as_path()),
            Storage::Memory | Storage::Disk { .. } => None,
        };
        Ok(Options {
            process: self.nodes.process(&nodes, data)?,
            nodes,
            node_grace: jiff::SignedDuration::try_from(self.nodes.node_grace())?,
            storage,
            audit: Some(AuditOptions::default()),
            ..Options::default()
        })
    }
}

pub(crate) async fn run(cluster: &ClusterArgs, args: &Args) -> Result<(), Failed> {
    if cluster.context.is_some() {
        return Err(WrongUsage(format!(
            "--context is of no use here: the context is always called {CONTEXT}"
        ))
        .into());
    }
    if args.memory
        && let Some(folder) = &args.data
    {
        return Err(WrongUsage(format!(
            "--memory keeps nothing and --data {} keeps everything there: leave one of the two out",
            folder.display()
        ))
        .into());
    }
    crate::operator::start_logging(false, "warn");
    let in_memory = Arc::new(OnceLock::new());
    let stop = stop_on_signals(args.last_words(), in_memory.clone())?;
    let options = args.options()?;
    let has_pods = options.process.is_some();
    let cluster = Cluster::start(options)?;
    if args.memory {
        let _ = in_memory.set(cluster.folder()?.to_owned());
    }
    let outcome = serve(&cluster, args, has_pods, stop.subscribe()).await;
    // From here on one Ctrl-C is enough.
    stop.send_replace(true);
    if has_pods && !args.nodes.keep_pods {
        stop_pods(&cluster).await;
    }
    cluster.stop().await;
    outcome?;
    output::print(if has_pods && args.nodes.keep_pods && !args.memory {
        "Stopped; pods run on, and the next start finds them.\n"
    } else {
        "Stopped.\n"
    })
}

/// With their grace; they run again at the next start.
async fn stop_pods(cluster: &Cluster) {
    let tell = |left: &[String]| {
        if !left.is_empty() {
            // The terminal may be gone.
            let _ = output::print(&format!(
                "Waiting for pods to stop: {}. Ctrl-C leaves them running.\n",
                left.join(", ")
            ));
        }
    };
    cluster.stop_pods(tell).await;
}

/// Everything that needs the store open.
async fn serve(cluster: &Cluster, args: &Args, has_pods: bool, mut stop: watch::Receiver<bool>) -> Result<(), Failed> {
    if has_pods {
        args.nodes.provide_images(cluster.folder()?)?;
    }
    let listening = cluster
        .listen(ListenOptions {
            address: args.listen,
            is_unsafe_allowed: args.listen_unsafe,
        })
        .await?;
    let access = listening.access();
    if let Some(file) = &args.kubeconfig {
        access.add_to(file)?;
    }
    let kept = if args.memory {
        "in memory, gone when this ends".to_owned()
    } else {
        format!("kept in {}", cluster.folder()?.display())
    };
    output::print(&format!("The API is at {}; objects are {kept}.\n", access.url()))?;
    output::print("Single user, no authorization: whoever has the token in the kubeconfig may do everything.\n")?;
    if !listening.address().ip().is_loopback() {
        output::print("WARNING (--listen-unsafe): other machines can reach the API.\n")?;
    }
    let config = config(access).await?;
    let client = reading(&config)?;
    apply_crds(&client).await?;
    let settings = Settings {
        identity: "usher-up".to_owned(),
        ..Settings::default()
    };
    let operator = Operator::new(&config, usher_subnets::kinds(Pools::default()), settings)?;
    output::print(&format!("The operator runs: {}.\n", kinds()?.join(", ")))?;
    output::print(&told_of_pods(cluster).await)?;
    output::print(&way_in(listening.kubeconfig_file(), args.kubeconfig.as_deref()))?;
    let works = operator.run(stop.clone());
    let shows = async {
        if args.examples {
            output::print("Examples:\n")?;
            examples::show(&client, has_pods, cluster.pods_found()).await?;
        }
        if !args.exit {
            output::print("Ready. Ctrl-C stops.\n")?;
            // The operator ends with it.
            let _ = stop.wait_for(|stop| *stop).await;
        }
        Ok::<(), Failed>(())
    };
    tokio::pin!(works);
    tokio::select! {
        ended = &mut works => {
            ended?;
            if args.exit {
                return Err("stopped before all examples were Ready".into());
            }
            Ok(())
        }
        shown = shows => {
            // Its passes finish, if it was told to stop; else it is dropped where it is, which does no harm.
            if !args.exit && shown.is_ok() {
                works.await?;
            }
            shown
        }
    }
}

/// What runs pods, and how they are kept apart.
async fn told_of_pods(cluster: &Cluster) -> String {
    let nodes = cluster.nodes();
    let Some(first) = nodes.first() else {
        return "No node runs pods.\n".to_owned();
    };
    let names = match nodes.len() {
        1 => format!("Node {} runs", first.name()),
        count => format!("{count} nodes run"),
    };
    let why = cluster.isolation().await.unwrap_or_default();
    format!("{names} pods as processes of this machine; isolation {why}.\n")
}

/// What to type to get in.
fn way_in(own: &Path, added: Option<&Path>) -> String {
    match added {
        Some(file) => format!(
            "kubectl --kubeconfig {} --context {CONTEXT} get subnetpools\n",
            place::quoted(file)
        ),
        None => format!("export KUBECONFIG={}\n", place::quoted(own)),
    }
}

/// The operator asks as any client does.
async fn config(access: &Access) -> Result<kube::Config, Failed> {
    let kubeconfig = Kubeconfig::from_yaml(&access.kubeconfig())?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.connect_timeout = Some(Duration::from_secs(5));
    Ok(config)
}

/// A client for what is applied here.
fn reading(config: &kube::Config) -> Result<crate::cluster::Cluster, Failed> {
    Ok(crate::cluster::Cluster {
        client: usher_operator::client::reading(config, "up")?,
        located: Located {
            config: config.clone(),
            source: "usher up".to_owned(),
            user: CONTEXT.to_owned(),
        },
        // The server is this process, which may be starting a hundred pods.
        answer: Duration::from_secs(60),
    })
}

async fn apply_crds(cluster: &crate::cluster::Cluster) -> Result<(), Failed> {
    let applier = Applier {
        cluster,
        dry_run: false,
    };
    let progress = &mut Progress::new(Format::Text);
    let crds = objects::crds()?;
    for crd in &crds {
        applier.apply(crd, progress).await?;
    }
    wait_established(cluster, &crds, progress).await
}

/// What the operator looks after.
fn kinds() -> Result<Vec<String>, Failed> {
    let kind = |crd: &serde_json::Value| crd.pointer("/spec/names/kind")?.as_str().map(str::to_owned);
    Ok(crate::crds::values()?.iter().filter_map(kind).collect())
}

/// Turns true at the first SIGTERM, SIGHUP or Ctrl-C; a second one ends the process.
/// `in_memory`: a folder that must not outlive us, once there is one.
fn stop_on_signals(
    last_words: &'static str,
    in_memory: Arc<OnceLock<PathBuf>>,
) -> Result<Arc<watch::Sender<bool>>, Failed> {
    let stop = Arc::new(watch::Sender::new(false));
    let stopped = stop.clone();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            if stop.send_replace(true) {
                if let Some(folder) = in_memory.get() {
                    let _ = std::fs::remove_dir_all(folder);
                }
                eprintln!("usher: stopped at once; {last_words}");
                std::process::exit(130);
            }
            // The terminal may be gone.
            let _ =
                output::print("Stopping: the operator first, then pods, then the API. Ctrl-C again stops at once.\n");
        }
    });
    Ok(stopped)
}
