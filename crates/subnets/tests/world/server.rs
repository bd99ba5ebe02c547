//! The API server of the model: versions, guards, finalizers, generations, as the real one has them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use usher_engine::ObjectKey;
use usher_operator::record::{ApiType, Meta, Record};
use usher_subnets::records::{CLAIMS, POOLS};

use super::{NS, key, read};

/// One change, as a watch brings it.
#[derive(Debug, Clone)]
pub struct Entry {
    pub kind: ApiType,
    pub gone: bool,
    pub object: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    Exists,
    Conflict,
    Gone,
}

/// The API server.
#[derive(Debug, Default)]
pub struct Server {
    pub objects: BTreeMap<(ApiType, ObjectKey), Value>,
    pub log: Vec<Entry>,
    now: Timestamp,
    /// A policy refuses every Subnet that an operator creates.
    pub refuses_subnets: bool,
}

pub fn text<'v>(object: &'v Value, path: &str) -> &'v str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

impl Server {
    pub fn get(&self, kind: ApiType, name: &str) -> Option<&Value> {
        self.objects.get(&(kind, key(name)))
    }

    pub fn all<R: Record>(&self) -> Vec<R> {
        let of_type = self.objects.iter().filter(|((kind, _), _)| *kind == R::TYPE);
        of_type.map(|(_, object)| read(object).unwrap()).collect()
    }

    pub fn now(&self) -> Timestamp {
        self.now
    }

    pub fn pass_time(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    pub fn revision(&self) -> u64 {
        self.log.len() as u64
    }

    fn store(&mut self, kind: ApiType, mut object: Value, gone: bool) -> u64 {
        object["metadata"]["resourceVersion"] = json!((self.revision() + 1).to_string());
        let at = (kind, key(text(&object, "/metadata/name")));
        if gone {
            self.objects.remove(&at);
        } else {
            self.objects.insert(at, object.clone());
        }
        self.log.push(Entry { kind, gone, object });
        self.revision()
    }

    pub fn create(&mut self, kind: ApiType, mut object: Value) -> Result<u64, Refused> {
        if self.get(kind, text(&object, "/metadata/name")).is_some() {
            return Err(Refused::Exists);
        }
        // The shape of a real one: a Subnet whose clusterID has it may stand for a pool.
        let uid = format!("00000000-0000-4000-8000-{:012x}", self.revision() + 1);
        object.as_object_mut().unwrap().remove("status");
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.kind);
        object["metadata"]["namespace"] = json!(NS);
        object["metadata"]["uid"] = json!(uid);
        object["metadata"]["generation"] = json!(1);
        object["metadata"]["creationTimestamp"] = json!(self.now.to_string());
        Ok(self.store(kind, object, false))
    }

    fn guarded(&self, kind: ApiType, meta: &Meta) -> Result<Value, Refused> {
        let object = self.get(kind, meta.key.name()).ok_or(Refused::Gone)?;
        let same = text(object, "/metadata/resourceVersion") == meta.revision.to_string();
        if same {
            Ok(object.clone())
        } else {
            Err(Refused::Conflict)
        }
    }

    pub fn set_status(&mut self, kind: ApiType, meta: &Meta, status: Value) -> Result<u64, Refused> {
        let mut object = self.guarded(kind, meta)?;
        object["status"] = status;
        Ok(self.store(kind, object, false))
    }

    pub fn set_metadata(&mut self, kind: ApiType, meta: &Meta, field: &str, value: Value) -> Result<u64, Refused> {
        let mut object = self.guarded(kind, meta)?;
        object["metadata"][field] = value;
        Ok(self.store(kind, object, false))
    }

    /// Sets finalizers; `None`: the object went with its last one.
    pub fn set_finalizers(
        &mut self,
        kind: ApiType,
        meta: &Meta,
        finalizers: Vec<String>,
    ) -> Result<Option<u64>, Refused> {
        let mut object = self.guarded(kind, meta)?;
        let gone = finalizers.is_empty() && object.pointer("/metadata/deletionTimestamp").is_some();
        object["metadata"]["finalizers"] = json!(finalizers);
        let revision = self.store(kind, object, gone);
        Ok((!gone).then_some(revision))
    }

    pub fn delete(&mut self, kind: ApiType, name: &str, guard: Option<&Meta>) -> Result<Option<u64>, Refused> {
        let mut object = match guard {
            Some(meta) => self.guarded(kind, meta)?,
            None => self.get(kind, name).ok_or(Refused::Gone)?.clone(),
        };
        let held = object
            .pointer("/metadata/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|f| !f.is_empty());
        if !held {
            self.store(kind, object, true);
            return Ok(None);
        }
        if object.pointer("/metadata/deletionTimestamp").is_none() {
            object["metadata"]["deletionTimestamp"] = json!(self.now.to_string());
            // As the real one does.
            object["metadata"]["generation"] = json!(object["metadata"]["generation"].as_i64().unwrap() + 1);
            return Ok(Some(self.store(kind, object, false)));
        }
        Ok(Some(text(&object, "/metadata/resourceVersion").parse().unwrap()))
    }

    pub fn edit(&mut self, kind: ApiType, name: &str, change: impl FnOnce(&mut Value)) {
        let Some(object) = self.get(kind, name) else { return };
        let mut object = object.clone();
        let spec = object["spec"].clone();
        change(&mut object);
        if object["spec"] != spec {
            object["metadata"]["generation"] = json!(object["metadata"]["generation"].as_i64().unwrap() + 1);
        }
        self.store(kind, object, false);
    }

    pub fn create_pool(&mut self, name: &str, spec: Value) {
        self.create(POOLS, json!({"metadata": {"name": name}, "spec": spec}))
            .unwrap();
    }

    pub fn create_claim(&mut self, name: &str, spec: Value) {
        self.create(CLAIMS, json!({"metadata": {"name": name}, "spec": spec}))
            .unwrap();
    }
}
