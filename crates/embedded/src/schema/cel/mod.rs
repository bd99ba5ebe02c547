//! `x-kubernetes-validations` (D4): rules of a schema, compiled once and run on every write.
//!
//! kube-cel brings the language and Kubernetes' functions. What it leaves open is here: values are typed by their
//! schema ([`value`]), rules are checked against it before they are accepted ([`typing`]), macros that it lacks are
//! written out ([`program`]), and errors have the reference's paths and words. A rule that could not be run is refused
//! with its CRD; none passes silently.

mod budget;
mod condition;
mod cost;
mod macros;
mod names;
mod overloads;
mod program;
mod typing;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube_cel::cel;
use serde_json::Value;

use self::budget::{Budget, CANCELLED, SPENT, Stopped};
use self::program::Program;
use super::field_path::{self, Notation};
use super::ratchet::{Old, map_item, unchanged};
use super::{Additional, Rule, Schema, Type};
use crate::fault::{FieldError, Path, Wrong, quote};

pub(crate) use self::condition::{Condition, Conditions, Unanswered};

/// All rules of a schema.
#[derive(Debug)]
pub struct Rules {
    /// `None`: there are none.
    root: Option<Node>,
    warnings: Vec<String>,
}

/// Rules of one node, and of those below. Only branches with rules have nodes.
#[derive(Debug)]
struct Node {
    schema: Arc<Schema>,
    /// The root, or an embedded resource: its type and the names in its metadata can be asked for.
    resource: bool,
    rules: Vec<Compiled>,
    /// The fields that its rules speak of, where they speak of fields only: the rest need not be converted.
    fields: Option<BTreeSet<String>>,
    properties: BTreeMap<Arc<str>, Node>,
    additional: Option<Box<Node>>,
    items: Option<Box<Node>>,
}

#[derive(Debug)]
struct Compiled {
    rule: Rule,
    program: Program,
    message: Option<Program>,
    uses_old_self: bool,
    /// `fieldPath` as it is appended to the path of the node.
    field_path: Option<String>,
}

impl Rules {
    /// Compiles all rules; errors name the place within the schema, as `properties[spec].x-kubernetes-validations[0].rule`.
    pub fn compile(schema: &Schema) -> Result<Self, Vec<FieldError>> {
        Self::compile_at(&Arc::new(schema.clone()), &Path::root())
    }

