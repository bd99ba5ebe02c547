//! What Usher makes beside pods: kept whole where it is ours, so that it can be compared with what it should be.

use std::fmt::Debug;
use std::marker::PhantomData;

use kube::api::DynamicObject;
use serde_json::{Value, json};
use usher_engine::Text;
use usher_operator::record::{ApiType, Meta, Record};

use super::{BUDGETS, SERVICES, SETS, made_for};
use crate::api::annotations::REVISION;
use crate::json::at;

/// A type of which Usher makes objects.
pub trait Made: Debug + PartialEq + Send + Sync + 'static {
    /// Which.
    const TYPE: ApiType;
}

macro_rules! made {
    ($marker:ident, $record:ident, $type:ident, $what:literal) => {
        #[doc = $what]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $marker;

        impl Made for $marker {
            const TYPE: ApiType = $type;
        }

        #[doc = $what]
        pub type $record = OwnedRecord<$marker>;
    };
}
made!(Sets, SetRecord, SETS, "A StatefulSet.");
made!(Services, ServiceRecord, SERVICES, "A Service.");
made!(Budgets, BudgetRecord, BUDGETS, "A PodDisruptionBudget.");

/// An object that may be ours.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnedRecord<T: Made> {
    /// Metadata.
    pub meta: Meta,
    /// The cluster it says it is of, where Usher made it.
    pub cluster: Option<Text>,
    /// Labels, annotations and spec as they are; of what is not ours, nothing.
    pub live: Option<Box<Value>>,
    made: PhantomData<T>,
}

impl<T: Made> Record for OwnedRecord<T> {
    const TYPE: ApiType = T::TYPE;

    fn read(meta: Meta, object: &DynamicObject) -> Result<Self, String> {
        let cluster = made_for(object);
        let live = cluster.map(|_| {
            Box::new(json!({
                "metadata": {
                    "labels": object.metadata.labels.clone().unwrap_or_default(),
                    "annotations": object.metadata.annotations.clone().unwrap_or_default(),
                },
                "spec": object.data.get("spec").unwrap_or(&Value::Null),
            }))
        });
        Ok(Self {
            cluster: cluster.map(Into::into),
            live,
            made: PhantomData,
            meta,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl SetRecord {
    /// S: how many pods it is to have.
    pub fn replicas(&self) -> u16 {
        let replicas = self
            .live
            .as_ref()
            .and_then(|live| at(live, &["spec", "replicas"]).as_u64());
        // Left out it means one.
        replicas.map_or(1, |replicas| u16::try_from(replicas).unwrap_or(u16::MAX))
    }

    /// Which revision of the spec its template has.
    pub fn revision(&self) -> Option<&str> {
        at(
            self.live.as_ref()?,
            &["spec", "template", "metadata", "annotations", REVISION],
        )
        .as_str()
    }
}
