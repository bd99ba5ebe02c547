//! What a container writes, on disk as container runtimes write it: `time stream P|F text`, one line each (spec 11.6).
//!
//! Promises: a disk that is full or broken loses lines, and never holds up the container or leaves half a line behind.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

/// Longer lines are written in parts.
const PART_BYTES: usize = 16 * 1024;
/// A file that would grow beyond this is put aside.
const FILE_BYTES: u64 = 10 * 1024 * 1024;
/// The file and those put aside.
const FILES: u32 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    /// None: it could not be made; tried again with the next lines.
    file: Option<File>,
    length: u64,
    limit: u64,
    /// Lines that have not ended yet.
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Log {
    pub(super) fn new(pod_folder: &Path, container: &str, attempt: u32) -> Log {
        let path = pod_folder.join(container).join(format!("{attempt}.log"));
        let mut log = Log {
            path,
            file: None,
            length: 0,
            limit: FILE_BYTES,
            stdout: Vec::new(),
            stderr: Vec::new(),
        };
        // A container that never says anything has an empty log, not none.
        let _ = log.open();
        log
    }

    pub(super) fn take(&mut self, stream: Stream, bytes: &[u8], now: Timestamp) {
        let mut lines = Vec::with_capacity(bytes.len() + 64);
        let open = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = PART_BYTES - open.len();
            let within = rest.get(..room.min(rest.len())).unwrap_or(rest);
            match within.iter().position(|byte| *byte == b'\n') {
                Some(end) => {
                    open.extend(rest.iter().take(end));
                    write_line(&mut lines, now, stream, 'F', open);
                    rest = rest.get(end + 1..).unwrap_or_default();
                }
                None => {
                    open.extend_from_slice(within);
                    rest = rest.get(within.len()..).unwrap_or_default();
                    // A line of exactly one part that ends here is whole: so only cut when more of it is there.
                    if open.len() >= PART_BYTES && rest.first() != Some(&b'\n') {
                        write_line(&mut lines, now, stream, 'P', open);
                    } else if open.len() >= PART_BYTES {
                        write_line(&mut lines, now, stream, 'F', open);
                        rest = rest.get(1..).unwrap_or_default();
                    }
                }
            }
        }
        self.append(&lines);
    }

    /// Nothing more will come: what has no end of line is a line as well.
    pub(super) fn close(&mut self, now: Timestamp) {
        let mut lines = Vec::new();
        for (stream, mut open) in [
            (Stream::Stdout, std::mem::take(&mut self.stdout)),
            (Stream::Stderr, std::mem::take(&mut self.stderr)),
        ] {
            if !open.is_empty() {
                write_line(&mut lines, now, stream, 'F', &mut open);
            }
        }
        self.append(&lines);
    }

    fn append(&mut self, lines: &[u8]) {
        if lines.is_empty() {
            return;
        }
        let added = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        if self.length > 0 && self.length.saturating_add(added) > self.limit {
            self.put_aside();
        }
        if self.file.is_none() && self.open().is_err() {
            return;
        }
        let Some(file) = &self.file else { return };
        match file.write_all_at(lines, self.length) {
            Ok(()) => self.length += added,
            // Half a line would spoil the next. If even this fails, the next write goes over it.
            Err(_) => drop(file.set_len(self.length)),
        }
    }

    fn open(&mut self) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o711).create(folder)?;
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o640)
            .open(&self.path)?;
        self.length = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }

    /// `0.log` becomes `0.log.1`, that becomes `0.log.2`, and the oldest goes.
    fn put_aside(&mut self) {
        let aside = |number: u32| {
            let mut path = self.path.clone().into_os_string();
            if number > 0 {
                path.push(format!(".{number}"));
            }
            PathBuf::from(path)
        };
        let mut moved = true;
        for number in (0..FILES - 1).rev() {
            let outcome = fs::rename(aside(number), aside(number + 1));
            moved = number > 0 || outcome.is_ok();
        }
        if moved {
            self.file = None;
            self.length = 0;
        }
    }
}

fn write_line(lines: &mut Vec<u8>, now: Timestamp, stream: Stream, tag: char, text: &mut Vec<u8>) {
    let stream = match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    lines.extend_from_slice(format!("{now:.9} {stream} {tag} ").as_bytes());
    lines.append(text);
    lines.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(folder: &Path, name: &str) -> Vec<String> {
        let text = fs::read_to_string(folder.join("c").join(name)).unwrap();
        text.lines()
            .map(|line| line.split_once(' ').unwrap().1.to_owned())
            .collect()
    }

    #[test]
    fn lines_are_put_together_across_reads_and_streams_do_not_mix() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::new(folder.path(), "c", 0);
        log.take(Stream::Stdout, b"one\ntw", Timestamp::UNIX_EPOCH);
        log.take(Stream::Stderr, b"oops\n", Timestamp::UNIX_EPOCH);
        log.take(Stream::Stdout, b"o\n\nlast", Timestamp::UNIX_EPOCH);
        log.close(Timestamp::UNIX_EPOCH);
        assert_eq!(
            written(folder.path(), "0.log"),
            [
                "stdout F one",
                "stderr F oops",
                "stdout F two",
                "stdout F ",
                "stdout F last"
            ]
        );
        let text = fs::read_to_string(folder.path().join("c/0.log")).unwrap();
        assert!(
            text.starts_with("1970-01-01T00:00:00.000000000Z stdout F one\n"),
            "{text}"
        );
    }

    #[test]
    fn a_long_line_is_cut_into_parts_of_16_kib_whatever_the_reads_were() {
        for piece in [1, 1000, PART_BYTES, 3 * PART_BYTES] {
            let folder = tempfile::tempdir().unwrap();
            let mut log = Log::new(folder.path(), "c", 0);
            let line = vec![b'x'; 2 * PART_BYTES + 5];
            for bytes in [line.as_slice(), b"\n"].concat().chunks(piece) {
                log.take(Stream::Stdout, bytes, Timestamp::UNIX_EPOCH);
            }
            let lengths: Vec<(String, usize)> = written(folder.path(), "0.log")
                .iter()
                .map(|line| (line.chars().nth(7).unwrap().to_string(), line.len() - 9))
                .collect();
            let part = |tag: &str, length| (tag.to_owned(), length);
            assert_eq!(
                lengths,
                [part("P", PART_BYTES), part("P", PART_BYTES), part("F", 5)],
                "reads of {piece}"
            );
        }
    }

    #[test]
    fn a_log_is_put_aside_at_its_limit_and_five_files_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::new(folder.path(), "c", 3);
        log.limit = 100;
        for number in 0..20 {
            log.take(
                Stream::Stdout,
                format!("line {number}\n").as_bytes(),
                Timestamp::UNIX_EPOCH,
            );
        }
        let mut names: Vec<_> = fs::read_dir(folder.path().join("c"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["3.log", "3.log.1", "3.log.2", "3.log.3", "3.log.4"]);
        assert_eq!(written(folder.path(), "3.log").last().unwrap(), "stdout F line 19");
        assert_eq!(written(folder.path(), "3.log.1").last().unwrap(), "stdout F line 17");
    }
}
