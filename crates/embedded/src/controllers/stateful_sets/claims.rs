//! The claims of a StatefulSet's pods, and who owns them: by the retention policy a claim goes with its set, with its pod
//! when the set is scaled down, or with nobody.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::identity::{self, Ordinal, name};
use crate::controllers::ownership::controller_reference;
use crate::controllers::pods;

/// Claims by name.
pub(super) type Claims<'a> = &'a dyn Fn(&str) -> Option<Arc<PersistentVolumeClaim>>;

/// What happens to claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Retention {
    deleted_with_set: bool,
    deleted_when_scaled: bool,
}

impl Retention {
    fn of(set: &StatefulSet) -> Self {
        let policy = set
            .spec
            .as_ref()
            .and_then(|spec| spec.persistent_volume_claim_retention_policy.as_ref());
        let deletes = |word: Option<&String>| word.is_some_and(|word| word == "Delete");
        Self {
            deleted_with_set: policy.is_some_and(|policy| deletes(policy.when_deleted.as_ref())),
            deleted_when_scaled: policy.is_some_and(|policy| deletes(policy.when_scaled.as_ref())),
        }
    }
}

fn templates(set: &StatefulSet) -> &[PersistentVolumeClaim] {
    set.spec
        .as_ref()
        .and_then(|spec| spec.volume_claim_templates.as_deref())
        .unwrap_or_default()
}

/// Each claim of an ordinal: the template's name, which is the volume's, and its own.
pub(super) fn names(set: &StatefulSet, ordinal: Ordinal) -> Vec<(String, String)> {
    templates(set)
        .iter()
        .map(|template| {
            let template = name(&template.metadata);
            (
                template.to_owned(),
                format!("{template}-{}", identity::pod_name(set, ordinal)),
            )
        })
        .collect()
}

/// What the claims of a pod lack.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Lacking {
    /// To be made.
    pub(super) missing: Vec<PersistentVolumeClaim>,
    /// There, but not with the owners that the policy wants: as they are to be written.
    pub(super) owned: Vec<PersistentVolumeClaim>,
    /// On their way out: they must be gone first.
    pub(super) leaving: Vec<String>,
    /// Controlled by somebody else, so that the policy cannot hold for them.
    pub(super) foreign: Vec<String>,
}

/// Compares the claims of a pod, which may not be there yet, with what the set wants.
pub(super) fn lacking(set: &StatefulSet, pod: Option<&Pod>, ordinal: Ordinal, claims: Claims<'_>) -> Lacking {
    let mut lacking = Lacking::default();
    for (template, (_, claim_name)) in templates(set).iter().zip(names(set, ordinal)) {
        let Some(claim) = claims(&claim_name) else {
            lacking.missing.push(made(set, pod, ordinal, template, claim_name));
            continue;
        };
        if pods::is_deleting(&claim.metadata) {
            lacking.leaving.push(claim_name.clone());
        }
        let judged = owners(set, pod, ordinal, &claim);
        if judged.is_foreign {
            lacking.foreign.push(claim_name);
        }
        if let Some(owners) = judged.wanted {
            let mut claim = (*claim).clone();
            claim.metadata.owner_references = (!owners.is_empty()).then_some(owners);
            lacking.owned.push(claim);
        }
    }
    lacking
}

/// A claim of an earlier pod of the same name, with which it goes: the next pod must not use it.
pub(super) fn is_stale(set: &StatefulSet, ordinal: Ordinal, claims: Claims<'_>) -> bool {
    Retention::of(set).deleted_when_scaled
        && names(set, ordinal).iter().any(|(_, claim)| {
            claims(claim).is_some_and(|claim| {
                references(&claim.metadata).any(|owner| is_pod(owner, &identity::pod_name(set, ordinal)))
            })
        })
}

