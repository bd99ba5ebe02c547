//! What a kind's `act` may do to the world, as a trait: [`Pass`] does it to a cluster, a simulator to its model.
//!
//! A kind writes `act` once, against this. That is what lets a search run the very steps that production runs, each call
//! held back, answered late, or never.

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::Value;
use usher_engine::ObjectKey;

use crate::api::{Answer, Pass};
use crate::error::Failure;
use crate::record::{ApiType, Meta};
use crate::view::{View, Wake};

/// See [`Pass`] for what each promises.
pub trait Hands: Sync {
    /// Looks at the view.
    fn view<T>(&self, look: impl FnOnce(&View) -> T) -> T;
    /// Performs an in-memory step on a derived value, and wakes whom it concerns.
    fn change<T>(&self, change: impl FnOnce(&mut View) -> (T, Vec<Wake>)) -> T;
    /// This process's wall clock.
    fn now(&self) -> Timestamp;
    /// Creates an object.
    fn create(
        &self,
        kind: ApiType,
        key: &ObjectKey,
        object: Value,
    ) -> impl Future<Output = Result<Answer, Failure>> + Send;
    /// Sets the finalizers of an object, if it is still the version in `meta`.
    fn set_finalizers(
        &self,
        kind: ApiType,
        meta: &Meta,
        finalizers: &[&str],
    ) -> impl Future<Output = Result<Answer, Failure>> + Send;
    /// Sets the owner references of an object, whole, if it is still the version in `meta`.
    fn set_owners(
        &self,
        kind: ApiType,
        meta: &Meta,
        owners: Vec<Value>,
    ) -> impl Future<Output = Result<Answer, Failure>> + Send;
    /// Deletes an object if it is still this incarnation and version. Gone already is done.
    fn delete(&self, kind: ApiType, meta: &Meta) -> impl Future<Output = Result<Answer, Failure>> + Send;
    /// Reads one object past the view, from a quorum.
    fn get(
        &self,
        kind: ApiType,
        key: &ObjectKey,
    ) -> impl Future<Output = Result<Option<DynamicObject>, Failure>> + Send;
    /// Reads all objects of a type in a namespace past the view, from a quorum.
    fn list(&self, kind: ApiType, namespace: &str) -> impl Future<Output = Result<Vec<DynamicObject>, Failure>> + Send;
}

impl Hands for Pass {
    fn view<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        Pass::view(self, look)
    }

    fn change<T>(&self, change: impl FnOnce(&mut View) -> (T, Vec<Wake>)) -> T {
        Pass::change(self, change)
    }

    fn now(&self) -> Timestamp {
        Pass::now(self)
    }

    async fn create(&self, kind: ApiType, key: &ObjectKey, object: Value) -> Result<Answer, Failure> {
        Pass::create(self, kind, key, object).await
    }

    async fn set_finalizers(&self, kind: ApiType, meta: &Meta, finalizers: &[&str]) -> Result<Answer, Failure> {
        Pass::set_finalizers(self, kind, meta, finalizers).await
    }

    async fn set_owners(&self, kind: ApiType, meta: &Meta, owners: Vec<Value>) -> Result<Answer, Failure> {
        Pass::set_owners(self, kind, meta, owners).await
    }

    async fn delete(&self, kind: ApiType, meta: &Meta) -> Result<Answer, Failure> {
        Pass::delete(self, kind, meta).await
    }

    async fn get(&self, kind: ApiType, key: &ObjectKey) -> Result<Option<DynamicObject>, Failure> {
        Pass::get(self, kind, key).await
    }

    async fn list(&self, kind: ApiType, namespace: &str) -> Result<Vec<DynamicObject>, Failure> {
        Pass::list(self, kind, namespace).await
    }
}
