//! One expression: read, completed with what kube-cel lacks, checked, run.

use std::sync::{Arc, LazyLock};

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};
use cel::extractors::This;
use cel::parser::Parser;
use cel::{Context, ExecutionError, Value as Cel};
use kube_cel::KubeCelExt as _;
use kube_cel::cel;

use super::budget::{self, Price};
use super::macros::{call, ident, rewrite};
use super::typing;

#[derive(Debug)]
pub(super) struct Program {
    pub expression: IdedExpr,
    /// What is run: the expression, with payments.
    metered: IdedExpr,
    pub price: Price,
}

impl Program {
    /// Reads and checks an expression. Errors begin as the reference's do: `compilation failed: …`.
    pub fn compile(text: &str, variables: typing::Variables<'_>, wanted: typing::Wanted) -> Result<Self, String> {
        let failed = match wanted {
            typing::Wanted::Bool => "compilation failed",
            typing::Wanted::Message => "messageExpression compilation failed",
        };
        let mut expression = Parser::new()
            .enable_optional_syntax(true)
            .parse(text)
            .map_err(|errors| format!("{failed}: {}", errors.to_string().replace("\n| ", "\n | ")))?;
        rewrite(&mut expression);
        if let Some(what) = unsupported(&expression) {
            return Err(format!(
                "{failed}: {what} is not supported by this server, in rule {text}"
            ));
        }
        match typing::check(&mut expression, variables, wanted) {
            Ok(()) => Ok(Self::new(expression)),
            Err(typing::Refused::Result(sentence)) => Err(sentence.to_owned()),
            Err(typing::Refused::Expression(problem)) => Err(format!("{failed}: {}", problem.show(text))),
        }
    }

    fn new(expression: IdedExpr) -> Self {
        let mut metered = expression.clone();
        let price = budget::meter(&mut metered);
        Self {
            expression,
            metered,
            price,
        }
    }

    /// Reads an expression of which no schema says what it speaks of, only the names that it may use.
    pub fn untyped(text: &str, names: &[&str]) -> Result<Self, String> {
        let mut expression = Parser::new()
            .enable_optional_syntax(true)
            .parse(text)
            .map_err(|errors| format!("compilation failed: {errors}"))?;
        rewrite(&mut expression);
        if let Some(what) = unsupported(&expression) {
            return Err(format!(
                "compilation failed: {what} is not supported by this server, in expression {text}"
            ));
        }
        // Names that macros bind, and packages of functions.
        let mut bound: Vec<String> = ["cel", "format", "math", "optional", "sets"].map(str::to_owned).into();
        visit(&expression, &mut |part| {
            if let Expr::Comprehension(fold) = &part.expr {
                bound.extend([fold.iter_var.clone(), fold.accu_var.clone()]);
                bound.extend(fold.iter_var2.clone());
            }
        });
        let is_known = |name: &str| names.contains(&name) || TYPES.contains(&name) || bound.iter().any(|it| it == name);
        let references = expression.references();
        let unknown = references
            .variables()
            .into_iter()
            .find(|name| !is_known(name))
            .map(str::to_owned);
        match unknown {
            Some(name) => Err(format!(
                "compilation failed: undeclared reference to '{name}' (in container '')"
            )),
            None => Ok(Self::new(expression)),
        }
    }

    /// Whether a variable is spoken of.
    pub fn uses(&self, name: &str) -> bool {
        self.expression.references().has_variable(name)
    }

    /// The fields of a variable that are spoken of; `None` where all of it may be.
    pub fn fields_of(&self, variable: &str) -> Option<Vec<String>> {
        let mut fields = Vec::new();
        let mut whole = 0usize;
        visit(&self.expression, &mut |expression| match &expression.expr {
            Expr::Ident(name) if name == variable => whole += 1,
            Expr::Select(select) if matches!(&select.operand.expr, Expr::Ident(name) if name == variable) => {
                fields.push(select.field.clone());
            }
            _ => {}
        });
        // Each selection holds the name once: more than those, and the variable itself is used.
        (whole == fields.len()).then_some(fields)
    }

    /// For [`budget::Budget`], which alone knows how long.
    pub fn resolve(&self, scope: &Context<'_>) -> Result<Cel, ExecutionError> {
        Cel::resolve(&self.metered, scope)
    }
}

