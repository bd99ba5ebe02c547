//! What operators and functions make of the types they are given. Called by [`super::typing`].

use cel::common::ast::{IdedExpr, operators};
use kube_cel::cel;

use super::names::escape;
use super::program;
use super::typing::{Answer, Problem, Ty, first_word};

pub(super) fn select_field<'s>(operand: &Ty<'s>, field: &str) -> Answer<'s> {
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

pub(super) fn no_overload<'s>(name: &str, args: &[Ty<'s>]) -> Answer<'s> {
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
pub(super) fn operator<'s>(
    name: &str,
    args: &[Ty<'s>],
    expressions: &[IdedExpr],
    literal: Option<&str>,
) -> Option<Answer<'s>> {
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
pub(super) fn result_of<'s>(name: &str, target: Option<&Ty<'s>>, args: &[Ty<'s>]) -> Ty<'s> {
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
