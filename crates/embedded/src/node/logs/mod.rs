//! What containers said: their log files, read and followed (11.6).
//!
//! A container's files are in `<pod folder>/<container>/`: `<n>.log` of its n-th instance, counted by its restarts from 0,
//! and `<n>.log.1` and up for what was rotated, higher being older. Their lines are those of the CRI:
//! `time stream P|F text`, P for a part of a line that goes on.
//!
//! - [`LogQuery`]: what is asked. [`chosen`]: which instance is meant, or why there is none.
//! - `record`: one line of a file. `lines`: from records to what is shown: joined, filtered, cut.
//! - `files`: the files of an instance, from the oldest on, across rotations.
//! - [`stream`]: all of it as a stream of bytes.
//!
//! The supervisor writes them; the agent calls [`stream`] for the API's [`Doors`](crate::node::door::Doors).

mod choice;
mod files;
mod follow;
mod lines;
mod query;
mod record;

pub use choice::{Chosen, chosen};
pub use follow::stream;
pub use query::{LogQuery, Source};

use std::path::{Path, PathBuf};

/// The file that an instance of a container writes now.
#[must_use]
pub fn file(container_folder: &Path, instance: u32) -> PathBuf {
    container_folder.join(format!("{instance}.log"))
}

/// What it wrote before; 1 is the newest.
#[must_use]
pub fn rotated(container_folder: &Path, instance: u32, number: u32) -> PathBuf {
    container_folder.join(format!("{instance}.log.{number}"))
}
