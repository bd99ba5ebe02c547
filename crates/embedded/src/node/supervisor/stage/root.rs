//! The private root of a container (spec 11.4, level `namespaces`).
//!
//! Called by the last stage, alone in a mount namespace of its own. Afterwards `/` is:
//!
//! - the image, or the host's root, read-only, with everything mounted in it read-only as well;
//! - `/tmp` (and `/run`, `/var/tmp` where the root is the host's), `/dev`, `/proc` of its own; the host's `/sys`, read-only;
//! - files of `/etc` that the pod has its own of, as links into one mounted folder, so that a rename there shows here;
//! - the pod's mounts, in their order; nothing where the host, or a mount, has the data folder;
//! - nothing of the old root: it is let go of.
//!
//! It is built on a scaffold: `base` is the image, made read-only once, from which everything else is bound and which
//! everything else inherits that from; `new` becomes the root.

use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{fchdir, pivot_root};
use rustix::fs::{Gid, Uid};
use std::os::fd::OwnedFd;

use super::mirror::{Mirrored, folder_for, mirror, names_in};
use super::mounting::{
    bind, by_number, find, flags_of, is_folder, make_folder, make_place, mount_new, open_beneath, open_in, open_source,
    path_of, read_only_below, restrict, touch,
};
use super::{Failure, gives_ids};
use crate::node::supervisor::control::{Order, RootOrder};
use crate::node::supervisor::protocol::Mount;

/// The folder inside the container through which it sees its own files of `/etc`.
const ETC_BEHIND: &str = ".usher-etc";

/// An empty folder, in place of one that no container sees.
const MASK: &str = "mode=755,size=4k";

/// Makes the root and moves into it.
pub(super) fn enter(root: &RootOrder, order: &Order) -> Result<(), Failure> {
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )
    .map_err(Failure::of("cannot keep mounts to ourselves"))?;
    // Opened before anything is mounted: what is mounted must not stand before them.
    let sources = root.mounts.iter().map(open_mount).collect::<Result<Vec<_>, _>>()?;
    let etc = root.etc.as_deref().map(open_source).transpose()?;
    let etc_names = root.etc.as_deref().map(names_in).transpose()?.unwrap_or_default();

    let scaffold = Scaffold::raise(root)?;
    let (new, mut closing) =
        scaffold.mirror_image(root, &order.workdir, etc.is_some().then_some(etc_names.as_slice()))?;
    for (folder, options) in temporary(root) {
        closing.extend(cover(&new, folder, options)?.filter(|_| root.read_only));
    }
    if root.image.is_none() {
        for folder in &root.masked {
            closing.extend(cover(&new, folder, MASK)?);
        }
    }
    scaffold.mount_devices()?;
    scaffold.mount_kernel(root, gives_ids(order.isolation))?;
    if let Some(etc) = etc {
        scaffold.mount_etc(&etc, &etc_names)?;
    }
    for (mount, source) in root.mounts.iter().zip(&sources) {
        mount_volume(&new, mount, source)?;
        let real = path_of(source)?;
        for hidden in &root.masked {
            // A volume from above what no container sees shows the rest.
            if let Ok(below) = hidden.strip_prefix(&real)
                && !below.as_os_str().is_empty()
            {
                closing.extend(cover(&new, &mount.target.join(below), MASK)?);
            }
        }
    }
    make_workdir(&new, order)?;
    // Only now: until here something may have had to be made in them, to mount over.
    for folder in &closing {
        restrict(&by_number(folder), flags_of(folder), MsFlags::MS_RDONLY)
            .map_err(Failure::of("cannot make the root read-only"))?;
    }
    turn_to(&new)
}

fn open_mount(mount: &Mount) -> Result<OwnedFd, Failure> {
    let volume = open_source(&mount.source)?;
    match &mount.below {
        None => Ok(volume),
        Some(below) => open_beneath(&volume, below).map_err(Failure::of(format_args!(
            "cannot open subPath {} of the volume for {}",
            below.display(),
            mount.target.display()
        ))),
    }
}

struct Scaffold {
    base: PathBuf,
    new: PathBuf,
}

