//! External triggers: `POST /v1/trigger/{plural}/{namespace}/{name}` on the TLS port writes an annotation with a fresh
//! value on the named object, and waits for the answer in its status if told so.
//!
//! A kind's crate declares which resource may be triggered and by which annotation ([`Trigger`]); what the annotation
//! makes the kind do is the kind's business, and so is the answer. Nothing is kept here: the annotation survives crashes,
//! and reaches the leader by its watch.
//!
//! **Every replica answers**, since a Service picks any. But the clients that write for the kinds are fenced: they send
//! nothing unless this process leads. So triggers have a client of their own without a fence ([`crate::client::unfenced`]).
//! That is safe because no plan's decision goes through it: it asks who a token belongs to and what they may do, writes that
//! one annotation, which the caller could have written themselves, and reads the object back. Use it for nothing else.
//!
//! The rooms: [`request`] reads what is asked (pure); [`cluster`] is what the desk asks of the API server; [`answer`] has
//! every refusal with its sentence. The order of the checks below is part of the promise: who is not known learns nothing
//! about objects, and who may not update an object does not learn whether it exists.

mod answer;
mod cluster;
mod request;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use futures::StreamExt;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use rustls::crypto::SecureRandom;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use usher_engine::{Backoff, Moment, ObjectKey, TokenBucket};

use crate::clock::Clock;
use crate::metrics::TriggerLabel;
use crate::record::ApiType;
use crate::serve::Health;
use crate::serve::connections::stopped;
use answer::{Answer, Refusal};
use cluster::{Cluster, KubeCluster, Trouble};
use request::Ask;

/// Triggers per second over all, and at once after a quiet time. What they cause may cost the leader seconds each.
const TRIGGERS: u32 = 10;
/// Requests with a token per second over all: each costs the API server a TokenReview, whoever sent it. More than
/// [`TRIGGERS`], so that the wrong tokens of one client do not soon lock out all others.
const REVIEWS: u32 = 50;
/// Requests that wait for an answer at once; each looks about once a second.
const WAITING: usize = 32;
/// Of a request's body, which is read and not looked at.
const BODY_BYTES: usize = 64 * 1024;
/// For that body.
const BODY_TIME: Duration = Duration::from_secs(10);
/// For one call to the API server.
const CALL_TIME: Duration = Duration::from_secs(10);
/// Between two looks at an object that is waited for.
const LOOKS: Backoff = Backoff {
    first: Duration::from_millis(50),
    cap: Duration::from_secs(1),
    factor: 1.5,
};
/// No letters that make words or look alike.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// What a kind lets be triggered from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trigger {
    /// Which resource. Its plural is in the path; `update` of it is the right that is asked for.
    pub resource: ApiType,
    /// What answers call it.
    pub called: &'static str,
    /// The annotation that takes the value.
    pub annotation: &'static str,
    /// The field of the status with the answer: an object whose field `trigger` repeats the annotation's value.
    pub answered_in: &'static str,
}

/// Answers triggers.
pub struct Desk {
    triggers: Vec<Trigger>,
    cluster: Box<dyn Cluster>,
    /// The one namespace this operator looks after; all of them when `None`.
    scope: Option<String>,
    health: Health,
    clock: Arc<dyn Clock>,
    random: &'static dyn SecureRandom,
    limits: Mutex<Limits>,
    waiting: Semaphore,
    body_time: Duration,
    call_time: Duration,
    counted: Family<TriggerLabel, Counter>,
    stop: watch::Receiver<bool>,
}

struct Limits {
    reviews: TokenBucket,
    triggers: TokenBucket,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk")
            .field("triggers", &self.triggers)
            .finish_non_exhaustive()
    }
}

/// What a desk is part of.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    pub(crate) scope: Option<String>,
    pub(crate) health: Health,
    pub(crate) counted: Family<TriggerLabel, Counter>,
    /// True when the operator is to stop: nobody waits any longer.
    pub(crate) stop: watch::Receiver<bool>,
}

