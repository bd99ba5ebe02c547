//! A log as a stream of bytes, which goes on while its container runs if it is to be followed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use crate::node::door::LogStream;
use crate::node::logs::files::{Files, Got};
use crate::node::logs::lines::Lines;
use crate::node::logs::{LogQuery, record};

/// How much is read at once.
const CHUNK: usize = 64 * 1024;
/// How often a log that is followed is looked at. A user does not notice it, and a hundred followers cost nothing.
const LOOK: Duration = Duration::from_millis(50);

/// The log of one instance of a container, whose files are in `container_folder`. Within a tokio runtime.
///
/// A stream that follows ends when `running` is false, or its sender is gone, and all that was written by then has been
/// given out: who writes the log has written its last line before it says that the container has ended.
pub fn stream(container_folder: PathBuf, instance: u32, query: LogQuery, running: watch::Receiver<bool>) -> LogStream {
    let following = Following {
        folder: container_folder,
        instance,
        query,
        running,
        reader: None,
        is_over: false,
    };
    LogStream::new(futures::stream::unfold(following, |mut following| async move {
        let bytes = following.next().await?;
        Some((bytes, following))
    }))
}

struct Following {
    folder: PathBuf,
    instance: u32,
    query: LogQuery,
    running: watch::Receiver<bool>,
    /// `None` before the first read, and while one is under way.
    reader: Option<Reader>,
    is_over: bool,
}

impl Following {
    /// What is to be sent next, never empty.
    async fn next(&mut self) -> Option<Bytes> {
        while !self.is_over {
            // Asked before the read: what is read after the end is all there is.
            let goes_on = self.query.follow && self.is_running();
            let step = match self.step(!goes_on).await {
                Ok(step) => step,
                Err(error) => {
                    tracing::warn!(folder = %self.folder.display(), %error, "a log could not be read");
                    return None;
                }
            };
            self.is_over = step.is_full || (step.is_at_end && !goes_on);
            if !step.bytes.is_empty() {
                return Some(Bytes::from(step.bytes));
            }
            if step.is_at_end && !self.is_over {
                tokio::select! {
                    () = tokio::time::sleep(LOOK) => {}
                    _ = self.running.changed() => {}
                }
            }
        }
        None
    }

    fn is_running(&self) -> bool {
        *self.running.borrow() && self.running.has_changed().is_ok()
    }

    /// Reads a little, off the runtime's threads.
    async fn step(&mut self, finish: bool) -> io::Result<Step> {
        let (folder, instance, query) = (self.folder.clone(), self.instance, self.query.clone());
        let reader = self.reader.take();
        let work = move || -> io::Result<(Reader, Step)> {
            let mut reader = match reader {
                Some(reader) => reader,
                None => Reader::open(folder, instance, &query)?,
            };
            let step = reader.step(finish)?;
            Ok((reader, step))
        };
        let (reader, step) = tokio::task::spawn_blocking(work).await.map_err(io::Error::other)??;
        self.reader = Some(reader);
        Ok(step)
    }
}

/// From files to what is shown.
#[derive(Debug)]
struct Reader {
    files: Files,
    lines: Lines,
    /// The beginning of a file's line whose end has not been read.
    cut: Vec<u8>,
    buffer: Vec<u8>,
}

#[derive(Debug, Default)]
struct Step {
    bytes: Vec<u8>,
    is_at_end: bool,
    /// The limit is reached.
    is_full: bool,
}

impl Reader {
    fn open(folder: PathBuf, instance: u32, query: &LogQuery) -> io::Result<Self> {
        let mut files = Files::open(folder, instance)?;
        let mut skip = 0;
        if !query.follow || query.tail_lines.is_some() {
            files.freeze()?;
        }
        let mut reader = Self {
            files,
            lines: Lines::new(&LogQuery::default(), u64::MAX),
            cut: Vec::new(),
            buffer: vec![0; CHUNK],
        };
        if let Some(tail) = query.tail_lines {
            // Counted first, so that however many are asked for need not be kept.
            while !reader.step(!query.follow)?.is_at_end {}
            skip = reader.lines.count().saturating_sub(tail);
            reader.cut.clear();
            reader.files.rewind()?;
            if query.follow {
                reader.files.thaw();
            }
        }
        reader.lines = Lines::new(query, skip);
        Ok(reader)
    }

    /// One read, and what it adds. `finish`: if there is nothing more now, there never will be.
    fn step(&mut self, finish: bool) -> io::Result<Step> {
        let mut step = Step::default();
        match self.files.read(&mut self.buffer)? {
            Got::Bytes(count) => {
                let read = self.buffer.get(..count).unwrap_or_default();
                let mut lines = read.split_inclusive(|byte| *byte == b'\n');
                for line in &mut lines {
                    self.cut.extend_from_slice(line);
                    if self.cut.pop_if(|byte| *byte == b'\n').is_some() {
                        self.lines.push(&self.cut, &mut step.bytes);
                        self.cut.clear();
                    }
                }
                if self.cut.len() > record::MOST_BYTES {
                    // No line of a log.
                    self.cut.clear();
                }
            }
            Got::NextFile => self.push_cut(&mut step.bytes),
            Got::Nothing => {
                step.is_at_end = true;
                if finish {
                    self.push_cut(&mut step.bytes);
                    self.lines.finish(&mut step.bytes);
                }
            }
        }
        step.is_full = self.lines.is_full();
        Ok(step)
    }

    /// A file that ends in the middle of a line ends there for good.
    fn push_cut(&mut self, out: &mut Vec<u8>) {
        let cut = std::mem::take(&mut self.cut);
        self.lines.push(&cut, out);
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