impl Scaffold {
    fn raise(root: &RootOrder) -> Result<Scaffold, Failure> {
        let top = &root.scaffold;
        let image = root.image.as_deref().unwrap_or(Path::new("/"));
        mount_new("tmpfs", top, MsFlags::MS_NOSUID | MsFlags::MS_NODEV, "mode=755")?;
        // Or binding the host's root would bring in this scaffold again.
        mount(None::<&str>, top, None::<&str>, MsFlags::MS_UNBINDABLE, None::<&str>)
            .map_err(Failure::of("cannot keep the scaffold out of the root"))?;
        let scaffold = Scaffold {
            base: top.join("base"),
            new: top.join("new"),
        };
        make_folder(&scaffold.base)?;
        make_folder(&scaffold.new)?;
        bind(image, &scaffold.base)?;
        read_only_below(&scaffold.base)?;
        Ok(scaffold)
    }

    /// Puts the image into the new root, with room for all that will be mounted. Gives the new root and the folders that
    /// are still writable.
    fn mirror_image(
        &self,
        root: &RootOrder,
        workdir: &Path,
        etc: Option<&[std::ffi::OsString]>,
    ) -> Result<(OwnedFd, Vec<OwnedFd>), Failure> {
        let base = open_source(&self.base)?;
        let mut mirrored = Mirrored::new();
        let own = mirrored.entry(PathBuf::new()).or_default();
        own.extend(["tmp", "dev", "proc"].map(Into::into));
        own.extend([if root.image.is_none() { "run" } else { "sys" }.into()]);
        if let Some(names) = etc {
            mirrored.entry("etc".into()).or_default().extend(names.iter().cloned());
        }
        let mut given: Vec<PathBuf> = ["/tmp", "/dev", "/proc"].map(PathBuf::from).to_vec();
        if root.image.is_none() {
            given.extend(["/run", "/var/tmp"].map(PathBuf::from));
        }
        for wanted in root.mounts.iter().map(|mount| mount.target.as_path()).chain([workdir]) {
            if let Some(folder) = folder_for(&base, wanted, &given)? {
                mirrored.entry(folder).or_default();
            }
            given.push(wanted.to_owned());
        }
        let mut opened = Vec::new();
        for (folder, replaced) in &mirrored {
            opened.push(mirror(&self.base, &self.new, folder, replaced)?);
            if folder.as_os_str().is_empty() {
                for name in ["tmp", "dev", "proc", if root.image.is_none() { "run" } else { "sys" }] {
                    make_folder(&self.new.join(name))?;
                }
                let etc_folder = self.new.join("etc");
                if etc.is_some() && !etc_folder.exists() {
                    make_folder(&etc_folder)?;
                }
            }
        }
        let new = open_source(&self.new)?;
        Ok((new, opened))
    }

    fn mount_devices(&self) -> Result<(), Failure> {
        let dev = self.new.join("dev");
        mount_new("tmpfs", &dev, MsFlags::MS_NOSUID, "mode=755")?;
        for name in ["null", "zero", "full", "random", "urandom", "tty"] {
            let (from, to) = (Path::new("/dev").join(name), dev.join(name));
            if from.exists() {
                touch(&to)?;
                bind(&from, &to)?;
            }
        }
        for (name, leads_to) in [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
            ("ptmx", "pts/ptmx"),
        ] {
            std::os::unix::fs::symlink(leads_to, dev.join(name)).map_err(Failure::of("cannot make links in /dev"))?;
        }
        let (shm, pts) = (dev.join("shm"), dev.join("pts"));
        make_folder(&shm)?;
        mount_new("tmpfs", &shm, MsFlags::MS_NOSUID | MsFlags::MS_NODEV, "mode=1777")?;
        make_folder(&pts)?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
        mount_new("devpts", &pts, flags, "newinstance,ptmxmode=0666,mode=620")
    }

    fn mount_kernel(&self, root: &RootOrder, with_real_root: bool) -> Result<(), Failure> {
        let strict = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        let proc = self.new.join("proc");
        mount_new("proc", &proc, strict, "")?;
        if with_real_root {
            // These ask only for uid 0, not for a power that was taken away: the machine can be halted through them.
            for name in ["sys", "sysrq-trigger", "irq", "bus", "fs"] {
                let place = proc.join(name);
                if place.exists() {
                    bind(&place, &place)?;
                    restrict(&place, strict, MsFlags::MS_RDONLY)
                        .map_err(Failure::of(format_args!("cannot make /proc/{name} read-only")))?;
                }
            }
            for name in ["kcore", "keys", "timer_list"] {
                let place = proc.join(name);
                if place.exists() {
                    bind(Path::new("/dev/null"), &place)?;
                }
            }
        }
        if root.image.is_some() {
            let sys = self.new.join("sys");
            bind(Path::new("/sys"), &sys)?;
            read_only_below(&sys)?;
        }
        Ok(())
    }

