//! How much an expression may compute before it is stopped (D4): one expression, and all of one object together.
//!
//! The interpreter cannot be interrupted, so an expression is completed when it is compiled ([`meter`]): each round of
//! a loop, and each call within one that walks a text or list, first pays at a meter of the thread that evaluates.
//! Prices resemble the reference's and are never higher: what it lets pass, passes here. Since the interpreter copies
//! where the reference points, what is cheap there can be slow here; a deadline ends that. What has no loops pays its
//! price once and is not touched.

use std::cell::Cell;
use std::time::{Duration, Instant};

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::common::types::{CelList, CelMap, CelString};
use cel::{Context, ExecutionError, FunctionContext, Value as Cel};
use kube_cel::cel;

use super::cost::walks_its_operand;
use super::macros::call;
use super::program::Program;

/// The reference's limits: of one expression, of all rules of an object, of all conditions of a webhook.
const OF_EXPRESSION: u64 = 1_000_000;
const OF_OBJECT: u64 = 10_000_000;
const OF_CONDITIONS: u64 = 2_500_000;
/// Far more than what costs as much takes, also on a busy machine.
const LONGEST: Duration = Duration::from_secs(30);
/// How many payments pass between two looks at the clock.
const PAYMENTS_PER_LOOK: u32 = 16;

/// The sentence of an object, or a webhook, whose expressions cost too much together.
pub(super) const SPENT: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";
/// The sentence of an expression that costs too much.
pub(super) const CANCELLED: &str = "operation cancelled: actual cost limit exceeded";

/// What is left for the expressions of one object.
#[derive(Debug)]
pub(super) struct Budget {
    left: u64,
    lasts: Duration,
    /// Set by the first expression that has loops.
    until: Option<Instant>,
}

/// Why there is no value.
#[derive(Debug)]
pub(super) enum Stopped {
    Failed(ExecutionError),
    /// This expression cost too much.
    Cancelled,
    /// All of them together did.
    Spent,
}

impl Budget {
    pub fn of_object() -> Self {
        Self::new(OF_OBJECT, LONGEST)
    }

    pub fn of_conditions() -> Self {
        Self::new(OF_CONDITIONS, LONGEST)
    }

    fn new(left: u64, lasts: Duration) -> Self {
        Self {
            left,
            lasts,
            until: None,
        }
    }

    pub fn is_spent(&self) -> bool {
        self.left == 0
    }

    pub fn run(&mut self, program: &Program, scope: &Context<'_>) -> Result<Cel, Stopped> {
        let price = program.price;
        if !price.loops {
            let left = self.left.checked_sub(price.once).ok_or(Stopped::Spent)?;
            self.left = left;
            return program.resolve(scope).map_err(Stopped::Failed);
        }
        let until = *self.until.get_or_insert_with(|| Instant::now() + self.lasts);
        let limit = OF_EXPRESSION.min(self.left);
        let (result, spent, is_cancelled) = METER.with(|meter| {
            meter.begin(limit, until);
            let _ = meter.pay(price.once);
            let result = program.resolve(scope);
            (result, meter.spent.get(), meter.is_over.get())
        });
        self.left = self.left.checked_sub(spent).ok_or(Stopped::Spent)?;
        if is_cancelled {
            return Err(Stopped::Cancelled);
        }
        result.map_err(Stopped::Failed)
    }
}

/// What an expression costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Price {
    /// At least, without the rounds of its loops.
    pub once: u64,
    pub loops: bool,
}

/// Counts for the expression that this thread evaluates.
struct Meter {
    spent: Cell<u64>,
    limit: Cell<u64>,
    until: Cell<Option<Instant>>,
    payments: Cell<u32>,
    is_over: Cell<bool>,
}

thread_local! {
    static METER: Meter = const { Meter {
        spent: Cell::new(0),
        limit: Cell::new(0),
        until: Cell::new(None),
        payments: Cell::new(0),
        is_over: Cell::new(false),
    } };
}

impl Meter {
    fn begin(&self, limit: u64, until: Instant) {
        self.spent.set(0);
        self.limit.set(limit);
        self.until.set(Some(until));
        self.payments.set(0);
        self.is_over.set(false);
    }

    /// Errors do not end all expressions (`true || …` forgives them), but every loop within: none goes on without paying.
    fn pay(&self, price: u64) -> Result<(), ExecutionError> {
        let spent = self.spent.get().saturating_add(price);
        self.spent.set(spent);
        let payments = self.payments.get().wrapping_add(1);
        self.payments.set(payments);
        if spent > self.limit.get()
            || (payments.is_multiple_of(PAYMENTS_PER_LOOK)
                && self.until.get().is_some_and(|until| Instant::now() >= until))
        {
            self.is_over.set(true);
        }
        if self.is_over.get() {
            return Err(ExecutionError::function_error(PAY, CANCELLED));
        }
        Ok(())
    }
}

/// Functions that only a compiled expression names: a program's text cannot hold their sign.
const PAY: &str = "@pay";
const PAY_WALK: &str = "@pay_walk";

