//! The files of one instance of a container, read in order from the oldest, while the supervisor writes and rotates them.
//!
//! Names move (`log` to `log.1` to `log.2`) and files do not: a file that was opened stays the same one, and is known by
//! its inode, which no other file can have while it is open. Looking goes from the newest name to the oldest, the way in
//! which files move, so none slips through between two looks; one that is met twice counts once.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use crate::node::logs;

/// Rotated files that are looked for: twice as many as there are, since they move meanwhile.
const ROTATED: u32 = 9;

/// A place in the files of an instance.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    instance: u32,
    /// The oldest first.
    open: VecDeque<Open>,
    /// Which of them is read.
    at: usize,
    /// Nothing newer is looked for.
    is_frozen: bool,
}

#[derive(Debug)]
struct Open {
    file: File,
    inode: u64,
    position: u64,
    /// Where it ends for us.
    until: u64,
}

/// What a read came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Got {
    Bytes(usize),
    /// The file is over, and the next read is of a newer one.
    NextFile,
    /// Nothing more, for now.
    Nothing,
}

impl Files {
    /// All that are there, opened now. An instance that has said nothing yet has none.
    pub fn open(folder: PathBuf, instance: u32) -> io::Result<Self> {
        let mut files = Self {
            folder,
            instance,
            open: VecDeque::new(),
            at: 0,
            is_frozen: false,
        };
        files.open = files.look(None)?;
        Ok(files)
    }

    /// From here on no further than the files are now: nothing that is written later, and no newer file.
    pub fn freeze(&mut self) -> io::Result<()> {
        for open in &mut self.open {
            open.until = open.file.metadata()?.len();
        }
        self.is_frozen = true;
        Ok(())
    }

    /// On with whatever comes.
    pub fn thaw(&mut self) {
        for open in &mut self.open {
            open.until = u64::MAX;
        }
        self.is_frozen = false;
    }

    /// From the beginning of every file again. While they are frozen none was given up.
    pub fn rewind(&mut self) -> io::Result<()> {
        for open in &mut self.open {
            open.file.seek(SeekFrom::Start(0))?;
            open.position = 0;
        }
        self.at = 0;
        Ok(())
    }

    /// The next bytes.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Got> {
        let is_last = self.at + 1 == self.open.len();
        let Some(open) = self.open.get_mut(self.at) else {
            if !self.is_frozen {
                self.open = self.look(None)?;
            }
            return Ok(if self.open.is_empty() {
                Got::Nothing
            } else {
                Got::NextFile
            });
        };
        let count = open.read(buffer)?;
        if count > 0 {
            return Ok(Got::Bytes(count));
        }
        if is_last {
            if self.is_frozen {
                return Ok(Got::Nothing);
            }
            let inode = open.inode;
            let newest = std::fs::metadata(logs::file(&self.folder, self.instance)).map(|metadata| metadata.ino());
            if newest.is_ok_and(|newest| newest == inode) {
                return Ok(Got::Nothing);
            }
            // It was moved, and nothing more comes to it; but something may have come since it was read.
            let count = open.read(buffer)?;
            if count > 0 {
                return Ok(Got::Bytes(count));
            }
            let newer = self.look(Some(inode))?;
            if newer.is_empty() {
                // The next one is still to be made, or all are gone with their pod.
                return Ok(Got::Nothing);
            }
            self.open.extend(newer);
        }
        self.at += 1;
        if !self.is_frozen {
            self.open.drain(..self.at);
            self.at = 0;
        }
        Ok(Got::NextFile)
    }

    /// The files that are newer than this one, the oldest first; all of them if it is not there any more.
    fn look(&self, than: Option<u64>) -> io::Result<VecDeque<Open>> {
        let names = (0..=ROTATED).map(|number| match number {
            0 => logs::file(&self.folder, self.instance),
            number => logs::rotated(&self.folder, self.instance, number),
        });
        let mut found: VecDeque<Open> = VecDeque::new();
        for name in names {
            let file = match File::open(&name) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let inode = file.metadata()?.ino();
            if than == Some(inode) {
                break;
            }
            if !found.iter().any(|open| open.inode == inode) {
                found.push_front(Open {
                    file,
                    inode,
                    position: 0,
                    until: u64::MAX,
                });
            }
        }
        Ok(found)
    }
}

impl Open {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_sub(self.position);
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read(buffer.get_mut(..most).unwrap_or_default())?;
        self.position += u64::try_from(count).unwrap_or(0);
        Ok(count)
    }
}
