//! Reviews: kinds that are asked and not stored. Whatever is authenticated is allowed (X2), and they say so.

use serde_json::{Value, json};

use crate::api::Server;
use crate::caller::Caller;
use crate::fault::{Fault, FieldError, Path};
use crate::registry::ask::Target;
use crate::registry::object;
use crate::store::Key;

const ALLOWED: &str = "this cluster has one user and no authorization: whatever is authenticated is allowed";

impl Server {
    /// The review with its `status`.
    pub(super) fn review(&self, target: &Target, mut review: Value, caller: &Caller) -> Result<Value, Fault> {
        let status = match &*target.resource.row.kind {
            "SelfSubjectReview" => json!({"userInfo": caller.info()}),
            "TokenReview" => self.token_status(&review),
            "SelfSubjectRulesReview" => json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            }),
            kind => {
                check_access(target, kind, &review)?;
                json!({"allowed": true, "reason": ALLOWED})
            }
        };
        let map = object::as_map(&mut review);
        map.insert("status".to_owned(), status);
        let meta = object::meta_mut(&mut review);
        if &*target.resource.row.kind == "SelfSubjectReview" {
            meta.insert("creationTimestamp".to_owned(), object::time(self.registry.clock.now()));
        }
        Ok(review)
    }

    fn token_status(&self, review: &Value) -> Value {
        let token = object::at(review, "spec.token")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let wanted: Vec<&str> = object::at(review, "spec.audiences")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        match self.security.token_caller(token, &wanted, self.registry.clock.now()) {
            Ok((caller, audiences)) if self.is_alive(&caller) => {
                json!({"authenticated": true, "user": caller.info(), "audiences": audiences})
            }
            Ok(_) => json!({"user": {}, "error": "the token's account does not exist any more"}),
            Err(why) => json!({"user": {}, "error": why}),
        }
    }

    /// A service account's token dies with the account, and with an account of the same name made anew; one that is bound
    /// to a pod dies with the pod, too (X2).
    pub(super) fn is_alive(&self, caller: &Caller) -> bool {
        let Some(rest) = caller.name.strip_prefix("system:serviceaccount:") else {
            return true;
        };
        let Some((namespace, name)) = rest.split_once(':') else {
            return false;
        };
        let Some(entry) = self
            .registry
            .store
            .head(&Key::new("", "serviceaccounts", Some(namespace), name))
        else {
            return false;
        };
        let is_same = object::decode(&entry).is_ok_and(|account| object::text(&account, "uid") == caller.uid);
        let bound = |part: &str| {
            let all = caller.extra.get(&format!("authentication.kubernetes.io/pod-{part}"));
            all.and_then(|all| all.first())
        };
        is_same
            && match (bound("name"), bound("uid")) {
                (Some(pod), Some(uid)) => self.has("pods", namespace, pod, uid),
                _ => true,
            }
    }

    fn has(&self, plural: &str, namespace: &str, name: &str, uid: &str) -> bool {
        let entry = self.registry.store.head(&Key::new("", plural, Some(namespace), name));
        entry.is_some_and(|entry| object::decode(&entry).is_ok_and(|found| object::text(&found, "uid") == uid))
    }

    /// A token can be bound to a Pod or a Secret of its account's namespace that is there.
    fn check_bound(&self, target: &Target, bound: &Value) -> Result<(), Fault> {
        let text = |field: &str| bound.get(field).and_then(Value::as_str).unwrap_or_default();
        let plural = match (text("apiVersion"), text("kind")) {
            ("v1", "Pod") => "pods",
            ("v1", "Secret") => "secrets",
            (version, kind) => {
                return Err(Fault::bad_request(format!(
                    "cannot bind token to object of type {version}, Kind={kind}: only to a v1 Pod or Secret"
                )));
            }
        };
        let (name, uid) = (text("name"), text("uid"));
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let resource = crate::fault::Subject {
            group: String::new(),
            kind: plural.to_owned(),
        };
        let Some(entry) = self.registry.store.head(&Key::new("", plural, Some(namespace), name)) else {
            return Err(Fault::not_found(&resource, name));
        };
        let found = object::decode(&entry)?;
        let is = object::text(&found, "uid");
        if !uid.is_empty() && uid != is {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(Fault::conflict(&resource, name, &why));
        }
        Ok(())
    }

    /// POST of `serviceaccounts/NAME/token`.
    pub(super) fn token(&self, target: &Target, mut request: Value) -> Result<Value, Fault> {
        /// What the reference gives when nothing is asked, and the least that it gives.
        const DEFAULT_SECONDS: i64 = 3_600;
        const LEAST_SECONDS: i64 = 600;
        let entry = self.registry.get(target, "")?;
        let account = object::decode(&entry)?;
        let seconds = object::at(&request, "spec.expirationSeconds")
            .and_then(Value::as_i64)
            .unwrap_or(DEFAULT_SECONDS);
        if seconds < LEAST_SECONDS {
            let error = FieldError::invalid(
                &Path::new("spec.expirationSeconds"),
                seconds,
                "may not specify a duration less than 10 minutes",
            );
            let subject = crate::fault::Subject {
                group: "authentication.k8s.io".to_owned(),
                kind: "TokenRequest".to_owned(),
            };
            return Err(Fault::invalid(&subject, "", &[error]));
        }
        let audiences: Vec<String> = object::at(&request, "spec.audiences")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|audience| audience.as_str().map(str::to_owned))
            .collect();
        let bound = object::at(&request, "spec.boundObjectRef")
            .filter(|bound| !bound.is_null())
            .cloned();
        if let Some(bound) = &bound {
            self.check_bound(target, bound)?;
        }
        let issued = self
            .security
            .issue(&account, audiences, seconds, bound, self.registry.clock.now())?;
        let now = self.registry.clock.now();
        object::set_at(&mut request, "spec.expirationSeconds", seconds.into());
        object::set_at(&mut request, "spec.audiences", json!(issued.audiences));
        object::set_at(
            &mut request,
            "status",
            json!({"token": issued.token, "expirationTimestamp": object::time(issued.expires)}),
        );
        let map = object::as_map(&mut request);
        map.insert("kind".to_owned(), "TokenRequest".into());
        map.insert("apiVersion".to_owned(), "authentication.k8s.io/v1".into());
        map.insert(
            "metadata".to_owned(),
            json!({"name": target.name, "namespace": target.namespace, "creationTimestamp": object::time(now)}),
        );
        Ok(request)
    }
}

/// Access reviews ask about a resource or about a path, not about both or neither.
fn check_access(target: &Target, kind: &str, review: &Value) -> Result<(), Fault> {
    let spec = Path::new("spec");
    let has = |field: &str| {
        review
            .get("spec")
            .and_then(|spec| spec.get(field))
            .is_some_and(|value| !value.is_null())
    };
    let mut errors = Vec::new();
    if has("resourceAttributes") == has("nonResourceAttributes") {
        let value = object::at(review, "spec.resourceAttributes")
            .cloned()
            .unwrap_or_default();
        errors.push(FieldError::invalid(
            &spec.field("resourceAttributes"),
            value,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ));
    }
    if kind != "SelfSubjectAccessReview" && !has("user") && !has("groups") {
        errors.push(FieldError::invalid(
            &spec.field("user"),
            "",
            "at least one of user or group must be specified",
        ));
    }
    if errors.is_empty() {
        Ok(())
    } else {
        // The reference leaves out the kind here.
        let subject = crate::fault::Subject {
            kind: String::new(),
            ..target.subject()
        };
        Err(Fault::invalid(&subject, "", &errors))
    }
}
