//! Whether an expression fits its schema: the mistakes that the reference finds when a CRD is created.
//!
//! Types are inferred where they are certain and `Dyn` where they are not; only certain mistakes are refused, so that a
//! rule which the reference takes is taken here. What slips through fails when it is run, never silently.

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use kube_cel::cel;

use super::names::escape;
use super::program;
use crate::schema::{Additional, ListType, Schema, Type};

/// What `self` and `oldSelf` are.
#[derive(Clone, Copy)]
pub(super) struct Variables<'s> {
    pub schema: &'s Schema,
    pub resource: bool,
    pub optional_old_self: bool,
}

/// What an expression must be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Bool,
    Message,
}

pub(super) enum Refused {
    /// The result is of the wrong type.
    Result(&'static str),
    Expression(Problem),
}

/// A mistake, and a piece of text that stands where it is.
pub(super) struct Problem {
    what: String,
    near: String,
    /// How far into `near` it is.
    offset: usize,
}

impl Problem {
    fn new(what: String, near: impl Into<String>) -> Self {
        Self {
            what,
            near: near.into(),
            offset: 0,
        }
    }

    /// With its place in the expression, as compilers show it.
    pub fn show(&self, text: &str) -> String {
        let at = find_word(text, &self.near).map_or(0, |at| at + self.offset);
        let before = text.get(..at).unwrap_or_default();
        let line = before.matches('\n').count();
        let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count());
        let snippet = text.lines().nth(line).unwrap_or_default();
        format!(
            "ERROR: <input>:{}:{}: {}\n | {snippet}\n | {}^",
            line + 1,
            column + 1,
            self.what,
            ".".repeat(column)
        )
    }
}

/// The first place of `word` that is not part of a longer one.
fn find_word(text: &str, word: &str) -> Option<usize> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(word).map(|(at, _)| at).find(|at| {
        let after = text.get(at + word.len()..).unwrap_or_default();
        !(word.ends_with(is_word) && after.starts_with(is_word))
    })
}

