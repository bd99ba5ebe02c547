//! A ValkeyCluster.

use std::time::Duration;

use kube::api::DynamicObject;
use serde::Deserialize;
use serde_json::Value;
use usher_engine::Text;
use usher_operator::record::{ApiType, Meta, Record};

use super::{CLUSTERS, text};
use crate::api::annotations as on;
use crate::api::{ValkeyClusterSpec, ValkeyClusterStatus, labels};
use crate::words::{Ordinal, ShardId};

/// A ValkeyCluster.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterRecord {
    /// Metadata.
    pub meta: Meta,
    /// What it is to be.
    pub spec: ValkeyClusterSpec,
    /// What was last said of it. One that somebody wrote nonsense into reads as none.
    pub status: ValkeyClusterStatus,
    /// What its annotations ask for.
    pub wishes: Wishes,
}

/// What a cluster's annotations ask for.
#[derive(Debug, Clone, PartialEq)]
pub struct Wishes {
    /// Observe and report, no step.
    pub paused: bool,
    /// A new value: leave Failed.
    pub retry: Option<Text>,
    /// Name of the pod to promote.
    pub switchover: Option<Text>,
    /// Whether slots are balanced at rest (R27).
    pub balance: bool,
    /// How many slot moves may be in flight (R20).
    pub max_migrations: u16,
    /// How long a drained member answers MOVED before it goes (R11).
    pub linger: Duration,
    /// Whether a roll may restart primaries without replicas in place (R36).
    pub allow_primary_restart: bool,
    /// The shard whose data may be given up (R26).
    pub accept_data_loss: Option<ShardId>,
    /// Part of the revision: a new value restarts all pods.
    pub roll: Option<Text>,
    /// A spare pod stands in (R36).
    pub surge: bool,
    /// The upgrade that wants the cluster for itself (R40).
    pub upgrade: Option<Text>,
    /// Annotations that say nothing Usher understands, a sentence each. What they are about stays as if they were not there.
    pub misread: Vec<String>,
}

/// Slot moves in flight, where nothing else is asked for.
const MAX_MIGRATIONS: u16 = 3;
/// More than one per pair of primaries there can never be.
const MOST_MIGRATIONS: u16 = 100;
/// How long drained members linger, where nothing else is asked for.
const LINGER: Duration = Duration::from_secs(5);
/// Lingering longer than this only looks as if nothing happened.
const LONGEST_LINGER: Duration = Duration::from_secs(3600);

impl Default for Wishes {
    fn default() -> Self {
        Self {
            paused: false,
            retry: None,
            switchover: None,
            balance: true,
            max_migrations: MAX_MIGRATIONS,
            linger: LINGER,
            allow_primary_restart: false,
            accept_data_loss: None,
            roll: None,
            surge: false,
            upgrade: None,
            misread: Vec::new(),
        }
    }
}

impl Wishes {
    fn read(object: &DynamicObject) -> Self {
        let said = |name: &str| text(&object.metadata.annotations, name).filter(|value| !value.is_empty());
        let mut wishes = Self {
            retry: said(on::RETRY).map(Into::into),
            switchover: said(on::SWITCHOVER).map(Into::into),
            roll: said(on::ROLL).map(Into::into),
            ..Self::default()
        };
        let misread = &mut wishes.misread;
        let mut choice = |name: &'static str, yes: &str, no: &str, otherwise: bool| match said(name) {
            None => otherwise,
            Some(value) if value == yes => true,
            Some(value) if value == no => false,
            Some(value) => {
                misread.push(format!(
                    "{name}: {value:?} is neither {yes:?} nor {no:?}: set one of them"
                ));
                otherwise
            }
        };
        wishes.paused = choice(on::PAUSED, "true", "false", false);
        wishes.balance = choice(on::SLOT_BALANCE, "auto", "manual", true);
        wishes.allow_primary_restart = choice(on::ALLOW_PRIMARY_RESTART, "true", "false", false);
        wishes.surge = choice(on::SURGE, "true", "false", false);
        if choice(on::UPGRADE_IN_PROGRESS, "true", "false", false) {
            wishes.upgrade = Some(said(on::UPGRADE_NAME).unwrap_or("(not named)").into());
        }
        let mut number = |name: &'static str, least: u64, most: u64| {
            let value = said(name)?;
            let read = value.parse().ok().filter(|number| (least..=most).contains(number));
            if read.is_none() {
                misread.push(format!(
                    "{name}: {value:?} is no number from {least} to {most}: set one"
                ));
            }
            read
        };
        if let Some(most) = number(on::MAX_MIGRATIONS, 1, MOST_MIGRATIONS.into()) {
            wishes.max_migrations = u16::try_from(most).unwrap_or(MAX_MIGRATIONS);
        }
        if let Some(seconds) = number(on::DRAIN_LINGER_SECONDS, 0, LONGEST_LINGER.as_secs()) {
            wishes.linger = Duration::from_secs(seconds);
        }
        match said(on::ACCEPT_DATA_LOSS).map(ShardId::parse) {
            Some(Ok(shard)) => wishes.accept_data_loss = Some(shard),
            Some(Err(problem)) => misread.push(format!(
                "{}: {problem}; status.topology has the shard's shardId",
                on::ACCEPT_DATA_LOSS
            )),
            None => {}
        }
        wishes
    }
}

