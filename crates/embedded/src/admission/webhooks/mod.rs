//! Webhooks: which are asked about a write, in which order, and what comes of their answers.
//!
//! - [`hook`]: one webhook of a configuration. [`review`], [`patch`]: question and answer.
//! - [`call`], [`wire`], [`reply`]: getting it there and back.
//!
//! Configurations are read from the store for each write, and compiled once for each of their revisions: a change holds for
//! the next request. Mutating webhooks are asked one after the other, by the names of their configurations; validating
//! ones at the same time.

mod call;
mod hook;
mod patch;
mod reply;
mod review;
mod wire;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::join_all;
use serde_json::{Value, json};

use crate::admission::{Admission, Operation, Review};
use crate::fault::{Fault, FieldError, Path, quote};
use crate::registry::{Registry, object};
use crate::schema::cel::Condition;
use crate::store::{Key, Revision};
use call::Callers;
use hook::Hook;
use review::Verdict;

const GROUP: &str = "admissionregistration.k8s.io";
/// Groups whose objects no webhook is asked about: what runs the cluster must not hang on what runs in it.
const EXEMPT: [&str; 5] = [
    GROUP,
    "apiextensions.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "coordination.k8s.io",
];

/// What admission keeps of webhooks.
#[derive(Debug, Default)]
pub(super) struct Webhooks {
    mutating: Mutex<Compiled>,
    validating: Mutex<Compiled>,
    callers: Callers,
}

/// The webhooks of one kind of configuration, as of the revisions they were read at.
#[derive(Debug, Default)]
struct Compiled {
    read: Vec<(Key, Revision)>,
    hooks: Arc<Vec<Hook>>,
}

/// What became of a call.
enum Failure {
    /// The webhook could not be asked, or made no sense: `failurePolicy` decides.
    Call(String),
    /// It said no, or the write is at fault.
    Refused(Fault),
}

impl Admission {
    /// Answers what webhooks at this URL are asked, in this process. A Service's URL is `https://NAME.NAMESPACE.svc:PORT/PATH`.
    pub fn handle<H, F>(&self, url: &str, handler: H)
    where
        H: Fn(Value) -> F + Send + Sync + 'static,
        F: Future<Output = Value> + Send + 'static,
    {
        self.webhooks.callers.handle(url, call::boxed(handler));
    }
}

impl Registry {
    /// The webhooks of the configurations that are stored now.
    fn hooks(&self, plural: &str, compiled: &Mutex<Compiled>) -> Arc<Vec<Hook>> {
        let Ok(page) = self.store.list(&Key::prefix(GROUP, plural, None), None, None, 0) else {
            return Arc::default();
        };
        let mut compiled = compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = compiled.read.len() == page.entries.len()
            && compiled
                .read
                .iter()
                .zip(&page.entries)
                .all(|((key, revision), entry)| *key == entry.key && *revision == entry.revision);
        if !is_same {
            let configurations = page.entries.iter().filter_map(|entry| object::decode(entry).ok());
            let hooks = configurations.flat_map(|configuration| {
                let hooks = configuration.get("webhooks").and_then(Value::as_array);
                hooks.into_iter().flatten().map(Hook::read).collect::<Vec<_>>()
            });
            compiled.hooks = Arc::new(hooks.collect());
            compiled.read = page
                .entries
                .into_iter()
                .map(|entry| (entry.key, entry.revision))
                .collect();
        }
        compiled.hooks.clone()
    }

    /// Mutating webhooks, with the one reinvocation. `again` runs the built-in steps once more before it.
    pub(super) async fn mutate(
        &self,
        review: &Review<'_>,
        object: &mut Value,
        warnings: &mut Vec<String>,
    ) -> Result<(), Fault> {
        if is_exempt(review) {
            return Ok(());
        }
        let hooks = self.hooks("mutatingwebhookconfigurations", &self.admission.webhooks.mutating);
        if hooks.is_empty() {
            return Ok(());
        }
        let mut round = Round::default();
        for (index, hook) in hooks.iter().enumerate() {
            self.mutate_by(hook, index, review, object, warnings, &mut round)
                .await?;
        }
        if !round.changed {
            return Ok(());
        }
        let before = object.clone();
        self.built_in_steps(review, object)?;
        if before != *object {
            round.changed_again();
        }
        for (index, hook) in hooks.iter().enumerate() {
            if round.again.contains(&index) {
                let mut last = Round::default();
                self.mutate_by(hook, index, review, object, warnings, &mut last).await?;
            }
        }
        Ok(())
    }

