use super::*;
use crate::registry::row::Column;

const RECORDED: &str = include_str!("../../../tests/print/tables-1.36.json");

/// Enough of a JSON path for the recorded columns: names and one index.
fn evaluate(object: &Value, path: &str) -> Option<Value> {
    object.pointer(&path.replace("[0]", "/0").replace('.', "/")).cloned()
}

fn wanted(include: IncludeObject, now: &str) -> Wanted {
    Wanted {
        version: MetaVersion::V1,
        include,
        definitions: true,
        now: now.parse().unwrap(),
    }
}

fn widget_columns() -> Columns {
    let column = |name: &str, kind: &str, path: &str, format: &str, priority: i32| CustomColumn {
        name: name.into(),
        kind: kind.into(),
        format: format.into(),
        description: String::new(),
        priority,
        json_path: path.into(),
    };
    Columns::Custom(Arc::new([
        column("I", "integer", ".spec.i", "", 0),
        column("S", "string", ".spec.s", "", 0),
        column("L", "string", ".spec.list", "", 0),
        column("M", "string", ".spec.map", "", 0),
        column("N", "number", ".spec.n", "double", 0),
        column("B", "boolean", ".spec.b", "", 1),
        column("SB", "string", ".spec.b", "", 0),
        column("SN", "string", ".spec.n", "", 0),
        column("SI", "string", ".spec.i", "", 0),
        column("D", "date", ".spec.d", "", 0),
        column("Age", "date", ".metadata.creationTimestamp", "", 0),
        column("First", "string", ".spec.list[0]", "", 0),
        column("Deep", "string", ".spec.mixed", "", 0),
    ]))
}

fn pods() -> Columns {
    let (columns, cells) = print::columns("", "Pod").unwrap();
    Columns::BuiltIn { columns, cells }
}

fn config_map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm", "resourceVersion": "288"}, "data": {"a": "1"}})
}

fn config_maps() -> Columns {
    let (columns, cells) = print::columns("", "ConfigMap").unwrap();
    Columns::BuiltIn { columns, cells }
}

#[test]
fn custom_columns_become_the_references_cells() {
    let tables: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
    let recorded = tables.iter().find(|table| table["kind"] == "Widget").unwrap();
    let objects = recorded["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["object"].clone());
    let wanted = wanted(IncludeObject::Object, recorded["now"].as_str().unwrap());
    let ours = table(&widget_columns(), objects, ListMeta::default(), wanted, &evaluate);
    for (index, row) in recorded["rows"].as_array().unwrap().iter().enumerate() {
        assert_eq!(ours["rows"][index]["cells"], row["cells"]);
    }
    let mut definitions = ours["columnDefinitions"].clone();
    for definition in definitions.as_array_mut().unwrap() {
        definition.as_object_mut().unwrap().remove("description");
    }
    assert_eq!(definitions, recorded["columns"]);
}

#[test]
fn pods_that_are_over_say_so_on_their_row() {
    let tables: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
    let recorded = tables.iter().find(|table| table["kind"] == "Pod").unwrap();
    let rows = recorded["rows"].as_array().unwrap();
    let objects = rows.iter().map(|row| row["object"].clone());
    let wanted = wanted(IncludeObject::None, recorded["now"].as_str().unwrap());
    let ours = table(&pods(), objects, ListMeta::default(), wanted, &evaluate);
    for (index, row) in rows.iter().enumerate() {
        assert_eq!(ours["rows"][index].get("conditions"), row.get("conditions"), "{row}");
    }
}

#[test]
fn a6_include_object_decides_what_a_row_carries() {
    let one = |include| {
        table_of_one(
            &config_maps(),
            config_map(),
            wanted(include, "2026-01-01T00:00:00Z"),
            &evaluate,
        )
    };
    assert_eq!(one(IncludeObject::None)["rows"][0]["object"], Value::Null);
    assert_eq!(one(IncludeObject::Object)["rows"][0]["object"], config_map());
    assert_eq!(
        one(IncludeObject::Metadata)["rows"][0]["object"],
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "cm", "resourceVersion": "288"}})
    );
    assert_eq!(one(IncludeObject::None)["metadata"], json!({"resourceVersion": "288"}));
    assert_eq!(
        IncludeObject::parse("Foo").unwrap_err().message,
        "Unable to convert to Table as requested: includeObject: Invalid value: \"Foo\": must be 'Metadata', 'Object', \
         'None', or empty"
    );
}

