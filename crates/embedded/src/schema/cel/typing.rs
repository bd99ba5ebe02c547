//! Whether an expression fits its schema: the mistakes that the reference finds when a CRD is created.
//!
//! Types are inferred where they are certain and `Dyn` where they are not; only certain mistakes are refused, so that a
//! rule which the reference takes is taken here. What slips through fails when it is run, never silently.

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use kube_cel::cel;

use super::overloads::{operator, result_of, select_field};
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
    pub(super) fn new(what: String, near: impl Into<String>) -> Self {
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
pub(super) enum Ty<'s> {
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
    pub(super) fn of(schema: &'s Schema, resource: bool) -> Option<Self> {
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

    pub(super) fn name(&self) -> String {
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

    pub(super) fn ordered(self) -> Self {
        match self {
            Self::Unordered(item) => Self::List(item),
            other => other,
        }
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    fn is_scalar(&self) -> bool {
        self.is_number() || matches!(self, Self::Bool | Self::Text | Self::Bytes)
    }

    pub(super) fn is_unsure(&self) -> bool {
        match self {
            Self::Dyn => true,
            Self::List(inner) | Self::Unordered(inner) | Self::Map(inner) | Self::Optional(inner) => inner.is_unsure(),
            _ => false,
        }
    }

    pub(super) fn join(self, other: Self) -> Self {
        if self == other { self } else { Self::Dyn }
    }
}

pub(super) type Answer<'s> = Result<Ty<'s>, Problem>;

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
        formats: 0,
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
    /// Within how many calls of `format` this is, which takes lists of anything.
    formats: usize,
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
                let item = self.one_type(list.elements.iter())?;
                Ok(Ty::List(Box::new(item)))
            }
            Expr::Map(map) => {
                let entries = || {
                    map.entries.iter().filter_map(|entry| match &entry.expr {
                        EntryExpr::MapEntry(entry) => Some(entry),
                        EntryExpr::StructField(_) => None,
                    })
                };
                self.one_type(entries().map(|entry| &entry.key))?;
                self.one_type(entries().map(|entry| &entry.value))?;
                Ok(Ty::Map(Box::new(Ty::Dyn)))
            }
            Expr::Comprehension(fold) => self.fold(fold),
            Expr::Call(call) => {
                let formats = usize::from(call.func_name == "format");
                self.formats += formats;
                let answer = self.call(call, expression.id);
                self.formats -= formats;
                answer
            }
            Expr::Struct(_) | Expr::Unspecified => Ok(Ty::Dyn),
        }
    }

    /// The type of the parts of a list or map that is written out: but for what is formatted, they must be of one.
    fn one_type<'e>(&mut self, parts: impl Iterator<Item = &'e IdedExpr>) -> Answer<'s> {
        let mut one: Option<Ty<'s>> = None;
        for part in parts {
            let found = self.infer(part)?;
            one = Some(match one {
                None => found,
                Some(one) if self.formats == 0 && one != found && one.is_scalar() && found.is_scalar() => {
                    let what = format!("expected type '{}' but found '{}'", one.name(), found.name());
                    return Err(Problem::new(what, literal_text(part)));
                }
                Some(one) => one.join(found),
            });
        }
        Ok(one.unwrap_or(Ty::Dyn))
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
            None if call.func_name == "reverse" && target == Some(Ty::Text) => Err(Problem {
                // The interpreter has it; the reference has it for lists alone.
                what: "found no matching overload for 'reverse' applied to 'string.()'".to_owned(),
                near: "reverse(".to_owned(),
                offset: "reverse".len(),
            }),
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

/// A literal as it is most likely written.
fn literal_text(expression: &IdedExpr) -> String {
    match &expression.expr {
        Expr::Literal(LiteralValue::String(text)) => text.inner().to_owned(),
        Expr::Literal(LiteralValue::Double(number)) => format!("{:?}", *number.inner()),
        Expr::Literal(LiteralValue::Int(number)) => number.inner().to_string(),
        Expr::Literal(LiteralValue::Boolean(truth)) => truth.inner().to_string(),
        _ => first_word(expression),
    }
}

pub(super) fn first_word(expression: &IdedExpr) -> String {
    match &expression.expr {
        Expr::Ident(name) => name.clone(),
        Expr::Select(select) => format!(".{}", select.field),
        _ => String::new(),
    }
}
