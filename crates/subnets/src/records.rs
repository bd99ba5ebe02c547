//! Slim records of the four kinds: what the view keeps of each object.
//!
//! A status that somebody wrote nonsense into reads as no status: it is then planned and written anew. A spec that cannot
//! be read is an error that names the field.

use std::sync::Arc;

use ipnet::IpNet;
use kube::api::DynamicObject;
use serde::de::DeserializeOwned;

use usher_engine::ConditionStatus;
use usher_operator::record::Record;

/// What every record has; plain values, for plans to speak of.
pub use usher_operator::record::{ApiType, Meta};

use crate::api::{
    ClaimPhase, FINALIZER, GROUP, PARENT_LABEL, PAUSED_ANNOTATION, RECALCULATE_ANNOTATION, Strategy, SubnetClaimSpec,
    SubnetClaimStatus, SubnetPhase, SubnetPoolClaimSpec, SubnetPoolClaimStatus, SubnetPoolSpec, SubnetPoolStatus,
    SubnetSpec, SubnetStatus, VERSION,
};

/// Subnets in the API.
pub const SUBNETS: ApiType = ApiType {
    group: GROUP,
    version: VERSION,
    kind: "Subnet",
    plural: "subnets",
};
/// SubnetPools in the API.
pub const POOLS: ApiType = ApiType {
    group: GROUP,
    version: VERSION,
    kind: "SubnetPool",
    plural: "subnetpools",
};
/// SubnetClaims in the API.
pub const CLAIMS: ApiType = ApiType {
    group: GROUP,
    version: VERSION,
    kind: "SubnetClaim",
    plural: "subnetclaims",
};

/// SubnetPoolClaims in the API.
pub const POOL_CLAIMS: ApiType = ApiType {
    group: GROUP,
    version: VERSION,
    kind: "SubnetPoolClaim",
    plural: "subnetpoolclaims",
};

/// An object as others name it: name and uid.
pub type Named = (Arc<str>, Arc<str>);

/// The owner of this kind, where there is one.
fn owner(meta: &Meta, kind: ApiType) -> Option<Named> {
    let owner = meta.owners.iter().find(|owner| &*owner.kind == kind.kind)?;
    Some((owner.name.clone(), owner.uid.clone()))
}

/// Text of a CIDR to its range, host bits cleared.
///
/// The address is read as std and the API server read one: ipnet alone also takes `010`, which is 8 to some and 10 to others.
pub fn range(field: &str, text: &str) -> Result<IpNet, String> {
    let no = |why: &dyn std::fmt::Display| format!("{field} {text:?} is no CIDR ({why})");
    let address = text.split_once('/').map_or(text, |(address, _)| address);
    address.parse::<std::net::IpAddr>().map_err(|e| no(&e))?;
    text.parse::<IpNet>().map(|net| net.trunc()).map_err(|e| no(&e))
}

fn spec<T: DeserializeOwned>(object: &DynamicObject) -> Result<T, String> {
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    serde_json::from_value(spec).map_err(|e| format!("spec: {e}"))
}

fn status<T: DeserializeOwned + Default>(object: &DynamicObject) -> T {
    object
        .data
        .get("status")
        .and_then(|s| serde_json::from_value(s.clone()).ok())
        .unwrap_or_default()
}

/// A block that is taken, or asks to be.
#[derive(Debug, Clone, PartialEq)]
pub struct SubnetRecord {
    /// Metadata.
    pub meta: Meta,
    /// Its pool's name.
    pub pool: Arc<str>,
    /// Its range.
    pub cidr: IpNet,
    /// Whom it is for.
    pub cluster_id: Arc<str>,
    /// The claim it was made for, where that claim is also its owner.
    pub claim: Option<Named>,
    /// The child pool it stands for, where that was labelled by hand: its owner, and its clusterID is that pool's uid.
    pub child: Option<Named>,
    /// It was made for a claim, whoever owns it now.
    for_claim: bool,
    /// The status as stored.
    pub status: SubnetStatus,
}

impl Record for SubnetRecord {
    const TYPE: ApiType = SUBNETS;