#[test]
fn a6_later_events_of_a_watch_have_no_definitions_and_the_last_initial_one_keeps_its_mark() {
    let bookmark = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {
        "resourceVersion": "372", "annotations": {"k8s.io/initial-events-end": "true"}}});
    let later = Wanted {
        definitions: false,
        ..wanted(IncludeObject::None, "2026-01-01T00:00:00Z")
    };
    // As recorded.
    assert_eq!(
        table_of_one(&config_maps(), bookmark, later, &evaluate),
        json!({"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"372"},"columnDefinitions":null,
            "rows":[{"cells":["",0,"<unknown>"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",
            "metadata":{"resourceVersion":"372","annotations":{"k8s.io/initial-events-end":"true"}}}}]})
    );
}

#[test]
fn a6_lists_carry_their_metadata_in_either_version() {
    let metadata = ListMeta {
        resource_version: "9".into(),
        continue_token: Some("abc".into()),
        remaining: Some(3),
    };
    let old = Wanted {
        version: MetaVersion::V1Beta1,
        ..wanted(IncludeObject::Metadata, "2026-01-01T00:00:00Z")
    };
    let table = table(&config_maps(), [config_map()], metadata.clone(), old, &evaluate);
    assert_eq!(table["apiVersion"], "meta.k8s.io/v1beta1");
    assert_eq!(table["rows"][0]["object"]["apiVersion"], "meta.k8s.io/v1beta1");
    let written = json!({"resourceVersion": "9", "continue": "abc", "remainingItemCount": 3});
    assert_eq!(table["metadata"], written);
    let list = partial_list([config_map()], metadata, MetaVersion::V1);
    assert_eq!(list["metadata"], written);
    assert_eq!(list["items"][0]["kind"], "PartialObjectMetadata");
    assert_eq!(list["items"][0]["metadata"]["name"], "cm");
}

#[test]
fn a_custom_resource_without_columns_shows_name_and_age() {
    let object = json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    let wanted = wanted(IncludeObject::None, "2026-01-01T00:01:30Z");
    let table = table_of_one(&Columns::Custom(Arc::new([])), object, wanted, &evaluate);
    assert_eq!(table["rows"][0]["cells"], json!(["x", "90s"]));
    assert_eq!(table["columnDefinitions"][1]["type"], "date");
}

#[test]
fn built_in_columns_are_written_with_format_and_priority() {
    const COLUMNS: &[Column] = &[Column {
        name: "A",
        kind: "string",
        format: "name",
        description: "d",
        priority: 1,
    }];
    let columns = Columns::BuiltIn {
        columns: COLUMNS,
        cells: |_, _| vec![Value::Null],
    };
    let table = table(
        &columns,
        [],
        ListMeta::default(),
        wanted(IncludeObject::None, "2026-01-01T00:00:00Z"),
        &evaluate,
    );
    assert_eq!(
        table["columnDefinitions"],
        json!([{"name": "A", "type": "string", "format": "name", "description": "d", "priority": 1}])
    );
    assert_eq!(table["rows"], json!([]));
}

#[test]
fn values_of_odd_types_are_printed_as_go_does() {
    // As recorded of the same object.
    let object = json!({"metadata": {"name": "w5", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {
        "i": 7, "s": null, "n": null, "d": "", "map": 100_000, "mixed": 123_456_789.5, "list": [1e-7, 1_000_000, 1e22, 1]}});
    let wanted = wanted(IncludeObject::None, "2026-01-01T00:00:00Z");
    assert_eq!(
        table_of_one(&widget_columns(), object, wanted, &evaluate)["rows"][0]["cells"],
        json!([
            "w5",
            7,
            "<no value>",
            "[1e-7,1000000,1e+22,1]",
            "100000",
            null,
            null,
            null,
            "<no value>",
            "7",
            "<unknown>",
            "0s",
            "1e-07",
            "1.234567895e+08"
        ])
    );
}
