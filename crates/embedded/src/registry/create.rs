//! Create: identity from the server, defaults, admission, rules, and one write that expects nothing to be there.

use serde_json::Value;

use crate::admission::{Operation, Review};
use crate::fault::{Fault, FieldError, Path, quote};
use crate::kinds::{self, metadata};
use crate::registry::ask::{Ask, Outcome, Target};
use crate::registry::row::{NameRule, Rules};
use crate::registry::{Refused, Registry, object};
use crate::schema;
use crate::store::{self, Revision};

/// Names tried for a `generateName` before giving up (O6).
const NAMES_TRIED: usize = 8;
/// How much of a `generateName` is kept, so that a label can hold the name.
const BASE_LENGTH: usize = 58;

impl Registry {
    /// Stores a new object. `object` is decoded and defaulted.
    pub(crate) async fn create(
        &self,
        target: &Target,
        ask: &Ask,
        object: Value,
        mut warnings: Vec<String>,
    ) -> Result<Outcome, Fault> {
        let name = object::name(&object).to_owned();
        let fault = match self.create_or(target, ask, object, &mut warnings).await {
            Ok(outcome) => return Ok(outcome),
            Err(Refused::Fault(fault)) => fault,
            Err(Refused::Moved) => Fault::already_exists(&target.plural(), &name),
        };
        Err(fault.with_warnings(warnings))
    }

    /// The same; an object of the name that is already there is told apart from all else that may be wrong.
    pub(super) async fn create_or(
        &self,
        target: &Target,
        ask: &Ask,
        mut object: Value,
        warnings: &mut Vec<String>,
    ) -> Result<Outcome, Refused> {
        if !object::text(&object, "resourceVersion").is_empty() {
            return Err(Refused::Fault(Fault::new(
                500,
                "",
                "resourceVersion should not be set on objects to be created",
            )));
        }
        place(target, &mut object).map_err(Refused::Fault)?;
        let asked_name = object::name(&object).to_owned();
        let base = object::text(&object, "generateName").to_owned();
        if asked_name.is_empty() && base.is_empty() {
            let error = FieldError::required(&Path::new("metadata.name"), "name or generateName is required");
            return Err(Refused::Fault(Fault::invalid(&target.subject(), "", &[error])));
        }
        self.stamp(target, &mut object);
        self.track(target, ask, None, &mut object);
        self.finish_create(target, ask, object, warnings, &asked_name, &base)
            .await
    }

    /// From where a create and a write that creates are the same.
    pub(super) async fn finish_create(
        &self,
        target: &Target,
        ask: &Ask,
        mut object: Value,
        warnings: &mut Vec<String>,
        asked_name: &str,
        base: &str,
    ) -> Result<Outcome, Refused> {
        let mut tried = 0;
        loop {
            // A name that was given out by chance may be taken: then the same is tried with another one.
            let again = asked_name.is_empty().then(|| object.clone());
            let mut admitted = object;
            if asked_name.is_empty() {
                object::meta_mut(&mut admitted).insert("name".to_owned(), self.generated(base).into());
            }
            let base = if asked_name.is_empty() { base } else { "" };
            let moved = self.admit_and_store(target, ask, &mut admitted, warnings, base).await;
            let name = object::name(&admitted).to_owned();
            match (moved, again) {
                (Ok(stored), _) => {
                    return Ok(Outcome {
                        stored,
                        ..Outcome::new(admitted, true, warnings)
                    });
                }
                (Err(Refused::Moved), Some(again)) => {
                    object = again;
                    tried += 1;
                    if tried >= NAMES_TRIED {
                        let mut fault = Fault::already_exists(&target.plural(), &name).retry_after(1);
                        fault.message = format!(
                            "{} {} already exists, the server was not able to generate a unique name for the object",
                            target.plural(),
                            quote(&name)
                        );
                        return Err(Refused::Fault(fault));
                    }
                }
                // A webhook named it otherwise, and so it is called already.
                (Err(Refused::Moved), None) if name != asked_name => {
                    return Err(Refused::Fault(Fault::already_exists(&target.plural(), &name)));
                }
                (Err(refused), _) => return Err(refused),
            }
        }
    }

    /// A named object through admission and rules into the store; what was stored, unless this is a dry run. `base`: what
    /// its name was generated from, if it was.
    async fn admit_and_store(
        &self,
        target: &Target,
        ask: &Ask,
        object: &mut Value,
        warnings: &mut Vec<String>,
        base: &str,
    ) -> Result<Option<(store::Value, Revision)>, Refused> {
        let name = object::name(object).to_owned();
        let review = Review {
            operation: Operation::Create,
            target,
            name: &name,
            base,
            old: None,
            ask,
        };
        let ground = self.ground(&review).map_err(Refused::Fault)?;
        // Held until the object is stored, so that nobody else is given its addresses.
        let _reserved = self.admit(&review, object, warnings).await.map_err(Refused::Fault)?;
        // A webhook may have named it otherwise. Where it belongs, and what the path calls it, is not for webhooks.
        place(target, object).map_err(Refused::Fault)?;
        let name = object::name(object).to_owned();
        if !target.name.is_empty() && name != target.name {
            return Err(Refused::Fault(super::update::name_mismatch(&name, &target.name)));
        }
        let review = Review {
            name: &name,
            base: "",
            ..review
        };
        Self::prepare_create(target, object);
        let checked = self.check_create(target, object, &name, warnings);
        checked.map_err(Refused::Fault)?;
        Self::settle(&target.resource, object);
        let judged = self.validate(&review, Some(object), warnings).await;
        judged.map_err(Refused::Fault)?;
        if ask.dry_run {
            return match self.store.head(&target.key_of(&name)) {
                Some(_) => Err(Refused::Moved),
                None => Ok(None),
            };
        }
        let (stored, revision) = self.commit_new(&review, ground, object, warnings).await?;
        object::meta_mut(object).insert("resourceVersion".to_owned(), revision.to_string().into());
        Ok(Some((stored, revision)))
    }

