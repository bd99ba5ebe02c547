//! Reviews: kinds that are asked and not stored. Whatever is authenticated is allowed (X2), and they say so.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api::Server;
use crate::caller::Caller;
use crate::fault::{Fault, FieldError, Path};
use crate::registry::ask::{Ask, Target};
use crate::registry::object;
use crate::security::{Bound, Proven};
use crate::store::Key;

/// What is asked of a service account's `token`.
const TOKEN_REQUEST: (&str, &str) = ("authentication.k8s.io/v1", "TokenRequest");

impl Server {
    /// The review with its `status`.
    pub(super) fn review(
        &self,
        target: &Target,
        mut review: Value,
        ask: &Ask,
        caller: &Caller,
    ) -> Result<Value, Fault> {
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
                json!({"allowed": true})
            }
        };
        match &*target.resource.row.kind {
            "SelfSubjectReview" => {
                let now = object::time(self.registry.clock.now());
                object::meta_mut(&mut review).insert("creationTimestamp".to_owned(), now);
            }
            // The reference makes this answer anew.
            "SelfSubjectRulesReview" => {
                object::as_map(&mut review).insert("spec".to_owned(), json!({}));
            }
            _ => self.registry.track(target, ask, None, &mut review),
        }
        let map = object::as_map(&mut review);
        map.insert("status".to_owned(), status);
        // It is answered with metadata, also where none was sent.
        object::meta_mut(&mut review);
        Ok(review)
    }

    /// Whose the fields of a request for a token are: of who asks.
    fn asked_fields(&self, ask: &Ask, request: &Value) -> Value {
        let (api_version, kind) = TOKEN_REQUEST;
        let (group, version) = api_version.split_once('/').unwrap_or_default();
        let Some(schema) = crate::kinds::definition_of(group, version, kind) else {
            return Value::Null;
        };
        let mut asked = json!({"metadata": {}, "spec": request.get("spec").cloned().unwrap_or_default()});
        crate::fields::track(crate::fields::Track {
            old: None,
            new: &mut asked,
            schema: &schema,
            manager: &ask.manager,
            subresource: "token",
            api_version,
            now: self.registry.clock.now(),
            ignored: &[],
        });
        object::meta(&asked).get("managedFields").cloned().unwrap_or_default()
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
            Ok(proven) if self.is_alive(&proven) => {
                json!({"authenticated": true, "user": proven.caller.info(), "audiences": proven.audiences})
            }
            Ok(_) => json!({"user": {}, "error": "the token's account does not exist any more"}),
            Err(why) => json!({"user": {}, "error": why}),
        }
    }

    /// A service account's token dies with the account, and with an account of the same name made anew; one that is bound
    /// to a pod, a secret or a node dies with that, too (X2).
    pub(super) fn is_alive(&self, proven: &Proven) -> bool {
        let Some(rest) = proven.caller.name.strip_prefix("system:serviceaccount:") else {
            return true;
        };
        let Some((namespace, name)) = rest.split_once(':') else {
            return false;
        };
        let account = Key::new("", "serviceaccounts", Some(namespace), name);
        self.has(&account, &proven.caller.uid)
            && proven
                .bound
                .as_ref()
                .is_none_or(|bound| self.has(&bound_key(bound.kind, namespace, &bound.name), &bound.uid))
    }

    /// Whether this very object is there, and has not been on its way out for longer than whoever it belongs to needs to
    /// say goodbye.
    fn has(&self, key: &Key, uid: &str) -> bool {
        const GOODBYE: SignedDuration = SignedDuration::from_secs(60);
        let Some(found) = self
            .registry
            .store
            .head(key)
            .and_then(|entry| object::decode(&entry).ok())
        else {
            return false;
        };
        let gone = object::text(&found, "deletionTimestamp").parse::<Timestamp>();
        let is_gone = gone.is_ok_and(|gone| gone.saturating_add(GOODBYE).unwrap_or(gone) < self.registry.clock.now());
        object::text(&found, "uid") == uid && !is_gone
    }

    /// What a token is bound to: a Pod or a Secret of its account's namespace, or a Node, that is there.
    fn bound(&self, target: &Target, reference: &Value) -> Result<Vec<Bound>, Fault> {
        let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
        let (kind, plural) = match (text("apiVersion"), text("kind")) {
            ("v1" | "", "Pod") => ("pod", "pods"),
            ("v1" | "", "Secret") => ("secret", "secrets"),
            ("v1" | "", "Node") => ("node", "nodes"),
            (version, kind) => {
                let version = if version.contains('/') {
                    version.to_owned()
                } else {
                    format!("/{version}")
                };
                return Err(Fault::bad_request(format!(
                    "cannot bind token to object of type {version}, Kind={kind}"
                )));
            }
        };
        let (name, uid) = (text("name"), text("uid"));
        if name.is_empty() {
            return Err(Fault::bad_request("Name parameter required."));
        }
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let subject = |kind: &str| crate::fault::Subject {
            group: String::new(),
            kind: kind.to_owned(),
        };
        let Some(entry) = self.registry.store.head(&bound_key(kind, namespace, name)) else {
            return Err(Fault::not_found(&subject(plural), name));
        };
        let found = object::decode(&entry)?;
        let is = object::text(&found, "uid");
        if !uid.is_empty() && uid != is {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(Fault::conflict(&subject(text("kind")), name, &why));
        }
        let at = |path: &str| object::at(&found, path).and_then(Value::as_str).unwrap_or_default();
        if kind == "pod" && at("spec.serviceAccountName") != target.name {
            return Err(Fault::bad_request(format!(
                "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
                crate::fault::quote(&target.name)
            )));
        }
        let mut all = vec![Bound {
            kind,
            name: name.to_owned(),
            uid: is.to_owned(),
        }];
        let node = at("spec.nodeName");
        if kind == "pod" && !node.is_empty() {
            let entry = self.registry.store.head(&bound_key("node", "", node));
            let uid = match entry {
                Some(entry) => object::text(&object::decode(&entry)?, "uid").to_owned(),
                None => String::new(),
            };
            all.push(Bound {
                kind: "node",
                name: node.to_owned(),
                uid,
            });
        }
        Ok(all)
    }

    /// POST of `serviceaccounts/NAME/token`.
    pub(super) fn token(&self, target: &Target, ask: &Ask, mut request: Value) -> Result<Value, Fault> {
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
        object::set_at(&mut request, "spec.expirationSeconds", seconds.into());
        let managed = self.asked_fields(ask, &request);
        let bound = match object::at(&request, "spec.boundObjectRef").filter(|bound| !bound.is_null()) {
            Some(reference) => self.bound(target, reference)?,
            None => Vec::new(),
        };
        let now = self.registry.clock.now();
        let issued = self
            .security
            .issue(&account, audiences, seconds, &bound, now, self.registry.dice.uid())?;
        object::set_at(&mut request, "spec.audiences", json!(issued.audiences));
        object::set_at(
            &mut request,
            "status",
            json!({"token": issued.token, "expirationTimestamp": object::time(issued.expires)}),
        );
        let map = object::as_map(&mut request);
        map.insert("kind".to_owned(), TOKEN_REQUEST.1.into());
        map.insert("apiVersion".to_owned(), TOKEN_REQUEST.0.into());
        map.insert(
            "metadata".to_owned(),
            json!({"name": target.name, "namespace": target.namespace, "uid": object::text(&account, "uid"),
                "creationTimestamp": object::time(now), "managedFields": managed}),
        );
        Ok(request)
    }
}

/// Where an object is that a token may be bound to.
fn bound_key(kind: &str, namespace: &str, name: &str) -> Key {
    match kind {
        "node" => Key::new("", "nodes", None, name),
        kind => Key::new("", &format!("{kind}s"), Some(namespace), name),
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