    /// Compiles the rules of a schema that stands at `path` of its CRD.
    pub fn compile_at(schema: &Arc<Schema>, path: &Path) -> Result<Self, Vec<FieldError>> {
        let mut compiler = Compiler {
            errors: Vec::new(),
            warnings: Vec::new(),
            total: 0,
        };
        let place = Place {
            path: path.clone(),
            uncorrelatable: None,
            // The root is there once.
            times: Some(1),
        };
        let root = compiler.node(schema, true, place);
        compiler.warnings.extend(cost::total_warning(compiler.total, path));
        if compiler.errors.is_empty() {
            Ok(Self {
                root,
                warnings: compiler.warnings,
            })
        } else {
            Err(compiler.errors)
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Rules that the reference would refuse since they may cost too much, with the bounds that are missing. Here they
    /// run: there is one user.
    #[must_use]
    pub fn cost_warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Runs the rules: of creation without `old`, of transition too with it. Rules without `oldSelf` forgive what did not
    /// change (D5).
    #[must_use]
    pub fn check(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        self.judge(new, old).errors
    }

    /// The same, with what was forgiven: the reference tells it as a warning.
    #[must_use]
    pub fn judge(&self, new: &Value, old: Option<&Value>) -> Verdict {
        let mut verdict = Verdict::default();
        if let Some(root) = &self.root {
            let ratchet = Ratchet {
                here: old.map(|value| Old {
                    value,
                    schema: &root.schema,
                }),
                above: None,
            };
            // Whether it was spent is told in the verdict.
            let _ = root.check(new, old, ratchet, &Path::root(), &mut verdict, &mut Budget::of_object());
        }
        verdict
    }

    /// Runs the rules on a default, as a new value and as one that stays.
    pub(super) fn check_default(&self, default: &Value, path: &Path) -> Vec<FieldError> {
        let mut verdict = Verdict::default();
        let never = Ratchet {
            here: None,
            above: None,
        };
        if let Some(root) = &self.root {
            let mut budget = Budget::of_object();
            let stayed = root.check(default, Some(default), never, path, &mut verdict, &mut budget);
            if stayed.is_ok() && verdict.errors.is_empty() {
                let _ = root.check(default, None, never, path, &mut verdict, &mut budget);
            }
        }
        verdict.errors
    }
}

/// What the rules say.
#[derive(Debug, Default)]
pub struct Verdict {
    pub errors: Vec<FieldError>,
    /// Broken rules of values that did not change.
    pub forgiven: Vec<FieldError>,
}

/// Where the compiler is.
struct Place {
    path: Path,
    /// The outermost list above whose items have no old ones.
    uncorrelatable: Option<Path>,
    /// How often this node can occur in one object; `None`: without bound.
    times: Option<u64>,
}

impl Place {
    fn below(&self, path: Path, times: Option<u64>) -> Self {
        Self {
            path,
            uncorrelatable: self.uncorrelatable.clone(),
            times: self.times.zip(times).map(|(above, here)| above.saturating_mul(here)),
        }
    }
}

struct Compiler {
    errors: Vec<FieldError>,
    warnings: Vec<String>,
    /// What all rules together may cost.
    total: u64,
}

impl Compiler {
    fn node(&mut self, schema: &Arc<Schema>, resource: bool, place: Place) -> Option<Node> {
        let bounds = schema.bounds.as_deref();
        let mut properties = BTreeMap::new();
        for (name, property) in &schema.properties {
            let below = place.below(place.path.field("properties").key(name), Some(1));
            if let Some(node) = self.node(property, property.embedded_resource, below) {
                properties.insert(Arc::clone(name), node);
            }
        }
        let additional = match &schema.additional {
            Additional::Schema(entry) => {
                let most = bounds.and_then(|bounds| bounds.max_properties);
                let below = place.below(place.path.field("additionalProperties"), most);
                self.node(entry, entry.embedded_resource, below).map(Box::new)
            }
            Additional::No | Additional::Any => None,
        };
        let items = schema.items.as_ref().and_then(|item| {
            let most = bounds.and_then(|bounds| bounds.max_items);
            let mut below = place.below(place.path.field("items"), most);
            if schema.list_type != super::ListType::Map {
                below.uncorrelatable.get_or_insert_with(|| place.path.clone());
            }
            self.node(item, item.embedded_resource, below).map(Box::new)
        });
        let rules: Vec<Compiled> = schema
            .rules
            .iter()
            .enumerate()
            .filter_map(|(index, rule)| {
                let path = place.path.field("x-kubernetes-validations").index(index);
                self.rule(schema, resource, rule, &place, &path)
            })
            .collect();
        if rules.is_empty() && properties.is_empty() && additional.is_none() && items.is_none() {
            return None;
        }
        Some(Node {
            schema: Arc::clone(schema),
            resource,
            fields: fields_of(&rules),
            rules,
            properties,
            additional,
            items,
        })
    }

    fn rule(&mut self, schema: &Schema, resource: bool, rule: &Rule, place: &Place, path: &Path) -> Option<Compiled> {
        if rule.rule.trim().is_empty() {
            // Named by the CRD's rules.
            return None;
        }
        let variables = typing::Variables {
            schema,
            resource,
            optional_old_self: rule.optional_old_self,
        };
        let program = match Program::compile(&rule.rule, variables, typing::Wanted::Bool) {
            Ok(program) => program,
            Err(why) => {
                self.errors.push(refused(&path.field("rule"), rule, &why));
                if rule.optional_old_self {
                    self.errors.push(without_old_self(path));
                }
                return None;
            }
        };
        let message = match &rule.message_expression {
            None => None,
            Some(text) => match Program::compile(text, variables, typing::Wanted::Message) {
                Ok(program) => Some(program),
                Err(why) => {
                    self.errors.push(refused(&path.field("messageExpression"), rule, &why));
                    return None;
                }
            },
        };
        let uses_old_self = program.uses("oldSelf");
        if uses_old_self {
            if let Some(list) = &place.uncorrelatable {
                self.errors.push(FieldError::invalid(
                    &path.field("rule"),
                    rule.rule.as_str(),
                    format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"),
                ));
            }
        } else if rule.optional_old_self {
            self.errors.push(without_old_self(path));
        }
        let cost = cost::estimate(schema, &program, place.times);
        self.total = self.total.saturating_add(cost.total);
        self.warnings.extend(cost.warning("rule", path));
        if let Some(message) = &message {
            let cost = cost::estimate(schema, message, place.times);
            self.warnings.extend(cost.warning("messageExpression", path));
        }
        Some(Compiled {
            field_path: rule
                .field_path
                .as_deref()
                .and_then(|path| field_path::resolve(path, schema, Notation::WithBrackets).ok())
                .map(|(path, _)| path.to_string()),
            rule: rule.clone(),
            program,
            message,
            uses_old_self,
        })
    }
}

fn fields_of(rules: &[Compiled]) -> Option<BTreeSet<String>> {
    let mut fields = BTreeSet::new();
    for rule in rules {
        for program in [Some(&rule.program), rule.message.as_ref()].into_iter().flatten() {
            for variable in ["self", "oldSelf"] {
                fields.extend(program.fields_of(variable)?);
            }
        }
    }
    Some(fields)
}

fn without_old_self(path: &Path) -> FieldError {
    FieldError::invalid(
        &path.field("optionalOldSelf"),
        true,
        "may not be set if oldSelf is not used in rule",
    )
}

/// An error about a rule, which is shown as the reference shows it: all of its fields, by their inner names.
fn refused(path: &Path, rule: &Rule, why: &str) -> FieldError {
    let text = |text: &str| show_go_json(&text.into());
    let optional = |text: Option<&str>| text.map_or_else(|| "null".to_owned(), |text| show_go_json(&text.into()));
    let shown = format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
        text(&rule.rule),
        text(rule.message.as_deref().unwrap_or_default()),
        text(rule.message_expression.as_deref().unwrap_or_default()),
        optional(rule.reason.as_deref()),
        text(rule.field_path.as_deref().unwrap_or_default()),
        if rule.optional_old_self { "true" } else { "null" },
    );
    FieldError {
        wrong: Wrong::Invalid,
        path: path.clone(),
        // The fields' order could not be kept in a value.
        value: None,
        detail: format!("{shown}: {why}"),
    }
}

/// JSON as Go writes it, with what could end an HTML tag escaped.
fn show_go_json(value: &Value) -> String {
    value
        .to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

/// What a value is compared with to forgive its errors.
#[derive(Clone, Copy)]
struct Ratchet<'a> {
    here: Option<Old<'a>>,
    /// The nearest value above that has an old one, with itself.
    above: Option<(&'a Value, Old<'a>)>,
}

impl<'a> Ratchet<'a> {
    fn forgives(self, value: &Value) -> bool {
        match (self.here, self.above) {
            (Some(old), _) => unchanged(value, old),
            (None, Some((value, old))) => unchanged(value, old),
            (None, None) => false,
        }
    }

