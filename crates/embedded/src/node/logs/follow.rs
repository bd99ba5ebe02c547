//! A log as a stream of bytes, which goes on while its container runs if it is to be followed.

use std::path::PathBuf;

use tokio::sync::watch;

use crate::node::door::LogStream;
use crate::node::logs::LogQuery;

/// The log of one instance of a container, whose files are in `container_folder`.
///
/// A stream that follows ends when `running` is false, or its sender is gone, and all that was written by then has been
/// given out: who writes the log has written its last line before it says that the container has ended.
pub fn stream(container_folder: PathBuf, instance: u32, query: LogQuery, running: watch::Receiver<bool>) -> LogStream {
