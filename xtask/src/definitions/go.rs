//! What Go's structs and their tags say about fields.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{CORE, META, module, package_of};
use crate::error::{Error, Result};
use crate::paths;

/// What Go says about a field.
#[derive(Debug, Clone)]
pub(super) struct Fact {
    /// As reflection names it: `*int32`, `v1.RestartPolicy`, `[]v1.Container`.
    pub(super) go_type: String,
    pub(super) omit_empty: bool,
    pub(super) omit_zero: bool,
    /// Where protobuf has it, from the definition's message on; nowhere for what stands around a message.
    pub(super) wire: Vec<Wire>,
}

/// A field's number in protobuf, and what Go calls the field.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wire {
    pub(super) number: u32,
    pub(super) go_name: String,
}

/// Struct fields by package folder and type name, read as they are asked for.
#[derive(Debug, Default)]
pub(super) struct GoTypes {
    modules: HashMap<String, PathBuf>,
    packages: HashMap<String, HashMap<String, GoStruct>>,
}

#[derive(Debug, Default, Clone)]
struct GoStruct {
    fields: HashMap<String, Fact>,
    /// Types whose fields are taken over, as written, and where protobuf has them.
    inline: Vec<(String, Option<Wire>)>,
}

impl GoTypes {
    pub(super) fn field(&mut self, definition: &str, field: &str) -> Result<Fact> {
        let name = definition.rsplit('.').next().unwrap_or(definition);
        self.find(package_of(definition), name, field)?
            .ok_or_else(|| Error::Machine(format!("the Go type of {definition} has no field {field}")))
    }

    fn find(&mut self, package: &str, name: &str, field: &str) -> Result<Option<Fact>> {
        if !self.packages.contains_key(package) {
            let folder = self.folder(package)?;
            self.packages.insert(package.to_owned(), read_package(&folder)?);
        }
        let Some(found) = self.packages.get(package).and_then(|types| types.get(name)).cloned() else {
            return Ok(None);
        };
        if let Some(fact) = found.fields.get(field) {
            return Ok(Some(fact.clone()));
        }
        for (inline, holder) in &found.inline {
            let (package, name) = match inline.split_once('.') {
                Some(("metav1", name)) => (META.trim_end_matches('.'), name),
                Some(("v1" | "corev1", name)) => (CORE.trim_end_matches('.'), name),
                _ => (package, inline.as_str()),
            };
            if let Some(mut fact) = self.find(package, name, field)? {
                match holder {
                    Some(holder) => fact.wire.insert(0, holder.clone()),
                    None => fact.wire.clear(),
                }
                return Ok(Some(fact));
            }
        }
        Ok(None)
    }

    /// `io.k8s.api.core.v1` is folder core/v1 of module k8s.io/api.
    pub(super) fn folder(&mut self, package: &str) -> Result<PathBuf> {
        let mut words = package.trim_start_matches("io.k8s.").split('.');
        let name = words.next().unwrap_or_default().to_owned();
        if !self.modules.contains_key(&name) {
            let folder = module(&format!("k8s.io/{name}"))?;
            self.modules.insert(name.clone(), folder);
        }
        let base = self.modules.get(&name).cloned().unwrap_or_default();
        Ok(words.fold(base, |folder, word| folder.join(word)))
    }
}

fn read_package(folder: &Path) -> Result<HashMap<String, GoStruct>> {
    let mut types = HashMap::new();
    for entry in folder.read_dir().map_err(Error::at("read", folder))? {
        let file = entry.map_err(Error::at("read", folder))?.path();
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".go") && !name.contains("generated") && !name.ends_with("_test.go") {
            read_structs(&paths::read(&file)?, &folder_name(folder), &mut types);
        }
    }
    Ok(types)
}

fn folder_name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// One field a line, as gofmt leaves them.
fn read_structs(text: &str, package: &str, types: &mut HashMap<String, GoStruct>) {
    let mut open: Option<(String, GoStruct)> = None;
    for line in text.lines() {
        if let Some(name) = line
            .strip_prefix("type ")
            .and_then(|rest| rest.strip_suffix(" struct {"))
        {
            open = Some((name.to_owned(), GoStruct::default()));
        } else if line == "}" {
            types.extend(open.take());
        } else if let Some((_, found)) = &mut open {
            read_field(line, package, found);
        }
    }
}

