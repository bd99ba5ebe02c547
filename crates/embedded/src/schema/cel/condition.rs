//! One question about values that no schema describes: webhooks' `matchConditions`.

use kube_cel::cel;
use serde_json::Value;

use super::program::{self, Program};
use super::value;

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

    /// The answer; an error says why there is none.
    pub(crate) fn holds(&self, values: &[(&str, &Value)]) -> Result<bool, String> {
        let mut scope = program::base().new_inner_scope();
        for (name, value) in values {
            if self.uses(name) {
                scope.add_variable_from_value(*name, value::plain(value));
            }
        }
        let wrong = |why: &str| format!("expression '{}' resulted in error: {why}", self.text);
        match self.program.run(&scope) {
            Ok(cel::Value::Bool(answer)) => Ok(answer),
            Ok(_) => Err(wrong("must evaluate to bool")),
            Err(why) => Err(wrong(&program::words(&why))),
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
        let holds = |text: &str| Condition::compile(text, &NAMES).unwrap().holds(&[("object", &object)]);
        assert_eq!(holds("object.metadata.labels['a'] == 'b'"), Ok(true));
        assert_eq!(holds("has(object.spec.other)"), Ok(false));
        assert_eq!(holds("object.spec.list.all(n, n > 1)"), Ok(false));
        assert_eq!(
            holds("object.spec.other == 1"),
            Err("expression 'object.spec.other == 1' resulted in error: no such key: other".to_owned())
        );
    }

    #[test]
    fn a_name_that_is_not_there_is_refused_when_it_is_written() {
        let wrong = Condition::compile("objekt.x == 1", &NAMES).unwrap_err();
        assert!(wrong.contains("undeclared reference to 'objekt'"), "{wrong}");
        assert!(Condition::compile("object.x ==", &NAMES).is_err());
    }
}