impl Record for ClusterRecord {
    const TYPE: ApiType = CLUSTERS;

    fn read(meta: Meta, object: &DynamicObject) -> Result<Self, String> {
        let spec = object.data.get("spec").unwrap_or(&Value::Null);
        let spec = match spec {
            Value::Null => ValkeyClusterSpec::default(),
            spec => ValkeyClusterSpec::deserialize(spec).map_err(|problem| format!("spec: {problem}"))?,
        };
        let status = object.data.get("status").map(ValkeyClusterStatus::deserialize);
        Ok(Self {
            spec,
            status: status.and_then(Result::ok).unwrap_or_default(),
            wishes: Wishes::read(object),
            meta,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl ClusterRecord {
    /// Its name, and that of its set, its budget and its first Service.
    pub fn name(&self) -> &str {
        self.meta.key.name()
    }

    /// Shards wanted.
    pub fn masters(&self) -> u16 {
        u16::try_from(self.spec.masters).unwrap_or_default()
    }

    /// R: replicas wanted for each shard.
    pub fn replicas_per_master(&self) -> u16 {
        u16::try_from(self.spec.replicas_per_master).unwrap_or_default()
    }

    /// N: pods wanted, with the spare one while surging (R36).
    pub fn size(&self) -> u16 {
        let shards = self.masters().saturating_mul(1 + self.replicas_per_master());
        shards.saturating_add(u16::from(self.wishes.surge))
    }

    /// Selects its pods, as text.
    pub fn selector(&self) -> String {
        let name = self.name();
        format!("{}={name},{}={name}", labels::INSTANCE, labels::NAME)
    }

    /// Name of the pod of this ordinal.
    pub fn pod_name(&self, ordinal: Ordinal) -> Text {
        format!("{}-{ordinal}", self.name()).into()
    }

    /// Ordinal of the pod of this name.
    pub fn ordinal(&self, pod: &str) -> Option<Ordinal> {
        ordinal(pod, self.name())
    }

    /// The Secret with the password that is in force, and what servers are configured by.
    pub fn config_secret(&self) -> String {
        format!("{}-config", self.name())
    }

    /// The Service that names each pod.
    pub fn headless_service(&self) -> String {
        format!("{}-headless", self.name())
    }

    /// The Service for reading clients.
    pub fn read_service(&self) -> String {
        format!("{}-read", self.name())
    }

    /// The Secrets that its spec names.
    pub fn named_secrets(&self) -> impl Iterator<Item = &str> {
        let auth = self.spec.auth.as_ref();
        let acl = auth.and_then(|auth| auth.acl.config_secret_ref.as_ref());
        let tls = self.spec.tls.as_ref().and_then(|tls| tls.secret_name.as_deref());
        let names = [
            auth.map(|auth| auth.secret_ref.name.as_str()),
            acl.map(|acl| acl.name.as_str()),
            tls,
        ];
        names.into_iter().flatten()
    }
}

/// The number behind `<base>-`, as StatefulSets write it: without sign or leading zeros.
pub(super) fn ordinal(name: &str, base: &str) -> Option<Ordinal> {
    let digits = name.strip_prefix(base)?.strip_prefix('-')?;
    let number: u16 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(Ordinal(number))
}