/// The functions, and the names of types.
pub(super) fn base() -> &'static Context<'static> {
    static BASE: LazyLock<Context<'static>> = LazyLock::new(|| {
        let mut base = Context::default().with_all();
        base.add_function("type", |value: Cel| Arc::new(type_name(&value).to_owned()));
        budget::add_functions(&mut base);
        base.add_function("dyn", |value: Cel| -> cel::ResolveResult { Ok(value) });
        base.add_function(KEYS, keys);
        base.add_function(SAME, |left: Cel, right: Cel| same(&left, &right));
        // What the interpreter counts or converts differently.
        base.add_function("size", size_of);
        base.add_function("string", text_of);
        base.add_function("int", int_of);
        base.add_function("bool", bool_of);
        for name in TYPES {
            base.add_variable_from_value(name, Cel::String(Arc::new(name.to_owned())));
        }
        base
    });
    &BASE
}

/// Types that expressions can name.
pub(super) const TYPES: [&str; 10] = [
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "type",
    "uint",
];

fn type_name(value: &Cel) -> &'static str {
    match value {
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::Int(_) => "int",
        Cel::UInt(_) => "uint",
        Cel::Float(_) => "double",
        Cel::String(_) => "string",
        Cel::Bytes(_) => "bytes",
        Cel::Bool(_) => "bool",
        Cel::Duration(_) => "google.protobuf.Duration",
        Cel::Timestamp(_) => "google.protobuf.Timestamp",
        Cel::Null => "null_type",
        Cel::Function(..) | Cel::Opaque(_) => "dyn",
    }
}

/// Whether a function is there, by its name with its package.
pub(super) fn is_function(name: &str) -> bool {
    let call = IdedExpr {
        id: 0,
        expr: Expr::Call(CallExpr {
            func_name: name.to_owned(),
            target: None,
            args: Vec::new(),
        }),
    };
    !matches!(Cel::resolve(&call, base()), Err(ExecutionError::UndeclaredReference(unknown)) if *unknown == name)
}

/// Runs a function of one text.
fn apply(function: &'static str, text: &str) -> Option<Cel> {
    let call = IdedExpr {
        id: 0,
        expr: Expr::Call(CallExpr {
            func_name: function.to_owned(),
            target: None,
            args: vec![IdedExpr {
                id: 0,
                expr: Expr::Literal(LiteralValue::String(text.into())),
            }],
        }),
    };
    Cel::resolve(&call, base()).ok()
}

pub(super) fn duration(text: &str) -> Option<Cel> {
    apply("duration", text)
}

pub(super) fn timestamp(text: &str) -> Option<Cel> {
    apply("timestamp", text)
}

/// The text of a `messageExpression`, if it is one that can be shown.
pub(super) fn message(value: &Cel) -> Option<String> {
    const MOST_BYTES: usize = 5 * 1024;
    let Cel::String(text) = value else {
        return None;
    };
    let text = text.trim();
    (!text.is_empty() && text.len() <= MOST_BYTES && !text.contains('\n')).then(|| text.to_owned())
}

/// An error in the reference's words.
pub(super) fn words(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(_, Cel::UInt(_), _) => "unsigned integer overflow".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::IndexOutOfBounds(Cel::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::IndexOutOfBounds(_) => "index out of bounds".to_owned(),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        ExecutionError::UndeclaredReference(name) => format!("undeclared reference to '{name}'"),
        _ => "no such overload".to_owned(),
    }
}

/// Names what the interpreter would panic on or never knows.
fn unsupported(expression: &IdedExpr) -> Option<String> {
    let mut found = None;
    visit(expression, &mut |expression| match &expression.expr {
        Expr::Struct(message) => {
            found.get_or_insert_with(|| format!("a value of type {}", message.type_name));
        }
        Expr::Unspecified => {
            found.get_or_insert_with(|| "an empty expression".to_owned());
        }
        // The interpreter takes a time zone and does not heed it.
        Expr::Call(call) if call.target.is_some() && call.func_name.starts_with("get") && !call.args.is_empty() => {
            found.get_or_insert_with(|| format!("{} with a time zone", call.func_name));
        }
        Expr::Call(call) if call.func_name == "named" && !call.args.is_empty() => {
            found.get_or_insert_with(|| "format.named".to_owned());
        }
        _ => {}
    });
    found
}