pub(super) fn add_functions(base: &mut Context<'_>) {
    base.add_function(PAY, |ftx: &FunctionContext<'_, '_>| -> cel::ResolveResult {
        let price = match ftx.args.first().map(|price| &price.expr) {
            Some(Expr::Literal(LiteralValue::UInt(price))) => *price.inner(),
            _ => 1,
        };
        METER.with(|meter| meter.pay(price)).map(|()| Cel::Bool(true))
    });
    base.add_function(PAY_WALK, |ftx: &FunctionContext<'_, '_>| -> cel::ResolveResult {
        let Some((name, operands)) = ftx.args.split_first() else {
            return Ok(Cel::Bool(true));
        };
        let mut sizes = [0, 0];
        for (size, operand) in sizes.iter_mut().zip(operands) {
            *size = Size::of(operand, ftx.ptx)?.get();
        }
        let [first, second] = sizes;
        let price = match &name.expr {
            Expr::Literal(LiteralValue::String(name)) => walk_price(name.inner(), first, second),
            _ => 1,
        };
        // A call costs one anyhow.
        METER
            .with(|meter| meter.pay(price.saturating_sub(1)))
            .map(|()| Cel::Bool(true))
    });
}

enum Size {
    Characters(u64),
    Items(u64),
}

impl Size {
    fn of(operand: &IdedExpr, scope: &Context<'_>) -> Result<Self, ExecutionError> {
        let value = Cel::resolve_val(operand, scope)?;
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Ok(if let Some(text) = value.downcast_ref::<CelString>() {
            Self::Characters(count(text.inner().chars().count()))
        } else if let Some(list) = value.downcast_ref::<CelList>() {
            Self::Items(count(list.inner().len()))
        } else if let Some(map) = value.downcast_ref::<CelMap>() {
            Self::Items(u64::from(!map.inner().is_empty()))
        } else {
            Self::Items(1)
        })
    }

    fn get(&self) -> u64 {
        match self {
            // A tenth of a unit for each character.
            Self::Characters(count) => count.div_ceil(10),
            Self::Items(count) => *count,
        }
    }
}

fn walk_price(name: &str, first: u64, second: u64) -> u64 {
    match name {
        operators::IN => second,
        "contains" | "matches" | "find" | "findAll" | "sets.contains" | "sets.equivalent" | "sets.intersects" => {
            first.saturating_mul(second.max(1))
        }
        _ => first,
    }
}

/// Whether a call takes longer the larger its operands are.
fn walks(name: &str) -> bool {
    walks_its_operand(name)
        || matches!(
            name,
            "substring" | "format" | "sort" | "reverse" | "flatten" | "sets.equivalent" | "sets.intersects"
        )
}

/// Completes an expression with payments. Selections become look-ups by key, too, which do not copy what they pass
/// through.
pub(super) fn meter(expression: &mut IdedExpr) -> Price {
    let mut metering = Metering {
        found_loop: false,
        within_loop: false,
    };
    Price {
        once: metering.least(expression),
        loops: metering.found_loop,
    }
}

struct Metering {
    found_loop: bool,
    within_loop: bool,
}

/// Packages of functions: names that no variable has.
const PACKAGES: [&str; 5] = ["cel", "format", "math", "optional", "sets"];

impl Metering {
    /// The least that an expression costs, whichever branches it takes, without the rounds of loops.
    fn least(&mut self, expression: &mut IdedExpr) -> u64 {
        match &mut expression.expr {
            Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => 0,
            // What macros with two variables walk over: the reference has it for nothing.
            Expr::Ident(name) => u64::from(name != "@range"),
            Expr::Select(select) => {
                let cost = self.least(&mut select.operand).saturating_add(1);
                if !select.test {
                    let operand = std::mem::replace(&mut *select.operand, nothing());
                    let key = literal(LiteralValue::String(select.field.as_str().into()));
                    expression.expr = call(operators::INDEX, vec![operand, key]).expr;
                }
                cost
            }
            Expr::List(list) => self.sum(10, list.elements.iter_mut()),
            Expr::Map(map) => {
                let entries = map.entries.iter_mut().filter_map(|entry| match &mut entry.expr {
                    cel::common::ast::EntryExpr::MapEntry(entry) => Some([&mut entry.key, &mut entry.value]),
                    cel::common::ast::EntryExpr::StructField(_) => None,
                });
                self.sum(30, entries.flatten())
            }
            Expr::Comprehension(fold) => {
                let is_bind = matches!(&fold.iter_range.expr, Expr::List(list) if list.elements.is_empty());
                let once = self.sum(0, [&mut fold.accu_init, &mut fold.result]);
                if is_bind {
                    return once;
                }
                let once = self.least(&mut fold.iter_range).saturating_add(once);
                let outside = std::mem::replace(&mut self.within_loop, true);
                self.found_loop = true;
                let step = match &mut fold.loop_step.expr {
                    // `all` and `exists`: whether they go on is asked before, so the body is always run.
                    Expr::Call(step) if is_junction(&step.func_name) => self.sum(0, &mut step.args),
                    _ => self.least(&mut fold.loop_step),
                };
                let round = self.least(&mut fold.loop_cond).saturating_add(step);
                self.within_loop = outside;
                let price = literal(LiteralValue::UInt(round.max(1).into()));
                pay_before(&mut fold.loop_step, call(PAY, vec![price]));
                once
            }
            Expr::Call(_) => self.call(expression),
        }
    }

