//! `usher plan KIND/NAME`: what the operator would do next for one object, and why.
//!
//! The same code as in the operator reads and plans; nothing acts. Before that, the same is asked for in small, so that a
//! missing object, CRD or right is told at once and by name.

mod story;

use std::time::Duration;

use clap::Args as ClapArgs;
use kube::api::{DynamicObject, WatchParams};
use serde::Serialize;
use serde_json::Value;
use usher_engine::ObjectKey;
use usher_operator::pass::Preview;
use usher_operator::record::ApiType;
use usher_operator::run::{AnyKind, Operator, Settings};
use usher_subnets::kinds::Pools;

use crate::cluster::{Cluster, ClusterArgs, dns_label};
use crate::output::{self, Format};
use crate::{Failed, WrongUsage};

/// For all lists together, once the server has answered at all: 300,000 objects take a while.
const LISTS: Duration = Duration::from_secs(60);

/// Which object.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Kinds may be written as kubectl takes them: subnetpool, subnetpools, SubnetPool, subnetpool.plexaubnet.io.
Needs the rights to get, list and watch subnets, subnetpools, subnetclaims and subnetpoolclaims in the object's namespace.")]
pub(crate) struct Args {
    /// The object, as KIND/NAME or KIND NAME.
    #[arg(value_name = "KIND/NAME")]
    target: String,
    #[arg(hide = true)]
    name: Option<String>,
    /// Its namespace. Default: that of the kubeconfig's context.
    #[arg(long, short, value_name = "NAMESPACE", value_parser = dns_label)]
    namespace: Option<String>,
    /// Format.
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
}

impl Args {
    /// Kind and name, as written.
    fn target(&self) -> Result<(&str, &str), WrongUsage> {
        let pair = match (&self.name, self.target.split_once('/')) {
            (None, Some(pair)) => Some(pair),
            (Some(name), None) => Some((self.target.as_str(), name.as_str())),
            _ => None,
        };
        let pair = pair.filter(|(kind, name)| !kind.is_empty() && !name.is_empty() && !name.contains('/'));
        pair.ok_or_else(|| {
            let given: Vec<&str> = std::iter::once(&self.target)
                .chain(&self.name)
                .map(String::as_str)
                .collect();
            WrongUsage(format!(
                "{:?} names no object; write KIND/NAME, like subnetclaim/web, and the namespace with -n",
                given.join(" ")
            ))
        })
    }
}

/// What is shown: the object's own preview, and that of whoever must move first.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    preview: Preview,
    /// The object that decides about this one, where that is another: a claim is granted its range by its pool.
    #[serde(rename = "decidedBy", skip_serializing_if = "Option::is_none")]
    decided_by: Option<Preview>,
}

pub(crate) async fn run(cluster: &ClusterArgs, args: &Args) -> Result<(), Failed> {
    let kinds = usher_subnets::kinds(Pools::default());
    let (kind, name) = args.target()?;
    let kind = find_kind(&kinds, kind)?;
    let resource = kind.resource();
    let cluster = cluster.connect("plan").await?;
    let namespace = match &args.namespace {
        Some(namespace) => namespace.clone(),
        None => cluster.located.config.default_namespace.clone(),
    };
    let key = ObjectKey::new(&namespace, name)?;
    let object = read(&cluster, resource, &key).await?;
    may_watch(&cluster, &kinds, &namespace).await?;

    let settings = Settings {
        namespace: Some(namespace),
        ..Settings::default()
    };
    let mut wanted = vec![(kind.name(), key.clone())];
    wanted.extend(decider(resource, &key, &object));
    let operator = Operator::new(
        &cluster.located.config,
        usher_subnets::kinds(Pools::default()),
        settings,
    )?;
    let mut previews = operator.previews(&wanted, LISTS).await?.into_iter();
    let Some(preview) = previews.next().flatten() else {
        // It was there a moment ago: either it cannot be read, or it has just been deleted.
        kind.read(&object)?;
        return Err(absent(resource, &key).into());
    };
    let shown = Shown {
        preview,
        decided_by: previews.next().flatten(),
    };
    match args.output.data() {
        Some(format) => output::print(&output::render(format, &shown)?),
        None => output::print(&story::tell(&shown, object.data.get("status"), jiff::Timestamp::now())),
    }
}

