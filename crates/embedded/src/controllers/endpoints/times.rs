//! Since when a change was waiting to be written: the annotation `last-change-trigger-time`, as the reference counts it.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Service};

use crate::controllers::hand::name_of;
use crate::controllers::pods;

/// What was known at the last sync of each Service. Only in memory, as in the reference: after a restart a Service's own
/// time is told.
#[derive(Debug, Default)]
pub(super) struct Times(HashMap<String, HashMap<String, Timestamp>>);

impl Times {
    /// The earliest of the pods' changes since the last call; `None` if none of them changed.
    pub(super) fn next(&mut self, key: &str, service: &Service, pods: &[Arc<Pod>]) -> Option<Timestamp> {
        let now: HashMap<String, Timestamp> = pods
            .iter()
            .filter_map(|pod| {
                let ready = pods::condition(pod, "Ready")?;
                let since = ready.last_transition_time.as_ref()?.0;
                Some((name_of(&pod.metadata).to_owned(), since))
            })
            .collect();
        let known = self.0.insert(key.to_owned(), now.clone());
        let Some(known) = known else {
            return service.metadata.creation_timestamp.as_ref().map(|time| time.0);
        };
        now.into_iter()
            .filter(|(pod, since)| known.get(pod).is_none_or(|before| since > before))
            .map(|(_, since)| since)
            .min()
    }

    pub(super) fn forget(&mut self, key: &str) {
        self.0.remove(key);
    }
}