#[derive(Clone, PartialEq)]
enum Ty<'s> {
    /// Not known, or not needed.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Duration,
    Timestamp,
    /// The type of a type.
    Type,
    List(Box<Ty<'s>>),
    /// A list of type set or map, whose order means nothing.
    Unordered(Box<Ty<'s>>),
    Map(Box<Ty<'s>>),
    /// `true`: the root of a resource.
    Object(&'s Schema, bool),
    Metadata,
    Optional(Box<Ty<'s>>),
}

impl<'s> Ty<'s> {
    /// `None`: CEL cannot see it.
    fn of(schema: &'s Schema, resource: bool) -> Option<Self> {
        if schema.int_or_string {
            return Some(Self::Dyn);
        }
        Some(match schema.kind? {
            Type::Boolean => Self::Bool,
            Type::Integer => Self::Int,
            Type::Number => Self::Double,
            Type::String => match schema.format.as_deref() {
                Some("byte") => Self::Bytes,
                Some("duration") => Self::Duration,
                Some("date" | "date-time") => Self::Timestamp,
                _ => Self::Text,
            },
            Type::Array => {
                let items = schema.items.as_deref()?;
                let item = Box::new(Self::of(items, items.embedded_resource)?);
                if schema.list_type == ListType::Atomic {
                    Self::List(item)
                } else {
                    Self::Unordered(item)
                }
            }
            Type::Object => match &schema.additional {
                Additional::Schema(entry) => Self::Map(Box::new(Self::of(entry, entry.embedded_resource)?)),
                Additional::No | Additional::Any => Self::Object(schema, resource),
            },
        })
    }

    fn name(&self) -> String {
        match self {
            Self::Dyn => "dyn".to_owned(),
            Self::Null => "null".to_owned(),
            Self::Bool => "bool".to_owned(),
            Self::Int => "int".to_owned(),
            Self::Uint => "uint".to_owned(),
            Self::Double => "double".to_owned(),
            Self::Text => "string".to_owned(),
            Self::Bytes => "bytes".to_owned(),
            Self::Duration => "google.protobuf.Duration".to_owned(),
            Self::Timestamp => "google.protobuf.Timestamp".to_owned(),
            Self::Type => "type".to_owned(),
            Self::List(item) | Self::Unordered(item) => format!("list({})", item.name()),
            Self::Map(value) => format!("map(string, {})", value.name()),
            Self::Object(..) | Self::Metadata => "object".to_owned(),
            Self::Optional(value) => format!("optional_type({})", value.name()),
        }
    }

    fn ordered(self) -> Self {
        match self {
            Self::Unordered(item) => Self::List(item),
            other => other,
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    fn is_unsure(&self) -> bool {
        match self {
            Self::Dyn => true,
            Self::List(inner) | Self::Unordered(inner) | Self::Map(inner) | Self::Optional(inner) => inner.is_unsure(),
            _ => false,
        }
    }

    fn join(self, other: Self) -> Self {
        if self == other { self } else { Self::Dyn }
    }
}

type Answer<'s> = Result<Ty<'s>, Problem>;

/// Checks an expression against its variables.
pub(super) fn check(expression: &mut IdedExpr, variables: Variables<'_>, wanted: Wanted) -> Result<(), Refused> {
    let this = Ty::of(variables.schema, variables.resource).unwrap_or(Ty::Dyn);
    let old = if variables.optional_old_self {
        Ty::Optional(Box::new(this.clone()))
    } else {
        this.clone()
    };
    let mut scope = Scope {
        names: vec![("self".to_owned(), this), ("oldSelf".to_owned(), old)],
        unordered: Vec::new(),
    };
    number(expression, &mut 0);
    let found = scope.infer(expression).map_err(Refused::Expression)?;
    mark_unordered(expression, &scope.unordered);
    match (wanted, found) {
        (_, Ty::Dyn) | (Wanted::Bool, Ty::Bool) | (Wanted::Message, Ty::Text) => Ok(()),
        (Wanted::Bool, _) => Err(Refused::Result("cel expression must evaluate to a bool")),
        (Wanted::Message, _) => Err(Refused::Result("messageExpression must evaluate to a string")),
    }
}

struct Scope<'s> {
    names: Vec<(String, Ty<'s>)>,
    /// Comparisons of lists whose order means nothing, by the numbers of their expressions.
    unordered: Vec<u64>,
}

/// Gives each expression a number of its own: what was written out has none.
fn number(expression: &mut IdedExpr, next: &mut u64) {
    program::visit_mut(expression, &mut |expression| {
        *next += 1;
        expression.id = *next;
    });
}

/// Turns comparisons of unordered lists into ones that do not heed order.
fn mark_unordered(expression: &mut IdedExpr, numbers: &[u64]) {
    if numbers.is_empty() {
        return;
    }
    program::visit_mut(expression, &mut |expression| {
        if numbers.contains(&expression.id)
            && let Expr::Call(call) = &mut expression.expr
        {
            let negates = call.func_name == operators::NOT_EQUALS;
            program::SAME.clone_into(&mut call.func_name);
            if negates {
                // Its parts have their numbers still; this one has done its part.
                let same = IdedExpr {
                    id: 0,
                    expr: std::mem::take(&mut expression.expr),
                };
                expression.expr = Expr::Call(CallExpr {
                    func_name: operators::LOGICAL_NOT.to_owned(),
                    target: None,
                    args: vec![same],
                });
            }
        }
    });
}

impl<'s> Scope<'s> {
    fn lookup(&self, name: &str) -> Option<&Ty<'s>> {
        self.names
            .iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, ty)| ty)
    }

    fn with<T>(&mut self, names: Vec<(String, Ty<'s>)>, run: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.names.len();
        self.names.extend(names);
        let answer = run(self);
        self.names.truncate(length);
        answer
    }

    fn infer(&mut self, expression: &IdedExpr) -> Answer<'s> {
        match &expression.expr {
            Expr::Literal(literal) => Ok(match literal {
                LiteralValue::Boolean(_) => Ty::Bool,
                LiteralValue::Bytes(_) => Ty::Bytes,
                LiteralValue::Double(_) => Ty::Double,
                LiteralValue::Int(_) => Ty::Int,
                LiteralValue::Null => Ty::Null,
                LiteralValue::String(_) => Ty::Text,
                LiteralValue::UInt(_) => Ty::Uint,
            }),
            Expr::Ident(name) => match self.lookup(name) {
                Some(ty) => Ok(ty.clone()),
                None if program::TYPES.contains(&name.as_str()) => Ok(Ty::Type),
                None => Err(undeclared(name)),
            },
            Expr::Select(select) => {
                let operand = self.infer(&select.operand)?;
                let field = select_field(&operand, &select.field).map_err(|problem| {
                    if select.test {
                        // Of `has`, the parenthesis is shown.
                        Problem {
                            near: "has(".to_owned(),
                            offset: 3,
                            ..problem
                        }
                    } else {
                        problem
                    }
                })?;
                Ok(if select.test { Ty::Bool } else { field })
            }
            Expr::List(list) => {
                let mut item: Option<Ty<'s>> = None;
                for element in &list.elements {
                    let found = self.infer(element)?;
                    item = Some(match item {
                        None => found,
                        Some(item) => item.join(found),
                    });
                }
                Ok(Ty::List(Box::new(item.unwrap_or(Ty::Dyn))))
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.infer(&entry.key)?;
                        self.infer(&entry.value)?;
                    }
                }
                Ok(Ty::Map(Box::new(Ty::Dyn)))
            }
            Expr::Comprehension(fold) => self.fold(fold),
            Expr::Call(call) => self.call(call, expression.id),
            Expr::Struct(_) | Expr::Unspecified => Ok(Ty::Dyn),
        }
    }

    fn fold(&mut self, fold: &ComprehensionExpr) -> Answer<'s> {
        let item = match self.infer(&fold.iter_range)? {
            Ty::List(item) | Ty::Unordered(item) => *item,
            Ty::Map(_) => Ty::Text,
            Ty::Dyn => Ty::Dyn,
            other => {
                return Err(Problem::new(
                    format!(
                        "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                        other.name()
                    ),
                    first_word(&fold.iter_range),
                ));
            }
        };
        let mut total = self.infer(&fold.accu_init)?;
        let names = vec![(fold.accu_var.clone(), total.clone()), (fold.iter_var.clone(), item)];
        let step = self.with(names, |scope| {
            scope.infer(&fold.loop_cond)?;
            scope.infer(&fold.loop_step)
        })?;
        if total.is_unsure() {
            total = step;
        }
        self.with(vec![(fold.accu_var.clone(), total)], |scope| scope.infer(&fold.result))
    }

    fn call(&mut self, call: &CallExpr, id: u64) -> Answer<'s> {
        // A package before the name is no value.
        if let Some(target) = call.target.as_deref()
            && let Expr::Ident(package) = &target.expr
            && self.lookup(package).is_none()
        {
            let qualified = format!("{package}.{}", call.func_name);
            if matches!(package.as_str(), "math" | "base64" | "jsonpatch") {
                // kube-cel has these for policies; the reference has none of them for CRDs.
                return Err(undeclared(package));
            }
            if program::is_function(&qualified) {
                let args = call
                    .args
                    .iter()
                    .map(|arg| self.infer(arg))
                    .collect::<Result<Vec<_>, _>>()?;
                return Ok(result_of(&qualified, None, &args));
            }
        }
        let target = match call.target.as_deref() {
            Some(target) => Some(self.infer(target)?),
            None => None,
        };
        let args = call
            .args
            .iter()
            .map(|arg| self.infer(arg))
            .collect::<Result<Vec<_>, _>>()?;
        let literal = call.args.get(1).and_then(|arg| match &arg.expr {
            Expr::Literal(LiteralValue::String(text)) => Some(text.inner().to_owned()),
            _ => None,
        });
        if matches!(call.func_name.as_str(), operators::EQUALS | operators::NOT_EQUALS)
            && args.iter().any(|ty| matches!(ty, Ty::Unordered(_)))
        {
            self.unordered.push(id);
        }
        // From here on a list is a list.
        let args: Vec<Ty<'s>> = args.into_iter().map(Ty::ordered).collect();
        let target = target.map(Ty::ordered);
        if let Some(problem) = bad_literal(call) {
            return Err(problem);
        }
        match operator(&call.func_name, &args, &call.args, literal.as_deref()) {
            Some(answer) => answer,
            None if call.func_name.starts_with('@') || program::is_function(&call.func_name) => {
                Ok(result_of(&call.func_name, target.as_ref(), &args))
            }
            None => Err(undeclared_function(&call.func_name)),
        }
    }
}

