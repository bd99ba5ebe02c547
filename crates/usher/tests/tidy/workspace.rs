//! What there is to look at: the crates of this workspace with their sources, all packages, the files git has.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

use crate::source::Source;

/// The repository.
pub(crate) static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .nth(2)
        .expect("crates/usher is two levels down")
        .to_path_buf()
});

/// A crate's place in the order of dependencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Engine,
    Operator,
    Kind,
    /// A small Kubernetes: it knows none of ours (E4).
    Embedded,
    Binary,
    Xtask,
    Benches,
}

#[derive(Debug)]
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
    pub(crate) role: Role,
    pub(crate) dependencies: Vec<Dependency>,
    /// Every Rust file of it: `src`, `tests`, `examples`, `benches`.
    pub(crate) sources: Vec<Source>,
}

#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `normal`, `dev` or `build`.
    pub(crate) section: String,
    pub(crate) ours: bool,
}

/// All packages of the tree for this platform, as `cargo metadata` tells them.
pub(crate) static PACKAGES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let about = run(&cargo, &["-vV"]);
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    let mut question = vec!["metadata", "--offline", "--locked", "--format-version", "1"];
    question.extend(["--filter-platform", host.expect("cargo -vV names the host")]);
    let metadata: Value = serde_json::from_str(&run(&cargo, &question)).unwrap();
    metadata["packages"].as_array().unwrap().clone()
});

static CRATES: LazyLock<Vec<Crate>> = LazyLock::new(|| {
    let ours = PACKAGES.iter().filter(|package| package["source"].is_null());
    ours.map(Crate::read).collect()
});

/// The crates of this workspace.
pub(crate) fn crates() -> &'static [Crate] {
    &CRATES
}

/// Every Rust file of the workspace.
pub(crate) fn sources() -> impl Iterator<Item = &'static Source> {
    crates().iter().flat_map(|crate_| &crate_.sources)
}

impl Crate {
    fn read(package: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = text(&package["name"]);
        let dir = PathBuf::from(text(&package["manifest_path"]))
            .parent()
            .unwrap()
            .to_owned();
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        Self {
            role: match name.as_str() {
                "usher-engine" => Role::Engine,
                "usher-operator" => Role::Operator,
                "usher-embedded" => Role::Embedded,
                "usher" => Role::Binary,
                "xtask" => Role::Xtask,
                "usher-benches" => Role::Benches,
                _ => Role::Kind,
            },
            dependencies: dependencies
                .map(|dependency| Dependency {
                    name: text(&dependency["name"]),
                    section: dependency["kind"].as_str().unwrap_or("normal").to_owned(),
                    ours: dependency["path"].is_string(),
                })
                .collect(),
            sources: read_sources(&dir),
            name,
            dir,
        }
    }

    /// What is built into the product: the files below `src` that are not only for tests.
    pub(crate) fn production(&self) -> impl Iterator<Item = &Source> {
        let src = self.dir.join("src");
        let sources = self.sources.iter();
        sources.filter(move |source| source.path.starts_with(&src) && !source.only_tests)
    }

    /// The room a file is in: its first step below `src`, as `plan` for `plan.rs`, `plan/map/free.rs`.
    pub(crate) fn room(&self, source: &Source) -> String {
        let inside = source.path.strip_prefix(self.dir.join("src")).unwrap();
        let first = inside.components().next().unwrap().as_os_str().to_string_lossy();
        first.trim_end_matches(".rs").to_owned()
    }
}

fn read_sources(dir: &Path) -> Vec<Source> {
    let mut sources: Vec<Source> = rust_files(dir).iter().map(|path| Source::read(path)).collect();
    for source in &mut sources {
        source.only_tests = source.path.starts_with(dir.join("tests"));
    }
    // Modules declared in test parts are only for tests, and so are those declared in them.
    loop {
        let declared: BTreeSet<PathBuf> = sources.iter().flat_map(Source::test_modules).collect();
        let more = sources
            .iter_mut()
            .filter(|source| !source.only_tests && declared.contains(&source.path));
        let found = more.map(|source| source.only_tests = true).count();
        if found == 0 {
            return sources;
        }
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let sorted: BTreeSet<PathBuf> = entries.collect();
    let mut files = Vec::new();
    for path in sorted {
        if path.is_dir() && !path.ends_with("target") {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// Lines of one section of a TOML file.
pub(crate) fn section<'t>(toml: &'t str, header: &'t str) -> impl Iterator<Item = &'t str> {
    let lines = toml.lines().map(str::trim);
    let lines = lines.skip_while(move |line| *line != header).skip(1);
    lines
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Files that git has, or would take.
pub(crate) fn tracked() -> Vec<String> {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];
    let names = run("git", &list);
    names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(&*ROOT).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}
