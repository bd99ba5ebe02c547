//! Where the data of a volume is, and how it goes: only where its volume says Delete, and after the volume (C7).
//!
//! A volume that is to go with its data is marked on disk, `<data>/volumes/.doomed/<name>`, before its object is deleted.
//! Whoever finds a mark without a volume, in this process or in the next one, removes the folder and then the mark. So a
//! crash at any point loses nothing that is to stay, and keeps nothing that is to go.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const VOLUMES: &str = "volumes";
/// No volume has such a name.
const DOOMED: &str = ".doomed";

/// Where a volume's data is.
#[must_use]
pub(crate) fn folder(data: &Path, volume: &str) -> PathBuf {
    data.join(VOLUMES).join(volume)
}

fn mark(data: &Path, volume: &str) -> PathBuf {
    data.join(VOLUMES).join(DOOMED).join(volume)
}

/// From now on the folder goes when the volume is gone.
pub(super) fn doom(data: &Path, volume: &str) -> io::Result<()> {
    let mark = mark(data, volume);
    if mark.exists() {
        return Ok(());
    }
    if let Some(above) = mark.parent() {
        fs::create_dir_all(above)?;
    }
    fs::File::create(&mark)?.sync_all()?;
    match mark.parent().map(fs::File::open) {
        Some(above) => above?.sync_all(),
        None => Ok(()),
    }
}

/// All volumes whose folder is to go.
pub(super) fn doomed(data: &Path) -> Vec<String> {
    let Ok(marks) = fs::read_dir(data.join(VOLUMES).join(DOOMED)) else {
        return Vec::new();
    };
    let mut names: Vec<String> = marks
        .filter_map(|mark| mark.ok()?.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

/// Removes the folder of a volume that is gone, if it is marked. A thread does it: there may be much in it.
pub(super) fn remove(data: &Path, volume: &str) {
    let (folder, mark) = (folder(data, volume), mark(data, volume));
    if !mark.exists() {
        return;
    }
    std::thread::spawn(move || match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            // The mark stays: the next start tries again.
            tracing::warn!(folder = %folder.display(), %error, "the folder of a deleted volume could not be removed");
        }
        _ => {
            let _ = fs::remove_file(&mark);
        }
    });
}
