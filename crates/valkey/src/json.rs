//! Fields of JSON values by their path, where a missing one is no reason to panic.

use serde_json::{Map, Value};

/// What is there, `Null` where nothing is.
pub(crate) fn at<'v>(value: &'v Value, path: &[&str]) -> &'v Value {
    path.iter()
        .try_fold(value, |value, field| value.get(field))
        .unwrap_or(&Value::Null)
}

/// Puts a value there; what is on the way and no object becomes one.
pub(crate) fn put(value: &mut Value, path: &[&str], new: impl Into<Value>) {
    let mut place = value;
    for field in path {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        let Value::Object(fields) = place else { return };
        place = fields.entry(*field).or_insert(Value::Null);
    }
    *place = new.into();
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_found_and_put_by_their_path() {
        let mut value = json!({"a": {"b": 1}});
        assert_eq!(at(&value, &["a", "b"]), &json!(1));
        assert_eq!(at(&value, &["a", "b", "c"]), &Value::Null);
        put(&mut value, &["a", "c", "d"], "e");
        put(&mut value, &["a", "b"], 2);
        assert_eq!(value, json!({"a": {"b": 2, "c": {"d": "e"}}}));
    }
}