/// The kind somebody means, by any of the names that kubectl takes.
fn find_kind<'k>(kinds: &'k [Box<dyn AnyKind>], written: &str) -> Result<&'k dyn AnyKind, WrongUsage> {
    let lower = written.to_lowercase();
    let is = |kind: &ApiType| {
        let short = lower.split_once('.').filter(|(_, rest)| rest.ends_with(kind.group));
        let bare = short.map_or(lower.as_str(), |(bare, _)| bare);
        bare == kind.kind.to_lowercase() || bare == kind.plural
    };
    let found = kinds.iter().find(|kind| is(&kind.resource()));
    found.map(AsRef::as_ref).ok_or_else(|| {
        let known: Vec<String> = kinds.iter().map(|kind| kind.name().to_lowercase()).collect();
        WrongUsage(format!(
            "Usher plans no kind {written:?}; it plans {}",
            known.join(", ")
        ))
    })
}

/// Who decides about an object, where it is not the object's own plan.
fn decider(resource: ApiType, key: &ObjectKey, object: &DynamicObject) -> Option<(&'static str, ObjectKey)> {
    let field = |pointer: &str| object.data.pointer(pointer).and_then(Value::as_str);
    let waits = field("/status/phase") != Some("Bound") && object.metadata.deletion_timestamp.is_none();
    let is_claim = resource.kind == usher_subnets::kinds::CLAIM;
    let pool = field("/spec/poolRef").filter(|_| is_claim && waits)?;
    Some((usher_subnets::kinds::POOL, key.sibling(pool)?))
}

async fn read(cluster: &Cluster, resource: ApiType, key: &ObjectKey) -> Result<DynamicObject, Failed> {
    let api = cluster.api(&resource.resource(), Some(key.namespace()));
    let doing = format!("read {} {key}", resource.kind);
    if let Some(object) = cluster.find(&doing, api.get(key.name())).await? {
        return Ok(object);
    }
    // Missing object or missing type: the list of types tells.
    let group = format!("{}/{}", resource.group, resource.version);
    let call = cluster.client.list_api_group_resources(&group);
    let served = cluster.find(&format!("read the types of {group}"), call).await?;
    let is_served = served.is_some_and(|list| list.resources.iter().any(|r| r.name == resource.plural));
    if is_served {
        return Err(absent(resource, key).into());
    }
    Err(format!(
        "{} has no {}.{}: the CRDs are not installed; `usher install` or `usher crds | kubectl apply --server-side -f -` \
         installs them",
        cluster.server(),
        resource.plural,
        resource.group
    )
    .into())
}

fn absent(resource: ApiType, key: &ObjectKey) -> String {
    format!(
        "{} {} does not exist in namespace {}; `kubectl get {} -n {}` lists what does, -n chooses another namespace",
        resource.kind,
        key.name(),
        key.namespace(),
        resource.plural,
        key.namespace()
    )
}

/// A plan needs all types; a right that is missing is told by the server at once, and by name.
async fn may_watch(cluster: &Cluster, kinds: &[Box<dyn AnyKind>], namespace: &str) -> Result<(), Failed> {
    for kind in kinds {
        let resource = kind.resource();
        let api = cluster.api(&resource.resource(), Some(namespace));
        let doing = format!("watch {} in namespace {namespace}", resource.plural);
        // The answer's head is enough; the stream is dropped.
        let params = WatchParams::default().timeout(1);
        drop(cluster.ask(&doing, api.watch(&params, "0")).await?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(target: &str, name: Option<&str>) -> Args {
        Args {
            target: target.to_owned(),
            name: name.map(str::to_owned),
            namespace: None,
            output: Format::Text,
        }
    }

    #[test]
    fn kinds_are_found_by_every_name_that_kubectl_takes() {
        let kinds = usher_subnets::kinds(Pools::default());
        for (written, kind) in [
            ("subnetpool", "SubnetPool"),
            ("SubnetPools", "SubnetPool"),
            ("subnetclaims.plexaubnet.io", "SubnetClaim"),
            ("subnet.v1alpha1.plexaubnet.io", "Subnet"),
            ("SUBNET", "Subnet"),
        ] {
            assert_eq!(find_kind(&kinds, written).unwrap().name(), kind, "{written}");
        }
        for unknown in ["pod", "subnetpool.example.com", "", "subnetpoolx"] {
            let problem = find_kind(&kinds, unknown).err().unwrap().to_string();
            assert!(problem.contains("subnetpool, subnet, subnetclaim"), "{problem}");
        }
    }

    #[test]
    fn an_object_is_named_with_a_slash_or_a_space() {
        assert_eq!(args("a/b", None).target().unwrap(), ("a", "b"));
        assert_eq!(args("a", Some("b")).target().unwrap(), ("a", "b"));
        for (target, name) in [
            ("a", None),
            ("a/", None),
            ("/b", None),
            ("a/b/c", None),
            ("a/b", Some("c")),
        ] {
            assert!(args(target, name).target().is_err(), "{target} {name:?}");
        }
    }
}
