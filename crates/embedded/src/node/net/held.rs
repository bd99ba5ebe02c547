//! Taking a block, and keeping it while `usher` or one of its pods lives (W1). Linux: it is an abstract Unix socket.
//!
//! A block is taken by the name `usher-net-B`, which only one socket on the machine can have, and which is free again when
//! the last descriptor of it is closed. `usher` holds one; every supervisor inherits one ([`HeldBlock::for_supervisor`]),
//! so a block stays taken while a pod lives, whatever became of `usher`.
//!
//! A later start of the same data folder must have the same block, although its own pods may still hold the name. So the
//! folder remembers (file `block`) which sockets it made: their numbers in `/proc/net/unix`, and the boot that these are
//! of. A socket of that name with one of those numbers is ours by descent, and nobody can forge that. We cannot have
//! another descriptor of it, and when the old pods have gone it would go with them and leave the new ones without; so this
//! start adds a socket of its own under the name `usher-net-B.N`, and whoever takes `usher-net-B` looks whether
//! there is any of the kind that is not his, and goes on to the next block if so.
//!
//! The data folder is locked by its one `usher`, so no two starts of one folder meet here.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use crate::node::net::Block;
use crate::serve::folder::replace;

const FILE: &str = "block";
/// Starts of one folder whose pods live at the same time; each has a socket.
const GENERATIONS: u32 = 1_000;

/// Why there is no block.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    #[error("all blocks 127.64.0.0/16 to 127.191.0.0/16 are taken by other clusters: stop some of them")]
    AllTaken,
    #[error("a socket for the cluster's addresses cannot be made: {0}")]
    Socket(io::Error),
    #[error("{file}: {error}")]
    File { file: PathBuf, error: io::Error },
}

/// A block that is ours until this and every supervisor's descriptor is closed.
#[derive(Debug)]
pub struct HeldBlock {
    block: Block,
    socket: UnixListener,
}

impl HeldBlock {
    /// The block that this data folder had, or else the first free one. The folder is there, and ours.
    pub fn take(data: &Path) -> Result<Self, BlockError> {
        let file = data.join(FILE);
        let kept = Kept::read(&file)?;
        let sockets = Sockets::read();
        let path = fs::canonicalize(data).unwrap_or_else(|_| data.to_owned());
        let remembered = kept.as_ref().map(|kept| kept.block);
        for block in remembered.into_iter().chain(Block::from_path(&path)) {
            let ours: &[u64] = kept
                .as_ref()
                .filter(|kept| kept.block == block)
                .map(|kept| kept.sockets.as_slice())
                .unwrap_or_default();
            if let Some(held) = Self::try_take(block, ours, &sockets)? {
                held.remember(&file, ours, &sockets)?;
                return Ok(held);
            }
        }
        Err(BlockError::AllTaken)
    }

    #[must_use]
    pub fn block(&self) -> Block {
        self.block
    }

    /// A descriptor that holds the block, to be inherited by a supervisor: as its standard input, say. It is of no other
    /// use to it. It closes on exec, like all of ours, unless it is made one of a command's streams.
    pub fn for_supervisor(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone().map(OwnedFd::from)
    }

    /// `None`: it is somebody else's.
    fn try_take(block: Block, ours: &[u64], before: &Sockets) -> Result<Option<Self>, BlockError> {
        let is_ours = before.of(block).any(|(_, number)| ours.contains(&number));
        if is_ours {
            for generation in 0..GENERATIONS {
                if let Some(socket) = bind(&name(block, generation))? {
                    return Ok(Some(Self { block, socket }));
                }
            }
            return Ok(None);
        }
        let Some(socket) = bind(&name(block, 0))? else {
            return Ok(None);
        };
        let mine = number(&socket)?;
        // Read anew: only what is there after we have the name counts.
        let is_alone = Sockets::read().of(block).all(|(_, number)| number == mine);
        Ok(is_alone.then_some(Self { block, socket }))
    }

    /// Ours are this one, and those of earlier starts that still live.
    fn remember(&self, file: &Path, ours: &[u64], before: &Sockets) -> Result<(), BlockError> {
        let living = before.of(self.block).map(|(_, number)| number);
        let mut sockets: Vec<u64> = living.filter(|number| ours.contains(number)).collect();
        sockets.push(number(&self.socket)?);
        let kept = Kept {
            block: self.block,
            sockets,
        };
        kept.write(file)
    }
}

fn name(block: Block, generation: u32) -> String {
    match generation {
        0 => format!("usher-net-{}", block.number()),
        later => format!("usher-net-{}.{later}", block.number()),
    }
}

/// `None`: the name is taken.
fn bind(name: &str) -> Result<Option<UnixListener>, BlockError> {
    let address = SocketAddr::from_abstract_name(name.as_bytes()).map_err(BlockError::Socket)?;
    match UnixListener::bind_addr(&address) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(BlockError::Socket(error)),
    }
}

/// The socket's number, as `/proc/net/unix` has it.
fn number(socket: &UnixListener) -> Result<u64, BlockError> {
    let descriptor = socket.try_clone().map(OwnedFd::from).map_err(BlockError::Socket)?;
    let metadata = fs::File::from(descriptor).metadata().map_err(BlockError::Socket)?;
    Ok(metadata.ino())
}

/// The blocks' sockets on this machine: name and number.
#[derive(Debug, Default)]
struct Sockets(Vec<(String, u64)>);

