//! Slim records of the four kinds: what the view keeps of each object.
//!
//! There are hundreds of thousands of Subnets and claims, nearly all of them Allocated and Bound: what those say is kept
//! in a few words, and said in full again when somebody asks.
//!
//! A status that somebody wrote nonsense into reads as no status: it is then planned and written anew. A spec that cannot
//! be read is an error that names the field.

use ipnet::IpNet;
use kube::api::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::Value;

use usher_engine::{ConditionStatus, Second, Text, Uid};
use usher_operator::record::Record;

/// What every record has; plain values, for plans to speak of.
pub use usher_operator::record::{ApiType, Meta, Owner};

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

/// The owner of this kind, where there is one.
fn owner(meta: &Meta, kind: ApiType) -> Option<&Owner> {
    meta.owners.iter().find(|owner| owner.kind == *kind.kind)
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
    T::deserialize(object.data.get("spec").unwrap_or(&Value::Null)).map_err(|e| format!("spec: {e}"))
}

fn status<T: DeserializeOwned + Default>(object: &DynamicObject) -> T {
    let status = object.data.get("status");
    status
        .and_then(|status| T::deserialize(status).ok())
        .unwrap_or_default()
}

/// A block that is taken, or asks to be.
#[derive(Debug, Clone, PartialEq)]
pub struct SubnetRecord {
    /// Metadata.
    pub meta: Meta,
    /// Its pool's name.
    pub pool: Text,
    /// Its range.
    pub cidr: IpNet,
    /// Whom it is for.
    pub cluster_id: Text,
    /// Which owner is the claim it was made for.
    claim: Option<u32>,
    /// It was made for a claim, whoever owns it now.
    for_claim: bool,
    phase: Option<SubnetPhase>,
    observed_generation: Option<i64>,
    /// When it was first Allocated.
    pub allocated_at: Option<Second>,
    /// The rest of its status, where there is more.
    unusual: Option<Box<SubnetStatus>>,
}

impl Record for SubnetRecord {
    const TYPE: ApiType = SUBNETS;

    fn read(meta: Meta, object: &DynamicObject) -> Result<Self, String> {
        let spec: SubnetSpec = spec(object)?;
        let for_claim = spec.claim_ref.is_some();
        let claim = spec.claim_ref.and_then(|claim| {
            let which = meta.owners.iter().position(|owner| owner.uid.is(&claim.uid))?;
            u32::try_from(which).ok()
        });
        let mut subnet = Self {
            pool: spec.pool_ref.into(),
            cidr: range("spec.cidr", &spec.cidr)?,
            cluster_id: spec.cluster_id.into(),
            claim,
            for_claim,
            phase: None,
            observed_generation: None,
            allocated_at: None,
            unusual: None,
            meta,
        };
        subnet.set_status(status(object));
        Ok(subnet)
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
        self.child().is_some() || may_be_uid(&self.cluster_id)
    }

    /// Neither made for a claim nor for a child pool: Usher writes its status and nothing else (R33).
    pub fn by_hand(&self) -> bool {
        self.child().is_none() && !(self.for_claim && self.claim_owners().next().is_some())
    }

    /// The claims that own it: the one it was made for, and those that share it (R11).
    pub fn claim_owners(&self) -> impl Iterator<Item = &Owner> {
        self.meta.owners.iter().filter(|owner| owner.kind == *CLAIMS.kind)
    }

    /// The claim it was made for, where that claim is also its owner.
    pub fn claim(&self) -> Option<&Owner> {
        self.meta.owners.get(usize::try_from(self.claim?).ok()?)
    }

    /// The child pool it stands for, where that was labelled by hand: its owner, and its clusterID is that pool's uid.
    pub fn child(&self) -> Option<&Owner> {
        owner(&self.meta, POOLS).filter(|pool| pool.uid.is(&self.cluster_id))
    }

    /// The status as stored.
    pub fn status(&self) -> SubnetStatus {
        match &self.unusual {
            Some(status) => (**status).clone(),
            None => self.usual(),
        }
    }

    /// The record as it were with another status.
    pub fn set_status(&mut self, status: SubnetStatus) {
        self.phase = status.phase;
        self.observed_generation = status.observed_generation;
        self.allocated_at = status.allocated_at.map(Second::from);
        self.unusual = (status != self.usual()).then(|| Box::new(status));
    }

    fn usual(&self) -> SubnetStatus {
        SubnetStatus {
            phase: self.phase,
            observed_generation: self.observed_generation,
            allocated_at: self.allocated_at.map(Into::into),
            ..SubnetStatus::default()
        }
    }

