//! Holds what was read from Go's struct tags against the release's own `.proto` files: each field of each message must be
//! known under its number, with the type that stands there. A field that is not would be dropped from the bodies of
//! clients that send protobuf, and nobody would notice.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use crate::error::{Error, Result};
use crate::paths;

/// Fields by number, each with its type as the file writes it: `repeated Container`, `map<string, bytes>`.
type Message = BTreeMap<u32, String>;

/// The messages of a package's `generated.proto`.
pub(super) fn messages(folder: &Path) -> Result<HashMap<String, Message>> {
    Ok(read(&paths::read(&folder.join("generated.proto"))?))
}

/// One field a line, as the generator leaves them; no message stands within another.
fn read(text: &str) -> HashMap<String, Message> {
    let mut messages = HashMap::new();
    let mut open: Option<(String, Message)> = None;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("message ").and_then(|rest| rest.strip_suffix(" {")) {
            open = Some((name.to_owned(), Message::new()));
        } else if line == "}" {
            messages.extend(open.take());
        } else if let Some((_, fields)) = &mut open
            && !line.starts_with("//")
            && let Some((declared, number)) = line.trim_end_matches(';').split_once(" = ")
            && let Ok(number) = number.parse()
            && let Some((kind, _)) = declared.rsplit_once(' ')
        {
            fields.insert(number, kind.to_owned());
        }
    }
    messages
}

/// Whether the lines written for a definition say the same as its message.
pub(super) fn check(definition: &str, lines: &str, messages: &HashMap<String, Message>) -> Result<()> {
    let mut known = Vec::new();
    for line in lines.lines().skip(1) {
        let mut words = line.trim_start().split('\t');
        let (field, kind) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        match words.find_map(|word| word.strip_prefix("wire:")) {
            Some(path) => known.push((path, kind)),
            // They stand around the message.
            None if matches!(field, "apiVersion" | "kind") => {}
            None => {
                return Err(Error::Machine(format!(
                    "{definition}.{field} has no number in protobuf"
                )));
            }
        }
    }
    let name = definition.rsplit('.').next().unwrap_or(definition);
    check_message(name, &known, messages).map_err(|why| Error::Machine(format!("{definition}: {why}")))
}

/// `known` are the fields' paths from this message on, with their types.
fn check_message(
    name: &str,
    known: &[(&str, &str)],
    messages: &HashMap<String, Message>,
) -> std::result::Result<(), String> {
    let message = messages
        .get(name)
        .ok_or_else(|| format!("there is no message {name}"))?;
    let mut seen = BTreeSet::new();
    // What is taken over is called as its message, and is held against that.
    let mut taken_over: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (path, kind) in known {
        let (head, rest) = path.split_once('.').unwrap_or((path, ""));
        let (number, go_name) = head.split_once('=').unwrap_or((head, ""));
        let number: u32 = number.parse().map_err(|_| format!("{path} is no number"))?;
        seen.insert(number);
        let declared = message
            .get(&number)
            .ok_or_else(|| format!("{name} has no field {number}"))?;
        if !rest.is_empty() {
            taken_over.entry(go_name).or_default().push((rest, kind));
        } else if !is_same(declared, kind) {
            return Err(format!(
                "field {number} of {name} is {declared} in protobuf, and {kind} here"
            ));
        }
    }
    if let Some((number, declared)) = message.iter().find(|(number, _)| !seen.contains(number)) {
        return Err(format!("field {number} of {name}, {declared}, is no property"));
    }
    for (name, known) in taken_over {
        check_message(name, &known, messages)?;
    }
    Ok(())
}

/// Whether a type of a `.proto` file is one of the table's.
fn is_same(declared: &str, kind: &str) -> bool {
    if let Some(declared) = declared.strip_prefix("optional ") {
        return is_same(declared, kind);
    }
    if let Some(items) = declared.strip_prefix("repeated ") {
        return kind.strip_prefix("[]").is_some_and(|kind| is_same(items, kind));
    }
    if let Some(values) = declared
        .strip_prefix("map<string, ")
        .and_then(|rest| rest.strip_suffix('>'))
    {
        return kind.strip_prefix("{}").is_some_and(|kind| is_same(values, kind));
    }
    let short = declared.rsplit('.').next().unwrap_or(declared);
    match kind {
        "string" | "int32" | "int64" | "double" => declared == kind,
        "boolean" => declared == "bool",
        "byte" => declared == "bytes",
        "date-time" => short == "Time",
        "micro-time" => short == "MicroTime",
        "duration" => short == "Duration",
        "quantity" => short == "Quantity",
        "int-or-string" => short == "IntOrString",
        "raw" => short == "RawExtension",
        "fields" => short == "FieldsV1",
        "json" => short == "JSON",
        "schema-or-list" => short == "JSONSchemaPropsOrArray",
        "schema-or-bool" => short == "JSONSchemaPropsOrBool",
        "schema-or-strings" => short == "JSONSchemaPropsOrStringArray",
        // A list within a map cannot be said in protobuf: it is a message with one field.
        "[]string" => short == "ExtraValue",
        _ => kind.strip_prefix('@').and_then(|kind| kind.rsplit('.').next()) == Some(short),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "message A {\n  // = 9;\n  optional Holder holder = 1;\n  repeated .k8s.io.b.B bs = 2;\n\n\
                        map<string, bytes> c = 3;\n}\nmessage Holder {\n  optional int32 x = 4;\n}\n";

    #[test]
    fn fields_of_messages_are_held_against_the_table_by_number_and_type() {
        let messages = read(FILE);
        let check = |lines: &str| check("io.k8s.a.A", lines, &messages).map_err(|error| error.to_string());
        let good = "io.k8s.a.A\n x\tint32\twire:1=Holder.4\n bs\t[]@io.k8s.b.B\twire:2\n c\t{}byte\twire:3\n";
        assert_eq!(check(good), Ok(()));
        for (from, to, why) in [
            ("{}byte", "{}string", "field 3 of A is map<string, bytes>"),
            (
                "\n c\t{}byte\twire:3",
                "",
                "field 3 of A, map<string, bytes>, is no property",
            ),
            ("\twire:3", "", "c has no number"),
            ("Holder.4", "Holder.5", "Holder has no field 5"),
            ("\tint32", "\tint64", "field 4 of Holder is optional int32"),
        ] {
            let error = check(&good.replace(from, to)).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
