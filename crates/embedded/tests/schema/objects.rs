use serde_json::{Map, Value, json};
use usher_embedded::fault::FieldError;
use usher_embedded::schema::cel::Rules;
use usher_embedded::schema::{self, Schema};

#[test]
fn d4_rules_are_answered_as_the_reference_answers_them() {
    hold(include_str!("rules.json"));
}

#[test]
fn d5_unchanged_values_are_forgiven_as_the_reference_forgives_them() {
    hold(include_str!("ratcheting.json"));
}

/// Runs an object through all steps of a write, as the registry does; the object is left as it would be stored.
fn write(schema: &Schema, rules: &Rules, new: &mut Value, old: Option<&Value>) -> (Vec<String>, Vec<FieldError>) {
    let mut warnings: Vec<String> = schema::prune(schema, new)
        .iter()
        .map(|path| format!("unknown field \"{path}\""))
        .collect();
    schema::default(schema, new);
    let mut errors = schema::validate(schema, new, old);
    match schema::blocks_rules(&errors) {
        Some(_) if rules.is_empty() => {}
        Some(error) => errors.push(error),
        None => {
            let verdict = rules.judge(new, old);
            errors.extend(verdict.errors);
            warnings.extend(verdict.forgiven.iter().map(ToString::to_string));
        }
    }
    schema::settle_numbers(new);
    (warnings, errors)
}

fn whole(object: &Value, name: &str) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = "t.example.com/v1".into();
    object["kind"] = "T".into();
    if object.get("metadata").is_none() {
        object["metadata"] = json!({});
    }
    object["metadata"]["name"] = name.into();
    object
}

fn bare(object: &Value) -> Value {
    let mut map: Map<String, Value> = object.as_object().unwrap().clone();
    map.remove("apiVersion");
    map.remove("kind");
    if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
        metadata.remove("name");
        if metadata.is_empty() {
            map.remove("metadata");
        }
    }
    Value::Object(map)
}

fn hold(recorded: &str) {
    let groups: Vec<Value> = serde_json::from_str(recorded).unwrap();
    let mut differences = Vec::new();
    let mut count = 0;
    for group in &groups {
        let schema = Schema::parse(&group["schema"]).unwrap();
        assert_eq!(
            Schema::parse(&schema.to_json()).unwrap(),
            schema,
            "a schema survives being written and read: {}",
            group["name"]
        );
        let rules = match Rules::compile(&schema) {
            Ok(rules) => rules,
            Err(errors) => {
                differences.push(format!("{}: {}", group["name"], errors[0]));
                continue;
            }
        };
        for (index, case) in group["cases"].as_array().unwrap().iter().enumerate() {
            count += 1;
            // The names that the recorded objects had.
            let mut new = whole(&case["object"], &format!("n{index}"));
            let old = case.get("old").map(|old| whole(old, "n"));
            let (warnings, errors) = write(&schema, &rules, &mut new, old.as_ref());
            let mut errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            errors.sort();
            let answer = &case["answer"];
            let ours = if errors.is_empty() {
                let mut ours = json!({"code": 200, "object": bare(&new)});
                if !warnings.is_empty() {
                    ours["warnings"] = warnings.into();
                }
                ours
            } else {
                json!({"code": 422, "errors": errors})
            };
            let mut theirs = answer.clone();
            theirs.as_object_mut().unwrap().remove("reasons");
            if ours != theirs {
                differences.push(format!(
                    "{}: {}\n  theirs {theirs}\n  ours   {ours}",
                    group["name"], case["object"]
                ));
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {count} differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

#[test]
fn d3_objects_are_answered_as_the_reference_answers_them() {
    hold(include_str!("objects.json"));
}
