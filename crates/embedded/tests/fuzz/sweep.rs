//! After a batch: whatever is stored can be read, listed and put back unchanged, and that changes nothing.

use serde_json::Value;

use crate::request::{Sent, cut};
use crate::world::World;

/// One served resource, by discovery.
struct Served {
    /// `/api/v1` or `/apis/G/V`.
    root: String,
    api_version: String,
    plural: String,
    kind: String,
    is_namespaced: bool,
    can_update: bool,
    is_custom: bool,
}

/// Looks at everything that was written after revision `since`.
pub fn check(world: &World, since: u64) -> Result<usize, String> {
    let mut checked = 0;
    for served in discovered(world)? {
        let list = ask(world, &Sent::new("GET", &format!("{}/{}", served.root, served.plural)))?;
        let items = list["items"]
            .as_array()
            .ok_or_else(|| format!("O1: items of {} are no list", served.plural))?;
        for item in items {
            let revision = item["metadata"]["resourceVersion"]
                .as_str()
                .and_then(|text| text.parse().ok());
            let revision: u64 = revision.ok_or_else(|| format!("O1: no revision: {}", cut(&item.to_string(), 500)))?;
            if revision > since {
                one(world, &served, item)?;
                checked += 1;
            }
        }
        let table = Sent::new("GET", &format!("{}/{}", served.root, served.plural));
        let mut table = table.clone();
        table.set_header("accept", "application/json;as=Table;g=meta.k8s.io;v=v1");
        let table = ask(world, &table)?;
        let rows = table["rows"].as_array().map(Vec::len);
        if rows.unwrap_or_default() != items.len() {
            return Err(format!("A6: {} {} have {rows:?} rows", items.len(), served.plural));
        }
        let columns = table["columnDefinitions"].as_array().map(Vec::len);
        for row in table["rows"].as_array().into_iter().flatten() {
            if row["cells"].as_array().map(Vec::len) != columns {
                return Err(format!("A6: {} has not {columns:?} cells: {row}", served.plural));
            }
        }
    }
    Ok(checked)
}

fn one(world: &World, served: &Served, item: &Value) -> Result<(), String> {
    let name = item["metadata"]["name"].as_str().ok_or("an object without a name")?;
    let within = match item["metadata"]["namespace"].as_str() {
        Some(namespace) if served.is_namespaced => format!("/namespaces/{namespace}"),
        None if !served.is_namespaced => String::new(),
        other => return Err(format!("{} {name} is in namespace {other:?}", served.plural)),
    };
    let place = format!("{}{within}/{}/{}", served.root, served.plural, escaped(name));
    let object = ask(world, &Sent::new("GET", &place))?;
    let mut listed = item.clone();
    listed["apiVersion"] = served.api_version.clone().into();
    listed["kind"] = served.kind.clone().into();
    if listed != object {
        return Err(format!("{place} is listed as {listed} and read as {object}"));
    }
    if !served.can_update {
        return Ok(());
    }
    let before = world.writes();
    let put = Sent::new("PUT", &place).with_body("application/json", object.to_string());
    let got = world.send(&put)?.ok_or("not a request")?;
    let told = || {
        format!(
            "{place} put back unchanged: {} {}\n{object}",
            got.code,
            cut(&String::from_utf8_lossy(&got.body), 2_000)
        )
    };
    // A custom resource's definition may have changed since: it is not what it would be today, and rules may forbid it. A
    // definition's own status may be written by anybody, and is put right (or complained of) at the next write.
    let is_definition = served.plural == "customresourcedefinitions";
    if served.is_custom || is_definition {
        if got.code == 200 && world.writes() > before {
            let object = ask(world, &Sent::new("GET", &place))?;
            let before = world.writes();
            let again = world.send(&Sent::new("PUT", &place).with_body("application/json", object.to_string()))?;
            if again.is_none_or(|again| again.code != 200) || world.writes() > before {
                return Err(format!("twice {}", told()));
            }
        }
        let is_allowed = match got.code {
            200 => true,
            422 => served.is_custom || String::from_utf8_lossy(&got.body).contains("status.storedVersions"),
            _ => false,
        };
        return if is_allowed { Ok(()) } else { Err(told()) };
    }
    if got.code != 200 || world.writes() > before {
        return Err(told());
    }
    Ok(())
}

/// Some kinds' names may hold anything but a slash.
fn escaped(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escape = |byte: u8| {
        if plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    name.bytes().map(escape).collect()
}

fn ask(world: &World, sent: &Sent) -> Result<Value, String> {
    let got = world.send(sent).map_err(|why| format!("{}: {why}", sent.told()))?;
    let got = got.ok_or_else(|| format!("{} is no path", sent.path))?;
    if got.code != 200 {
        return Err(format!(
            "{}: {} {}",
            sent.told(),
            got.code,
            cut(&String::from_utf8_lossy(&got.body), 1_000)
        ));
    }
    serde_json::from_slice(&got.body).map_err(|why| format!("{}: {why}", sent.told()))
}

fn discovered(world: &World) -> Result<Vec<Served>, String> {
    let groups = ask(world, &Sent::new("GET", "/apis"))?;
    let mut roots = vec![("/api/v1".to_owned(), "v1".to_owned())];
    for group in groups["groups"].as_array().into_iter().flatten() {
        for version in group["versions"].as_array().into_iter().flatten() {
            let name = version["groupVersion"].as_str().ok_or("a group without a version")?;
            roots.push((format!("/apis/{name}"), name.to_owned()));
        }
    }
    let mut all = Vec::new();
    for (root, api_version) in roots {
        let resources = ask(world, &Sent::new("GET", &root))?;
        for resource in resources["resources"].as_array().into_iter().flatten() {
            let plural = resource["name"].as_str().ok_or("a resource without a name")?;
            let can = |verb: &str| {
                resource["verbs"]
                    .as_array()
                    .is_some_and(|all| all.iter().any(|one| one == verb))
            };
            if plural.contains('/') || !can("list") {
                continue;
            }
            all.push(Served {
                root: root.clone(),
                api_version: api_version.clone(),
                plural: plural.to_owned(),
                kind: resource["kind"].as_str().unwrap_or_default().to_owned(),
                is_namespaced: resource["namespaced"] == true,
                can_update: can("update"),
                is_custom: api_version.contains("example.com"),
            });
        }
    }
    Ok(all)
}
