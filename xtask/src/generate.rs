//! `cargo xtask generate`: files that come from code (CRDs, RBAC, reference pages), written by the product itself, so
//! that they cannot say anything else than it does.
//!
//! The contract: `usher generate-artifacts --out FOLDER` writes a tree that mirrors the repository.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};
use crate::paths;
use crate::{process, progress};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Put the files into the repository.
    Write,
    /// Fail if any of them would change.
    Check,
}

/// Builds the product, and generates.
pub(crate) fn command(xtask: &Path, mode: Mode) -> Result<()> {
    // For the whole workspace, so that dependencies get the features they have in `cargo xtask test`: built once.
    let mut build = process::cargo();
    build.args(["build", "--quiet", "--workspace", "--bin", "usher"]);
    let status = process::run_group(&mut build, |_| Ok(()))?;
    if !status.success() {
        return Err(Error::Program {
            program: "cargo build".into(),
            status: status.to_string(),
            output: String::new(),
        });
    }
    with_built(xtask, mode)
}

/// Generates with the product that was built beside this program.
pub(crate) fn with_built(xtask: &Path, mode: Mode) -> Result<()> {
    let temporary = paths::temporary_folder("usher-generate")?;
    let result = generate(&xtask.with_file_name("usher"), &temporary, mode);
    paths::remove(&temporary)?;
    result
}

fn generate(usher: &Path, out: &Path, mode: Mode) -> Result<()> {
    let output = Command::new(usher)
        .args(["generate-artifacts", "--out"])
        .arg(out)
        .current_dir(paths::repository())
        .output()
        .map_err(Error::at("start", usher))?;
    if !output.status.success() {
        return Err(Error::Program {
            program: "usher generate-artifacts".into(),
            status: output.status.to_string(),
            output: String::from_utf8_lossy(&output.stderr).into_owned(),
        });
    }
    let changed = changes(out, &paths::repository())?;
    match mode {
        Mode::Check if changed.is_empty() => Ok(()),
        Mode::Check => Err(Error::Drift(
            changed.iter().map(|file| file.display().to_string()).collect(),
        )),
        Mode::Write => {
            for file in &changed {
                let target = paths::repository().join(file);
                if let Some(folder) = target.parent() {
                    paths::create_folder(folder)?;
                }
                std::fs::copy(out.join(file), &target).map_err(Error::at("write", &target))?;
                progress::say(&format!("wrote {}", file.display()));
            }
            progress::say(&format!("{} generated files changed", changed.len()));
            Ok(())
        }
    }
}

/// Files below `tree`, by relative path, whose content is not the one in `repository`.
fn changes(tree: &Path, repository: &Path) -> Result<Vec<PathBuf>> {
    let mut changed = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let path = tree.join(&folder);
        for entry in path.read_dir().map_err(Error::at("read", &path))? {
            let entry = entry.map_err(Error::at("read", &path))?;
            let file = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(file);
                continue;
            }
            let new = std::fs::read(entry.path()).map_err(Error::at("read", &entry.path()))?;
            // A file that is not there yet differs, too.
            if std::fs::read(repository.join(&file)).ok().as_deref() != Some(new.as_slice()) {
                changed.push(file);
            }
        }
    }
    changed.sort();
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_and_different_files_are_changes_and_equal_ones_are_not() {
        let temporary = paths::temporary_folder("usher-generate").unwrap();
        let (tree, repository) = (temporary.join("tree"), temporary.join("repository"));
        let write = |path: PathBuf, text: &str| {
            paths::create_folder(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (name, text) in [
            ("deploy/crds.yaml", "a"),
            ("docs/reference/b.md", "b"),
            ("README.md", "c"),
        ] {
            write(tree.join(name), text);
        }
        write(repository.join("deploy/crds.yaml"), "a");
        write(repository.join("README.md"), "old");
        write(repository.join("src/not-generated.rs"), "");
        let changed = changes(&tree, &repository).unwrap();
        assert_eq!(
            changed,
            [PathBuf::from("README.md"), PathBuf::from("docs/reference/b.md")]
        );
        paths::remove(&temporary).unwrap();
    }
}
