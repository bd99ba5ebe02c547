//! What a kind may do to the world during a pass. Every write is guarded, timed, counted, and remembered until its echo
//! is in view.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions, Request};
use kube::core::request::Error as RequestError;
use serde_json::{Value, json};
use usher_engine::ObjectKey;
use usher_engine::hash::CanonicalHash;

use crate::arrived::Stored;
use crate::error::Failure;
use crate::metrics::WriteLabel;
use crate::record::{ApiType, Meta};
use crate::shared::Shared;
use crate::turn::Rank;
use crate::view::{View, Wake};
use crate::written::{Expect, Reader};

/// One call to the API takes no longer than this; past it, its outcome is unknown.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// What the server answered to a write.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The object's new version; 0 where the object is gone.
    pub revision: u64,
    /// Hash of its status as stored.
    pub status_hash: Option<CanonicalHash>,
}

/// One pass's hands.
#[derive(Debug)]
pub struct Pass {
    shared: Arc<Shared>,
    reader: Reader,
    /// Versions that a write of this very pass has replaced: object, version it was based on, version it made. What was
    /// planned for the one holds for the other, since nothing but our own write lies between them.
    renewed: Mutex<Vec<(ApiType, ObjectKey, u64, u64)>>,
    /// How urgent the writes of the present step are.
    rank: AtomicU8,
}

impl Pass {
    pub(crate) fn new(shared: Arc<Shared>, reader: Reader) -> Self {
        Self {
            shared,
            reader,
            renewed: Mutex::default(),
            rank: AtomicU8::new(Rank::default().0),
        }
    }

    /// Says how urgent the writes are from here on.
    pub(crate) fn set_rank(&self, rank: Rank) {
        self.rank.store(rank.0, Ordering::Relaxed);
    }

    /// The version to guard a write with, for an object planned at `meta`.
    fn version(&self, kind: ApiType, meta: &Meta) -> u64 {
        let renewed = self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        let later = |from: u64| {
            renewed
                .iter()
                .find(|(k, key, old, _)| *k == kind && *key == meta.key && *old == from)
        };
        let mut version = meta.revision;
        while let Some((_, _, _, new)) = later(version) {
            version = *new;
        }
        version
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Looks at the view.
    pub fn view<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        self.shared.view(look)
    }

    /// Performs an in-memory step on a derived value, and wakes whom it concerns.
    pub fn change<T>(&self, change: impl FnOnce(&mut View) -> (T, Vec<Wake>)) -> T {
        let (value, wakes) = self.shared.change(change);
        self.shared.wake(wakes);
        value
    }

    /// Creates an object.
    pub async fn create(&self, kind: ApiType, key: &ObjectKey, object: Value) -> Result<Answer, Failure> {
        let request = Request::new(kind.path(key.namespace()));
        let request = request.create(&PostParams::default(), object.to_string().into_bytes());
        self.write("create", kind, key, None, async { self.send(request).await.map(Some) })
            .await
    }

    /// Replaces a resource's status, whole, if the resource is still the version in `meta`.
    pub async fn replace_status(&self, kind: ApiType, meta: &Meta, status: Value) -> Result<Answer, Failure> {
        let version = self.version(kind, meta);
        let object = json!({
            "apiVersion": kind.api_version(),
            "kind": kind.kind,
            "metadata": {
                "namespace": meta.key.namespace(),
                "name": meta.key.name(),
                "uid": meta.uid,
                "resourceVersion": version.to_string(),
            },
            "status": status,
        });
        let request = Request::new(kind.path(meta.key.namespace()));
        let (name, body) = (meta.key.name(), object.to_string().into_bytes());
        let request = request.replace_subresource("status", name, &PostParams::default(), body);
        let call = async { self.send(request).await.map(Some) };
        self.write("update", kind, &meta.key, Some(version), call).await
    }

    /// Sets the finalizers of an object, if it is still the version in `meta`.
    pub async fn set_finalizers(&self, kind: ApiType, meta: &Meta, finalizers: &[&str]) -> Result<Answer, Failure> {
        // The last finalizer of a deleted object: the answer is its last version, the object is gone.
        let last = finalizers.is_empty() && meta.deleting.is_some();
        let fields = json!({"metadata": {"finalizers": finalizers}});
        self.merge(kind, meta, fields, last).await
    }

    /// Merges `fields` into an object, if it is still the version in `meta`; what is `null` there is removed.
    pub async fn patch(&self, kind: ApiType, meta: &Meta, fields: Value) -> Result<Answer, Failure> {
        self.merge(kind, meta, fields, false).await
    }

