//! Macros that the parser does not know, written out as what it does: folds, and calls of functions of ours.

use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, ListExpr, LiteralValue, operators};

use super::program::{KEYS, each_part_mut, visit};

fn expr(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

pub(super) fn ident(name: &str) -> IdedExpr {
    expr(Expr::Ident(name.to_owned()))
}

pub(super) fn call(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    expr(Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: None,
        args,
    }))
}

fn method(target: IdedExpr, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    expr(Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: Some(Box::new(target)),
        args,
    }))
}

fn truth(value: bool) -> IdedExpr {
    expr(Expr::Literal(LiteralValue::Boolean(value.into())))
}

/// `body` with `name` standing for `value`: a fold over nothing, as the reference writes it.
fn bind(name: &str, value: IdedExpr, body: IdedExpr) -> IdedExpr {
    expr(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: expr(Expr::List(ListExpr::new(Vec::new()))),
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: name.to_owned(),
        accu_init: value,
        loop_cond: truth(false),
        loop_step: ident(name),
        result: body,
    })))
}

/// Writes out the macros that the parser does not know, and selections that the interpreter reads wrongly.
pub(super) fn rewrite(expression: &mut IdedExpr) {
    each_part_mut(expression, &mut rewrite);
    if let Expr::Call(call) = &mut expression.expr
        && let Some(written_out) = macro_call(call)
    {
        *expression = written_out;
    }
}

/// A chain of `optMap` doubles with each link; longer ones are refused as unknown functions.
const MOST_DOUBLED_NODES: usize = 500;

fn size(expression: &IdedExpr) -> usize {
    let mut count = 0;
    visit(expression, &mut |_| count += 1);
    count
}

fn macro_call(given: &mut CallExpr) -> Option<IdedExpr> {
    if given.func_name == operators::OPT_SELECT {
        // The interpreter's `a.?b` fails where `b` is missing; its `a[?"b"]` does not.
        given.func_name = operators::OPT_INDEX.to_owned();
        return None;
    }
    let target = given.target.as_deref()?.clone();
    let name = |at: usize| match &given.args.get(at)?.expr {
        Expr::Ident(name) => Some(name.clone()),
        _ => None,
    };
    let argument = |at: usize| given.args.get(at).cloned();
    match (given.func_name.as_str(), given.args.len()) {
        // An optional that is bound to a name loses that it is one, in this interpreter: so its expression stands twice.
        (kind @ ("optMap" | "optFlatMap"), 2) if size(&target) <= MOST_DOUBLED_NODES => {
            let value = method(target.clone(), "value", Vec::new());
            let body = bind(&name(0)?, value, argument(1)?);
            let body = if kind == "optMap" {
                method(ident("optional"), "of", vec![body])
            } else {
                body
            };
            let has = method(target, "hasValue", Vec::new());
            let none = method(ident("optional"), "none", Vec::new());
            Some(call(operators::CONDITIONAL, vec![has, body, none]))
        }
        (kind @ ("all" | "exists" | "existsOne" | "exists_one"), 3) => {
            let (key, value, body) = (name(0)?, name(1)?, argument(2)?);
            Some(with_pairs(target, &key, &value, |body_of| {
                fold_truth(kind, &key, body_of(body))
            }))
        }
        ("transformList", 3) => {
            let (key, value, body) = (name(0)?, name(1)?, argument(2)?);
            Some(with_pairs(target, &key, &value, |body_of| {
                fold_list(&key, body_of(body))
            }))
        }
        _ => None,
    }
}

/// A fold over the pairs of a list or map: `build` gets what makes a body see the value beside the key.
fn with_pairs(
    target: IdedExpr,
    key: &str,
    value: &str,
    build: impl FnOnce(&dyn Fn(IdedExpr) -> IdedExpr) -> IdedExpr,
) -> IdedExpr {
    let key = key.to_owned();
    let value = value.to_owned();
    let fold = build(&move |body| {
        let entry = call(operators::INDEX, vec![ident("@range"), ident(&key)]);
        bind(&value, entry, body)
    });
    bind("@range", target, fold)
}

fn range_keys() -> IdedExpr {
    call(KEYS, vec![ident("@range")])
}

fn fold(key: &str, init: IdedExpr, condition: IdedExpr, step: IdedExpr, result: IdedExpr) -> IdedExpr {
    expr(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: range_keys(),
        iter_var: key.to_owned(),
        iter_var2: None,
        accu_var: "@result".to_owned(),
        accu_init: init,
        loop_cond: condition,
        loop_step: step,
        result,
    })))
}

fn fold_truth(kind: &str, key: &str, body: IdedExpr) -> IdedExpr {
    let result = || ident("@result");
    match kind {
        "all" => {
            let condition = call(operators::NOT_STRICTLY_FALSE, vec![result()]);
            let step = call(operators::LOGICAL_AND, vec![result(), body]);
            fold(key, truth(true), condition, step, result())
        }
        "exists" => {
            let not = call(operators::LOGICAL_NOT, vec![result()]);
            let condition = call(operators::NOT_STRICTLY_FALSE, vec![not]);
            let step = call(operators::LOGICAL_OR, vec![result(), body]);
            fold(key, truth(false), condition, step, result())
        }
        _ => {
            let whole = |number: i64| expr(Expr::Literal(LiteralValue::Int(number.into())));
            let more = call(operators::ADD, vec![result(), whole(1)]);
            let step = call(operators::CONDITIONAL, vec![body, more, result()]);
            let one = call(operators::EQUALS, vec![result(), whole(1)]);
            fold(key, whole(0), truth(true), step, one)
        }
    }
}

fn fold_list(key: &str, body: IdedExpr) -> IdedExpr {
    let list = |elements| expr(Expr::List(ListExpr::new(elements)));
    let step = call(operators::ADD, vec![ident("@result"), list(vec![body])]);
    fold(key, list(Vec::new()), truth(true), step, ident("@result"))
}
