//! What a pod has on the disk: blocks, as `du` counts them, so that files with holes count for what they take.
//!
//! The pod's programs change the files meanwhile and may put links among them: none is followed, nothing outside of the
//! folder or on another file system is looked at, and what cannot be read is left out.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat, openat2, statat};

use super::folder::PodFolder;
use super::life::{Measured, Usage};

/// Files of one folder that are counted. Whoever has more has at least what they take, and that was said of it.
const MOST_FILES: usize = 1_000_000;
/// What `st_blocks` counts in, whatever the file system's blocks are.
const BLOCK_BYTES: u64 = 512;

/// Reads the disk: not for a thread that must not wait.
pub(super) fn usage(folder: &PodFolder, wanted: &Measured) -> Usage {
    let each = |names: &[String], place: &dyn Fn(&str) -> PathBuf| -> BTreeMap<String, u64> {
        let sizes = names.iter().map(|name| (name.clone(), bytes(&place(name), MOST_FILES)));
        sizes.collect()
    };
    let volumes = folder.volumes();
    Usage {
        volumes: each(&wanted.volumes, &|name| volumes.join(name)),
        logs: each(&wanted.logs, &|name| folder.logs(name)),
    }
}

/// Of a folder and everything in it; of at most so many files.
fn bytes(folder: &Path, most_files: usize) -> u64 {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(top) = openat(CWD, folder, flags, Mode::empty()) else {
        return 0;
    };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let (mut blocks, mut left) = (0_u64, most_files);
    // Files with several names count once.
    let mut linked = HashSet::new();
    let mut folders = vec![PathBuf::from(".")];
    while let Some(path) = folders.pop() {
        let Ok(opened) = openat2(&top, &path, flags, Mode::empty(), resolve) else {
            continue;
        };
        let Ok(entries) = Dir::read_from(&opened) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let is_self = name.to_bytes() == b".";
            if name.to_bytes() == b".." || (is_self && path != Path::new(".")) {
                continue;
            }
            let Ok(stat) = statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let Some(rest) = left.checked_sub(1) else {
                return blocks * BLOCK_BYTES;
            };
            left = rest;
            let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            if !is_folder && stat.st_nlink > 1 && !linked.insert(stat.st_ino) {
                continue;
            }
            blocks = blocks.saturating_add(u64::try_from(stat.st_blocks).unwrap_or_default());
            if is_folder && !is_self {
                let name = std::os::unix::ffi::OsStrExt::from_bytes(name.to_bytes());
                folders.push(path.join::<&std::ffi::OsStr>(name));
            }
        }
    }
    blocks * BLOCK_BYTES
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn files_count_once_for_the_blocks_they_take_and_links_lead_nowhere() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("large"), vec![7; 1 << 20]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        let empty = bytes(top, MOST_FILES);
        assert_eq!(empty, fs::metadata(top).unwrap().blocks() * BLOCK_BYTES);
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::write(top.join("a/b/file"), vec![7; 300_000]).unwrap();
        fs::hard_link(top.join("a/b/file"), top.join("again")).unwrap();
        symlink(outside.path(), top.join("a/out")).unwrap();
        symlink("..", top.join("a/up")).unwrap();
        let hole = File::create(top.join("hole")).unwrap();
        hole.set_len(1 << 30).unwrap();
        let used = bytes(top, MOST_FILES);
        assert!((300_000..400_000).contains(&used), "{used}");
        assert_eq!(bytes(&top.join("nothing"), MOST_FILES), 0);
        assert_eq!(bytes(&top.join("a/out"), MOST_FILES), 0, "a link is no folder");
        assert!(bytes(top, 2) < used, "no more files than that");
    }
}