    fn read(meta: Meta, object: &DynamicObject) -> Result<Self, String> {
        let spec: SubnetSpec = spec(object)?;
        let for_claim = spec.claim_ref.is_some();
        let claim = spec
            .claim_ref
            .filter(|claim| meta.owned_by(&claim.uid))
            .map(|claim| (claim.name.as_str().into(), claim.uid.as_str().into()));
        Ok(Self {
            pool: spec.pool_ref.as_str().into(),
            cidr: range("spec.cidr", &spec.cidr)?,
            child: owner(&meta, POOLS).filter(|(_, uid)| **uid == *spec.cluster_id),
            cluster_id: spec.cluster_id.as_str().into(),
            claim,
            for_claim,
            status: status(object),
            meta,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// Whether a clusterID may be an object's uid, so that its Subnet may stand for a pool. People may use such ids too; for
/// them this only means one more look before their range is given up.
fn may_be_uid(cluster_id: &str) -> bool {
    cluster_id.len() == 36
        && cluster_id.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

impl SubnetRecord {
    /// It may be the holder of a child pool: no pool of that identity may be left when it goes (R26).
    pub fn may_hold_a_pool(&self) -> bool {
        self.child.is_some() || may_be_uid(&self.cluster_id)
    }

    /// Neither made for a claim nor for a child pool: Usher writes its status and nothing else (R33).
    pub fn by_hand(&self) -> bool {
        self.child.is_none() && !(self.for_claim && self.claim_owners().next().is_some())
    }

    /// The claims that own it: the one it was made for, and those that share it (R11).
    pub fn claim_owners(&self) -> impl Iterator<Item = &usher_operator::record::Owner> {
        self.meta.owners.iter().filter(|owner| &*owner.kind == CLAIMS.kind)
    }

    /// The phase, where it speaks of the present spec. `None` and `Pending` make it a candidate.
    ///
    /// The API server counts the deletion mark as a generation of its own. It changes no spec: an Allocated Subnet that
    /// is marked for deletion holds its range until it is gone.
    pub fn phase(&self) -> Option<SubnetPhase> {
        let spec_generation = self
            .meta
            .generation
            .saturating_sub(i64::from(self.meta.deleting.is_some()));
        let speaks = self
            .status
            .observed_generation
            .is_none_or(|seen| seen >= spec_generation);
        self.status.phase.filter(|_| speaks)
    }

    /// Allocated or Released: the range is held for good.
    pub fn settled(&self) -> bool {
        matches!(self.phase(), Some(SubnetPhase::Allocated | SubnetPhase::Released))
    }

    /// Asks for no range (any more): Failed, or on its way out without ever having had it.
    pub fn withdrawn(&self) -> bool {
        match self.phase() {
            Some(SubnetPhase::Allocated | SubnetPhase::Released) => false,
            Some(SubnetPhase::Failed) => true,
            Some(SubnetPhase::Pending) | None => self.meta.deleting.is_some(),
        }
    }

    /// Uid of the claim it belongs to.
    pub fn claim_uid(&self) -> Option<&Arc<str>> {
        self.claim.as_ref().map(|(_, uid)| uid)
    }
}

/// A range that Subnets are taken from.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolRecord {
    /// Metadata.
    pub meta: Meta,
    /// Its range.
    pub cidr: IpNet,
    /// Shortest length that may be granted.
    pub shortest: u8,
    /// Longest length that may be granted.
    pub longest: u8,
    /// Length for claims that name none.
    pub default: u8,
    /// Where blocks are taken.
    pub strategy: Strategy,
    /// Never granted.
    pub exclude: Vec<IpNet>,
    /// Seconds before a released range is granted again.
    pub reuse_delay_seconds: i64,
    /// Name of the parent pool, by its label.
    pub parent: Option<Arc<str>>,
    /// The pool claim it was made for.
    pub owner: Option<Named>,
    /// A holder in its parent stood for it once (R26). Never taken back.
    pub held: bool,
    /// Stopped by annotation.
    pub paused: bool,
    /// The value of the last request to recalculate.
    pub recalculate: Option<Arc<str>>,
    /// The status as stored.
    pub status: SubnetPoolStatus,
}

impl Record for PoolRecord {
    const TYPE: ApiType = POOLS;

    fn read(meta: Meta, object: &DynamicObject) -> Result<Self, String> {
        let spec: SubnetPoolSpec = spec(object)?;
        let cidr = range("spec.cidr", &spec.cidr)?;
        let own = cidr.prefix_len();
        let (width, usual_longest, usual_default) = if cidr.addr().is_ipv4() {
            (32, 28, 24)
        } else {
            (128, 64, 64)
        };
        let length = |value: i32| u8::try_from(value).unwrap_or(u8::MAX).min(width);
        let shortest = spec.min_block_size.map_or(own, |min| length(min).max(own));
        let longest = spec.max_block_size.map_or(usual_longest.max(own), length);
        // In an IPv6 pool the schema's default of 24 means "not set".
        let default = if width == 128 && spec.default_block_size == 24 {
            usual_default
        } else {
            length(spec.default_block_size)
        };
        let annotation = |name: &str| object.metadata.annotations.as_ref()?.get(name).map(String::as_str);
        let label = |name: &str| object.metadata.labels.as_ref()?.get(name).map(String::as_str);
        let status: SubnetPoolStatus = status(object);
        Ok(Self {
            cidr,
            shortest,
            longest,
            default: default.max(shortest).min(longest.max(shortest)),
            strategy: spec.strategy,
            exclude: spec
                .exclude
                .iter()
                .enumerate()
                .map(|(i, text)| range(&format!("spec.exclude[{i}]"), text))
                .collect::<Result<_, _>>()?,
            reuse_delay_seconds: spec.reuse_delay_seconds,
            parent: label(PARENT_LABEL).filter(|p| !p.is_empty()).map(Into::into),
            owner: owner(&meta, POOL_CLAIMS),
            held: status
                .conditions
                .iter()
                .any(|c| c.type_ == HELD && c.status == ConditionStatus::True),
            paused: annotation(PAUSED_ANNOTATION) == Some("true"),
            recalculate: annotation(RECALCULATE_ANNOTATION).map(Into::into),
            status,
            meta,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// The condition of a child pool that a holder in its parent stands for it.
pub const HELD: &str = "Held";

impl PoolRecord {
    /// Taken from another pool, or to be: by label, by pool claim, or because it was once (R45).
    pub fn is_child(&self) -> bool {
        self.parent.is_some() || self.owner.is_some() || self.held
    }

    /// Gone, as far as what it was taken from is concerned.
    pub fn leaving(&self) -> bool {
        leaving(&self.meta)
    }

    /// The clusterID of its holder: the uid of its pool claim, or its own.
    pub fn holder_id(&self) -> &Arc<str> {
        self.owner.as_ref().map_or(&self.meta.uid, |(_, uid)| uid)
    }
}

/// What a claim asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ask {
    /// The pool's default size.
    Default,
    /// A block of this length.
    Length(u8),
    /// Just this block.
    Exact(IpNet),
}

/// A request for one block.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimRecord {
    /// Metadata.
    pub meta: Meta,
    /// Its pool's name.
    pub pool: Arc<str>,
    /// Whom it is for.
    pub cluster_id: Arc<str>,
    /// What it asks for.
    pub ask: Ask,
    /// The pool claim it was made for.
    pub owner: Option<Named>,
    /// The status as stored.
    pub status: SubnetClaimStatus,
}

impl Record for ClaimRecord {
    const TYPE: ApiType = CLAIMS;

    fn read(meta: Meta, object: &DynamicObject) -> Result<Self, String> {
        let spec: SubnetClaimSpec = spec(object)?;
        let ask = match (&spec.requested_cidr, spec.block_size) {
            (Some(text), _) => Ask::Exact(range("spec.requestedCIDR", text)?),
            (None, Some(length)) => {
                Ask::Length(u8::try_from(length).map_err(|_| format!("spec.blockSize {length} is not in 1..128"))?)
            }
            (None, None) => Ask::Default,
        };
        Ok(Self {
            pool: spec.pool_ref.as_str().into(),
            cluster_id: spec.cluster_id.as_str().into(),
            ask,
            owner: owner(&meta, POOL_CLAIMS),
            status: status(object),
            meta,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl ClaimRecord {
    /// The range the claim was promised, also where it is lost (R31). A claim whose range cannot be read, or is not what
    /// it asks for, was written by hand and counts as new.
    pub fn bound(&self) -> Option<IpNet> {
        let promised = matches!(self.status.phase, Some(ClaimPhase::Bound | ClaimPhase::Error));
        let text = self.status.allocated_cidr.as_deref().filter(|_| promised)?;
        let range: IpNet = text.parse().ok()?;
        let asked = match self.ask {
            Ask::Default => range.prefix_len() > 0,
            Ask::Length(length) => range.prefix_len() == length,
            Ask::Exact(exact) => range == exact,
        };
        (asked && range == range.trunc()).then_some(range)
    }

    /// Made for a pool claim, which takes it down in order.
    pub fn internal(&self) -> bool {
        self.owner.is_some() && self.meta.has_finalizer(FINALIZER)
    }

    /// Gone, as far as its range is concerned: being deleted, and nothing but the foreground deletion of its Subnet
    /// holds it back.
    pub fn leaving(&self) -> bool {
        leaving(&self.meta)
    }
}

/// Being deleted, and nothing but the foreground deletion of what it owns holds it back.
fn leaving(meta: &Meta) -> bool {
    meta.deleting.is_some() && meta.finalizers.iter().all(|f| &**f == "foregroundDeletion")
}

/// A request for a pool of one's own.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolClaimRecord {
    /// Metadata.
    pub meta: Meta,
    /// The parent pool's name.
    pub parent: Arc<str>,
    /// Prefix length of the pool to be made.
    pub length: u8,
    /// The status as stored.
    pub status: SubnetPoolClaimStatus,
}

impl Record for PoolClaimRecord {
    const TYPE: ApiType = POOL_CLAIMS;

    fn read(meta: Meta, object: &DynamicObject) -> Result<Self, String> {
        let spec: SubnetPoolClaimSpec = spec(object)?;
        let length = spec.desired_block_size;
        Ok(Self {
            parent: spec.parent_pool_ref.as_str().into(),
            length: u8::try_from(length).map_err(|_| format!("spec.desiredBlockSize {length} is not in 1..128"))?,
            status: status(object),
            meta,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}