    fn mount_etc(&self, etc: &OwnedFd, names: &[std::ffi::OsString]) -> Result<(), Failure> {
        let behind = self.new.join(ETC_BEHIND);
        make_folder(&behind)?;
        bind(&by_number(etc), &behind)?;
        read_only_below(&behind)?;
        for name in names {
            let link = self.new.join("etc").join(name);
            std::os::unix::fs::symlink(Path::new("..").join(ETC_BEHIND).join(name), &link)
                .map_err(Failure::of(format_args!("cannot make /etc/{}", name.display())))?;
        }
        Ok(())
    }
}

/// The folders that a container may write to, with how they are mounted. The host's `/run` has sockets that lead to the
/// host's own services; an image's has nothing.
fn temporary(root: &RootOrder) -> impl Iterator<Item = (&'static Path, &'static str)> {
    let of_the_host = ["/run", "/var/tmp"].into_iter().filter(|_| root.image.is_none());
    ["/tmp"]
        .into_iter()
        .chain(of_the_host)
        .map(|folder| (Path::new(folder), "mode=1777"))
}

/// An empty folder over one that the root shows and the container must not see. None: the root does not show it.
fn cover(new: &OwnedFd, folder: &Path, options: &str) -> Result<Option<OwnedFd>, Failure> {
    // It may be a link in the host's root, so it is opened as one inside.
    let found = find(new, folder)?;
    if !found.missing.is_empty() || !is_folder(&found.deepest) {
        return Ok(None);
    }
    let place = by_number(&found.deepest);
    mount_new("tmpfs", &place, MsFlags::MS_NOSUID | MsFlags::MS_NODEV, options)?;
    open_in(new, folder).map(Some).map_err(Failure::of(format_args!(
        "cannot open what covers {}",
        folder.display()
    )))
}

fn mount_volume(new: &OwnedFd, mount: &Mount, source: &OwnedFd) -> Result<(), Failure> {
    let place = make_place(new, &mount.target, is_folder(source))?;
    bind(&by_number(source), &by_number(&place))?;
    // Opened again: now this is what was mounted there, no longer what it covers.
    let mounted = open_in(new, &mount.target).map_err(Failure::of(format_args!(
        "cannot open the mount at {}",
        mount.target.display()
    )))?;
    let read_only = if mount.read_only {
        MsFlags::MS_RDONLY
    } else {
        MsFlags::empty()
    };
    restrict(
        &by_number(&mounted),
        flags_of(&mounted),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV | read_only,
    )
    .map_err(Failure::of(format_args!(
        "cannot restrict the mount at {}",
        mount.target.display()
    )))?;
    if mount.read_only {
        read_only_below(&path_of(&mounted)?)?;
    }
    Ok(())
}

/// A working directory that is nowhere in the image is made, and given to who will work in it.
fn make_workdir(new: &OwnedFd, order: &Order) -> Result<(), Failure> {
    let found = find(new, &order.workdir)?;
    if found.missing.is_empty() {
        return Ok(());
    }
    let place = make_place(new, &order.workdir, true)?;
    if gives_ids(order.isolation) {
        let (uid, gid) = (Uid::from_raw(order.uid), Gid::from_raw(order.gid));
        rustix::fs::chownat(
            rustix::fs::CWD,
            by_number(&place).as_path(),
            Some(uid),
            Some(gid),
            rustix::fs::AtFlags::empty(),
        )
        .map_err(Failure::of(format_args!(
            "cannot give away {}",
            order.workdir.display()
        )))?;
    }
    Ok(())
}

/// Makes it the root, and lets go of the old one.
fn turn_to(new: &OwnedFd) -> Result<(), Failure> {
    fchdir(new)
        .and_then(|()| pivot_root(".", "."))
        // The old root is now mounted over the new one, at the very place where we are.
        .and_then(|()| umount2(".", MntFlags::MNT_DETACH))
        .and_then(|()| nix::unistd::chdir("/"))
        .map_err(Failure::of("cannot turn to the new root"))
}