    /// Merges fields into an object, guarded. `last`: the object is gone afterwards.
    async fn merge(&self, kind: ApiType, meta: &Meta, mut patch: Value, last: bool) -> Result<Answer, Failure> {
        let version = self.version(kind, meta);
        guard(&mut patch, meta, version);
        let request = Request::new(kind.path(meta.key.namespace()));
        let request = request.patch(meta.key.name(), &PatchParams::default(), &Patch::Merge(&patch));
        let call = async { Ok(Some(self.send(request).await?).filter(|_| !last)) };
        self.write("patch", kind, &meta.key, Some(version), call).await
    }

    /// Sets the owner references of an object, whole, if it is still the version in `meta`.
    pub async fn set_owners(&self, kind: ApiType, meta: &Meta, owners: Vec<Value>) -> Result<Answer, Failure> {
        let fields = json!({"metadata": {"ownerReferences": owners}});
        self.merge(kind, meta, fields, false).await
    }

    /// Applies an object in the name of `manager`, on the server's side: the fields it has become the manager's, whoever had
    /// them; those that it had in the application before and has no more go.
    ///
    /// `found` is the object as it was planned for: another version is a conflict. With `None` there must not be one yet. The
    /// server knows no such guard for an application, so it is asked just before; one that comes in between is applied to.
    pub async fn apply(
        &self,
        kind: ApiType,
        key: &ObjectKey,
        found: Option<&Meta>,
        mut object: Value,
        manager: &str,
    ) -> Result<Answer, Failure> {
        let version = found.map(|meta| self.version(kind, meta));
        match (found, version) {
            (Some(meta), Some(version)) => guard(&mut object, meta, version),
            _ if self.get(kind, key).await?.is_some() => {
                return Err(Failure::Exists {
                    object: name(kind, key),
                });
            }
            _ => {}
        }
        let request = Request::new(kind.path(key.namespace()));
        let request = request.patch(key.name(), &PatchParams::apply(manager).force(), &Patch::Apply(&object));
        let call = async { self.send(request).await.map(Some) };
        self.write("apply", kind, key, version, call).await
    }

