//! One question about values that no schema describes: webhooks' `matchConditions`.

use kube_cel::cel;
use serde_json::Value;

use super::budget::{Budget, CANCELLED, SPENT, Stopped};
use super::program::{self, Program};
use super::value;

/// What is left for the conditions of one webhook.
#[derive(Debug)]
pub(crate) struct Conditions(Budget);

impl Conditions {
    pub(crate) fn begin() -> Self {
        Self(Budget::of_conditions())
    }
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// This condition has none; another may yet decide.
    Failed(String),
    /// No further condition can be asked.
    Spent(String),
}

#[derive(Debug)]
pub(crate) struct Condition {
    text: String,
    program: Program,
}

impl Condition {
    /// Reads an expression that may use these names. The error is the reference's sentence.
    pub(crate) fn compile(text: &str, names: &[&str]) -> Result<Self, String> {
        Ok(Self {
            text: text.to_owned(),
            program: Program::untyped(text, names)?,
        })
    }

    pub(crate) fn uses(&self, name: &str) -> bool {
        self.program.uses(name)
    }

    pub(crate) fn holds(&self, values: &[(&str, &Value)], conditions: &mut Conditions) -> Result<bool, Unanswered> {
        let mut scope = program::base().new_inner_scope();
        for (name, value) in values {
            if self.uses(name) {
                scope.add_variable_from_value(*name, value::plain(value));
            }
        }
        let wrong = |why: &str| {
            let why = format!("expression '{}' resulted in error: {why}", self.text);
            Err(Unanswered::Failed(why))
        };
        match conditions.0.run(&self.program, &scope) {
            Ok(cel::Value::Bool(answer)) => Ok(answer),
            Ok(_) => wrong("must evaluate to bool"),
            Err(Stopped::Failed(why)) => wrong(&program::words(&why)),
            Err(Stopped::Cancelled) => wrong(CANCELLED),
            Err(Stopped::Spent) => Err(Unanswered::Spent(SPENT.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NAMES: [&str; 3] = ["object", "oldObject", "request"];

    #[test]
    fn a_condition_asks_about_untyped_values() {
        let object = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"list": [1, 2]}});
        let holds = |text: &str| {
            let condition = Condition::compile(text, &NAMES).unwrap();
            condition.holds(&[("object", &object)], &mut Conditions::begin())
        };
        assert_eq!(holds("object.metadata.labels['a'] == 'b'"), Ok(true));
        assert_eq!(holds("has(object.spec.other)"), Ok(false));
        assert_eq!(holds("object.spec.list.all(n, n > 1)"), Ok(false));
        assert_eq!(
            holds("object.spec.other == 1"),
            Err(Unanswered::Failed(
                "expression 'object.spec.other == 1' resulted in error: no such key: other".to_owned()
            ))
        );
    }

    #[test]
    fn a_name_that_is_not_there_is_refused_when_it_is_written() {
        let wrong = Condition::compile("objekt.x == 1", &NAMES).unwrap_err();
        assert!(wrong.contains("undeclared reference to 'objekt'"), "{wrong}");
        assert!(Condition::compile("object.x ==", &NAMES).is_err());
    }
    /// A condition that costs about `rounds` × 300 units.
    fn costly(rounds: usize) -> (Condition, Value) {
        let condition = Condition::compile("object.a.all(x, object.b.all(y, y >= 0))", &NAMES).unwrap();
        let object = json!({"a": vec![1; rounds], "b": vec![1; 50]});
        (condition, object)
    }

    #[test]
    fn a_condition_that_costs_too_much_is_stopped() {
        let (condition, object) = costly(100);
        let mut conditions = Conditions::begin();
        assert_eq!(condition.holds(&[("object", &object)], &mut conditions), Ok(true));
        let (condition, object) = costly(20_000);
        assert_eq!(
            condition.holds(&[("object", &object)], &mut conditions),
            Err(Unanswered::Failed(
                "expression 'object.a.all(x, object.b.all(y, y >= 0))' resulted in error: operation cancelled: actual \
                 cost limit exceeded"
                    .to_owned()
            ))
        );
    }

    #[test]
    fn the_conditions_of_a_webhook_share_a_budget() {
        let (condition, object) = costly(2_500);
        let mut conditions = Conditions::begin();
        let answers: Vec<_> = (0..6)
            .map(|_| condition.holds(&[("object", &object)], &mut conditions))
            .collect();
        assert_eq!(answers.first(), Some(&Ok(true)));
        assert_eq!(
            answers.last(),
            Some(&Err(Unanswered::Spent(
                "validation failed due to running out of cost budget, no further validation rules will be run"
                    .to_owned()
            )))
        );
    }
}