pub(super) fn visit(expression: &IdedExpr, run: &mut dyn FnMut(&IdedExpr)) {
    run(expression);
    match &expression.expr {
        Expr::Call(call) => {
            for part in call.target.as_deref().into_iter().chain(&call.args) {
                visit(part, run);
            }
        }
        Expr::Comprehension(fold) => {
            for part in [
                &fold.iter_range,
                &fold.accu_init,
                &fold.loop_cond,
                &fold.loop_step,
                &fold.result,
            ] {
                visit(part, run);
            }
        }
        Expr::List(list) => list.elements.iter().for_each(|part| visit(part, run)),
        Expr::Map(map) => {
            for entry in &map.entries {
                match &entry.expr {
                    EntryExpr::MapEntry(entry) => {
                        visit(&entry.key, run);
                        visit(&entry.value, run);
                    }
                    EntryExpr::StructField(field) => visit(&field.value, run),
                }
            }
        }
        Expr::Struct(message) => {
            for entry in &message.entries {
                if let EntryExpr::StructField(field) = &entry.expr {
                    visit(&field.value, run);
                }
            }
        }
        Expr::Select(select) => visit(&select.operand, run),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
}

pub(super) fn visit_mut(expression: &mut IdedExpr, run: &mut dyn FnMut(&mut IdedExpr)) {
    run(expression);
    each_part_mut(expression, &mut |part| visit_mut(part, run));
}

/// What an expression is directly made of.
pub(super) fn each_part_mut(expression: &mut IdedExpr, run: &mut dyn FnMut(&mut IdedExpr)) {
    match &mut expression.expr {
        Expr::Call(call) => {
            for part in call.target.as_deref_mut().into_iter().chain(&mut call.args) {
                run(part);
            }
        }
        Expr::Comprehension(fold) => {
            for part in [
                &mut fold.iter_range,
                &mut fold.accu_init,
                &mut fold.loop_cond,
                &mut fold.loop_step,
                &mut fold.result,
            ] {
                run(part);
            }
        }
        Expr::List(list) => list.elements.iter_mut().for_each(run),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    run(&mut entry.key);
                    run(&mut entry.value);
                }
            }
        }
        Expr::Select(select) => run(&mut select.operand),
        Expr::Struct(_) | Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
}

/// Whether two lists of type set or map are equal: their order means nothing.
pub(super) const SAME: &str = "@same";

fn same(left: &Cel, right: &Cel) -> bool {
    match (left, right) {
        (Cel::List(left), Cel::List(right)) => {
            left.len() == right.len() && left.iter().all(|item| right.contains(item))
        }
        _ => left == right,
    }
}

/// Calls what kube-cel has under a name.
fn original(name: &str, value: Cel) -> cel::ResolveResult {
    static ORIGINAL: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());
    let mut scope = ORIGINAL.new_inner_scope();
    scope.add_variable_from_value("@value", value);
    Cel::resolve(&call(name, vec![ident("@value")]), &scope)
}

/// Texts are counted in characters.
fn size_of(This(value): This<Cel>) -> cel::ResolveResult {
    match value {
        Cel::String(text) => Ok(Cel::Int(i64::try_from(text.chars().count()).unwrap_or(i64::MAX))),
        other => original("size", other),
    }
}

fn text_of(This(value): This<Cel>) -> cel::ResolveResult {
    let text = match value {
        Cel::Bool(flag) => flag.to_string(),
        Cel::Timestamp(time) => {
            let text = time.to_rfc3339();
            text.strip_suffix("+00:00")
                .map_or(text.clone(), |text| format!("{text}Z"))
        }
        Cel::Duration(span) => {
            let nanoseconds = span.num_nanoseconds().unwrap_or(i64::MAX);
            let (whole, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
            if rest == 0 {
                format!("{whole}s")
            } else {
                let sign = if nanoseconds < 0 && whole == 0 { "-" } else { "" };
                let rest = format!("{:09}", rest.abs());
                format!("{sign}{whole}.{}s", rest.trim_end_matches('0'))
            }
        }
        other => return original("string", other),
    };
    Ok(Cel::String(Arc::new(text)))
}

fn int_of(This(value): This<Cel>) -> cel::ResolveResult {
    match value {
        Cel::Timestamp(time) => Ok(Cel::Int(time.timestamp())),
        other => original("int", other),
    }
}

fn bool_of(This(value): This<Cel>) -> cel::ResolveResult {
    match &value {
        Cel::Bool(_) => Ok(value),
        Cel::String(text) => match text.as_str() {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Cel::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Cel::Bool(false)),
            other => Err(ExecutionError::function_error(
                "bool",
                format!("type conversion error from '{other}' to 'bool'"),
            )),
        },
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

/// Indices of a list, keys of a map: what macros with two variables walk over.
pub(super) const KEYS: &str = "@keys";

fn keys(value: Cel) -> cel::ResolveResult {
    match value {
        Cel::List(items) => Ok(Cel::List(Arc::new(
            (0..items.len())
                .map(|index| Cel::Int(i64::try_from(index).unwrap_or(i64::MAX)))
                .collect(),
        ))),
        Cel::Map(map) => Ok(Cel::List(Arc::new(map.map.keys().cloned().map(Cel::from).collect()))),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}