    async fn mutate_by(
        &self,
        hook: &Hook,
        index: usize,
        review: &Review<'_>,
        object: &mut Value,
        warnings: &mut Vec<String>,
        round: &mut Round,
    ) -> Result<(), Fault> {
        let Some(version) = self.should_ask(hook, review, Some(object))? else {
            return Ok(());
        };
        let seen = patch::unstamped(review, object);
        let changed = match self.ask(hook, review, Some(&seen), &version, true, warnings).await {
            Ok(verdict) => patch::patched(review, &seen, &version, &verdict),
            Err(failure) => Err(failure),
        };
        match changed {
            Ok(None) => {}
            Ok(Some(new)) => {
                let new = patch::restamped(new, object);
                if new != *object {
                    *object = new;
                    round.changed_again();
                }
            }
            Err(failure) => failure.by_policy(hook)?,
        }
        if hook.is_reinvocable {
            round.asked.insert(index);
        }
        Ok(())
    }

    /// Validating webhooks; for a delete, mutating ones before them.
    pub(super) async fn judge(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Fault> {
        if is_exempt(review) {
            return Ok(());
        }
        if review.operation == Operation::Delete {
            let hooks = self.hooks("mutatingwebhookconfigurations", &self.admission.webhooks.mutating);
            for hook in hooks.iter() {
                self.mutate_nothing(hook, review, warnings).await?;
            }
        }
        let hooks = self.hooks("validatingwebhookconfigurations", &self.admission.webhooks.validating);
        let mut asked = Vec::new();
        for hook in hooks.iter() {
            if let Some(version) = self.should_ask(hook, review, object)? {
                asked.push((hook, version));
            }
        }
        let answers = join_all(asked.iter().map(|(hook, version)| async move {
            let mut said = Vec::new();
            let answer = self.ask(hook, review, object, version, false, &mut said).await;
            (*hook, answer, said)
        }))
        .await;
        let mut refused = None;
        for (hook, answer, said) in answers {
            warnings.extend(said);
            if let Err(failure) = answer
                && let Err(fault) = failure.by_policy(hook)
            {
                // The first is told; the reference tells whichever answered first.
                refused.get_or_insert(fault);
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// A mutating webhook that is asked about a delete may say no, but has nothing to change.
    async fn mutate_nothing(&self, hook: &Hook, review: &Review<'_>, warnings: &mut Vec<String>) -> Result<(), Fault> {
        let Some(version) = self.should_ask(hook, review, None)? else {
            return Ok(());
        };
        let answer = self.ask(hook, review, None, &version, true, warnings).await;
        let outcome = answer.and_then(|verdict| match verdict.patch().map_err(Failure::Call)? {
            None => Ok(()),
            Some(_) => Err(Failure::Refused(Fault::internal(format!(
                "admission webhook {} attempted to modify the object, which is not supported for this operation",
                quote(&hook.name)
            )))),
        });
        outcome.or_else(|failure| failure.by_policy(hook))
    }

    /// Whether the webhook is asked, and in which version.
    fn should_ask(&self, hook: &Hook, review: &Review<'_>, object: Option<&Value>) -> Result<Option<String>, Fault> {
        let Some(version) = hook.wanted_version(review) else {
            return Ok(None);
        };
        let labels = if hook.has_namespace_selector() {
            self.namespace_labels(review, object)
        } else {
            None
        };
        if !hook.selects(labels.as_ref(), object, review.old) {
            return Ok(None);
        }
        if !hook.has_conditions() {
            return Ok(Some(version));
        }
        let view =
            |object: Option<&Value>| object.map_or(Value::Null, |object| review::shown(review, object, &version));
        let request = review::request(review, &version, "");
        let (new, old) = (view(object), view(review.old));
        match hook.is_meant(&[("object", &new), ("oldObject", &old), ("request", &request)]) {
            Ok(true) => Ok(Some(version)),
            Ok(false) => Ok(None),
            Err(why) => Err(review.forbidden(&why)),
        }
    }

    /// The labels that `namespaceSelector` selects on: of a namespace that is written, its new ones. `None`: the kind has
    /// no namespaces.
    fn namespace_labels(&self, review: &Review<'_>, object: Option<&Value>) -> Option<Value> {
        let labels = |object: &Value| object::meta(object).get("labels").cloned().unwrap_or_default();
        if review.is("", "Namespace") {
            return object.or(review.old).map(labels);
        }
        let namespace = review.target.namespace.as_deref()?;
        let found = self.find("", "namespaces", None, namespace);
        Some(found.as_ref().map(labels).unwrap_or_default())
    }

    /// One call, its answer checked and its warnings taken.
    async fn ask(
        &self,
        hook: &Hook,
        review: &Review<'_>,
        object: Option<&Value>,
        version: &str,
        mutating: bool,
        warnings: &mut Vec<String>,
    ) -> Result<Verdict, Failure> {
        if review.ask.dry_run && !hook.takes_dry_runs {
            return Err(Failure::Refused(Fault::bad_request(format!(
                "admission webhook {} does not support dry run",
                quote(&hook.name)
            ))));
        }
        let Some(review_version) = hook.review_version else {
            return Err(Failure::Call(
                "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)"
                    .to_owned(),
            ));
        };
        let uid = self.dice.audit_id();
        let mut request = review::request(review, version, &uid);
        let map = object::as_map(&mut request);
        for (field, object) in [("object", object), ("oldObject", review.old)] {
            let view = object.map_or(Value::Null, |object| review::shown(review, object, version));
            map.insert(field.to_owned(), view);
        }
        let question = json!({
            "kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{review_version}"), "request": request,
        });
        let callers = &self.admission.webhooks.callers;
        let answer = callers
            .call(&self.store, &self.clock, &hook.place, question, hook.timeout_seconds)
            .await
            .map_err(|why| Failure::Call(format!("failed to call webhook: {why}")))?;
        let verdict = review::verdict(&answer, &uid, review_version, mutating)
            .map_err(|why| Failure::Call(format!("received invalid webhook response: {why}")))?;
        warnings.extend(verdict.warnings.iter().cloned());
        if verdict.allowed {
            Ok(verdict)
        } else {
            Err(Failure::Refused(review::denial(&hook.name, &verdict.status)))
        }
    }
}

impl Failure {
    /// What the write comes to: a webhook that cannot be asked may be passed over.
    fn by_policy(self, hook: &Hook) -> Result<(), Fault> {
        match self {
            Self::Refused(fault) => Err(fault),
            Self::Call(why) if hook.fails_open => {
                tracing::warn!(
                    webhook = hook.name,
                    why,
                    "a webhook could not be asked and is passed over"
                );
                Ok(())
            }
            Self::Call(why) => Err(Fault::internal(format!(
                "failed calling webhook {}: {why}",
                quote(&hook.name)
            ))),
        }
    }
}

/// Who was asked in a round, and who must be asked again because the object changed after.
#[derive(Debug, Default)]
struct Round {
    changed: bool,
    asked: BTreeSet<usize>,
    again: BTreeSet<usize>,
}

impl Round {
    fn changed_again(&mut self) {
        self.changed = true;
        self.again.append(&mut self.asked);
    }
}

fn is_exempt(review: &Review<'_>) -> bool {
    review.ask.is_admitted || EXEMPT.contains(&&*review.target.resource.row.group)
}

/// Rules on configurations that only who runs conditions can check.
pub(super) fn check_conditions(review: &Review<'_>, configuration: &Value) -> Result<(), Fault> {
    let mut errors = Vec::new();
    let hooks = configuration
        .get("webhooks")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    for (at, hook) in hooks.enumerate() {
        let conditions = hook
            .get("matchConditions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        for (index, condition) in conditions.enumerate() {
            let text = condition.get("expression").and_then(Value::as_str).unwrap_or_default();
            if let Err(why) = Condition::compile(text, &hook::NAMES) {
                let path = Path::new("webhooks").index(at).field("matchConditions").index(index);
                errors.push(FieldError::invalid(&path.field("expression"), text, why));
            }
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Fault::invalid(&review.target.subject(), review.name, &errors))
}
