//! `usher install`: brings a cluster to what this binary needs, and says what that changed.
//!
//! [`objects`] and [`rbac`] build what is to be there (pure), [`apply`] puts it there, [`inventory`] finds what an
//! installation has made; `uninstall` uses that, too. Killed at any point, the same command carries on: every object
//! is applied by itself, and one that is already right is not written again.

pub(crate) mod apply;
pub(crate) mod inventory;
pub(crate) mod objects;
pub(crate) mod rbac;

use clap::Args as ClapArgs;
use serde_json::Value;

use crate::Failed;
use crate::cluster::{ClusterArgs, dns_label};
use crate::output::{self, Data, Format, Progress};
use inventory::Inventory;
use objects::{Installation, Object};

/// Where the operator goes unless told otherwise.
pub(crate) const NAMESPACE: &str = "usher-system";
/// The image that goes with this binary.
const IMAGE: &str = concat!("ghcr.io/usher-dev/usher:", env!("CARGO_PKG_VERSION"));

/// What to install, and where.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Objects are applied on the server's side as field manager usher-install, which takes over fields that others have set.
Run it again to update: what is already right is not written. What an earlier run made and this one does not need
(the ClusterRole, after a change to --namespace-scoped) is deleted.")]
pub(crate) struct Args {
    /// Namespace of the operator; made if it does not exist. Default: usher-system, or that of --namespace-scoped.
    #[arg(long, short, value_name = "NAMESPACE", value_parser = dns_label)]
    namespace: Option<String>,
    /// Look after this namespace only: a Role there instead of a ClusterRole. The CRDs are still for the whole cluster.
    #[arg(long, value_name = "NAMESPACE", value_parser = dns_label)]
    namespace_scoped: Option<String>,
    /// The operator's image.
    #[arg(long, default_value = IMAGE)]
    image: String,
    /// How many operators. One acts; the others take over within seconds when it is lost.
    #[arg(long, default_value_t = 2, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=9))]
    replicas: u8,
    /// Leave out the CRDs: somebody with more rights has installed them.
    #[arg(long)]
    skip_crds: bool,
    /// Only say what would be created, updated or deleted.
    #[arg(long)]
    dry_run: bool,
    /// Only print the objects, for kubectl or a repository. Asks no cluster.
    #[arg(long, short, value_enum)]
    output: Option<Data>,
}

impl Args {
    fn installation(&self) -> Installation {
        let scope = self.namespace_scoped.clone();
        Installation {
            namespace: self
                .namespace
                .clone()
                .or_else(|| scope.clone())
                .unwrap_or_else(|| NAMESPACE.to_owned()),
            scope,
            image: self.image.clone(),
            replicas: self.replicas,
        }
    }
}

impl Default for Installation {
    /// What `usher install` without flags installs.
    fn default() -> Self {
        Self {
            namespace: NAMESPACE.to_owned(),
            scope: None,
            image: IMAGE.to_owned(),
            replicas: 2,
        }
    }
}

/// Everything that an installation consists of, in the order in which it is applied, as it is sent.
pub(crate) fn manifests(installation: &Installation, with_crds: bool) -> Result<Vec<Value>, Failed> {
    let crds = if with_crds { objects::crds()? } else { Vec::new() };
    crds.into_iter()
        .chain(installation.objects()?)
        .map(|object| Ok(object.marked()?.1))
        .collect()
}

pub(crate) async fn run(cluster: &ClusterArgs, args: &Args) -> Result<(), Failed> {
    let installation = args.installation();
    if let Some(format) = args.output {
        let manifests = manifests(&installation, !args.skip_crds)?;
        return output::print(&output::render_objects(format, &manifests)?);
    }
    let cluster = cluster.connect("install").await?;
    let progress = &mut Progress::new(Format::Text);
    let applier = apply::Applier {
        cluster: &cluster,
        dry_run: args.dry_run,
    };
    let before = Inventory::take(&cluster, &installation.namespace).await?;
    inventory::refuse_second_installation(&cluster, &installation).await?;

    if !args.skip_crds {
        let crds = objects::crds()?;
        for crd in &crds {
            applier.apply(crd, progress).await?;
        }
        if !args.dry_run {
            apply::wait_established(&cluster, &crds, progress).await?;
        }
    }
    let wanted = installation.objects()?;
    for object in &wanted {
        if object.is_namespace() {
            applier.provide_namespace(object, progress).await?;
        } else {
            applier.apply(object, progress).await?;
        }
    }
    for surplus in before.objects.iter().filter(|old| !is_wanted(old, &wanted)) {
        applier.delete(surplus, progress).await?;
    }
    if args.dry_run {
        return progress.say("Nothing was written (--dry-run).");
    }
    let namespace = &installation.namespace;
    progress.say(&format!(
        "Usher is installed in namespace {namespace}. Watch it start: kubectl -n {namespace} rollout status deployment/{}",
        objects::OPERATOR
    ))
}

fn is_wanted(old: &Object, wanted: &[Object]) -> bool {
    // The namespace outlives a change of installation; only uninstall removes it.
    old.is_namespace() || wanted.iter().any(|object| object.same_as(old))
}
