//! What a rule may cost at most, as the reference estimates it before it accepts one: how often it runs, over lists and
//! texts of what sizes. Ours is coarser; it is for a warning that names the bounds that are missing.

use cel::common::ast::{Expr, IdedExpr};
use kube_cel::cel;

use super::names::escape;
use super::program::Program;
use crate::fault::Path;
use crate::schema::{Additional, Schema, Type};

/// The reference's limit for one rule.
const LIMIT: u64 = 10_000_000;
/// The largest request: what has no bound can be as large.
const REQUEST_BYTES: u64 = 3 * 1024 * 1024;

/// The reference's limit for all rules of a schema together.
const TOTAL_LIMIT: u64 = 100_000_000;

/// What an expression may cost at most, and which bounds would tell that it costs less.
#[derive(Debug)]
pub(super) struct Estimated {
    pub(super) total: u64,
    missing: Vec<String>,
}

/// `times`: how often it runs at most.
pub(super) fn estimate(schema: &Schema, program: &Program, times: Option<u64>) -> Estimated {
    let mut estimate = Estimate {
        names: vec![
            ("self".to_owned(), Known::of(schema, "self".to_owned())),
            ("oldSelf".to_owned(), Known::of(schema, "oldSelf".to_owned())),
        ],
        missing: Vec::new(),
    };
    let (cost, _) = estimate.cost(&program.expression);
    let total = cost.saturating_mul(times.unwrap_or_else(|| REQUEST_BYTES / (least_size(schema) + 1)));
    let mut missing = estimate.missing;
    if times.is_none() {
        missing.push("maxItems or maxProperties of the lists and maps around it".to_owned());
    }
    missing.sort_unstable();
    missing.dedup();
    Estimated { total, missing }
}

impl Estimated {
    /// A warning if the estimate is over the limit; `what` is `rule` or `messageExpression`.
    pub(super) fn warning(&self, what: &str, path: &Path) -> Option<String> {
        let factor = factor(self.total, LIMIT)?;
        let missing = if self.missing.is_empty() {
            String::new()
        } else {
            format!("; missing: {}", self.missing.join(", "))
        };
        Some(format!(
            "{}: estimated {what} cost exceeds the budget of Kubernetes by a factor of {factor}{missing}",
            path.field(what)
        ))
    }
}

/// A warning about all rules of a schema together.
pub(super) fn total_warning(total: u64, path: &Path) -> Option<String> {
    let factor = factor(total, TOTAL_LIMIT)?;
    Some(format!(
        "{path}: estimated rule cost total for the entire schema exceeds the budget of Kubernetes by a factor of {factor}"
    ))
}

/// By how much a cost is over a limit, if it is.
fn factor(total: u64, limit: u64) -> Option<String> {
    match total / limit {
        _ if total <= limit => None,
        factor if factor > 100 => Some("more than 100x".to_owned()),
        factor => Some(format!("about {}x", factor.max(1))),
    }
}

/// The shortest JSON of a value.
fn least_size(schema: &Schema) -> u64 {
    match schema.kind {
        Some(Type::Boolean) => 4,
        Some(Type::Integer | Type::Number) | None => 1,
        Some(Type::String | Type::Array) => 2,
        Some(Type::Object) => schema
            .required
            .iter()
            .filter_map(|name| Some((name, schema.properties.get(name)?)))
            .filter(|(_, property)| property.default.is_none())
            .fold(2u64, |sum, (name, property)| {
                sum.saturating_add(least_size(property))
                    .saturating_add(u64::try_from(name.len()).unwrap_or(0) + 4)
            }),
    }
}

/// What is known of a value: its schema, and how a person would write its path.
#[derive(Clone)]
struct Known<'s> {
    schema: Option<&'s Schema>,
    path: String,
}

impl<'s> Known<'s> {
    fn of(schema: &'s Schema, path: String) -> Self {
        Self {
            schema: Some(schema),
            path,
        }
    }

    fn unknown() -> Self {
        Self {
            schema: None,
            path: String::new(),
        }
    }
}

struct Estimate<'s> {
    names: Vec<(String, Known<'s>)>,
    missing: Vec<String>,
}

impl<'s> Estimate<'s> {
    /// How many items or characters a value has at most; names the bound that is missing.
    fn size(&mut self, known: &Known<'s>) -> u64 {
        let Some(schema) = known.schema else {
            return 1;
        };
        let bounds = schema.bounds.as_deref();
        let (bound, word, otherwise) = match (schema.kind, &schema.items, &schema.additional) {
            (Some(Type::Array), Some(items), _) => (
                bounds.and_then(|bounds| bounds.max_items),
                "maxItems",
                REQUEST_BYTES / (least_size(items) + 1),
            ),
            (Some(Type::Object), _, Additional::Schema(entry)) => (
                bounds.and_then(|bounds| bounds.max_properties),
                "maxProperties",
                REQUEST_BYTES / (least_size(entry) + 6),
            ),
            (Some(Type::String), ..) if bounds.is_some_and(|bounds| !bounds.allowed.is_empty()) => return 64,
            (Some(Type::String), ..) => (
                bounds.and_then(|bounds| bounds.max_length),
                "maxLength",
                REQUEST_BYTES - 2,
            ),
            _ => return 1,
        };
        bound.unwrap_or_else(|| {
            self.missing.push(format!("{word} of {}", known.path));
            otherwise
        })
    }