    fn generated(&self, base: &str) -> String {
        let end = base
            .char_indices()
            .map(|(at, letter)| at + letter.len_utf8())
            .take_while(|end| *end <= BASE_LENGTH)
            .last()
            .unwrap_or(0);
        format!("{}{}", base.get(..end).unwrap_or_default(), self.dice.suffix())
    }

    /// What the server alone decides (O7).
    pub(super) fn stamp(&self, target: &Target, object: &mut Value) {
        let has_generation = match target.resource.row.rules {
            Rules::BuiltIn(rules) => rules.has_generation,
            Rules::Custom => true,
        };
        let now = self.clock.now();
        let uid = self.dice.uid();
        let meta = object::meta_mut(object);
        for field in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            meta.remove(field);
        }
        meta.insert("uid".to_owned(), uid.into());
        meta.insert("creationTimestamp".to_owned(), object::time(now));
        if has_generation {
            meta.insert("generation".to_owned(), 1.into());
        }
    }

    fn prepare_create(target: &Target, object: &mut Value) {
        match target.resource.row.rules {
            Rules::BuiltIn(rules) => (rules.on_create)(object),
            Rules::Custom => {
                if target.version.has_status {
                    object::as_map(object).remove("status");
                }
            }
        }
    }

    pub(super) fn check_create(
        &self,
        target: &Target,
        object: &Value,
        name: &str,
        warnings: &mut Vec<String>,
    ) -> Result<(), Fault> {
        let errors = match target.resource.row.rules {
            Rules::BuiltIn(rules) => {
                let mut errors = check_metadata(target, object, rules.name);
                errors.extend(metadata::check_finalizers_of_kind(
                    &target.resource.row.group,
                    object.get("metadata").unwrap_or(&Value::Null),
                    &Path::new("metadata"),
                ));
                if target.is_definition() {
                    errors.extend(kinds::crd::check(object, None));
                }
                errors.extend((rules.check)(object));
                errors.extend((rules.check_create)(object));
                warnings.extend((rules.warn)(object, None));
                errors
            }
            Rules::Custom => {
                let mut errors = check_metadata(target, object, NameRule::Subdomain);
                errors.extend(Self::check_custom(target, object, None, warnings));
                errors
            }
        };
        if errors.is_empty() {
            Ok(())
        } else {
            Err(Fault::invalid(&target.subject(), name, &errors))
        }
    }

    /// Schema, list types and CEL of a custom resource.
    pub(super) fn check_custom(
        target: &Target,
        object: &Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Vec<FieldError> {
        let schema = &target.version.schema;
        let mut errors = match old {
            Some(old) if target.is_status() => schema::validate_status(schema, object, old),
            _ => schema::validate(schema, object, old),
        };
        let rules = target.resource.cel_of(&target.version.name);
        if let Some(rules) = rules.filter(|rules| !rules.is_empty()) {
            match schema::blocks_rules(&errors) {
                Some(instead) => errors.push(instead),
                None => {
                    let verdict = rules.judge(object, old);
                    errors.extend(verdict.errors);
                    warnings.extend(verdict.forgiven.iter().map(ToString::to_string));
                }
            }
        }
        errors
    }
}

pub(super) fn check_metadata(target: &Target, object: &Value, rule: NameRule) -> Vec<FieldError> {
    metadata::check_metadata(
        object.get("metadata").unwrap_or(&Value::Null),
        rule,
        target.resource.row.namespaced,
        &Path::new("metadata"),
    )
}

/// The namespace of the request is the object's.
pub(super) fn place(target: &Target, object: &mut Value) -> Result<(), Fault> {
    let given = object::text(object, "namespace");
    match &target.namespace {
        Some(namespace) => {
            if !given.is_empty() && given != namespace {
                return Err(Fault::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            let namespace = namespace.clone();
            object::meta_mut(object).insert("namespace".to_owned(), namespace.into());
        }
        None => {
            if !given.is_empty() && !target.resource.row.namespaced {
                return Err(Fault::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
        }
    }
    Ok(())
}

impl Outcome {
    pub(super) fn new(object: Value, created: bool, warnings: &mut Vec<String>) -> Self {
        Self {
            object,
            stored: None,
            created,
            deleted: false,
            warnings: std::mem::take(warnings),
        }
    }
}
