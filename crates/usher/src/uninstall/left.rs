//! What is left of the custom resources: counts, and examples that say where to look.

use kube::api::{ListParams, PartialObjectMeta};
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use usher_subnets::api::FINALIZER;

use crate::Failed;
use crate::cluster::Cluster;

/// Objects per page: what the API server's own tools take.
pub(super) const PAGE: u32 = 500;
/// Examples named per kind.
const EXAMPLES: usize = 3;

/// One object's metadata.
pub(super) type Metadata = PartialObjectMeta<DynamicObject>;

/// The kinds of our CRDs, as the API names them.
pub(super) fn kinds() -> Vec<ApiResource> {
    let kind = |crd: k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition| {
        let version = crd.spec.versions.first().map(|v| v.name.clone()).unwrap_or_default();
        ApiResource {
            api_version: format!("{}/{version}", crd.spec.group),
            group: crd.spec.group,
            version,
            kind: crd.spec.names.kind,
            plural: crd.spec.names.plural,
        }
    };
    usher_subnets::api::crds().into_iter().map(kind).collect()
}

/// Whether the object carries our finalizer.
pub(super) fn is_finalized(object: &Metadata) -> bool {
    object.metadata.finalizers.iter().flatten().any(|f| f == FINALIZER)
}

/// Namespace and name.
pub(super) fn key(object: &Metadata) -> String {
    let meta = &object.metadata;
    format!(
        "{}/{}",
        meta.namespace.as_deref().unwrap_or("?"),
        meta.name.as_deref().unwrap_or("?")
    )
}

/// Objects of one kind.
#[derive(Debug, Default)]
struct Tally {
    count: usize,
    examples: Vec<String>,
}

impl Tally {
    fn add(&mut self, object: &Metadata) {
        self.count += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(key(object));
        }
    }

    /// `7 Subnets (team-a/x, team-a/y, team-b/z, …)`; nothing where there are none.
    fn phrase(&self, kind: &ApiResource) -> Option<String> {
        let plural = if self.count == 1 { "" } else { "s" };
        let more = if self.count > self.examples.len() { ", …" } else { "" };
        (self.count > 0).then(|| {
            format!(
                "{} {}{plural} ({}{more})",
                self.count,
                kind.kind,
                self.examples.join(", ")
            )
        })
    }
}

/// What is left, by kind.
#[derive(Debug)]
pub(super) struct Left {
    kinds: Vec<(ApiResource, Tally, Tally)>,
}

impl Left {
    /// Counts in one namespace, or in all.
    pub(super) async fn count(cluster: &Cluster, scope: Option<&str>) -> Result<Self, Failed> {
        let mut kinds = Vec::new();
        for kind in self::kinds() {
            let (mut all, mut finalized) = (Tally::default(), Tally::default());
            let mut params = ListParams::default().limit(PAGE);
            loop {
                let api = cluster.api(&kind, scope);
                // No such resource: the CRD is not installed, and nothing of it is left.
                let page = cluster
                    .find(&format!("list {}", kind.plural), api.list_metadata(&params))
                    .await?;
                let Some(page) = page else { break };
                for object in &page.items {
                    all.add(object);
                    if is_finalized(object) {
                        finalized.add(object);
                    }
                }
                match page.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => params = params.continue_token(&token),
                    None => break,
                }
            }
            kinds.push((kind, all, finalized));
        }
        Ok(Self { kinds })
    }

    pub(super) fn total(&self) -> usize {
        self.kinds.iter().map(|(_, all, _)| all.count).sum()
    }

    pub(super) fn finalized(&self) -> usize {
        self.kinds.iter().map(|(_, _, finalized)| finalized.count).sum()
    }

    /// All of it, in words.
    pub(super) fn everything(&self) -> String {
        joined(self.kinds.iter().filter_map(|(kind, all, _)| all.phrase(kind)))
    }

    /// What carries our finalizer, in words.
    pub(super) fn finalized_ones(&self) -> String {
        joined(
            self.kinds
                .iter()
                .filter_map(|(kind, _, finalized)| finalized.phrase(kind)),
        )
    }
}

fn joined(phrases: impl Iterator<Item = String>) -> String {
    phrases.collect::<Vec<_>>().join(", ")
}
