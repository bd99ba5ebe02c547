//! The storage classes that every cluster has (C7). Users may change or delete them; what is missing comes back at the next
//! start.

use serde_json::{Value, json};

use super::PROVISIONER;

#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) name: &'static str,
    is_default: bool,
    reclaim: &'static str,
    binding: &'static str,
}

const WAIT: &str = "WaitForFirstConsumer";

pub(crate) const CLASSES: [Class; 3] = [
    Class {
        name: "standard",
        is_default: true,
        reclaim: "Delete",
        binding: WAIT,
    },
    Class {
        name: "standard-immediate",
        is_default: false,
        reclaim: "Delete",
        binding: "Immediate",
    },
    Class {
        name: "retain",
        is_default: false,
        reclaim: "Retain",
        binding: WAIT,
    },
];

impl Class {
    pub(crate) fn body(&self) -> Value {
        let metadata = if self.is_default {
            json!({"name": self.name, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}})
        } else {
            json!({"name": self.name})
        };
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata, "provisioner": PROVISIONER,
            "reclaimPolicy": self.reclaim, "volumeBindingMode": self.binding, "allowVolumeExpansion": true,
        })
    }
}
