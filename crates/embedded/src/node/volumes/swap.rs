//! How a config volume's files change all at once.
//!
//! ```text
//! ..2026_11_16_10_00_00.000000000/key    the files
//! ..data -> ..2026_11_16_10_00_00.000000000
//! key -> ..data/key                      what programs open
//! ```
//!
//! New files are written to a folder of their own; then `..data` is exchanged by one rename. The folder that was
//! exchanged stays until the next call, for readers who were just on their way into it. A crash at any point leaves the
//! old files or the new ones; the next call clears up.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::content::Files;

const CURRENT: &str = "..data";
const NEXT: &str = "..data_tmp";

/// Brings a volume's folder to these files; `dress` gives a fresh folder its owners before anyone sees it. Whether
/// anything changed.
pub(super) fn write(
    folder: &Path,
    files: &Files,
    now: Timestamp,
    dress: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<bool> {
    let current = std::fs::read_link(folder.join(CURRENT)).ok();
    clear(folder, current.as_deref())?;
    let same = match &current {
        Some(current) => holds(&folder.join(current), files)?,
        None => false,
    };
    if !same {
        let fresh = fresh_folder(folder, now)?;
        fill(&fresh, files)?;
        dress(&fresh)?;
        let name = fresh.file_name().map(PathBuf::from).unwrap_or_default();
        let next = folder.join(NEXT);
        remove(&next)?;
        symlink(name, &next)?;
        std::fs::rename(&next, folder.join(CURRENT))?;
    }
    // Also where nothing changed: a crash may have come between.
    link(folder, files)?;
    Ok(!same)
}

/// Removes what older calls left behind.
fn clear(folder: &Path, current: Option<&Path>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = PathBuf::from(entry.file_name());
        let is_old = entry.file_name().to_string_lossy().starts_with("..") && Some(name.as_path()) != current;
        if is_old && entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Whether a folder has these files and no others.
fn holds(folder: &Path, files: &Files) -> io::Result<bool> {
    let mut found = BTreeSet::new();
    let mut open = vec![PathBuf::new()];
    while let Some(below) = open.pop() {
        let names = match std::fs::read_dir(folder.join(&below)) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(false),
            names => names?,
        };
        for name in names {
            let name = name?;
            let path = below.join(name.file_name());
            if name.file_type()?.is_dir() {
                open.push(path);
            } else {
                found.insert(path);
            }
        }
    }
    let wanted: BTreeSet<PathBuf> = files.keys().map(PathBuf::from).collect();
    if found != wanted {
        return Ok(false);
    }
    for (path, file) in files {
        if std::fs::read(folder.join(path))? != file.bytes {
            return Ok(false);
        }
    }
    Ok(true)
}

fn fresh_folder(folder: &Path, now: Timestamp) -> io::Result<PathBuf> {
    let stamp = now.strftime("..%Y_%m_%d_%H_%M_%S").to_string();
    // Two within one tick of the clock get two names.
    let mut nanoseconds = now.subsec_nanosecond();
    loop {
        let fresh = folder.join(format!("{stamp}.{nanoseconds:09}"));
        match std::fs::create_dir(&fresh) {
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => nanoseconds += 1,
            Err(why) => return Err(why),
            Ok(()) => {
                std::fs::set_permissions(&fresh, Permissions::from_mode(0o755))?;
                return Ok(fresh);
            }
        }
    }
}

fn fill(fresh: &Path, files: &Files) -> io::Result<()> {
    for (path, file) in files {
        let path = fresh.join(path);
        if let Some(above) = path.parent() {
            super::make_folder(above, 0o755)?;
        }
        std::fs::write(&path, &file.bytes)?;
        if let Some(owner) = file.owner {
            super::ownership::where_allowed(chown(&path, Some(owner), None))?;
        }
        std::fs::set_permissions(&path, Permissions::from_mode(file.mode))?;
    }
    Ok(())
}

/// One link for each first part of a path; links whose file is gone go.
fn link(folder: &Path, files: &Files) -> io::Result<()> {
    let wanted: BTreeSet<&str> = files
        .keys()
        .map(|path| path.split('/').next().unwrap_or_default())
        .collect();
    for name in &wanted {
        let target = Path::new(CURRENT).join(name);
        let place = folder.join(name);
        if std::fs::read_link(&place).ok().as_ref() != Some(&target) {
            remove(&place)?;
            symlink(target, place)?;
        }
    }
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with("..") && !wanted.contains(name.as_ref()) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a link or a file, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::super::content::File;
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    fn files(named: &[(&str, &str)]) -> Files {
        named
            .iter()
            .map(|(path, text)| {
                let file = File {
                    bytes: text.as_bytes().to_vec(),
                    mode: 0o640,
                    owner: None,
                };
                ((*path).to_owned(), file)
            })
            .collect()
    }

    fn put(folder: &Path, named: &[(&str, &str)], second: i64) -> bool {
        write(folder, &files(named), Timestamp::from_second(second).unwrap(), |_| {
            Ok(())
        })
        .unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn n5_files_are_links_into_a_folder_named_by_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(put(folder, &[("a", "1"), ("sub/b", "2")], 0));
        assert_eq!(names(folder), ["..1970_01_01_00_00_00.000000000", "..data", "a", "sub"]);
        assert_eq!(std::fs::read_link(folder.join("a")).unwrap(), Path::new("..data/a"));
        assert_eq!(std::fs::read_to_string(folder.join("sub/b")).unwrap(), "2");
        let mode = std::fs::metadata(folder.join("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }

    #[test]
    fn n5_what_did_not_change_is_not_written_and_what_disappears_goes() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(put(folder, &[("a", "1"), ("b", "2")], 0));
        assert!(!put(folder, &[("a", "1"), ("b", "2")], 5));
        assert!(put(folder, &[("b", "2")], 5));
        assert!(!folder.join("a").exists());
        assert_eq!(
            names(folder),
            [
                "..1970_01_01_00_00_00.000000000",
                "..1970_01_01_00_00_05.000000000",
                "..data",
                "b"
            ],
            "readers on their way in still find the old folder"
        );
        assert!(!put(folder, &[("b", "2")], 6));
        assert_eq!(names(folder), ["..1970_01_01_00_00_05.000000000", "..data", "b"]);
        assert!(put(folder, &[("b", "3")], 5), "the same moment, another folder");
        assert_eq!(std::fs::read_to_string(folder.join("b")).unwrap(), "3");
        assert!(put(folder, &[], 7));
        assert_eq!(names(folder).iter().filter(|name| !name.starts_with("..")).count(), 0);
    }

    #[test]
    fn n5_a_crash_between_any_two_steps_is_made_good_by_the_next_call() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        put(folder, &[("a", "1")], 0);
        // After the new folder, before the exchange; and after the exchange, before the links.
        std::fs::create_dir(folder.join("..1970_01_01_00_00_01.000000000")).unwrap();
        symlink("..1970_01_01_00_00_01.000000000", folder.join("..data_tmp")).unwrap();
        std::fs::remove_file(folder.join("a")).unwrap();
        symlink("..data/z", folder.join("z")).unwrap();
        assert!(!put(folder, &[("a", "1")], 2));
        assert_eq!(std::fs::read_to_string(folder.join("a")).unwrap(), "1");
        assert!(put(folder, &[("a", "2")], 2));
        assert_eq!(std::fs::read_to_string(folder.join("a")).unwrap(), "2");
        assert!(std::fs::symlink_metadata(folder.join("z")).is_err());
        // The folder that `..data` names is gone.
        std::fs::remove_dir_all(folder.join(std::fs::read_link(folder.join("..data")).unwrap())).unwrap();
        assert!(put(folder, &[("a", "2")], 3));
        assert_eq!(std::fs::read_to_string(folder.join("a")).unwrap(), "2");
    }

    #[test]
    fn n5_a_reader_never_sees_a_half_state() {
        const ROUNDS: u64 = 300;
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let text = |round: u64| format!("{round}\n").repeat(2000);
        let write_round = |round: u64| {
            let text = text(round);
            put(folder, &[("a", &text), ("b", &text)], i64::try_from(round).unwrap());
        };
        write_round(0);
        let reads = AtomicU64::new(0);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut newest = 0;
                while !done.load(Ordering::Acquire) {
                    // A whole file, by the name that programs use.
                    let a = std::fs::read_to_string(folder.join("a")).unwrap();
                    let round: u64 = a.lines().next().unwrap().parse().unwrap();
                    assert_eq!(a, text(round));
                    assert!(round >= newest, "{round} after {newest}");
                    newest = round;
                    reads.fetch_add(1, Ordering::Release);
                    // Both files of one state.
                    let state = folder.join(std::fs::read_link(folder.join("..data")).unwrap());
                    let a = std::fs::read_to_string(state.join("a")).unwrap();
                    let b = std::fs::read_to_string(state.join("b")).unwrap();
                    assert_eq!(a, b);
                    reads.fetch_add(1, Ordering::Release);
                }
            });
            for round in 1..=ROUNDS {
                write_round(round);
                // A read that began before this exchange ends before the next: the exchanged folder stays for one call.
                let before = reads.load(Ordering::Acquire);
                while reads.load(Ordering::Acquire) == before && !reader.is_finished() {
                    std::thread::yield_now();
                }
            }
            done.store(true, Ordering::Release);
        });
    }
}
