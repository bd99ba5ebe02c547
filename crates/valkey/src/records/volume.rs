//! A PersistentVolumeClaim: by its name it is a server's, whoever made it (R9: volumes are kept, and come back).

use kube::api::DynamicObject;
use usher_operator::record::{ApiType, Meta, Record};

use super::VOLUMES;
use super::cluster::ordinal;
use crate::words::Ordinal;

/// A PersistentVolumeClaim.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeRecord {
    /// Metadata.
    pub meta: Meta,
}

impl Record for VolumeRecord {
    const TYPE: ApiType = VOLUMES;

    fn read(meta: Meta, _: &DynamicObject) -> Result<Self, String> {
        Ok(Self { meta })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl VolumeRecord {
    /// The cluster that its name speaks of: `data-<cluster>-<ordinal>`.
    pub fn cluster(&self) -> Option<(&str, Ordinal)> {
        let rest = self.meta.key.name().strip_prefix("data-")?;
        let (cluster, _) = rest.rsplit_once('-')?;
        Some((cluster, ordinal(rest, cluster)?))
    }
}