    /// Why it has no range, as its status says.
    pub fn message(&self) -> Option<&str> {
        self.unusual.as_ref()?.message.as_deref()
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
        let speaks = self.observed_generation.is_none_or(|seen| seen >= spec_generation);
        self.phase.filter(|_| speaks)
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
    pub fn claim_uid(&self) -> Option<&Uid> {
        self.claim().map(|claim| &claim.uid)
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
    pub parent: Option<Text>,
    /// A holder in its parent stood for it once (R26). Never taken back.
    pub held: bool,
    /// Stopped by annotation.
    pub paused: bool,
    /// The value of the last request to recalculate.
    pub recalculate: Option<Text>,
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
        self.parent.is_some() || self.owner().is_some() || self.held
    }

    /// The pool claim it was made for.
    pub fn owner(&self) -> Option<&Owner> {
        owner(&self.meta, POOL_CLAIMS)
    }

    /// Gone, as far as what it was taken from is concerned.
    pub fn leaving(&self) -> bool {
        leaving(&self.meta)
    }

    /// The clusterID of its holder: the uid of its pool claim, or its own.
    pub fn holder_id(&self) -> Text {
        self.owner().map_or(&self.meta.uid, |claim| &claim.uid).into()
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
    pub pool: Text,
    /// Whom it is for.
    pub cluster_id: Text,
    /// What it asks for.
    pub ask: Ask,
    told: Told,
}

/// What the status of a claim says.
#[derive(Debug, Clone, PartialEq)]
enum Told {
    Nothing,
    /// Just what [`SubnetClaimStatus::bound`] says of these, and of the claim's pool.
    Bound {
        generation: i64,
        cidr: IpNet,
        subnet: Text,
        since: Second,
    },
    Other(Box<SubnetClaimStatus>),
}

impl Told {
    fn by(status: SubnetClaimStatus, pool: &str) -> Self {
        if status == SubnetClaimStatus::default() {
            return Told::Nothing;
        }
        Self::bound(&status, pool).unwrap_or_else(|| Told::Other(Box::new(status)))
    }

    fn bound(status: &SubnetClaimStatus, pool: &str) -> Option<Self> {
        let (generation, subnet) = (status.observed_generation?, status.subnet_ref.as_deref()?);
        let cidr: IpNet = status.allocated_cidr.as_deref()?.parse().ok()?;
        let since = Second::from(status.conditions.first()?.last_transition_time);
        let same = *status == SubnetClaimStatus::bound(generation, cidr, pool, subnet, since.into());
        same.then(|| Told::Bound {
            generation,
            cidr,
            subnet: subnet.into(),
            since,
        })
    }
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
            told: Told::by(status(object), &spec.pool_ref),
            pool: spec.pool_ref.into(),
            cluster_id: spec.cluster_id.into(),
            ask,
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
        let range = match &self.told {
            Told::Nothing => return None,
            Told::Bound { cidr, .. } => *cidr,
            Told::Other(status) => {
                let promised = matches!(status.phase, Some(ClaimPhase::Bound | ClaimPhase::Error));
                status.allocated_cidr.as_deref().filter(|_| promised)?.parse().ok()?
            }
        };
        let asked = match self.ask {
            Ask::Default => range.prefix_len() > 0,
            Ask::Length(length) => range.prefix_len() == length,
            Ask::Exact(exact) => range == exact,
        };
        (asked && range == range.trunc()).then_some(range)
    }

    /// The status as stored.
    pub fn status(&self) -> SubnetClaimStatus {
        match &self.told {
            Told::Nothing => SubnetClaimStatus::default(),
            Told::Bound {
                generation,
                cidr,
                subnet,
                since,
            } => SubnetClaimStatus::bound(*generation, *cidr, &self.pool, subnet, (*since).into()),
            Told::Other(status) => (**status).clone(),
        }
    }

    /// How far it is, as its status says.
    pub fn phase(&self) -> Option<ClaimPhase> {
        match &self.told {
            Told::Nothing => None,
            Told::Bound { .. } => Some(ClaimPhase::Bound),
            Told::Other(status) => status.phase,
        }
    }

    /// The name of the Subnet it has, as its status says.
    pub fn subnet_ref(&self) -> Option<&str> {
        match &self.told {
            Told::Nothing => None,
            Told::Bound { subnet, .. } => Some(subnet),
            Told::Other(status) => status.subnet_ref.as_deref(),
        }
    }

    /// Why it is not Bound, as its status says.
    pub fn message(&self) -> Option<&str> {
        match &self.told {
            Told::Nothing | Told::Bound { .. } => None,
            Told::Other(status) => status.message.as_deref(),
        }
    }

    /// The pool claim it was made for.
    pub fn owner(&self) -> Option<&Owner> {
        owner(&self.meta, POOL_CLAIMS)
    }

    /// Made for a pool claim, which takes it down in order.
    pub fn internal(&self) -> bool {
        self.owner().is_some() && self.meta.has_finalizer(FINALIZER)
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
    pub parent: Text,
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
            parent: spec.parent_pool_ref.into(),
            length: u8::try_from(length).map_err(|_| format!("spec.desiredBlockSize {length} is not in 1..128"))?,
            status: status(object),
            meta,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}
