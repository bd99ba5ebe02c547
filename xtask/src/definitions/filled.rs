//! Objects with a value in every field, as the reference's own encoders write them in JSON and in protobuf: the release has
//! them as test data of `k8s.io/api`. Each line has a kind's definition, the bytes in base64, and the JSON.

use std::collections::HashMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{META, ROOTS, module};
use crate::error::{Error, Result};
use crate::paths;

pub(super) const OUTPUT: &str = "crates/embedded/src/api/protobuf/filled.txt";

pub(super) fn text(documents: &HashMap<String, Value>) -> Result<String> {
    let (api, extensions) = (module("k8s.io/api")?, module("k8s.io/apiextensions-apiserver")?);
    let mut text = String::new();
    for (package, kinds) in ROOTS {
        let folder = match package.contains("apiextensions") {
            true => extensions.join("pkg/apis/testdata/HEAD"),
            false => api.join("testdata/HEAD"),
        };
        for kind in *kinds {
            let definition = format!("{package}{kind}");
            let file = folder.join(format!("{}.{kind}", group_version(package, &definition, documents)?));
            let bytes = file.with_added_extension("pb");
            let bytes = std::fs::read(&bytes).map_err(Error::at("read", &bytes))?;
            let json = file.with_added_extension("json");
            let json: Value = serde_json::from_str(&paths::read(&json)?)
                .map_err(|error| Error::Machine(format!("{}: {error}", json.display())))?;
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{definition}\t{}\t{json}", STANDARD.encode(bytes));
        }
    }
    Ok(text)
}

/// As the files are named: `core.v1`, `rbac.authorization.k8s.io.v1`.
fn group_version(package: &str, definition: &str, documents: &HashMap<String, Value>) -> Result<String> {
    // These are of every group.
    if package == META {
        return Ok("core.v1".to_owned());
    }
    let first = documents
        .get(definition)
        .and_then(|document| document.pointer("/x-kubernetes-group-version-kind/0"));
    let word = |name: &str| first?.get(name)?.as_str();
    match (word("group"), word("version")) {
        (Some(""), Some(version)) => Ok(format!("core.{version}")),
        (Some(group), Some(version)) => Ok(format!("{group}.{version}")),
        _ => Err(Error::Machine(format!("{definition} names no group and version"))),
    }
}