fn read_field(line: &str, package: &str, into: &mut GoStruct) {
    let line = line.trim();
    if line.starts_with("//") {
        return;
    }
    let Some((_, tag)) = line.split_once("json:\"") else {
        return;
    };
    let mut options = tag.split('"').next().unwrap_or_default().split(',');
    let name = options.next().unwrap_or_default();
    let options: Vec<&str> = options.collect();
    let mut words = line.split('`').next().unwrap_or_default().split_whitespace();
    let (Some(first), second) = (words.next(), words.next()) else {
        return;
    };
    let wire = wire_number(line).map(|number| Wire {
        number,
        go_name: first.rsplit('.').next().unwrap_or(first).to_owned(),
    });
    // An embedded type stands alone; it is a field of its own when the tag names it.
    match second.or((!name.is_empty()).then_some(first)) {
        None => into.inline.push((first.to_owned(), wire)),
        Some(go_type) => {
            into.fields.insert(
                name.to_owned(),
                Fact {
                    go_type: qualified(go_type, package),
                    omit_empty: options.contains(&"omitempty"),
                    omit_zero: options.contains(&"omitzero"),
                    wire: wire.into_iter().collect(),
                },
            );
        }
    }
}

/// From a tag such as `protobuf:"bytes,1,opt,name=handler"`.
fn wire_number(line: &str) -> Option<u32> {
    let (_, tag) = line.split_once("protobuf:\"")?;
    tag.split(',').nth(1)?.parse().ok()
}

/// The type with its package's own name: imports are renamed in the source (`metav1`), and a package's own types stand bare.
fn qualified(go_type: &str, package: &str) -> String {
    const PLAIN: [&str; 9] = [
        "string", "bool", "int", "int32", "int64", "float64", "byte", "uint8", "error",
    ];
    if let Some(rest) = go_type.strip_prefix('*') {
        return format!("*{}", qualified(rest, package));
    }
    if let Some(rest) = go_type.strip_prefix("[]") {
        let items = qualified(rest, package);
        return format!("[]{}", if items == "byte" { "uint8" } else { &items });
    }
    if let Some((key, value)) = go_type.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        return format!("map[{}]{}", qualified(key, package), qualified(value, package));
    }
    if PLAIN.contains(&go_type) {
        return go_type.to_owned();
    }
    match go_type.split_once('.') {
        Some((import, name)) => {
            let version = import
                .rfind('v')
                .and_then(|at| import.get(at..))
                .filter(|word| word.len() > 1 && word.as_bytes().get(1).is_some_and(|digit| digit.is_ascii_digit()));
            format!("{}.{name}", version.unwrap_or(import))
        }
        None => format!("{package}.{go_type}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_struct_s_fields_are_read_with_their_types_and_their_way_of_being_empty() {
        let mut types = HashMap::new();
        let text = "type A struct {\n\tmetav1.TypeMeta `json:\",inline\"`\n\tSource `json:\",inline\" protobuf:\"bytes,2,opt,name=source\"`\n\t// text\n\tB *int32 `json:\"b,omitempty\" x:\"y\"`\n\
                    \tC []metav1.Time `json:\"c\" protobuf:\"bytes,7,rep,name=c\"`\n\tD Phase `json:\"d,omitempty,omitzero\"`\n}\n";
        read_structs(text, "v1", &mut types);
        let found = types.get("A").unwrap();
        let wire = |number: u32, name: &str| Wire {
            number,
            go_name: name.to_owned(),
        };
        let holders = [
            ("metav1.TypeMeta".to_owned(), None),
            ("Source".to_owned(), Some(wire(2, "Source"))),
        ];
        assert_eq!(found.inline, holders);
        let fact = |name: &str| found.fields.get(name).unwrap();
        assert_eq!(fact("b").go_type, "*int32");
        assert!(fact("b").omit_empty && !fact("b").omit_zero);
        assert_eq!(fact("c").go_type, "[]v1.Time");
        assert!(!fact("c").omit_empty);
        assert_eq!(fact("c").wire, [wire(7, "C")]);
        assert!(fact("b").wire.is_empty());
        assert_eq!(fact("d").go_type, "v1.Phase");
        assert!(fact("d").omit_zero);
    }
}