fn made(
    set: &StatefulSet,
    pod: Option<&Pod>,
    ordinal: Ordinal,
    template: &PersistentVolumeClaim,
    claim_name: String,
) -> PersistentVolumeClaim {
    let mut labels = template.metadata.labels.clone().unwrap_or_default();
    let selector = set.spec.as_ref().and_then(|spec| spec.selector.match_labels.clone());
    labels.extend(selector.unwrap_or_default());
    let owners = wanted(set, pod, ordinal);
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(claim_name),
            namespace: set.metadata.namespace.clone(),
            labels: (!labels.is_empty()).then_some(labels),
            annotations: template.metadata.annotations.clone(),
            finalizers: template.metadata.finalizers.clone(),
            owner_references: (!owners.is_empty()).then_some(owners),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

fn references(meta: &ObjectMeta) -> impl Iterator<Item = &OwnerReference> {
    meta.owner_references.iter().flatten()
}

fn is_pod(owner: &OwnerReference, pod: &str) -> bool {
    owner.api_version == "v1" && owner.kind == "Pod" && owner.name == pod
}

fn is_set(owner: &OwnerReference, set: &StatefulSet) -> bool {
    owner.api_version == "apps/v1" && owner.kind == "StatefulSet" && owner.name == name(&set.metadata)
}

/// The owners that the policy gives a claim: the set while its pod belongs to it, the pod once it does not.
fn wanted(set: &StatefulSet, pod: Option<&Pod>, ordinal: Ordinal) -> Vec<OwnerReference> {
    let retention = Retention::of(set);
    let is_condemned = !identity::ordinals(set).contains(&ordinal);
    let mut owners = Vec::new();
    if retention.deleted_with_set && !(is_condemned && retention.deleted_when_scaled) {
        owners.push(controller_reference(set));
    }
    if let Some(pod) = pod
        && retention.deleted_when_scaled
        && is_condemned
    {
        owners.push(controller_reference(pod));
    }
    owners
}

struct Judged {
    /// What the owners are to be, if they are not.
    wanted: Option<Vec<OwnerReference>>,
    is_foreign: bool,
}

fn owners(set: &StatefulSet, pod: Option<&Pod>, ordinal: Ordinal, claim: &PersistentVolumeClaim) -> Judged {
    let pod_name = identity::pod_name(set, ordinal);
    let set_uid = set.metadata.uid.as_deref().unwrap_or_default();
    let pod_uid = pod.and_then(|pod| pod.metadata.uid.as_deref()).unwrap_or_default();
    let is_ours = |owner: &OwnerReference| is_set(owner, set) || is_pod(owner, &pod_name);
    let is_stale = |owner: &OwnerReference| {
        (is_set(owner, set) && owner.uid != set_uid) || (is_pod(owner, &pod_name) && owner.uid != pod_uid)
    };
    let retention = Retention::of(set);
    // Somebody earlier of our name: not ours to touch, the garbage collector knows better.
    if references(&claim.metadata).any(is_stale) {
        let is_foreign = retention.deleted_with_set || retention.deleted_when_scaled;
        return Judged {
            wanted: None,
            is_foreign,
        };
    }
    let others = || references(&claim.metadata).filter(|owner| !is_ours(owner)).cloned();
    let is_foreign = (retention.deleted_with_set || retention.deleted_when_scaled)
        && others().any(|owner| owner.controller == Some(true));
    let ours: Vec<&OwnerReference> = references(&claim.metadata).filter(|owner| is_ours(owner)).collect();
    let wanted = if is_foreign {
        Vec::new()
    } else {
        wanted(set, pod, ordinal)
    };
    let uids = |owners: &mut dyn Iterator<Item = &OwnerReference>| {
        let mut uids: Vec<String> = owners.map(|owner| owner.uid.clone()).collect();
        uids.sort_unstable();
        uids
    };
    let is_fine = uids(&mut ours.iter().copied()) == uids(&mut wanted.iter())
        && ours.iter().all(|owner| owner.controller == Some(true));
    Judged {
        wanted: (!is_fine).then(|| others().chain(wanted).collect()),
        is_foreign,
    }
}
