//! Building programs from Go modules: minutes of work, done once per set of pins.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use super::pins::{Pins, Program, Set};
use super::{go, version};
use crate::error::{Error, Result};
use crate::paths;
use crate::process::{self, Event};
use crate::progress::Progress;

/// Compiler output worth showing when a build fails.
const LINES_SHOWN: usize = 30;

/// Builds `programs` and moves each, once it has told its version, into `home`: a file there is always whole.
/// Called with the build lock held.
pub(super) fn build(pins: &Pins, programs: &[Program], tools: &Path, home: &Path) -> Result<()> {
    let go = go::find_or_fetch(tools)?;
    let partial = home.join("partial");
    // What an interrupted run left.
    paths::remove(&partial)?;
    paths::create_folder(&partial)?;

    let packages: Vec<_> = programs.iter().map(|program| program.package()).collect();
    let stale = fetch_sources(&go, pins, &packages, &partial)?;

    let mut progress = Progress::start(format!("building {}", pins.label()));
    progress.expect(stale);
    let mut command = go_command(&go, pins.set, &partial);
    command
        .args(["build", "-v"])
        .args(pins.flags())
        .arg("-o")
        .arg(&partial)
        .args(&packages);
    run(&mut command, &mut progress)?;

    for &program in programs {
        let built = partial.join(program.built_name());
        let wanted = pins.of(program);
        let found = version::of_program(&built, program.version_question());
        if found != Some(wanted) {
            let found = found.map_or("no version".to_owned(), |version| version.to_string());
            return Err(Error::Machine(format!(
                "the built {} says {found} instead of {wanted}",
                program.name()
            )));
        }
        let place = home.join(program.name());
        std::fs::rename(&built, &place).map_err(Error::at("complete", &place))?;
    }
    progress.finish("done");
    paths::remove(&partial)
}

/// Downloads every module that is needed and tells how many packages are to be compiled.
fn fetch_sources(go: &Path, pins: &Pins, packages: &[&str], partial: &Path) -> Result<u64> {
    let mut progress = Progress::start(format!("fetching the Go modules of {}", pins.label()));
    let list = partial.join("packages.txt");
    let file = File::create(&list).map_err(Error::at("create", &list))?;
    let mut command = go_command(go, pins.set, partial);
    command.args(["list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"]);
    command.args(pins.flags()).args(packages).stdout(file);
    run(&mut command, &mut progress)?;
    progress.finish("done");
    Ok(paths::read(&list)?.lines().count().try_into().unwrap_or(u64::MAX))
}

fn go_command(go: &Path, set: Set, partial: &Path) -> Command {
    let mut command = Command::new(go);
    command
        .current_dir(set.module())
        .env("CGO_ENABLED", "0")
        // Flags from elsewhere would build something the cache key does not tell.
        .env("GOFLAGS", "")
        .env("GOWORK", "off")
        .env("GOTOOLCHAIN", "local")
        // An interrupted Go leaves its work folder behind; there it is found and removed.
        .env("GOTMPDIR", partial)
        .env_remove("GOOS")
        .env_remove("GOARCH");
    command
}

/// Both `go list` (modules it downloads) and `go build -v` (packages it compiles) tell on stderr what they are at, one
/// line each.
fn run(command: &mut Command, progress: &mut Progress) -> Result<()> {
    let mut said = Vec::new();
    let status = process::run_watched(command, |event| match event {
        Event::Line(text) => {
            progress.step(text.strip_prefix("go: downloading ").unwrap_or(&text));
            said.push(text);
        }
        Event::Idle => progress.tick(),
    })?;
    if status.success() {
        return Ok(());
    }
    let skip = said.len().saturating_sub(LINES_SHOWN);
    let output = said.into_iter().skip(skip).collect::<Vec<_>>().join("\n");
    Err(Error::Program {
        program: "go".into(),
        status: status.to_string(),
        output,
    })
}