    /// The cost of an expression, and what is known of its value.
    fn cost(&mut self, expression: &IdedExpr) -> (u64, Known<'s>) {
        match &expression.expr {
            Expr::Literal(_) | Expr::Unspecified | Expr::Struct(_) => (0, Known::unknown()),
            Expr::Ident(name) => {
                let known = self.names.iter().rev().find(|(known, _)| known == name);
                (1, known.map_or_else(Known::unknown, |(_, known)| known.clone()))
            }
            Expr::Select(select) => {
                let (cost, operand) = self.cost(&select.operand);
                (cost.saturating_add(1), below(&operand, &select.field))
            }
            Expr::List(list) => {
                let cost = list
                    .elements
                    .iter()
                    .fold(10u64, |sum, part| sum.saturating_add(self.cost(part).0));
                (cost, Known::unknown())
            }
            Expr::Map(_) => (30, Known::unknown()),
            Expr::Comprehension(fold) => {
                let (range_cost, range) = self.cost(&fold.iter_range);
                let (init_cost, init) = self.cost(&fold.accu_init);
                let times = if matches!(&fold.iter_range.expr, Expr::List(list) if list.elements.is_empty()) {
                    0
                } else {
                    self.size(&range)
                };
                let length = self.names.len();
                self.names.push((fold.accu_var.clone(), init));
                self.names.push((fold.iter_var.clone(), item_of(&range)));
                let each = self
                    .cost(&fold.loop_step)
                    .0
                    .saturating_add(self.cost(&fold.loop_cond).0);
                let (result_cost, result) = self.cost(&fold.result);
                self.names.truncate(length);
                let cost = each
                    .saturating_mul(times)
                    .saturating_add(range_cost)
                    .saturating_add(init_cost)
                    .saturating_add(result_cost);
                (cost, result)
            }
            Expr::Call(call) => {
                let mut cost = 1u64;
                let mut operands = Vec::new();
                for part in call.target.as_deref().into_iter().chain(&call.args) {
                    let (part_cost, known) = self.cost(part);
                    cost = cost.saturating_add(part_cost);
                    operands.push(known);
                }
                let compares_or_joins = matches!(call.func_name.as_str(), "_==_" | "_!=_" | "_+_");
                if (walks_its_operand(&call.func_name) || compares_or_joins)
                    && let Some(known) = operands.first().cloned()
                {
                    // A tenth of a unit for each character or item.
                    cost = cost.saturating_add(self.size(&known) / 10);
                }
                let known = match (call.func_name.as_str(), operands.first()) {
                    ("_[_]" | "_[?_]", Some(list)) => item_of(list),
                    _ => Known::unknown(),
                };
                (cost, known)
            }
        }
    }
}

/// Functions that look at all of a text or list, for the estimate and for the meter.
pub(super) fn walks_its_operand(function: &str) -> bool {
    matches!(
        function,
        "contains"
            | "startsWith"
            | "endsWith"
            | "matches"
            | "find"
            | "findAll"
            | "replace"
            | "split"
            | "join"
            | "indexOf"
            | "lastIndexOf"
            | "lowerAscii"
            | "upperAscii"
            | "trim"
            | "@in"
            | "quantity"
            | "isQuantity"
            | "url"
            | "isURL"
            | "isSorted"
            | "sum"
            | "min"
            | "max"
            | "distinct"
            | "sets.contains"
    )
}

fn below<'s>(operand: &Known<'s>, field: &str) -> Known<'s> {
    let found = operand.schema.and_then(|schema| match &schema.additional {
        Additional::Schema(entry) => Some(&**entry),
        Additional::No | Additional::Any => schema
            .properties
            .iter()
            .find(|(name, _)| escape(name).as_deref() == Some(field))
            .map(|(_, property)| &**property),
    });
    Known {
        schema: found,
        path: format!("{}.{field}", operand.path),
    }
}

fn item_of<'s>(list: &Known<'s>) -> Known<'s> {
    let found = list
        .schema
        .and_then(|schema| match (&schema.items, &schema.additional) {
            (Some(items), _) => Some(&**items),
            // Walking a map is walking its keys, whose length nothing bounds but the request.
            _ => None,
        });
    Known {
        schema: found,
        path: format!("{}[]", list.path),
    }
}
