//! Bounds of numbers. The reference decodes whole numbers as 64-bit integers and the rest as floats, and compares each
//! as what it is; a bound that is no integer is cut to one where the value is.

use serde_json::{Number, Value};

use super::{Found, Place, Problem};
use crate::fault::Wrong;
use crate::schema::{Schema, Type};

/// A number as the reference holds it.
#[derive(Clone, Copy)]
enum Held {
    Whole(i64),
    Float(f64),
}

impl Held {
    fn of(number: &Number) -> Self {
        number
            .as_i64()
            .map_or_else(|| Self::Float(number.as_f64().unwrap_or(f64::NAN)), Self::Whole)
    }

    #[expect(clippy::cast_precision_loss, reason = "the reference loses it too")]
    fn as_f64(self) -> f64 {
        match self {
            Self::Whole(whole) => whole as f64,
            Self::Float(float) => float,
        }
    }

    fn value(self) -> Value {
        match self {
            Self::Whole(whole) => whole.into(),
            Self::Float(float) => float.into(),
        }
    }
}

/// A float whose fraction is nothing, within what a double counts exactly.
fn is_whole_float(float: f64) -> bool {
    const MOST: f64 = 9_007_199_254_740_991.0;
    float.abs() <= MOST && (float - float.trunc()).abs() < 1e-9
}

pub(super) fn is_whole(value: &Value) -> bool {
    value.as_f64().is_some_and(is_whole_float)
}

/// Whether a value is one of an enumeration's: numbers are compared after conversion to the type of `allowed`.
#[expect(clippy::float_cmp, reason = "the reference compares what was written")]
pub(super) fn converts_to(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        (Value::Null, _) => false,
        (Value::Number(value), Value::Number(allowed)) => match (Held::of(value), Held::of(allowed)) {
            (Held::Whole(value), Held::Whole(allowed)) => value == allowed,
            (value, Held::Whole(allowed)) => cut(value.as_f64()) == allowed,
            (value, Held::Float(allowed)) => value.as_f64() == allowed,
        },
        _ => value == allowed,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "cutting is what is asked for")]
fn cut(float: f64) -> i64 {
    float as i64
}

/// Go's `%v` of a float.
pub(super) fn show(float: f64) -> String {
    crate::fault::show_float(float)
}

/// Whether a number fits the schema's type and format.
#[expect(clippy::cast_possible_truncation, reason = "the question is whether it fits")]
fn fits(held: Held, kind: Option<Type>, format: Option<&str>) -> bool {
    match (kind, format) {
        (Some(Type::Integer), format) => {
            let whole = match held {
                Held::Whole(whole) => whole,
                Held::Float(float) if float.fract() == 0.0 && float.abs() < 9.223_372_036_854_775e18 => cut(float),
                Held::Float(_) => return false,
            };
            format != Some("int32") || i32::try_from(whole).is_ok()
        }
        (_, Some("float")) => (held.as_f64() as f32).is_finite() || !held.as_f64().is_finite(),
        _ => true,
    }
}

pub(super) fn check(schema: &Schema, format: Option<&str>, number: &Number, place: &Place<'_>, found: &mut Found) {
    let held = Held::of(number);
    let kind = schema
        .kind
        .filter(|kind| matches!(kind, Type::Integer | Type::Number) && !schema.int_or_string);
    let format = format.filter(|_| kind.is_some());
    let misfit = |held: Held, what: &str| {
        (!fits(held, kind, format)).then(|| {
            let name = kind.map_or("", Type::as_str);
            let at = place.text();
            Problem::about_nothing(match format {
                Some(format) => format!("{what} value must be of type {name} with format {format} in {at}"),
                None => format!("{what} value must be of type {name} (default format) in {at}"),
            })
        })
    };
    let mut report = |problem: Option<Problem>| {
        let reported = problem.is_some();
        if let Some(problem) = problem {
            found.add(problem);
        }
        reported
    };
    report(misfit(held, "Checked"));
    let Some(bounds) = schema.bounds.as_deref() else {
        return;
    };
    if let Some(factor) = &bounds.multiple_of {
        let factor = Held::of(factor);
        let general = report(misfit(factor, "MultipleOf"));
        report(multiple(held, factor, general, place));
    }
    if let Some(least) = &bounds.minimum {
        let least = Held::of(least);
        let general = report(misfit(least, "Minimum boundary"));
        let (below, bound) = compare(held, least, general, bounds.exclusive_minimum, false);
        report(below.then(|| {
            let how = if bounds.exclusive_minimum {
                "greater than"
            } else {
                "greater than or equal to"
            };
            bound_problem(held, general, &bound, how, place)
        }));
    }
    if let Some(most) = &bounds.maximum {
        let most = Held::of(most);
        let general = report(misfit(most, "Maximum boundary"));
        let (above, bound) = compare(held, most, general, bounds.exclusive_maximum, true);
        report(above.then(|| {
            let how = if bounds.exclusive_maximum {
                "less than"
            } else {
                "less than or equal to"
            };
            bound_problem(held, general, &bound, how, place)
        }));
    }
}

fn bound_problem(held: Held, general: bool, bound: &str, how: &str, place: &Place<'_>) -> Problem {
    let value = if general { held.as_f64().into() } else { held.value() };
    Problem::new(Wrong::Invalid, place, value, |at| {
        format!("{at} in body should be {how} {bound}")
    })
}

/// Whether a value is beyond a bound, and the bound as it was used. `general`: compared as floats, since the bound does
/// not fit the type.
#[expect(clippy::float_cmp, reason = "the reference compares what was written")]
fn compare(held: Held, bound: Held, general: bool, exclusive: bool, upper: bool) -> (bool, String) {
    match held {
        Held::Whole(value) if !general => {
            let bound = match bound {
                Held::Whole(bound) => bound,
                Held::Float(bound) => cut(bound),
            };
            let beyond = if upper { value > bound } else { value < bound };
            (beyond || (exclusive && value == bound), bound.to_string())
        }
        _ => {
            let (value, bound) = (held.as_f64(), bound.as_f64());
            let beyond = if upper { value > bound } else { value < bound };
            (beyond || (exclusive && value == bound), show(bound))
        }
    }
}

fn multiple(held: Held, factor: Held, general: bool, place: &Place<'_>) -> Option<Problem> {
    let positive = |factor: String, value: Value| {
        Problem::new(Wrong::Invalid, place, value, |at| {
            format!("factor MultipleOf declared for {at} must be positive: {factor}")
        })
    };
    let (ok, factor, value) = match held {
        Held::Whole(value) if !general => {
            let factor = match factor {
                Held::Whole(factor) => factor,
                Held::Float(factor) => cut(factor),
            };
            if factor <= 0 {
                return Some(positive(factor.to_string(), factor.into()));
            }
            (value % factor == 0, factor.to_string(), Value::from(value))
        }
        _ => {
            let (value, factor) = (held.as_f64(), factor.as_f64());
            if factor <= 0.0 {
                return Some(positive(show(factor), factor.into()));
            }
            let times = if factor < 1.0 {
                1.0 / factor * value
            } else {
                value / factor
            };
            (is_whole_float(times), show(factor), Value::from(value))
        }
    };
    (!ok).then(|| {
        Problem::new(Wrong::Invalid, place, value, |at| {
            format!("{at} in body should be a multiple of {factor}")
        })
    })
}
