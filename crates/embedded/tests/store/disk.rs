//! A disk in memory. It can note every call, fail one, fill up, and hold its syncs; and it can be rebuilt as a crash
//! after any call would have left it.

use redb::StorageBackend;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use usher_embedded::store::Disk;

#[derive(Clone, Debug)]
pub enum Call {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
    Sync,
}

/// Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct SimDisk(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    medium: Mutex<Medium>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub struct Medium {
    pub image: Vec<u8>,
    /// All calls that change it, if they are noted.
    pub calls: Option<Vec<Call>>,
    pub bytes_read: usize,
    pub capacity: Option<usize>,
    /// Fails when it gets to 0, once.
    pub fails_in: Option<usize>,
    /// How many calls there were that can fail.
    pub count: usize,
    pub syncs_held: bool,
}

impl SimDisk {
    pub fn holding(image: Vec<u8>) -> SimDisk {
        let disk = SimDisk::default();
        disk.medium().image = image;
        disk
    }

    pub fn medium(&self) -> MutexGuard<'_, Medium> {
        self.0.medium.lock().unwrap()
    }

    pub fn release_syncs(&self) {
        self.medium().syncs_held = false;
        self.0.changed.notify_all();
    }

    fn change(&self, call: Call) -> io::Result<()> {
        let mut medium = self.medium();
        while medium.syncs_held && matches!(call, Call::Sync) {
            medium = self.0.changed.wait(medium).unwrap();
        }
        medium.count += 1;
        if let Some(rest) = medium.fails_in {
            medium.fails_in = rest.checked_sub(1);
            if rest == 0 {
                return Err(io::Error::other("the disk made a strange noise"));
            }
        }
        let end = match &call {
            Call::Write { offset, bytes } => offset + bytes.len(),
            Call::SetLen(len) => *len,
            Call::Sync => 0,
        };
        if medium.capacity.is_some_and(|capacity| end > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        apply(&mut medium.image, &call);
        if let Some(calls) = &mut medium.calls {
            calls.push(call);
        }
        Ok(())
    }
}

pub fn apply(image: &mut Vec<u8>, call: &Call) {
    match call {
        Call::Write { offset, bytes } => {
            let end = offset + bytes.len();
            if image.len() < end {
                image.resize(end, 0);
            }
            image[*offset..end].copy_from_slice(bytes);
        }
        Call::SetLen(len) => image.resize(*len, 0),
        Call::Sync => {}
    }
}

impl Disk for SimDisk {
    fn path(&self) -> &Path {
        Path::new("/sim/store.redb")
    }

    fn backend(&self) -> io::Result<Box<dyn StorageBackend>> {
        Ok(Box::new(self.clone()))
    }
}

impl StorageBackend for SimDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.medium().image.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut medium = self.medium();
        let offset = offset as usize;
        let found = medium
            .image
            .get(offset..offset + out.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        medium.bytes_read += out.len();
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Call::SetLen(len as usize))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.change(Call::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(Call::Write {
            offset: offset as usize,
            bytes: data.to_vec(),
        })
    }
}
