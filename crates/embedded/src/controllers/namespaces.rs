//! A namespace that is deleted takes its contents along (O15): pods first, then everything else; when nothing is left,
//! `kubernetes` leaves its `spec.finalizers`, and it goes.
//!
//! It is looked at when it starts to terminate and when the last object in it goes; in between, for its conditions alone,
//! as often as the reference looks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::hand::{meta_of, target};
use super::{Census, Control, Hand, Next, Wishes};
use crate::fault::Fault;
use crate::registry::ask::Target;
use crate::registry::catalog::Resource;
use crate::registry::definitions::put_condition;
use crate::registry::object;
use crate::registry::read::ListOptions;
use crate::store::{Entry, Key, Kind, LogEntry};

/// In `spec.finalizers` of every namespace.
const KUBERNETES: &str = "kubernetes";
/// How long finalizers are expected to take.
const FINALIZER_SECONDS: i64 = 15;

#[derive(Debug, Default)]
pub(super) struct Namespaces {
    terminating: BTreeSet<String>,
}

fn is_namespace(key: &Key) -> bool {
    key.group().is_empty() && key.resource() == "namespaces"
}

impl Namespaces {
    fn note(&mut self, entry: &Entry, wishes: &mut Wishes) {
        let is_terminating = meta_of(&entry.value).is_some_and(|meta| meta.is_deleting());
        if is_terminating && self.terminating.insert(entry.key.name().to_owned()) {
            wishes.sync(entry.key.name());
        }
    }
}

impl Control for Namespaces {
    fn begin(&mut self, _: &Hand, state: &[Entry], _: &Census, wishes: &mut Wishes) {
        self.terminating.clear();
        for entry in state.iter().filter(|entry| is_namespace(&entry.key)) {
            self.note(entry, wishes);
        }
    }

    fn see(&mut self, _: &Hand, line: &LogEntry, census: &Census, wishes: &mut Wishes) {
        if is_namespace(&line.key) {
            match line.entry() {
                Some(entry) => self.note(&entry, wishes),
                None => {
                    self.terminating.remove(line.key.name());
                    wishes.no_more(line.key.name());
                }
            }
            return;
        }
        let Some(namespace) = line.key.namespace() else { return };
        if !self.terminating.contains(namespace) {
            return;
        }
        // What is left holds the rest up, or something came in at the last moment.
        let is_last = census.is_empty(namespace)
            || (line.key.resource() == "pods"
                && line.key.group().is_empty()
                && census.inside(namespace, "", "pods") == 0);
        if line.kind == Kind::Create || (line.kind == Kind::Delete && is_last) {
            wishes.sync(namespace);
        }
    }

    fn sync<'a>(&'a mut self, hand: &'a Hand, key: &'a str, _: &'a mut Wishes) -> BoxFuture<'a, Result<Next, Fault>> {
        async move {
            let catalog = hand.catalog();
            let Some(namespace) = catalog
                .find("", "namespaces")
                .and_then(|resource| target(resource, None, key))
            else {
                return Ok(Next::Done);
            };
            let Some(live) = hand.read(&namespace)? else {
                return Ok(Next::Done);
            };
            if !object::is_deleting(&live) || finalizers(&live).is_empty() {
                return Ok(Next::Done);
            }
            let contents = Contents::delete(hand, key, &live).await?;
            let live = contents.tell(hand, &namespace, live).await?;
            if let Some(fault) = contents.failures.into_iter().next() {
                return Err(fault);
            }
            if contents.seconds > 0 {
                let wait = SignedDuration::from_secs(contents.seconds / 2 + 1);
                return Ok(Next::At(hand.now().saturating_add(wait).unwrap_or(Timestamp::MAX)));
            }
            finalize(hand, &namespace, live).await?;
            Ok(Next::Done)
        }
        .boxed()
    }
}

