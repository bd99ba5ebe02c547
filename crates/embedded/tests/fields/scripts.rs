//! Scripts of writes, with the object and its owners after each step, as text (O18, O19).
//!
//! `scripts/*.txt`: a line that begins with `==` starts a new object; each other line is a step, and the indented lines
//! below it are what comes of it. Objects are written without what is around `spec`, and so are paths. The schema is
//! that of `recorded/library.json`.
//!
//! - `apply M {…}`, `force M {…}`: server-side apply by M.
//! - `update M {…}`, `status M {…}`: a write of the object, or through its status subresource.
//! - `send M […] {…}`: an update that brings its own managedFields.
//! - `version V`, `retype FIELD {…}`: from here on, another apiVersion; another schema for a field of `spec`.
//!
//! `USHER_FIELDS_BLESS=1 cargo test -p usher-embedded --test fields scripts` writes what comes of the steps; read the
//! diff.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use usher_embedded::fault::Fault;
use usher_embedded::fields::{Apply, Element, Set, Track, apply, track};
use usher_embedded::schema::Schema;

use crate::openapi;
use crate::recorded::file;

struct World {
    schema: Schema,
    live: Option<Value>,
    version: String,
    now: Timestamp,
}

impl World {
    fn new() -> Self {
        Self {
            schema: openapi::schema(&file("library.json")["schema"]),
            live: None,
            version: "t.io/v1".to_owned(),
            now: "2020-01-01T00:00:00Z".parse().unwrap(),
        }
    }

    fn step(&mut self, line: &str) -> String {
        let (verb, rest) = line.split_once(' ').unwrap();
        let (name, rest) = rest.split_once(' ').unwrap_or((rest, "null"));
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let first = values.next().unwrap().unwrap_or_else(|error| panic!("{line}: {error}"));
        self.now += jiff::SignedDuration::from_secs(1);
        let whole = |spec: Value| {
            let mut object = json!({"apiVersion": self.version, "kind": "Thing", "metadata": {"name": "x"}});
            if !spec.is_null() {
                object["spec"] = spec;
            }
            object
        };
        match verb {
            "version" => {
                name.clone_into(&mut self.version);
                return String::new();
            }
            "retype" => {
                let mut spec = Schema::clone(&self.schema.properties["spec"]);
                spec.properties.insert(name.into(), Arc::new(openapi::schema(&first)));
                self.schema.properties.insert("spec".into(), Arc::new(spec));
                return String::new();
            }
            "apply" | "force" => {
                let merged = apply(Apply {
                    live: self.live.as_ref(),
                    applied: &whole(first),
                    schema: &self.schema,
                    manager: name,
                    subresource: "",
                    api_version: &self.version,
                    force: verb == "force",
                    now: self.now,
                    ignored: &[&["status"]],
                });
                match merged {
                    Ok(merged) => self.live = Some(merged),
                    Err(refused) => return indented(&format!("refused: {}", Fault::from(refused).message)),
                }
            }
            "update" | "status" | "send" => {
                let mut new = if verb == "send" {
                    let mut new = whole(values.next().unwrap().unwrap());
                    new["metadata"]["managedFields"] = first;
                    new
                } else {
                    whole(first)
                };
                track(Track {
                    old: self.live.as_ref(),
                    new: &mut new,
                    schema: &self.schema,
                    manager: name,
                    subresource: if verb == "status" { "status" } else { "" },
                    api_version: &self.version,
                    now: self.now,
                    ignored: &[],
                });
                self.live = Some(new);
            }
            other => panic!("{other}?"),
        }
        self.told()
    }

    fn told(&self) -> String {
        let live = self.live.as_ref().unwrap();
        let mut out = String::new();
        if let Some(spec) = live.get("spec") {
            writeln!(out, "{spec}").unwrap();
        }
        for entry in live["metadata"]
            .get("managedFields")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let text = |name: &str| entry.get(name).and_then(Value::as_str);
            let seconds = text("time").map(|time| time.parse::<Timestamp>().unwrap().as_second() - 1_577_836_800);
            write!(out, "{} {}", text("manager").unwrap(), text("operation").unwrap()).unwrap();
            if let Some(subresource) = text("subresource") {
                write!(out, " /{subresource}").unwrap();
            }
            if text("apiVersion") != Some("t.io/v1") {
                write!(out, " {}", text("apiVersion").unwrap()).unwrap();
            }
            match seconds {
                Some(seconds) => write!(out, " @{seconds}:").unwrap(),
                None => write!(out, " @-:").unwrap(),
            }
            for path in Set::from_fields_v1(&entry["fieldsV1"]).unwrap().paths() {
                let path: String = path.iter().map(Element::to_string).collect();
                match path.strip_prefix(".spec") {
                    Some("") => out.push_str(" ."),
                    Some(below) => write!(out, " {below}").unwrap(),
                    None => write!(out, " ^{path}").unwrap(),
                }
            }
            out.push('\n');
        }
        indented(out.trim_end())
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// The script again, with what really comes of each step.
fn played(script: &str) -> String {
    let mut world = World::new();
    let mut out = String::new();
    for line in script.lines() {
        if line.starts_with("    ") {
            continue;
        }
        writeln!(out, "{line}").unwrap();
        if line.starts_with("==") {
            world = World::new();
        } else if !line.is_empty() && !line.starts_with('#') {
            out.push_str(&world.step(line));
        }
    }
    out
}

#[test]
fn o18_o19_every_script_plays_as_written() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fields/scripts");
    let mut count = 0;
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let script = std::fs::read_to_string(&path).unwrap();
        let played = played(&script);
        count += 1;
        if std::env::var_os("USHER_FIELDS_BLESS").is_some() {
            std::fs::write(&path, played).unwrap();
            continue;
        }
        for (number, (want, got)) in script.lines().zip(played.lines()).enumerate() {
            assert_eq!(got, want, "{}:{}", path.display(), number + 1);
        }
        assert_eq!(played, script, "{}", path.display());
    }
    assert!(count >= 6);
}