/// Literals that a function could never take.
fn bad_literal(call: &CallExpr) -> Option<Problem> {
    let text = match &call.args.first()?.expr {
        Expr::Literal(LiteralValue::String(text)) if call.args.len() == 1 => text.inner(),
        _ => return None,
    };
    let good = match call.func_name.as_str() {
        "matches" => crate::schema::Pattern::from(text).regex().is_ok(),
        "duration" => program::duration(text).is_some(),
        "timestamp" => program::timestamp(text).is_some(),
        _ => true,
    };
    (!good).then(|| Problem {
        what: format!("invalid {} argument", call.func_name),
        near: format!("{}(", call.func_name),
        offset: call.func_name.len() + 1,
    })
}

fn undeclared(name: &str) -> Problem {
    Problem::new(format!("undeclared reference to '{name}' (in container '')"), name)
}

/// Of a call, the parenthesis is shown.
fn undeclared_function(name: &str) -> Problem {
    Problem {
        near: format!("{name}("),
        offset: name.len(),
        ..undeclared(name)
    }
}

fn first_word(expression: &IdedExpr) -> String {
    match &expression.expr {
        Expr::Ident(name) => name.clone(),
        Expr::Select(select) => format!(".{}", select.field),
        _ => String::new(),
    }
}

fn select_field<'s>(operand: &Ty<'s>, field: &str) -> Answer<'s> {
    let undefined = || Problem::new(format!("undefined field '{field}'"), format!(".{field}"));
    match operand {
        Ty::Dyn | Ty::Null => Ok(Ty::Dyn),
        Ty::Map(value) => Ok((**value).clone()),
        Ty::Optional(inner) => Ok(match select_field(inner, field)? {
            optional @ Ty::Optional(_) => optional,
            plain => Ty::Optional(Box::new(plain)),
        }),
        Ty::Object(_, true) if matches!(field, "apiVersion" | "kind") => Ok(Ty::Text),
        Ty::Object(_, true) if field == "metadata" => Ok(Ty::Metadata),
        Ty::Metadata if matches!(field, "name" | "generateName") => Ok(Ty::Text),
        Ty::Object(schema, _) => schema
            .properties
            .iter()
            .find(|(name, _)| escape(name).as_deref() == Some(field))
            .and_then(|(_, property)| Ty::of(property, property.embedded_resource))
            .ok_or_else(undefined),
        Ty::Metadata => Err(undefined()),
        other => Err(Problem::new(
            format!("type '{}' does not support field selection", other.name()),
            format!(".{field}"),
        )),
    }
}

