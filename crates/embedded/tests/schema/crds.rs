use serde_json::{Value, json};
use usher_embedded::schema::crd::{check_crd, default_crd, rows_of, warn_crd};

#[test]
fn d1_crds_are_answered_as_the_reference_answers_them() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("crds.json")).unwrap();
    let mut differences = Vec::new();
    for case in &cases {
        let mut crd = case["crd"].clone();
        default_crd(&mut crd);
        let mut errors: Vec<String> = check_crd(&crd, None).iter().map(ToString::to_string).collect();
        errors.sort();
        errors.dedup();
        let ours = if errors.is_empty() {
            let row = rows_of(&crd);
            assert!(row.is_ok(), "{}: {row:?}", case["name"]);
            let mut ours = json!({"code": 200});
            let warnings = warn_crd(&crd, None);
            if !warnings.is_empty() {
                ours["warnings"] = warnings.into();
            }
            ours
        } else {
            json!({"code": 422, "errors": errors})
        };
        let mut theirs = case["answer"].clone();
        if let Some(errors) = theirs.get_mut("errors").and_then(Value::as_array_mut) {
            // What a name may be is the registry's business.
            errors.retain(|error| {
                !(error.as_str().unwrap().starts_with("metadata.name:") && error.as_str().unwrap().contains("RFC 1123"))
            });
        }
        // Shown by the reference as its own type's fields, some hundred words for each node.
        let whole_schema = case["name"] == "status root keywords";
        if ours != theirs && !whole_schema {
            differences.push(format!("{}\n  theirs {theirs}\n  ours   {ours}", case["name"]));
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {} differ:\n{}",
        differences.len(),
        cases.len(),
        differences.join("\n")
    );
}

/// The CRDs of a file of YAML documents.
fn crds_of(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple::<Value>(text)
        .unwrap()
        .into_iter()
        .filter(|document| document["kind"] == "CustomResourceDefinition")
        .collect()
}

#[test]
fn d1_our_own_crds_are_taken() {
    let crds = crds_of(include_str!("../../../../deploy/crds.yaml"));
    assert!(!crds.is_empty());
    for mut crd in crds {
        default_crd(&mut crd);
        let errors: Vec<String> = check_crd(&crd, None).iter().map(ToString::to_string).collect();
        assert!(errors.is_empty(), "{}: {errors:#?}", crd["metadata"]["name"]);
        assert_eq!(
            warn_crd(&crd, None),
            Vec::<String>::new(),
            "{}",
            crd["metadata"]["name"]
        );
        let row = rows_of(&crd).unwrap();
        assert!(row.versions.iter().any(|version| version.storage));
    }
}
