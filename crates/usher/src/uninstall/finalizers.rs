//! Takes Usher's finalizer off objects, when nobody is left who would.
//!
//! Each write names the version it was decided on, so that it takes off this one finalizer and nothing that somebody
//! else put there meanwhile. No object is deleted by it, except those that somebody has deleted already and that only
//! waited for this.

use futures::{StreamExt, TryStreamExt};
use kube::api::{ListParams, Patch, PatchParams};
use kube::discovery::ApiResource;
use serde_json::json;
use usher_subnets::api::FINALIZER;

use super::left::{self, Left, Metadata, PAGE, key};
use crate::Failed;
use crate::cluster::Cluster;
use crate::output::Progress;

/// Writes in flight.
const AT_ONCE: usize = 16;
/// How often an object that keeps changing is tried before somebody is told.
const TRIES: usize = 5;
/// How often everything is listed until nothing is found; more means that somebody puts finalizers back.
const ROUNDS: usize = 5;

/// Takes it off everything in one namespace, or in all.
pub(super) async fn remove(
    cluster: &Cluster,
    scope: Option<&str>,
    left: &Left,
    dry_run: bool,
    progress: &mut Progress,
) -> Result<(), Failed> {
    if dry_run {
        let note = Some(left.finalized_ones());
        return progress.noted("would remove", format!("finalizer {FINALIZER}"), note);
    }
    for kind in left::kinds() {
        let mut removed = 0;
        for round in 1.. {
            let found = sweep(cluster, &kind, scope, removed, progress).await?;
            removed += found;
            if found == 0 {
                break;
            }
            if round == ROUNDS {
                return Err(format!(
                    "{} get their finalizers back as fast as they are removed: another operator runs; stop it and run \
                     this again",
                    kind.plural
                )
                .into());
            }
        }
        if removed > 0 {
            progress.did("unfinalized", format!("{removed} {}", kind.plural))?;
        }
    }
    Ok(())
}

/// One walk over all pages; how many were found with the finalizer.
async fn sweep(
    cluster: &Cluster,
    kind: &ApiResource,
    scope: Option<&str>,
    before: usize,
    progress: &Progress,
) -> Result<usize, Failed> {
    let mut found = 0;
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let api = cluster.api(kind, scope);
        let page = match cluster
            .find(&format!("list {}", kind.plural), api.list_metadata(&params))
            .await
        {
            // The list took longer than the server remembers; the next walk finds the rest.
            Err(refusal) if refusal.is(410) => return Ok(found.max(1)),
            other => other?,
        };
        let Some(page) = page else { return Ok(found) };
        let ours: Vec<Metadata> = page.items.into_iter().filter(left::is_finalized).collect();
        let on_page = ours.len();
        found += on_page;
        futures::stream::iter(ours)
            .map(Ok)
            .try_for_each_concurrent(AT_ONCE, |object| take_off(cluster, kind, object))
            .await?;
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
        if on_page > 0 {
            progress.say(&format!(
                "{} finalizers taken off {} so far",
                before + found,
                kind.plural
            ))?;
        }
    }
}

/// One object.
async fn take_off(cluster: &Cluster, kind: &ApiResource, mut object: Metadata) -> Result<(), Failed> {
    let (namespace, name) = (object.metadata.namespace.clone(), object.metadata.name.clone());
    let (api, name) = (cluster.api(kind, namespace.as_deref()), name.unwrap_or_default());
    let what = format!("{} {}", kind.kind, key(&object));
    for _ in 0..TRIES {
        if !left::is_finalized(&object) {
            return Ok(());
        }
        let others: Vec<&String> = object
            .metadata
            .finalizers
            .iter()
            .flatten()
            .filter(|f| *f != FINALIZER)
            .collect();
        let patch = json!({"metadata": {
            "uid": object.metadata.uid,
            "resourceVersion": object.metadata.resource_version,
            "finalizers": others,
        }});
        let doing = format!("take the finalizer off {what}");
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        match cluster.find(&doing, api.patch_metadata(&name, &params, &patch)).await {
            Err(refusal) if refusal.is(409) => {}
            other => return other.map(drop).map_err(Failed::from),
        }
        match cluster.find(&format!("read {what}"), api.get_metadata(&name)).await? {
            Some(newer) => object = newer,
            None => return Ok(()),
        }
    }
    Err(
        format!("{what} keeps changing: another operator or a script writes to it; stop that and run this again")
            .into(),
    )
}