fn no_overload<'s>(name: &str, args: &[Ty<'s>]) -> Answer<'s> {
    let types: Vec<String> = args.iter().map(Ty::name).collect();
    let sign = name.trim_matches('_').trim_start_matches('@');
    Err(Problem::new(
        format!(
            "found no matching overload for '{name}' applied to '({})'",
            types.join(", ")
        ),
        sign,
    ))
}

/// Operators; `None`: it is none.
fn operator<'s>(name: &str, args: &[Ty<'s>], expressions: &[IdedExpr], literal: Option<&str>) -> Option<Answer<'s>> {
    Some(match (name, args) {
        (operators::LOGICAL_AND | operators::LOGICAL_OR, args) => {
            let mut operands = args.iter().zip(expressions);
            match operands.find(|(ty, _)| !matches!(ty, Ty::Bool | Ty::Dyn)) {
                None => Ok(Ty::Bool),
                Some((other, expression)) => Err(Problem::new(
                    format!("expected type 'bool' but found '{}'", other.name()),
                    first_word(expression),
                )),
            }
        }
        (operators::LOGICAL_NOT, [Ty::Bool | Ty::Dyn]) | (operators::NOT_STRICTLY_FALSE, _) => Ok(Ty::Bool),
        (operators::EQUALS | operators::NOT_EQUALS, [left, right]) => {
            if comparable(left, right) {
                Ok(Ty::Bool)
            } else {
                no_overload(name, args)
            }
        }
        (operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS, [left, right]) => {
            let ordered = |ty: &Ty<'_>| {
                ty.is_number()
                    || matches!(
                        ty,
                        Ty::Bool | Ty::Text | Ty::Bytes | Ty::Duration | Ty::Timestamp | Ty::Dyn
                    )
            };
            let fit = left.is_unsure() || right.is_unsure() || left == right || (left.is_number() && right.is_number());
            if fit && ordered(left) && ordered(right) {
                Ok(Ty::Bool)
            } else {
                no_overload(name, args)
            }
        }
        (operators::IN, [_, Ty::List(_) | Ty::Map(_) | Ty::Dyn]) => Ok(Ty::Bool),
        (operators::IN, [_, _]) => no_overload(name, args),
        (operators::CONDITIONAL, [Ty::Bool | Ty::Dyn, yes, no]) => Ok(yes.clone().join(no.clone())),
        (operators::CONDITIONAL, [other, _, _]) => Err(Problem::new(
            format!("expected type 'bool' but found '{}'", other.name()),
            "?",
        )),
        (operators::NEGATE, [Ty::Int | Ty::Double | Ty::Dyn]) => Ok(args.first().cloned().unwrap_or(Ty::Dyn)),
        (operators::NEGATE | operators::LOGICAL_NOT, [_]) => no_overload(name, args),
        (
            operators::ADD | operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO,
            [left, right],
        ) => arithmetic(name, left, right),
        (operators::INDEX, [Ty::List(item), Ty::Int | Ty::Uint | Ty::Double | Ty::Dyn]) => Ok((**item).clone()),
        (operators::INDEX, [Ty::Map(value), _]) => Ok((**value).clone()),
        (operators::INDEX, [Ty::Dyn | Ty::Optional(_), _]) => Ok(Ty::Dyn),
        (operators::INDEX, [_, _]) => no_overload(name, args),
        (operators::OPT_INDEX, [operand, _]) => match (operand, literal) {
            (Ty::Object(..) | Ty::Metadata | Ty::Map(_), Some(field)) => {
                select_field(operand, field).map(|ty| Ty::Optional(Box::new(ty)))
            }
            (Ty::Optional(inner), Some(field)) if matches!(**inner, Ty::Object(..) | Ty::Metadata | Ty::Map(_)) => {
                select_field(inner, field).map(|ty| Ty::Optional(Box::new(ty)))
            }
            (Ty::List(item), _) => Ok(Ty::Optional(item.clone())),
            _ => Ok(Ty::Optional(Box::new(Ty::Dyn))),
        },
        _ => return None,
    })
}

