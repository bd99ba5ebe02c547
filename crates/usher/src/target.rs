//! The object that `usher plan` and `usher explain` speak of: how it is named, and how it is found.
//!
//! Before everything is listed, the same is asked for in small, so that a missing object, CRD or right is told at once and
//! by name.

use std::time::Duration;

use clap::Args as ClapArgs;
use kube::api::{DynamicObject, WatchParams};
use usher_engine::ObjectKey;
use usher_operator::record::ApiType;
use usher_operator::run::{AnyKind, Operator, Settings};
use usher_subnets::kinds::Pools;

use crate::cluster::{Cluster, ClusterArgs, dns_label};
use crate::output::Format;
use crate::{Failed, WrongUsage};

/// For all lists together, once the server has answered at all: 300,000 objects take a while.
pub(crate) const LISTS: Duration = Duration::from_secs(60);

/// Part of `--help`.
const NAMES: &str = "\
Kinds may be written as kubectl takes them: subnetpool, subnetpools, SubnetPool, subnetpool.plexaubnet.io; or in short: \
pool, claim, subnetpc.
Needs the rights to get, list and watch subnets, subnetpools, subnetclaims and subnetpoolclaims in the object's namespace.";

/// Short names, beside those that kubectl takes.
const SHORT: [(&str, &str); 4] = [
    ("pool", "subnetpool"),
    ("claim", "subnetclaim"),
    ("poolclaim", "subnetpoolclaim"),
    ("subnetpc", "subnetpoolclaim"),
];

/// Which object.
#[derive(Debug, ClapArgs)]
pub(crate) struct Target {
    /// The object, as KIND/NAME or KIND NAME.
    #[arg(value_name = "KIND/NAME")]
    target: String,
    #[arg(hide = true)]
    name: Option<String>,
    /// Its namespace. Default: that of the kubeconfig's context.
    #[arg(long, short, value_name = "NAMESPACE", value_parser = dns_label)]
    namespace: Option<String>,
}

/// What `usher plan` and `usher explain` are told.
#[derive(Debug, ClapArgs)]
#[command(after_help = NAMES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Format.
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    pub(crate) output: Format,
}

/// The object, and where it was found.
pub(crate) struct Found {
    cluster: Cluster,
    kinds: Vec<Box<dyn AnyKind>>,
    pub(crate) kind: &'static str,
    pub(crate) resource: ApiType,
    pub(crate) key: ObjectKey,
    pub(crate) object: DynamicObject,
}

impl Target {
    /// Kind and name, as written.
    fn words(&self) -> Result<(&str, &str), WrongUsage> {
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

    /// Finds the object, and makes sure that everything beside it may be read.
    pub(crate) async fn find(&self, cluster: &ClusterArgs, doing: &'static str) -> Result<Found, Failed> {
        let kinds = usher_subnets::kinds(Pools::default());
        let (kind, name) = self.words()?;
        let kind = find_kind(&kinds, kind)?;
        let (kind, resource) = (kind.name(), kind.resource());
        let cluster = cluster.connect(doing).await?;
        let namespace = match &self.namespace {
            Some(namespace) => namespace.clone(),
            None => cluster.located.config.default_namespace.clone(),
        };
        let key = ObjectKey::new(&namespace, name)?;
        let object = read(&cluster, resource, &key).await?;
        may_watch(&cluster, &kinds, &namespace).await?;
        Ok(Found {
            cluster,
            kinds,
            kind,
            resource,
            key,
            object,
        })
    }
}

impl Found {
    /// An operator that only reads, and only this namespace.
    pub(crate) fn operator(&self) -> Result<Operator, Failed> {
        let settings = Settings {
            namespace: Some(self.key.namespace().to_owned()),
            ..Settings::default()
        };
        let kinds = usher_subnets::kinds(Pools::default());
        Ok(Operator::new(&self.cluster.located.config, kinds, settings)?)
    }

    /// It was there a moment ago: either it cannot be read, or it has just been deleted.
    pub(crate) fn gone(&self) -> Failed {
        let kind = self.kinds.iter().find(|kind| kind.name() == self.kind);
        match kind.map(|kind| kind.read(&self.object)) {
            Some(Err(unreadable)) => unreadable.into(),
            _ => absent(self.resource, &self.key).into(),
        }
    }
}

/// The kind somebody means, by any of the names that kubectl takes.
fn find_kind<'k>(kinds: &'k [Box<dyn AnyKind>], written: &str) -> Result<&'k dyn AnyKind, WrongUsage> {
    let lower = written.to_lowercase();
    let short = SHORT.iter().find(|(short, _)| *short == lower);
    let lower = short.map_or(lower.as_str(), |(_, long)| long);
    let is = |kind: &ApiType| {
        let short = lower.split_once('.').filter(|(_, rest)| rest.ends_with(kind.group));
        let bare = short.map_or(lower, |(bare, _)| bare);
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

    fn args(target: &str, name: Option<&str>) -> Target {
        Target {
            target: target.to_owned(),
            name: name.map(str::to_owned),
            namespace: None,
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
            ("claim", "SubnetClaim"),
            ("pool", "SubnetPool"),
            ("subnetpc", "SubnetPoolClaim"),
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
        assert_eq!(args("a/b", None).words().unwrap(), ("a", "b"));
        assert_eq!(args("a", Some("b")).words().unwrap(), ("a", "b"));
        for (target, name) in [
            ("a", None),
            ("a/", None),
            ("/b", None),
            ("a/b/c", None),
            ("a/b", Some("c")),
        ] {
            assert!(args(target, name).words().is_err(), "{target} {name:?}");
        }
    }
}