impl Sockets {
    /// None where the system does not tell: then nothing is known to be ours, and a name in use is another's.
    fn read() -> Self {
        Self::parse(&fs::read_to_string("/proc/net/unix").unwrap_or_default())
    }

    /// `Num RefCount Protocol Flags Type St Inode Path`; an abstract name is shown with an @ in front.
    fn parse(table: &str) -> Self {
        let row = |line: &str| -> Option<(String, u64)> {
            let mut words = line.split_whitespace();
            let number = words.nth(6)?.parse().ok()?;
            let name = words.next()?.strip_prefix('@')?;
            name.starts_with("usher-net-").then(|| (name.to_owned(), number))
        };
        Self(table.lines().filter_map(row).collect())
    }

    fn of(&self, block: Block) -> impl Iterator<Item = (&str, u64)> {
        let first = name(block, 0);
        self.0.iter().filter_map(move |(name, number)| {
            let rest = name.strip_prefix(&first)?;
            (rest.is_empty() || rest.starts_with('.')).then_some((name.as_str(), *number))
        })
    }
}

/// What a data folder remembers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    block: Block,
    /// Of this boot.
    sockets: Vec<u64>,
}

impl Kept {
    /// `B boot number…` in one line. What cannot be read is as if it were not there: then the folder gets a block anew.
    fn read(file: &Path) -> Result<Option<Self>, BlockError> {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) => {
                return Ok(None);
            }
            Err(error) => {
                let file = file.to_owned();
                return Err(BlockError::File { file, error });
            }
        };
        let mut words = text.split_whitespace();
        let block = words.next().and_then(|word| word.parse().ok()).and_then(Block::new);
        let is_this_boot = words.next() == Some(boot().as_str());
        Ok(block.map(|block| Self {
            block,
            sockets: words
                .filter(|_| is_this_boot)
                .filter_map(|word| word.parse().ok())
                .collect(),
        }))
    }

    fn write(&self, file: &Path) -> Result<(), BlockError> {
        let mut text = format!("{} {}", self.block.number(), boot());
        for number in &self.sockets {
            text.push_str(&format!(" {number}"));
        }
        text.push('\n');
        replace(file, text.as_bytes(), 0o600, None).map_err(|error| BlockError::File {
            file: file.to_owned(),
            error,
        })
    }
}

/// Which boot this is: sockets' numbers begin anew with each.
fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let id = id.trim();
    if id.is_empty() { "-".to_owned() } else { id.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w1_clusters_side_by_side_have_different_blocks() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = HeldBlock::take(one.path()).unwrap();
        // The same wish, which is another's already.
        let wish = format!("{} -\n", first.block().number());
        fs::write(two.path().join(FILE), wish).unwrap();
        let second = HeldBlock::take(two.path()).unwrap();
        assert_ne!(first.block(), second.block());
    }

    #[test]
    fn w1_a_folder_has_its_block_again_while_its_own_pods_hold_it() {
        let folder = tempfile::tempdir().unwrap();
        let first = HeldBlock::take(folder.path()).unwrap();
        let block = first.block();
        let pod = first.for_supervisor().unwrap();
        drop(first);
        let second = HeldBlock::take(folder.path()).unwrap();
        assert_eq!(second.block(), block);
        let young_pod = second.for_supervisor().unwrap();
        drop(second);
        // The old pod goes, and the young one alone holds the block: nobody else has it.
        drop(pod);
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join(FILE), format!("{} -\n", block.number())).unwrap();
        assert_ne!(HeldBlock::take(other.path()).unwrap().block(), block);
        let third = HeldBlock::take(folder.path()).unwrap();
        assert_eq!(third.block(), block);
        drop((young_pod, third));
    }

    #[test]
    fn w1_a_block_whose_last_pod_went_is_free_for_others() {
        let folder = tempfile::tempdir().unwrap();
        let held = HeldBlock::take(folder.path()).unwrap();
        let block = held.block();
        let pod = held.for_supervisor().unwrap();
        drop(held);
        let mine = Kept::read(&folder.path().join(FILE)).unwrap().unwrap().sockets;
        // By number: another test may have the name the moment it is free.
        let is_held = || Sockets::read().of(block).any(|(_, number)| mine.contains(&number));
        assert!(is_held());
        drop(pod);
        assert!(!is_held());
    }

    #[test]
    fn w1_a_number_of_another_boot_or_a_spoiled_file_proves_nothing() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = HeldBlock::take(one.path()).unwrap();
        let text = fs::read_to_string(one.path().join(FILE)).unwrap();
        let older = text.replace(&boot(), "00000000-0000-0000-0000-000000000000");
        for kept in [older.as_str(), "no block", "300 -", ""] {
            fs::write(two.path().join(FILE), kept).unwrap();
            let second = HeldBlock::take(two.path()).unwrap();
            assert_ne!(second.block(), first.block(), "{kept:?}");
        }
    }

    #[test]
    fn the_systems_table_of_sockets_is_read_by_name() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 12345 @usher-net-64\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 12346 @usher-net-64.2\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 12347 @usher-net-640\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 12348\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 12349 /run/usher-net-64\n";
        let sockets = Sockets::parse(table);
        let of: Vec<u64> = sockets.of(Block::default()).map(|(_, number)| number).collect();
        assert_eq!(of, [12345, 12346]);
    }
}
