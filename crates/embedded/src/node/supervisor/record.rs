//! The state on disk: written, synced and swapped in before anybody is told (N1).
//!
//! Two files of fixed room change places, `state.json` and `state.json.spare`: the spare is overwritten where it lies
//! and then swapped in. A full disk therefore does not stop the record, since no block is needed that is not there
//! already. Where a write fails all the same, the pod runs on, the state says so, and it is tried again; only a *start*
//! is refused then, because one that is not written down could be asked for again and run twice.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{RenameFlags, renameat_with};

use super::protocol::{PodPlan, PodState, ProcessMark, STATE_FILE};

const SPARE_FILE: &str = "state.json.spare";
/// Room comes in these pieces. A pod of ten containers with five attempts each fits into the first.
const ROOM_BYTES: usize = 16 * 1024;
/// Attempts kept per container: the latest, the one before, and a few for whoever looks into the folder.
const ATTEMPTS_KEPT: usize = 8;

#[derive(Debug)]
pub(super) struct Record {
    folder: PathBuf,
    handle: OwnedFd,
    state: PodState,
    /// Grows with each change, so that watchers know what they have not seen.
    version: u64,
}

impl Record {
    /// Takes over what an earlier supervisor wrote. What had not ended then has ended now, nobody knows how.
    pub(super) fn open(folder: &Path, handle: OwnedFd, plan: &PodPlan, supervisor: ProcessMark) -> io::Result<Record> {
        let mut containers = read(folder)?.map(|state| state.containers).unwrap_or_default();
        for attempt in containers.values_mut().flat_map(|attempts| attempts.values_mut()) {
            attempt.phase.lose(Timestamp::now());
        }
        let state = PodState {
            uid: plan.uid.clone(),
            supervisor,
            containers,
            not_durable: None,
        };
        let mut record = Record {
            folder: folder.to_owned(),
            handle,
            state,
            version: 0,
        };
        // Both files get their room now, while there is some.
        record.write()?;
        record.write()?;
        Ok(record)
    }

    pub(super) fn state(&self) -> &PodState {
        &self.state
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Changes the state and writes it down. The error is for those who must not go on without.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut PodState)) -> io::Result<()> {
        change(&mut self.state);
        self.version += 1;
        for attempts in self.state.containers.values_mut() {
            while attempts.len() > ATTEMPTS_KEPT
                && attempts
                    .first_key_value()
                    .is_some_and(|(_, oldest)| oldest.phase.has_ended())
            {
                attempts.pop_first();
            }
        }
        self.write_or_say_so()
    }

    /// Tries again what could not be written.
    pub(super) fn catch_up(&mut self) {
        if self.state.not_durable.is_some() && self.write_or_say_so().is_ok() {
            self.version += 1;
        }
    }

    fn write_or_say_so(&mut self) -> io::Result<()> {
        let said = self.state.not_durable.take();
        self.write().inspect_err(|error| {
            let text = format!("cannot write {}: {error}", self.folder.join(STATE_FILE).display());
            if said.as_ref() != Some(&text) {
                eprintln!("{} {text}", Timestamp::now());
            }
            self.state.not_durable = Some(text);
        })
    }

    fn write(&mut self) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(&self.state)?;
        text.push(b'\n');
        let spare = self.open_spare()?;
        let there = usize::try_from(spare.metadata()?.len()).unwrap_or(ROOM_BYTES);
        // Blanks after a JSON text mean nothing, and the room stays ours.
        text.resize(text.len().next_multiple_of(ROOM_BYTES).max(there), b' ');
        spare.write_all_at(&text, 0)?;
        spare.sync_data()?;
        let folder = self.handle.as_fd();
        match renameat_with(folder, SPARE_FILE, folder, STATE_FILE, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(()),
            // There is no state yet, or this file system cannot swap.
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                Ok(rustix::fs::renameat(folder, SPARE_FILE, folder, STATE_FILE)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn open_spare(&self) -> io::Result<File> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.folder.join(SPARE_FILE))
    }
}

/// What a pod's folder says, if a supervisor ever wrote there.
pub(super) fn read(folder: &Path) -> io::Result<Option<PodState>> {
    match std::fs::read(folder.join(STATE_FILE)) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