    fn field(self, value: &'a Value, name: &str) -> Self {
        match self.here {
            None => self,
            // Type and version of the object itself: conversion made them equal.
            Some(_) if self.above.is_none() && matches!(name, "apiVersion" | "kind") => Self {
                here: None,
                above: None,
            },
            Some(old) => Self {
                here: old.field(name),
                above: Some((value, old)),
            },
        }
    }

    fn item(self, value: &'a Value, item: &Value) -> Self {
        match self.here {
            None => self,
            Some(old) => Self {
                here: old.item(item),
                above: Some((value, old)),
            },
        }
    }
}

/// No further rule is run: the error that says so is told.
struct Ended;

impl Node {
    fn check<'a>(
        &'a self,
        new: &'a Value,
        old: Option<&'a Value>,
        ratchet: Ratchet<'a>,
        path: &Path,
        verdict: &mut Verdict,
        budget: &mut Budget,
    ) -> Result<(), Ended> {
        if new.is_null() {
            return Ok(());
        }
        // A null has no value to compare with.
        let old = old.filter(|old| !old.is_null());
        if !self.rules.is_empty() {
            self.run(new, old, ratchet, path, verdict, budget)?;
        }
        match new {
            Value::Object(map) => {
                let old_map = old.and_then(Value::as_object);
                for (name, value) in map {
                    let old = old_map.and_then(|old| old.get(name));
                    if let Some(node) = &self.additional {
                        node.check(value, old, ratchet.field(new, name), &path.key(name), verdict, budget)?;
                    }
                    if let Some(node) = self.properties.get(name.as_str()) {
                        node.check(value, old, ratchet.field(new, name), &path.field(name), verdict, budget)?;
                    }
                }
            }
            Value::Array(list) => {
                if let Some(node) = &self.items {
                    let old_list = old.and_then(Value::as_array);
                    for (index, item) in list.iter().enumerate() {
                        let old = old_list.and_then(|old| map_item(&self.schema, old, item));
                        node.check(item, old, ratchet.item(new, item), &path.index(index), verdict, budget)?;
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(())
    }

    fn run(
        &self,
        new: &Value,
        old: Option<&Value>,
        ratchet: Ratchet<'_>,
        path: &Path,
        verdict: &mut Verdict,
        budget: &mut Budget,
    ) -> Result<(), Ended> {
        let invalid = |detail: String| FieldError::invalid(path, self.type_name(), detail);
        if budget.is_spent() {
            verdict.errors.push(invalid(SPENT.to_owned()));
            return Err(Ended);
        }
        let wants_old = self.rules.iter().any(|rule| rule.uses_old_self);
        let mut scope = program::base().new_inner_scope();
        scope.add_variable_from_value("self", self.convert(new));
        let old_value = old.filter(|_| wants_old).map(|old| self.convert(old));
        for compiled in &self.rules {
            let mut scope = scope.new_inner_scope();
            if compiled.uses_old_self {
                if compiled.rule.optional_old_self {
                    scope.add_variable_from_value("oldSelf", value::optional(old_value.clone()));
                } else if let Some(old) = &old_value {
                    scope.add_variable_from_value("oldSelf", old.clone());
                } else {
                    // A transition from nothing is none.
                    continue;
                }
            }
            match budget.run(&compiled.program, &scope) {
                Ok(cel::Value::Bool(true)) => {}
                Ok(cel::Value::Bool(false)) => {
                    let told = self.tell(compiled, &scope, budget);
                    let error = match &told {
                        Ok(detail) => self.broken(compiled, detail.clone(), new, path),
                        Err(why) => FieldError::invalid(&compiled.place(path), self.type_name(), why.as_str()),
                    };
                    if compiled.uses_old_self || !ratchet.forgives(new) {
                        verdict.errors.push(error);
                    } else {
                        verdict.forgiven.push(error);
                    }
                    if told.is_err() {
                        return Err(Ended);
                    }
                }
                Ok(_) => verdict.errors.push(self.failed(compiled, "no such overload", path)),
                Err(Stopped::Failed(error)) => {
                    verdict
                        .errors
                        .push(self.failed(compiled, &program::words(&error), path))
                }
                Err(Stopped::Cancelled) => {
                    verdict.errors.push(invalid(format!(
                        "'{CANCELLED}': no further validation rules will be run due to call cost exceeds limit for \
                         rule: {}",
                        compiled.name()
                    )));
                    return Err(Ended);
                }
                Err(Stopped::Spent) => {
                    verdict.errors.push(invalid(SPENT.to_owned()));
                    return Err(Ended);
                }
            }
        }
        Ok(())
    }

    /// What is said of a broken rule; the error, that saying it cost too much.
    fn tell(&self, compiled: &Compiled, scope: &cel::Context<'_>, budget: &mut Budget) -> Result<String, String> {
        let rule = &compiled.rule;
        let own = match &compiled.message {
            None => None,
            Some(program) => match budget.run(program, scope) {
                Ok(value) => program::message(&value),
                Err(Stopped::Failed(_)) => None,
                Err(Stopped::Cancelled) => {
                    return Err(format!(
                        "no further validation rules will be run due to call cost exceeds limit for \
                         messageExpression: {}",
                        quote(rule.message_expression.as_deref().unwrap_or_default())
                    ));
                }
                Err(Stopped::Spent) => {
                    return Err(
                        "messageExpression evaluation failed due to running out of cost budget, no further \
                         validation rules will be run"
                            .to_owned(),
                    );
                }
            },
        };
        Ok(own.unwrap_or_else(|| match &rule.message {
            Some(text) => text.trim().to_owned(),
            None => format!("failed rule: {}", rule.rule.trim()),
        }))
    }

    fn convert(&self, value: &Value) -> cel::Value {
        match &self.fields {
            Some(fields) => value::convert_fields(value, &self.schema, self.resource, fields),
            None => value::convert(value, &self.schema, self.resource),
        }
    }

    fn type_name(&self) -> &'static str {
        self.schema.kind.map_or("", Type::as_str)
    }

    fn failed(&self, compiled: &Compiled, why: &str, path: &Path) -> FieldError {
        let named = compiled.name();
        let detail = if why.starts_with("no such overload") {
            format!(
                "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {named}"
            )
        } else {
            format!("{why} evaluating rule: {named}")
        };
        FieldError::invalid(path, self.type_name(), detail)
    }

    fn broken(&self, compiled: &Compiled, detail: String, new: &Value, path: &Path) -> FieldError {
        let rule = &compiled.rule;
        let path = compiled.place(path);
        // Objects and lists are not repeated in errors.
        let shown = (!matches!(self.schema.kind, Some(Type::Object | Type::Array))).then(|| new.clone());
        let (wrong, value, detail) = match rule.reason.as_deref() {
            Some("FieldValueForbidden") => (Wrong::Forbidden, None, detail),
            Some("FieldValueRequired") => (Wrong::Required, None, detail),
            Some("FieldValueDuplicate") => (Wrong::Duplicate, shown, String::new()),
            _ => (Wrong::Invalid, shown, detail),
        };
        FieldError {
            wrong,
            path,
            value,
            detail,
        }
    }
}

impl Compiled {
    /// How a rule is named in errors: by its message, else by itself.
    fn name(&self) -> &str {
        self.rule.message.as_deref().unwrap_or(&self.rule.rule).trim()
    }

    /// Where a broken rule is told.
    fn place(&self, path: &Path) -> Path {
        match &self.field_path {
            Some(below) if below.starts_with('[') => Path::new(format!("{}{below}", path.as_str())),
            Some(below) => path.field(below),
            None => path.clone(),
        }
    }
}
