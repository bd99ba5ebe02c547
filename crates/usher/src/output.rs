//! What goes to standard output: data as JSON or YAML, and lines of progress.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};

use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;

use crate::Failed;

/// A format for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Data {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// A format for people, or for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

impl Format {
    /// The format for programs, if it is one.
    pub(crate) fn data(self) -> Option<Data> {
        match self {
            Format::Text => None,
            Format::Json => Some(Data::Json),
            Format::Yaml => Some(Data::Yaml),
        }
    }
}

/// One value as text.
pub(crate) fn render(format: Data, value: &impl Serialize) -> Result<String, Failed> {
    let value = tidy(serde_json::to_value(value)?);
    Ok(match format {
        Data::Json => format!("{}\n", serde_json::to_string_pretty(&value)?),
        Data::Yaml => serde_saphyr::to_string(&value)?,
    })
}

/// Kubernetes objects as text that kubectl reads: a List in JSON, documents in YAML.
pub(crate) fn render_objects(format: Data, objects: &[Value]) -> Result<String, Failed> {
    match format {
        Data::Json => render(
            format,
            &serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects}),
        ),
        Data::Yaml => objects.iter().try_fold(String::new(), |text, object| {
            Ok(format!("{text}---\n{}\n", render(format, object)?.trim_end()))
        }),
    }
}

/// Without absent fields, and in the order of names whatever order a map keeps: the same value is always the same text.
fn tidy(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<String, Value> = map
                .into_iter()
                .filter(|(_, field)| !field.is_null())
                .map(|(name, field)| (name, tidy(field)))
                .collect();
            Value::Object(sorted.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(tidy).collect()),
        scalar => scalar,
    }
}

/// Writes to standard output. A reader that has seen enough (`| head`) is no error.
pub(crate) fn print(text: &str) -> Result<(), Failed> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(problem) if problem.kind() != ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {problem}").into())
        }
        _ => Ok(()),
    }
}

/// What was done to one object.
#[derive(Debug, Clone, Serialize)]
struct Deed {
    action: &'static str,
    object: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// What a command does, told as it happens to people, and at the end to programs.
#[derive(Debug)]
pub(crate) struct Progress {
    format: Format,
    deeds: Vec<Deed>,
}

impl Progress {
    pub(crate) fn new(format: Format) -> Self {
        Self {
            format,
            deeds: Vec::new(),
        }
    }

    /// Something was done (or, in a dry run, would be).
    pub(crate) fn did(&mut self, action: &'static str, object: impl ToString) -> Result<(), Failed> {
        self.noted(action, object, None)
    }

    /// Something was done, and there is more to say about it.
    pub(crate) fn noted(
        &mut self,
        action: &'static str,
        object: impl ToString,
        note: Option<String>,
    ) -> Result<(), Failed> {
        let deed = Deed {
            action,
            object: object.to_string(),
            note,
        };
        let line = match &deed.note {
            Some(note) => format!("{action:<13} {} ({note})\n", deed.object),
            None => format!("{action:<13} {}\n", deed.object),
        };
        self.deeds.push(deed);
        self.tell(&line)
    }

    /// Only for people: what is waited for, what to do next.
    pub(crate) fn say(&self, sentence: &str) -> Result<(), Failed> {
        self.tell(&format!("{sentence}\n"))
    }

    fn tell(&self, line: &str) -> Result<(), Failed> {
        match self.format {
            Format::Text => print(line),
            Format::Json | Format::Yaml => Ok(()),
        }
    }

    /// Nothing follows.
    pub(crate) fn finish(self) -> Result<(), Failed> {
        match self.format.data() {
            Some(format) => print(&render(format, &serde_json::json!({"done": self.deeds}))?),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn yaml_says_the_same_as_json_also_where_text_looks_like_something_else() {
        let value = json!({
            "24": "24", "yes": "no", "on": "off", "time": "2026-01-01T00:00:00Z", "date": "2026-01-01",
            "sexagesimal": "12:30:45", "float": "1e3", "octal": "0777", "null": "null", "tilde": "~", "empty": "",
            "colon": "a: b", "hash": "a #b", "star": "*x", "lines": "a\nb\n", "rule": "!has(self.a)", "v6": "::1",
            "path": ".conditions[?(@.type==\"Ready\")].status", "number": 24, "list": [{"a": 1}, []], "map": {},
        });
        let text = render(Data::Yaml, &value).unwrap();
        let back: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(back, value, "{text}");
        // Readers of YAML 1.1, kubectl among them, take these for something else when they are bare.
        for quoted in [
            "\"24\": \"24\"",
            "\"yes\": \"no\"",
            "\"12:30:45\"",
            "\"2026-01-01T00:00:00Z\"",
            "\"0777\"",
        ] {
            assert!(text.contains(quoted), "{quoted} in {text}");
        }
    }

    #[test]
    fn absent_fields_are_left_out_and_names_are_in_order() {
        let value = json!({"b": null, "z": 1, "a": {"d": [null, {"x": null}], "c": 2}});
        assert_eq!(
            render(Data::Yaml, &value).unwrap(),
            "a:\n  c: 2\n  d:\n  - null\n  - {}\nz: 1\n"
        );
    }
}