fn finalizers(namespace: &Value) -> Vec<&str> {
    object::at(namespace, "spec.finalizers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Takes `kubernetes` from the namespace, which goes with it unless others hold it.
async fn finalize(hand: &Hand, namespace: &Target, mut live: Value) -> Result<(), Fault> {
    let left: Vec<String> = finalizers(&live)
        .into_iter()
        .filter(|name| *name != KUBERNETES)
        .map(str::to_owned)
        .collect();
    object::set_at(&mut live, "spec.finalizers", json!(left));
    match hand.replace(namespace, "finalize", live).await {
        Err(fault) if fault.code != 404 => Err(fault),
        _ => Ok(()),
    }
}

/// What is left in a namespace after everything in it was told to go.
#[derive(Debug, Default)]
struct Contents {
    /// By resource and group.
    remaining: BTreeMap<(Arc<str>, Arc<str>), usize>,
    by_finalizer: BTreeMap<String, usize>,
    /// How long the rest may take: the longest grace of a pod, or what finalizers usually take.
    seconds: i64,
    failures: Vec<Fault>,
}

impl Contents {
    /// Deletes everything, pods before all others: the rest is touched only when they are gone.
    async fn delete(hand: &Hand, namespace: &str, live: &Value) -> Result<Self, Fault> {
        let mut contents = Self::default();
        let catalog = hand.catalog();
        if let Some(pods) = catalog.find("", "pods") {
            contents.delete_kind(hand, pods, namespace, live).await?;
            if !contents.remaining.is_empty() {
                // The reference does not count what it has not come to.
                contents.remaining.clear();
                contents.by_finalizer.clear();
                return Ok(contents);
            }
        }
        let kinds = catalog.iter().filter(|resource| {
            let row = &resource.row;
            let is_itself = resource.place() == (&*row.group, &*row.plural);
            row.namespaced && row.verbs.contains(&"delete") && is_itself
        });
        for resource in kinds {
            contents.delete_kind(hand, resource, namespace, live).await?;
        }
        Ok(contents)
    }

    async fn delete_kind(
        &mut self,
        hand: &Hand,
        resource: &Arc<Resource>,
        namespace: &str,
        live: &Value,
    ) -> Result<(), Fault> {
        let Some(all) = target(resource, Some(namespace), "") else {
            return Ok(());
        };
        let store = &hand.registry.store;
        let prefix = resource.prefix(Some(namespace));
        let before = store.list(&prefix, None, None, 0).map_err(Fault::internal)?.entries;
        if before.is_empty() {
            return Ok(());
        }
        let mut estimate = grace(resource, &before);
        if waited(hand, live) >= estimate {
            estimate = 0;
        }
        if let Err(fault) = hand.delete_all(&all).await {
            self.failures.push(fault);
            return Ok(());
        }
        let left = hand.registry.list(&all, &ListOptions::default())?.entries;
        if left.is_empty() {
            return Ok(());
        }
        let mut has_finalizers = false;
        for meta in left.iter().filter_map(|entry| meta_of(&entry.value)) {
            for finalizer in meta.finalizers {
                has_finalizers = true;
                *self.by_finalizer.entry(finalizer).or_default() += 1;
            }
        }
        let row = &resource.row;
        self.remaining
            .insert((row.plural.clone(), row.group.clone()), left.len());
        match estimate {
            0 if has_finalizers => self.seconds = self.seconds.max(FINALIZER_SECONDS),
            0 => self.failures.push(Fault::internal(format!(
                "unexpected items still remain in namespace: {namespace} for gvr: {}/{}, Resource={}",
                row.group, all.version.name, row.plural
            ))),
            seconds => self.seconds = self.seconds.max(seconds),
        }
        Ok(())
    }

    /// Says in the namespace's conditions how far it is. Gives back the namespace as it is then.
    async fn tell(&self, hand: &Hand, namespace: &Target, live: Value) -> Result<Value, Fault> {
        let mut status = live.get("status").cloned().unwrap_or_else(|| json!({}));
        for condition in self.conditions(&object::time(hand.now())) {
            put_condition(&mut status, condition);
        }
        object::as_map(&mut status).insert("phase".to_owned(), "Terminating".into());
        if live.get("status") == Some(&status) {
            return Ok(live);
        }
        let change = json!({"metadata": {"resourceVersion": object::text(&live, "resourceVersion")}, "status": status});
        Ok(hand.patch(namespace, "status", change).await?.object)
    }

    fn conditions(&self, now: &Value) -> Vec<Value> {
        let condition = |kind: &str, wrong: Option<(&str, String)>, good: (&str, &str)| {
            let status = if wrong.is_some() { "True" } else { "False" };
            let (reason, message) = wrong.unwrap_or((good.0, good.1.to_owned()));
            json!({"type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message})
        };
        let failed = (!self.failures.is_empty()).then(|| {
            let mut messages: Vec<&str> = self.failures.iter().map(|fault| fault.message.as_str()).collect();
            messages.sort_unstable();
            let text = messages.join(", ");
            let count = messages.len();
            let message = format!("Failed to delete all resource types, {count} remaining: {text}");
            ("ContentDeletionFailed", message)
        });
        let content = (!self.remaining.is_empty()).then(|| {
            let mut words: Vec<String> = self
                .remaining
                .iter()
                .map(|((resource, group), count)| format!("{resource}.{group} has {count} resource instances"))
                .collect();
            words.sort_unstable();
            let message = format!("Some resources are remaining: {}", words.join(", "));
            ("SomeResourcesRemain", message)
        });
        let held = (!self.by_finalizer.is_empty()).then(|| {
            let mut words: Vec<String> = self
                .by_finalizer
                .iter()
                .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
                .collect();
            words.sort_unstable();
            let message = format!(
                "Some content in the namespace has finalizers remaining: {}",
                words.join(", ")
            );
            ("SomeFinalizersRemain", message)
        });
        vec![
            condition(
                "NamespaceDeletionDiscoveryFailure",
                None,
                ("ResourcesDiscovered", "All resources successfully discovered"),
            ),
            condition(
                "NamespaceDeletionGroupVersionParsingFailure",
                None,
                ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
            ),
            condition(
                "NamespaceDeletionContentFailure",
                failed,
                (
                    "ContentDeleted",
                    "All content successfully deleted, may be waiting on finalization",
                ),
            ),
            condition(
                "NamespaceContentRemaining",
                content,
                ("ContentRemoved", "All content successfully removed"),
            ),
            condition(
                "NamespaceFinalizersRemaining",
                held,
                ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
            ),
        ]
    }
}

/// The longest grace of a pod that may still run; 0 for other kinds.
fn grace(resource: &Resource, entries: &[Entry]) -> i64 {
    if !resource.row.group.is_empty() || &*resource.row.plural != "pods" {
        return 0;
    }
    entries
        .iter()
        .filter_map(|entry| object::decode(entry).ok())
        .filter(|pod| {
            let phase = object::at(pod, "status.phase").and_then(Value::as_str);
            !matches!(phase, Some("Succeeded" | "Failed"))
        })
        .filter_map(|pod| object::at(&pod, "spec.terminationGracePeriodSeconds")?.as_i64())
        .max()
        .unwrap_or(0)
}

/// Seconds since the namespace was told to go.
fn waited(hand: &Hand, namespace: &Value) -> i64 {
    let Ok(since) = object::text(namespace, "deletionTimestamp").parse::<Timestamp>() else {
        return i64::MAX;
    };
    hand.now().duration_since(since).as_secs()
}
