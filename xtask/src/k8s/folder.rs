//! The one folder a control plane lives in: 0700, and everything secret in it 0600. Several may run side by side, each in
//! its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::{interrupt, paths};

/// Longest folder path: a socket's path must stay below 108 bytes (`sun_path`), and `/etcd.sock` comes after it.
const PATH_LIMIT_BYTES: usize = 96;

/// How long an interrupted command waits for another one that is being interrupted as well.
const STOPPING_LOCK_LIMIT: Duration = Duration::from_secs(10);

/// Names of what we make there, so that `down` removes these and nothing else a user may have put beside them.
const OWNED: [&str; 25] = [
    "audit-policy.yaml",
    "ca.crt",
    "containerd.log",
    "containerd.sock",
    "containerd.sock.ttrpc",
    "controller-manager.kubeconfig",
    "etcd",
    "etcd.log",
    "etcd.sock",
    "flexvolume",
    "kube-apiserver.log",
    "kube-controller-manager.log",
    "kube-scheduler.log",
    "kubeconfig",
    "kubelet.kubeconfig",
    "kubelet.log",
    "node",
    "peer.sock",
    "scheduler.kubeconfig",
    "server.crt",
    "server.key",
    "service-accounts.key",
    "service-accounts.pub",
    "stage.json",
    "tokens.csv",
];
const STATE: &str = "state.json";
const LOCK: &str = "lock";

#[derive(Debug, Clone)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// `--dir`, or the default one in the cache folder. It need not exist.
    pub(crate) fn locate(dir: Option<PathBuf>) -> Result<Self> {
        let path = match dir {
            Some(dir) => dir,
            None => paths::cache()?.join("k8s/default"),
        };
        let path = std::path::absolute(&path).map_err(Error::at("resolve", &path))?;
        // Without symlinks, since that is how /proc shows a process's working folder.
        Ok(Self {
            path: path.canonicalize().unwrap_or(path),
        })
    }

    pub(crate) fn create(self) -> Result<Self> {
        let empty = self
            .path
            .read_dir()
            .map_or(true, |mut entries| entries.next().is_none());
        if !empty && !self.is_ours() {
            let path = self.path.display();
            return Err(Error::Machine(format!(
                "{path} holds other files; choose an empty folder with --dir"
            )));
        }
        if self.path.as_os_str().len() > PATH_LIMIT_BYTES {
            return Err(Error::Machine(format!(
                "{} is too long a path for sockets ({PATH_LIMIT_BYTES} bytes at most); choose a shorter one with --dir",
                self.path.display()
            )));
        }
        paths::create_private_folder(&self.path)?;
        let folder = Self::locate(Some(self.path))?;
        let lock = folder.file(LOCK);
        File::create(&lock).map_err(Error::at("create", &lock))?;
        Ok(folder)
    }

    /// Made by `create`, not yet cleared: what we may remove things from.
    pub(crate) fn is_ours(&self) -> bool {
        self.file(LOCK).exists()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.file(STATE)
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.file("kubeconfig")
    }

    /// One change at a time. The lock goes with the process that holds it.
    pub(crate) fn lock(&self) -> Result<File> {
        self.lock_with(interrupt::pause)
    }

    /// For stopping, which an interrupt leads to and must not end.
    pub(crate) fn lock_for_stopping(&self) -> Result<File> {
        let deadline = Instant::now() + STOPPING_LOCK_LIMIT;
        self.lock_with(|time| {
            std::thread::sleep(time);
            if Instant::now() < deadline {
                Ok(())
            } else {
                interrupt::check()
            }
        })
    }

    fn lock_with(&self, pause: impl Fn(Duration) -> Result<()>) -> Result<File> {
        let path = self.file(LOCK);
        let file = File::create(&path).map_err(|_| Error::NotRunning(self.path.clone()))?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(std::fs::TryLockError::WouldBlock) => pause(Duration::from_millis(50))?,
                Err(std::fs::TryLockError::Error(error)) => return Err(Error::at("lock", &path)(error)),
            }
        }
    }

    /// Everything but the logs and the lock: a control plane that failed to start, with its story kept.
    pub(crate) fn clear_but_logs(&self) -> Result<()> {
        paths::remove(&self.state())?;
        OWNED
            .iter()
            .filter(|name| !name.ends_with(".log"))
            .try_for_each(|name| paths::remove(&self.file(name)))
    }

    /// Everything of ours, and the folder itself if nothing else is in it. The lock goes last.
    pub(crate) fn clear(&self) -> Result<()> {
        self.clear_but_logs()?;
        for name in OWNED {
            paths::remove(&self.file(name))?;
        }
        for entry in self.path.read_dir().map_err(Error::at("read", &self.path))?.flatten() {
            // The API server renames its audit log when it is full: `audit-2026-….log`.
            let name = entry.file_name();
            if name
                .to_str()
                .is_some_and(|name| name.starts_with("audit") && name.ends_with(".log"))
            {
                paths::remove(&entry.path())?;
            }
        }
        paths::remove(&self.file(LOCK))?;
        match std::fs::remove_dir(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::DirectoryNotEmpty => {
                Err(Error::at("remove", &self.path)(error))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn clearing_leaves_what_is_not_ours() {
        let temporary = paths::temporary_folder("usher-folder").unwrap();
        let folder = Folder::locate(Some(temporary.join("k8s"))).unwrap().create().unwrap();
        assert_eq!(folder.path().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let _lock = folder.lock().unwrap();
        for name in ["tokens.csv", "audit.log", "audit-2026.log", "notes.txt", "state.json"] {
            paths::write_private(&folder.file(name), "x").unwrap();
        }
        assert_eq!(
            folder.file("tokens.csv").metadata().unwrap().permissions().mode() & 0o777,
            0o600
        );
        folder.clear().unwrap();
        let left: Vec<_> = folder
            .path()
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["notes.txt"]);
        paths::remove(&folder.file("notes.txt")).unwrap();
        folder.clear().unwrap();
        assert!(!folder.path().exists());
        paths::remove(&temporary).unwrap();
    }

    #[test]
    fn a_folder_with_other_files_is_refused() {
        let temporary = paths::temporary_folder("usher-folder").unwrap();
        paths::write_private(&temporary.join("thesis.txt"), "x").unwrap();
        let refused = Folder::locate(Some(temporary.clone())).unwrap().create().unwrap_err();
        assert!(refused.to_string().contains("--dir"), "{refused}");
        paths::remove(&temporary).unwrap();
    }
}