impl Desk {
    /// `client` must have no fence, and is used for nothing else (see the module's header).
    pub(crate) fn new(
        triggers: Vec<Trigger>,
        client: kube::Client,
        clock: Arc<dyn Clock>,
        surroundings: Surroundings,
    ) -> Self {
        Self::with(triggers, Box::new(KubeCluster::new(client)), clock, surroundings)
    }

    fn with(
        triggers: Vec<Trigger>,
        cluster: Box<dyn Cluster>,
        clock: Arc<dyn Clock>,
        surroundings: Surroundings,
    ) -> Self {
        let Surroundings {
            scope,
            health,
            counted,
            stop,
        } = surroundings;
        Self {
            triggers,
            cluster,
            scope,
            health,
            clock,
            random: rustls::crypto::ring::default_provider().secure_random,
            limits: Mutex::new(Limits {
                reviews: TokenBucket::new(REVIEWS, REVIEWS),
                triggers: TokenBucket::new(TRIGGERS, TRIGGERS),
            }),
            waiting: Semaphore::new(WAITING),
            body_time: BODY_TIME,
            call_time: CALL_TIME,
            counted,
            stop,
        }
    }

    async fn answer(&self, request: Request) -> Response {
        let (head, body) = request.into_parts();
        let trigger = request::trigger(&self.triggers, head.uri.path());
        let answered = match request::read(&self.triggers, &head) {
            Ok(ask) => self.serve(ask, body).await,
            Err(refusal) => Err(refusal),
        };
        let answer = answered.unwrap_or_else(Answer::from);
        if let Some(trigger) = trigger {
            let label = TriggerLabel {
                resource: trigger.resource.plural,
                code: answer.status.as_u16().to_string(),
            };
            self.counted.get_or_create(&label).inc();
        }
        answer.into()
    }

    async fn serve(&self, ask: Ask<'_>, body: Body) -> Result<Answer, Refusal> {
        let Ask {
            trigger,
            key,
            wait,
            token,
        } = ask;
        if self.health.ready().is_err() {
            return Err(Refusal::NotReady);
        }
        let token = token.ok_or(Refusal::NoToken)?;
        if !self.admits(|limits, now| limits.reviews.try_take(now)) {
            return Err(Refusal::TooMany);
        }
        tokio::time::timeout(self.body_time, drain(body))
            .await
            .unwrap_or(Err(Refusal::BodyTooSlow))?;
        let user = self
            .timely(self.cluster.who(&token))
            .await?
            .ok_or(Refusal::UnknownToken)?;
        drop(token);
        if !self.timely(self.cluster.may_update(&user, trigger, &key)).await? {
            let name = user.username.unwrap_or_default();
            return Err(Refusal::forbidden(name, trigger, &key));
        }
        if let Some(scope) = self.scope.as_deref().filter(|scope| *scope != key.namespace()) {
            return Err(Refusal::OutOfScope {
                scope: scope.to_owned(),
            });
        }
        // The place first: a trigger that would then not be waited for is none of what was asked.
        let _place = match wait {
            Some(_) => Some(self.waiting.try_acquire().map_err(|_| Refusal::TooManyWait)?),
            None => None,
        };
        if !self.admits(|limits, now| limits.triggers.try_take(now)) {
            return Err(Refusal::TooMany);
        }
        let value = self.fresh()?;
        let marked = self.timely(self.cluster.annotate(trigger, &key, &value)).await?;
        let Some(before) = marked else {
            return Err(Refusal::no_such(trigger, &key));
        };
        tracing::info!(
            resource = trigger.resource.plural,
            object = %key,
            user = user.username.as_deref().unwrap_or_default(),
            value,
            "triggered"
        );
        match wait {
            None => Ok(Answer::accepted(trigger, &key, &value)),
            Some(wait) => self.wait(trigger, &key, value, wait, &before).await,
        }
    }