    /// Deletes an object if it is still this incarnation and version. Gone already is done.
    pub async fn delete(&self, kind: ApiType, meta: &Meta) -> Result<Answer, Failure> {
        let version = self.version(kind, meta);
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: Some(meta.uid.to_string()),
            resource_version: Some(version.to_string()),
        });
        let request = Request::new(kind.path(meta.key.namespace()));
        let request = request
            .delete(meta.key.name(), &params)
            .map_err(kube::Error::BuildRequest);
        let client = &self.shared.clients.write;
        // Where it is not held back by a finalizer, the answer is a status: the object is gone.
        let call = async {
            client
                .request_status::<Stored>(request?)
                .await
                .map(|answer| answer.left())
        };
        self.write("delete", kind, &meta.key, Some(version), call).await
    }

    /// Reads one object past the view, from a quorum. `None`: it does not exist; that its type is not served at present is
    /// no proof of that.
    pub async fn get(&self, kind: ApiType, key: &ObjectKey) -> Result<Option<DynamicObject>, Failure> {
        let api = self.api(kind, key);
        match self.read("get", kind, name(kind, key), api.get(key.name())).await {
            Ok(object) => Ok(Some(object)),
            Err(Failure::Gone { .. }) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Reads all objects of a type in a namespace past the view, from a quorum.
    pub async fn list(&self, kind: ApiType, namespace: &str) -> Result<Vec<DynamicObject>, Failure> {
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.shared.clients.write.clone(), namespace, &kind.resource());
        let object = format!("{} in {namespace}", kind.plural);
        self.pages(kind, object, api).await
    }

    /// Reads all objects of a type that has no namespaces (nodes), from a quorum.
    pub async fn list_all(&self, kind: ApiType) -> Result<Vec<DynamicObject>, Failure> {
        let api = Api::all_with(self.shared.clients.write.clone(), &kind.resource());
        self.pages(kind, kind.plural.to_owned(), api).await
    }

    async fn pages(
        &self,
        kind: ApiType,
        object: String,
        api: Api<DynamicObject>,
    ) -> Result<Vec<DynamicObject>, Failure> {
        let mut params = ListParams::default().limit(500);
        let mut items = Vec::new();
        loop {
            // Each page has its own time: a long list is not a slow one.
            let page = self.read("list", kind, object.clone(), api.list(&params)).await?;
            items.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(items),
            }
        }
    }

    /// Whether we lead, and will for a while: what a kind asks before it tells a data plane to do something. Writes to the API
    /// ask by themselves.
    pub fn leads(&self) -> bool {
        self.shared.may_act()
    }

    /// This process's wall clock.
    pub fn now(&self) -> jiff::Timestamp {
        self.shared.clock.wall()
    }

    fn api(&self, kind: ApiType, key: &ObjectKey) -> Api<DynamicObject> {
        Api::namespaced_with(self.shared.clients.write.clone(), key.namespace(), &kind.resource())
    }

    async fn send(&self, request: Result<http::Request<Vec<u8>>, RequestError>) -> Result<Stored, kube::Error> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        self.shared.clients.write.request(request).await
    }

    async fn read<T>(
        &self,
        verb: &'static str,
        kind: ApiType,
        object: String,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Failure> {
        let outcome = timed(verb, object, call).await;
        let result = outcome.as_ref().map_or_else(Failure::label, |_| "success");
        self.shared
            .metrics
            .reads
            .get_or_create(&WriteLabel {
                verb,
                resource: kind.plural,
                result,
            })
            .inc();
        outcome
    }

    /// Performs one write. `based_on` is the version it was planned from, where there is one. The call answers `None`
    /// when the object is gone afterwards.
    async fn write(
        &self,
        verb: &'static str,
        kind: ApiType,
        key: &ObjectKey,
        based_on: Option<u64>,
        call: impl Future<Output = Result<Option<Stored>, kube::Error>>,
    ) -> Result<Answer, Failure> {
        let shared = &self.shared;
        let _turn = shared.turnstile.turn(Rank(self.rank.load(Ordering::Relaxed))).await;
        // After the wait for a place, not before: the lease may have ended meanwhile.
        if !shared.may_act() {
            return Err(Failure::NotLeader {
                object: name(kind, key),
            });
        }
        let uid = shared.view(|view| view.identity(kind, key).map(|(uid, _)| uid));
        let outcome = timed(verb, name(kind, key), call).await;
        let result = outcome.as_ref().map_or_else(Failure::label, |_| "success");
        shared.metrics.writes.count(WriteLabel {
            verb,
            resource: kind.plural,
            result,
        });
        match outcome {
            Ok(Some(stored)) => {
                let answer = Answer {
                    revision: stored.revision(),
                    status_hash: stored.status_hash(),
                };
                if let Some(version) = based_on {
                    let mut renewed = self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
                    renewed.push((kind, key.clone(), version, answer.revision));
                }
                shared.note_written(&self.reader, kind, key, Expect::Revision(answer.revision));
                Ok(answer)
            }
            Ok(None) => {
                if let Some(uid) = uid {
                    shared.note_written(&self.reader, kind, key, Expect::Gone(uid));
                }
                Ok(Answer {
                    revision: 0,
                    status_hash: None,
                })
            }
            Err(failure) => {
                match (&failure, based_on, uid) {
                    (Failure::Conflict { .. }, Some(version), _) => {
                        self.confirm_newer(verb, kind, key, version).await?;
                        shared.note_written(&self.reader, kind, key, Expect::Newer(version));
                    }
                    (Failure::Gone { .. }, _, Some(uid)) => {
                        shared.note_written(&self.reader, kind, key, Expect::Gone(uid));
                    }
                    _ => {}
                }
                Err(failure)
            }
        }
    }

    /// A conflict is waited out until the newer version shows; so there must be one. A server that says 409 for another
    /// reason (quota, a webhook, something in between) is tried again instead.
    async fn confirm_newer(
        &self,
        verb: &'static str,
        kind: ApiType,
        key: &ObjectKey,
        version: u64,
    ) -> Result<(), Failure> {
        match self.get(kind, key).await? {
            Some(object) if object.metadata.resource_version == Some(version.to_string()) => Err(Failure::Unknown {
                verb,
                object: name(kind, key),
                problem: "409, but there is no newer version".to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

/// Puts into an object which incarnation and version of it the rest is meant for.
fn guard(object: &mut Value, meta: &Meta, version: u64) {
    let fields = object.as_object_mut();
    let metadata = fields.map(|fields| fields.entry("metadata").or_insert_with(|| json!({})));
    if let Some(metadata) = metadata.and_then(Value::as_object_mut) {
        metadata.insert("uid".into(), json!(meta.uid));
        metadata.insert("resourceVersion".into(), json!(version.to_string()));
    }
}

async fn timed<T>(
    verb: &'static str,
    object: String,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Failure::from_client(verb, object, error)),
        Err(_) => Err(Failure::Unknown {
            verb,
            object,
            problem: format!("no answer within {} s", CALL_TIMEOUT.as_secs()),
        }),
    }
}

fn name(kind: ApiType, key: &ObjectKey) -> String {
    format!("{} {key}", kind.kind)
}