    fn sum<'e>(&mut self, least: u64, parts: impl IntoIterator<Item = &'e mut IdedExpr>) -> u64 {
        parts
            .into_iter()
            .fold(least, |sum, part| sum.saturating_add(self.least(part)))
    }

    fn call(&mut self, expression: &mut IdedExpr) -> u64 {
        let Expr::Call(given) = &mut expression.expr else {
            return 0;
        };
        let cost = match (given.func_name.as_str(), given.args.as_mut_slice()) {
            (operators::CONDITIONAL, [condition, yes, no]) => {
                let least = self.least(yes).min(self.least(no));
                self.least(condition).saturating_add(least)
            }
            (name, [left, right]) if is_junction(name) => {
                self.least(right);
                self.least(left)
            }
            (operators::INDEX, [range, _]) if matches!(&range.expr, Expr::Ident(name) if name == "@range") => 0,
            _ => {
                let target = given.target.as_deref_mut().filter(|target| !is_package(target));
                self.sum(1, target.into_iter().chain(&mut given.args))
            }
        };
        if self.within_loop
            && let Some(payment) = walk_payment(given)
        {
            pay_before(expression, payment);
        }
        cost
    }
}

fn is_junction(name: &str) -> bool {
    matches!(name, operators::LOGICAL_AND | operators::LOGICAL_OR)
}

fn is_package(target: &IdedExpr) -> bool {
    matches!(&target.expr, Expr::Ident(name) if PACKAGES.contains(&name.as_str()))
}

/// What pays for a call by the sizes of its operands, where those can be looked at for nothing.
fn walk_payment(given: &CallExpr) -> Option<IdedExpr> {
    let package = given.target.as_deref().filter(|target| is_package(target));
    let name = match package.map(|package| &package.expr) {
        Some(Expr::Ident(package)) => format!("{package}.{}", given.func_name),
        _ => given.func_name.clone(),
    };
    if !walks(&name) {
        return None;
    }
    let target = given.target.as_deref().filter(|_| package.is_none());
    let mut has_path = false;
    let operands: Vec<IdedExpr> = target
        .into_iter()
        .chain(&given.args)
        .take(2)
        .map(|operand| match &operand.expr {
            Expr::Literal(_) => operand.clone(),
            _ if is_path(operand) => {
                has_path = true;
                operand.clone()
            }
            _ => literal(LiteralValue::Boolean(true.into())),
        })
        .collect();
    let mut args = vec![literal(LiteralValue::String(name.as_str().into()))];
    args.extend(operands);
    has_path.then(|| call(PAY_WALK, args))
}

/// A variable, or what is found below one without computing.
fn is_path(expression: &IdedExpr) -> bool {
    match &expression.expr {
        Expr::Ident(_) => true,
        Expr::Call(given) if given.func_name == operators::INDEX => match given.args.as_slice() {
            [operand, key] => is_path(operand) && (matches!(key.expr, Expr::Literal(_)) || is_path(key)),
            _ => false,
        },
        _ => false,
    }
}

/// `payment ? expression : false`: a payment is made or fails.
fn pay_before(expression: &mut IdedExpr, payment: IdedExpr) {
    let then = std::mem::replace(expression, nothing());
    let never = literal(LiteralValue::Boolean(false.into()));
    *expression = call(operators::CONDITIONAL, vec![payment, then, never]);
}

fn literal(value: LiteralValue) -> IdedExpr {
    IdedExpr {
        id: 0,
        expr: Expr::Literal(value),
    }
}

fn nothing() -> IdedExpr {
    literal(LiteralValue::Null)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::cel::program;

    #[test]
    fn what_is_slow_without_being_dear_ends_at_the_deadline() {
        let program = Program::untyped("list.all(x, list == list)", &["list"]).unwrap();
        let mut scope = program::base().new_inner_scope();
        scope.add_variable_from_value("list", vec![1; 1_000]);
        assert!(matches!(Budget::of_object().run(&program, &scope), Ok(Cel::Bool(true))));
        let mut budget = Budget::new(OF_OBJECT, Duration::ZERO);
        assert!(matches!(budget.run(&program, &scope), Err(Stopped::Cancelled)));
    }

    #[test]
    fn what_has_no_loops_pays_once() {
        let program = Program::untyped("a.b == 1 && a.c.d.size() > 2", &["a"]).unwrap();
        assert!(!program.price.loops);
        // What `&&` may not reach is not paid for.
        assert_eq!(program.price.once, 3);
    }
}