/// Whether two types can ever be equal.
fn comparable(left: &Ty<'_>, right: &Ty<'_>) -> bool {
    match (left, right) {
        (Ty::Dyn, _) | (_, Ty::Dyn) | (Ty::Null, Ty::Null) => true,
        // Nothing that JSON holds is comparable with null but objects, times and what is optional.
        (Ty::Null, other) | (other, Ty::Null) => matches!(
            other,
            Ty::Object(..) | Ty::Metadata | Ty::Optional(_) | Ty::Duration | Ty::Timestamp | Ty::Type
        ),
        (Ty::List(left), Ty::List(right))
        | (Ty::Map(left), Ty::Map(right))
        | (Ty::Optional(left), Ty::Optional(right)) => comparable(left, right),
        (Ty::Object(..) | Ty::Metadata, Ty::Object(..) | Ty::Metadata) => true,
        (left, right) => left == right,
    }
}

fn arithmetic<'s>(name: &str, left: &Ty<'s>, right: &Ty<'s>) -> Answer<'s> {
    let adds = name == operators::ADD;
    let plus_or_minus = adds || name == operators::SUBSTRACT;
    match (left, right) {
        (Ty::Dyn, _) | (_, Ty::Dyn) => Ok(Ty::Dyn),
        (Ty::Int, Ty::Int) | (Ty::Uint, Ty::Uint) => Ok(left.clone()),
        (Ty::Double, Ty::Double) if name != operators::MODULO => Ok(Ty::Double),
        (Ty::Text, Ty::Text) | (Ty::Bytes, Ty::Bytes) if adds => Ok(left.clone()),
        (Ty::List(left), Ty::List(right)) if adds => Ok(Ty::List(Box::new(if left.is_unsure() {
            (**right).clone()
        } else {
            (**left).clone().join((**right).clone())
        }))),
        (Ty::Duration, Ty::Duration) if plus_or_minus => Ok(Ty::Duration),
        (Ty::Timestamp, Ty::Duration) if plus_or_minus => Ok(Ty::Timestamp),
        (Ty::Duration, Ty::Timestamp) if adds => Ok(Ty::Timestamp),
        (Ty::Timestamp, Ty::Timestamp) if !adds && plus_or_minus => Ok(Ty::Duration),
        _ => no_overload(name, &[left.clone(), right.clone()]),
    }
}

