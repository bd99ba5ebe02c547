//! Which definition has which names. Within a group no two kinds share one; who comes second waits until the first lets
//! go. Called by [`super::definitions`], one definition at a time.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::fault::quote;
use crate::registry::catalog::Resource;
use crate::registry::definitions::{GROUP, PLURAL};
use crate::registry::{Registry, object};
use crate::store::Key;

/// The part of a stored definition that names are about, read without its schemas.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    metadata: Meta,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    uid: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    accepted_names: Names,
    conditions: Vec<Condition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Names {
    plural: String,
    singular: String,
    kind: String,
    list_kind: String,
    short_names: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl Names {
    fn of_row(resource: &Resource) -> Self {
        let row = &resource.row;
        Self {
            plural: row.plural.to_string(),
            singular: row.singular.to_string(),
            kind: row.kind.to_string(),
            list_kind: row.list_kind.to_string(),
            short_names: row.short_names.iter().map(ToString::to_string).collect(),
        }
    }

    fn has_name(&self, name: &str) -> bool {
        self.plural == name || self.singular == name || self.short_names.iter().any(|short| short == name)
    }

    fn has_kind(&self, kind: &str) -> bool {
        self.kind == kind || self.list_kind == kind
    }
}

impl Registry {
    /// The definitions of a group, as the next write will find them: what was decided is built upon before it is durable.
    fn named(&self, group: &str) -> Vec<(String, Named)> {
        let of_group = |name: &String| name.split_once('.').is_some_and(|(_, its)| its == group);
        let names = self.definition_names().into_iter().filter(of_group);
        names
            .filter_map(|name| {
                let entry = self.store.head(&Key::new(GROUP, PLURAL, None, &name))?;
                let named = serde_json::from_slice(entry.value.json()).ok()?;
                Some((name, named))
            })
            .collect()
    }

    /// Those definitions of a group that are not established, or lack a name that they ask for.
    pub(crate) fn waiting_definitions(&self, group: &str) -> Vec<String> {
        let is_true = |named: &Named, kind: &str| {
            let mut conditions = named.status.conditions.iter();
            conditions.any(|found| found.kind == kind && found.status == "True")
        };
        let named = self.named(group).into_iter();
        named
            .filter(|(_, named)| !is_true(named, "NamesAccepted") || !is_true(named, "Established"))
            .map(|(name, _)| name)
            .collect()
    }

    /// The names that a definition has from now on, and why it does not have all that it asks for. What it had and
    /// asks for it keeps; in place of one that somebody else has it keeps the one it had.
    pub(super) fn accepted_names(&self, definition: &Value) -> (Value, Option<(&'static str, String)>) {
        let text = |path: &str| object::at(definition, path).and_then(Value::as_str).unwrap_or_default();
        let (uid, group) = (object::text(definition, "uid"), text("spec.group"));
        let defined = self.named(group).into_iter().map(|(_, named)| named);
        let mut others: Vec<Names> = defined
            .filter(|other| other.metadata.uid != uid)
            .map(|other| other.status.accepted_names)
            .collect();
        let catalog = self.catalog();
        let built_in = catalog
            .iter()
            .filter(|other| !other.is_custom() && &*other.row.group == group);
        others.extend(built_in.map(|resource| Names::of_row(resource)));
        let is_name = |name: &str| others.iter().any(|other| other.has_name(name));
        let is_kind = |kind: &str| others.iter().any(|other| other.has_kind(kind));

        let had = object::at(definition, "status.acceptedNames").filter(|had| had.is_object());
        let mut accepted = had.cloned().unwrap_or_else(|| json!({"kind": "", "plural": ""}));
        let map = object::as_map(&mut accepted);
        let asked = definition.get("spec").and_then(|spec| spec.get("names"));
        let mut conflict = None;
        for (field, is_taken, reason) in [
            ("plural", &is_name as &dyn Fn(&str) -> bool, "PluralConflict"),
            ("singular", &is_name, "SingularConflict"),
            ("shortNames", &is_name, "ShortNamesConflict"),
            ("kind", &is_kind, "KindConflict"),
            ("listKind", &is_kind, "ListKindConflict"),
        ] {
            let Some(value) = asked.and_then(|asked| asked.get(field)) else {
                map.remove(field);
                continue;
            };
            let had = words(map.get(field));
            let taken: Vec<String> = words(Some(value))
                .into_iter()
                .filter(|word| !had.contains(word) && is_taken(word))
                .map(|word| format!("{} is already in use", quote(word)))
                .collect();
            match taken.as_slice() {
                [] => {
                    map.insert(field.to_owned(), value.clone());
                }
                [one] => conflict = Some((reason, one.clone())),
                several => conflict = Some((reason, format!("[{}]", several.join(", ")))),
            }
        }
        match asked.and_then(|asked| asked.get("categories")) {
            Some(categories) => map.insert("categories".to_owned(), categories.clone()),
            None => map.remove("categories"),
        };
        (accepted, conflict)
    }
}

fn words(value: Option<&Value>) -> Vec<&str> {
    match value {
        Some(Value::String(word)) => vec![word],
        Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}
