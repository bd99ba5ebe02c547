//! Who a StatefulSet's pods are: their ordinals, names, labels and volumes.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::claims;
use crate::controllers::ownership::controller_reference;
use crate::controllers::templates;

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";
const REVISION: &str = "controller-revision-hash";

/// A revision of a set: the name it is known by, and its template.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Revision {
    pub(super) name: String,
    pub(super) template: PodTemplateSpec,
}

/// A number of a set's pod.
pub(super) type Ordinal = i32;

pub(super) fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// The ordinal that a pod's name says, if it is named as a pod of this set.
pub(super) fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<Ordinal> {
    let digits = name(&pod.metadata)
        .strip_prefix(name(&set.metadata))?
        .strip_prefix('-')?;
    let ordinal: Ordinal = digits.parse().ok()?;
    (ordinal.to_string() == digits).then_some(ordinal)
}

/// The ordinals that a set is to have.
pub(super) fn ordinals(set: &StatefulSet) -> std::ops::Range<Ordinal> {
    let spec = set.spec.as_ref();
    let start = spec.and_then(|spec| spec.ordinals.as_ref()?.start).unwrap_or_default();
    let replicas = spec.and_then(|spec| spec.replicas).unwrap_or(1);
    start..start.saturating_add(replicas)
}

pub(super) fn pod_name(set: &StatefulSet, ordinal: Ordinal) -> String {
    format!("{}-{ordinal}", name(&set.metadata))
}

/// The name of the revision that a pod was made of.
pub(super) fn revision(pod: &Pod) -> &str {
    let labels = pod.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(REVISION))
        .map(String::as_str)
        .unwrap_or_default()
}

/// The pod of an ordinal, as a revision says.
pub(super) fn pod(set: &StatefulSet, revision: &Revision, ordinal: Ordinal) -> Pod {
    let mut pod = templates::pod(&revision.template, controller_reference(set));
    let name = pod_name(set, ordinal);
    pod.metadata.name = Some(name.clone());
    pod.metadata.namespace = set.metadata.namespace.clone();
    identify(&mut pod, ordinal);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(REVISION.to_owned(), revision.name.clone());
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name);
    spec.subdomain = set
        .spec
        .as_ref()
        .and_then(|spec| spec.service_name.clone())
        .filter(|service| !service.is_empty());
    mount(set, &mut pod, ordinal);
    pod
}

fn identify(pod: &mut Pod, ordinal: Ordinal) {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME.to_owned(), name);
    labels.insert(POD_INDEX.to_owned(), ordinal.to_string());
}

/// The volumes of the set's claims instead of those of the same names.
fn mount(set: &StatefulSet, pod: &mut Pod, ordinal: Ordinal) {
    let claims = claims::names(set, ordinal);
    if claims.is_empty() {
        return;
    }
    let volumes = pod.spec.get_or_insert_default().volumes.get_or_insert_default();
    volumes.retain(|volume| !claims.iter().any(|(template, _)| *template == volume.name));
    let claimed = claims.into_iter().map(|(template, claim_name)| Volume {
        name: template,
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name,
            read_only: None,
        }),
        ..Volume::default()
    });
    volumes.splice(0..0, claimed);
}

/// What the pod must become to be the set's one of that ordinal; `None` if it is.
pub(super) fn mended(set: &StatefulSet, pod: &Pod, ordinal: Ordinal) -> Option<Pod> {
    let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(POD_NAME));
    let volumes = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.volumes.as_deref())
        .unwrap_or_default();
    let has_claim = |(template, claim): &(String, String)| {
        volumes.iter().any(|volume| {
            let source = volume.persistent_volume_claim.as_ref();
            volume.name == *template && source.is_some_and(|source| source.claim_name == *claim)
        })
    };
    let is_named = label == pod.metadata.name.as_ref();
    let is_mounted = claims::names(set, ordinal).iter().all(has_claim);
    if is_named && is_mounted {
        return None;
    }
    let mut pod = pod.clone();
    identify(&mut pod, ordinal);
    if !is_mounted {
        mount(set, &mut pod, ordinal);
    }
    Some(pod)
}