/// What well-known functions give; `Dyn` for the rest.
fn result_of<'s>(name: &str, target: Option<&Ty<'s>>, args: &[Ty<'s>]) -> Ty<'s> {
    let first = target.or(args.first());
    match name {
        "size" | "int" | "indexOf" | "lastIndexOf" | "getFullYear" | "getMonth" | "getHours" | "getMinutes"
        | "getSeconds" | "compareTo" => Ty::Int,
        "matches" | "startsWith" | "endsWith" | "contains" | "isSorted" | "hasValue" | "isURL" | "isIP" | "isCIDR"
        | "isQuantity" | "isSemver" | "sets.contains" | "sets.equivalent" | "sets.intersects" | "isGreaterThan"
        | "isLessThan" => Ty::Bool,
        "string" | "lowerAscii" | "upperAscii" | "trim" | "replace" | "substring" | "join" | "charAt" | "format"
        | "find" => Ty::Text,
        "split" | "findAll" => Ty::List(Box::new(Ty::Text)),
        "double" => Ty::Double,
        "uint" => Ty::Uint,
        "bytes" => Ty::Bytes,
        "duration" => Ty::Duration,
        "timestamp" => Ty::Timestamp,
        "type" => Ty::Type,
        program::KEYS => match first {
            Some(Ty::List(_)) => Ty::List(Box::new(Ty::Int)),
            Some(Ty::Map(_)) => Ty::List(Box::new(Ty::Text)),
            _ => Ty::Dyn,
        },
        "optional.of" => Ty::Optional(Box::new(first.cloned().unwrap_or(Ty::Dyn))),
        "value" | "orValue" => match first {
            Some(Ty::Optional(inner)) => (**inner).clone(),
            _ => Ty::Dyn,
        },
        "distinct" | "sort" | "reverse" => match first {
            Some(list @ Ty::List(_)) => list.clone(),
            _ => Ty::Dyn,
        },
        _ => Ty::Dyn,
    }
}