    /// Until the kind has answered this value, or a later one.
    async fn wait(
        &self,
        trigger: &Trigger,
        key: &ObjectKey,
        value: String,
        wait: Duration,
        before: &Value,
    ) -> Result<Answer, Refusal> {
        let look = async {
            for looks in 1.. {
                tokio::time::sleep(LOOKS.delay(looks)).await;
                // A server that is away for a moment may be back in time.
                match self.timely(self.cluster.read(trigger, key)).await {
                    Ok(Some(now)) if same_object(before, &now) => {
                        if let Some(answered) = answered(trigger, &value, before, &now) {
                            return Some(answered.clone());
                        }
                    }
                    Ok(_) => return None,
                    Err(_) => {}
                }
            }
            None
        };
        let mut stop = self.stop.clone();
        tokio::select! {
            found = tokio::time::timeout(wait, look) => match found {
                Ok(Some(answered)) => Ok(Answer::answered(trigger, key, &value, answered)),
                Ok(None) => Err(Refusal::no_such(trigger, key)),
                Err(_) => Err(Refusal::unanswered(trigger, key, value, wait)),
            },
            () = stopped(&mut stop) => Err(Refusal::Stopping { value }),
        }
    }

    async fn timely<T>(&self, call: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
        let answered = tokio::time::timeout(self.call_time, call).await;
        answered.unwrap_or(Err(Trouble::NoAnswer))
    }

    fn admits(&self, take: impl FnOnce(&mut Limits, Moment) -> bool) -> bool {
        let now = self.clock.monotonic();
        take(&mut self.limits.lock().unwrap_or_else(PoisonError::into_inner), now)
    }

    /// A value that no object had before: for people the time, and some letters for two in one second.
    fn fresh(&self) -> Result<String, Refusal> {
        let mut bytes = [0; 6];
        self.random.fill(&mut bytes).map_err(|_| Trouble::NoAnswer)?;
        let letter = |byte: &u8| {
            ALPHABET
                .get(usize::from(*byte) % ALPHABET.len())
                .copied()
                .map(char::from)
        };
        let letters: String = bytes.iter().filter_map(letter).collect();
        let now = self.clock.wall();
        let second = jiff::Timestamp::from_second(now.as_second()).unwrap_or(now);
        Ok(format!("{second}-{letters}"))
    }
}

/// Everything that is not a webhook.
pub(crate) fn router(desk: Desk) -> Router {
    let answer = |State(desk): State<Arc<Desk>>, request: Request| async move { desk.answer(request).await };
    Router::new().fallback(answer).with_state(Arc::new(desk))
}

/// Reads a body to its end, so that the connection can be used again, and forgets it.
async fn drain(body: Body) -> Result<(), Refusal> {
    let mut stream = body.into_data_stream();
    let mut bytes = 0;
    while let Some(part) = stream.next().await {
        bytes += part.map_err(|_| Refusal::BodyTooSlow)?.len();
        if bytes > BODY_BYTES {
            return Err(Refusal::BodyTooLarge { limit: BODY_BYTES });
        }
    }
    Ok(())
}

/// Not one of the same name that was made meanwhile.
fn same_object(before: &Value, now: &Value) -> bool {
    let uid = |object: &Value| object.pointer("/metadata/uid").cloned();
    uid(before) == uid(now)
}

/// The answer to `value`. If somebody has triggered again before ours was answered, the answer to theirs will do: it
/// was begun after ours. It must be a new one, though: a value set by hand may be one that was answered long ago.
fn answered<'v>(trigger: &Trigger, value: &str, before: &Value, now: &'v Value) -> Option<&'v Value> {
    let answer = |object: &'v Value| object.get("status")?.get(trigger.answered_in);
    let given = answer(now)?;
    let to = given.get("trigger")?.as_str()?;
    let annotations = now.pointer("/metadata/annotations");
    let asked = annotations.and_then(|annotations| annotations.get(trigger.annotation)?.as_str());
    let is_new = before.get("status").and_then(|status| status.get(trigger.answered_in)) != Some(given);
    (to == value || (asked == Some(to) && is_new)).then_some(given)
}

#[cfg(test)]
mod tests;
