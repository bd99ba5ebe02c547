//! Rules about what comes from elsewhere: each dependency has its reason and an allowed licence, and no address of where
//! packages come from is written down.

use std::collections::BTreeSet;
use std::fs;

use crate::verdict;
use crate::workspace::{PACKAGES, ROOT, Role, crates, section, tracked};

/// The only crates that `usher-engine` may use: values, their text forms, their hashes.
const ENGINE_MAY_USE: [&str; 7] = ["jiff", "schemars", "serde", "serde_json", "sha1", "sha2", "thiserror"];

#[test]
fn the_engine_uses_only_crates_of_values() {
    let engine = crates().iter().find(|c| c.role == Role::Engine).expect("crates/engine");
    let normal = engine.dependencies.iter().filter(|d| d.section != "dev");
    let faults: Vec<_> = normal
        .filter(|d| !ENGINE_MAY_USE.contains(&d.name.as_str()))
        .map(|d| format!("crates/engine/Cargo.toml: {}", d.name))
        .collect();
    verdict(
        &faults,
        "the engine is values only; if this crate is too, add it to ENGINE_MAY_USE and say why",
    );
}

#[test]
fn every_dependency_has_its_reason_in_the_document_and_nothing_else_has() {
    let document = fs::read_to_string(ROOT.join("docs/dependencies.md")).expect("docs/dependencies.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
    let documented: BTreeSet<&str> = rows.filter_map(|row| row.split('`').next()).collect();

    let manifest = fs::read_to_string(ROOT.join("Cargo.toml")).unwrap();
    let listed = section(&manifest, "[workspace.dependencies]").filter(|line| !line.contains("path ="));
    let listed = listed.filter_map(|line| line.split(['=', '.']).next());
    let direct = crates().iter().flat_map(|c| &c.dependencies).filter(|d| !d.ours);
    let used: BTreeSet<&str> = direct
        .map(|d| d.name.as_str())
        .chain(listed.map(str::trim))
        .filter(|name| !name.is_empty())
        .collect();

    let missing = used.difference(&documented);
    let stale = documented.difference(&used);
    let faults: Vec<_> = missing
        .map(|name| format!("{name} is used and not documented"))
        .chain(stale.map(|name| format!("{name} is documented and not used")))
        .collect();
    verdict(
        &faults,
        "docs/dependencies.md says of each direct dependency why it and not another",
    );
}

#[test]
fn every_licence_in_the_tree_is_allowed_by_deny_toml() {
    let deny = fs::read_to_string(ROOT.join("deny.toml")).expect("deny.toml");
    let list = section(&deny, "[licenses]").skip_while(|line| !line.starts_with("allow"));
    let allowed: BTreeSet<&str> = list
        .take_while(|line| !line.starts_with(']'))
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    assert!(
        allowed.contains("Apache-2.0"),
        "deny.toml: the allow list of [licenses] could not be read"
    );
    let faults: Vec<_> = PACKAGES
        .iter()
        .map(|package| (package, package["license"].as_str().unwrap_or("none")))
        .filter(|(_, licence)| !is_allowed(licence, &allowed))
        .map(|(package, licence)| format!("{} {}: {licence}", package["name"], package["version"]))
        .collect();
    verdict(
        &faults,
        "choose another crate, or allow the licence in deny.toml and say why",
    );
}

/// An SPDX expression: `OR` binds least, then `AND`; `WITH` belongs to its licence; `/` is the old spelling of `OR`.
fn is_allowed(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let (fine, rest) = either(&tokens, allowed);
    fine && rest.is_empty()
}

fn either<'t>(tokens: &'t [&'t str], allowed: &BTreeSet<&str>) -> (bool, &'t [&'t str]) {
    let (mut fine, mut rest) = both(tokens, allowed);
    while let ["OR", after @ ..] = rest {
        let (other, left) = both(after, allowed);
        (fine, rest) = (fine || other, left);
    }
    (fine, rest)
}

fn both<'t>(tokens: &'t [&'t str], allowed: &BTreeSet<&str>) -> (bool, &'t [&'t str]) {
    let (mut fine, mut rest) = one(tokens, allowed);
    while let ["AND", after @ ..] = rest {
        let (other, left) = one(after, allowed);
        (fine, rest) = (fine && other, left);
    }
    (fine, rest)
}

fn one<'t>(tokens: &'t [&'t str], allowed: &BTreeSet<&str>) -> (bool, &'t [&'t str]) {
    match tokens {
        ["(", inner @ ..] => match either(inner, allowed) {
            (fine, [")", rest @ ..]) => (fine, rest),
            (_, rest) => (false, rest),
        },
        [name, "WITH", exception, rest @ ..] => {
            let whole = format!("{name} WITH {exception}");
            (allowed.contains(whole.as_str()), rest)
        }
        [name, rest @ ..] => (allowed.contains(name), rest),
        [] => (false, tokens),
    }
}

#[test]
fn licence_expressions_are_read_as_spdx_means_them() {
    let allowed = ["MIT", "ISC", "Apache-2.0"].into();
    for (expression, fine) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("MIT OR GPL-3.0", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("(GPL-3.0 OR MIT) AND ISC", true),
        ("GPL-3.0 AND MIT OR ISC", true),
        ("Apache-2.0 WITH LLVM-exception", false),
        ("(MIT", false),
        ("", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), fine, "{expression}");
    }
}

#[test]
fn no_registry_and_no_mirror_is_written_down() {
    // In pieces, so that this file does not contain them.
    let hosts = [
        "index.crates|.io",
        "static.crates|.io",
        "pypi|.org",
        "pythonhosted|.org",
        "proxy.golang|.org",
        "sum.golang|.org",
        "registry.npmjs|.org",
        "registry.yarnpkg|.com",
        "index|-url",
        "GOPROXY|=",
        "[regis|tries",
        "replace|-with",
    ]
    .map(|name| name.replace('|', ""));
    let mut faults = Vec::new();
    for path in tracked() {
        let text = fs::read(ROOT.join(&path)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let found = hosts.iter().filter(|name| text.contains(name.as_str()));
        faults.extend(found.map(|name| format!("{path}: {name}")));
    }
    // Whatever mirror a machine uses, cargo writes the default registry into the lock file.
    let default = "\"registry+https://github.com/rust-lang/crates|.io-index\"".replace('|', "");
    let lock = fs::read_to_string(ROOT.join("Cargo.lock")).unwrap();
    let sources = lock.lines().filter_map(|line| line.strip_prefix("source = "));
    let foreign = sources.filter(|source| *source != default);
    faults.extend(foreign.map(|source| format!("Cargo.lock: {source}")));
    verdict(
        &faults,
        "where packages come from is a setting of the machine, not of the repository",
    );
}
