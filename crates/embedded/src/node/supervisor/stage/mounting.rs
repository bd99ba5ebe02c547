//! Mounts, each call with the sentence that says what it was for; and paths that cannot lead out of a root.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use nix::mount::{MsFlags, mount};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};

use super::Failure;

/// The way to an open file that no rename can change.
pub(super) fn by_number(file: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}

/// Opens a host path without following a link in its last part.
pub(super) fn open_source(path: &Path) -> Result<OwnedFd, Failure> {
    openat(
        CWD,
        path,
        OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
    )
    .map_err(Failure::of(format_args!("cannot open {}", path.display())))
}

/// Opens what is below `folder`, links resolved as if `folder` were the root, so never out of it.
pub(super) fn open_in(folder: &impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    let relative = if relative.as_os_str().is_empty() {
        Path::new(".")
    } else {
        relative
    };
    openat2(
        folder,
        relative,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
    )
}

/// The same for what must stay below by itself (`subPath`): a link that leads out is an error, not turned inwards.
pub(super) fn open_beneath(folder: &impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    openat2(
        folder,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
    )
}

pub(super) fn is_folder(file: &OwnedFd) -> bool {
    rustix::fs::fstat(file)
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory)
}

/// The parts of an absolute path, `.` and doubled slashes gone. `..` is refused: nobody who means well writes it.
pub(super) fn parts(path: &Path) -> Result<Vec<&OsStr>, Failure> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err(Failure(format!("{} must not contain \"..\"", path.display())));
            }
        }
    }
    Ok(parts)
}

/// How much of an absolute path is there already below `root`.
pub(super) struct Found<'a> {
    /// The deepest part that exists.
    pub deepest: OwnedFd,
    /// The rest.
    pub missing: Vec<&'a OsStr>,
}

pub(super) fn find<'a>(root: &impl AsFd, path: &'a Path) -> Result<Found<'a>, Failure> {
    let parts = parts(path)?;
    let failed = |why: &str| Failure(format!("cannot look for {}: {why}", path.display()));
    for existing in (0..=parts.len()).rev() {
        let (present, missing) = parts.split_at_checked(existing).unwrap_or_default();
        let prefix: PathBuf = present.iter().collect();
        match open_in(root, &prefix) {
            Ok(deepest) => {
                return Ok(Found {
                    deepest,
                    missing: missing.to_vec(),
                });
            }
            Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(failed(&error.to_string())),
        }
    }
    Err(failed("its root is gone"))
}

/// Opens a place below `root`, made first if it is missing: a folder, or an empty file.
pub(super) fn make_place(root: &impl AsFd, path: &Path, folder: bool) -> Result<OwnedFd, Failure> {
    let Found { mut deepest, missing } = find(root, path)?;
    let failed = |error: rustix::io::Errno| Failure(format!("cannot make {}: {error}", path.display()));
    let count = missing.len();
    for (index, part) in missing.into_iter().enumerate() {
        if folder || index + 1 < count {
            mkdirat(&deepest, part, Mode::from_raw_mode(0o755)).map_err(failed)?;
        } else {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            openat(&deepest, part, flags, Mode::from_raw_mode(0o644)).map_err(failed)?;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        deepest = openat(&deepest, part, flags, Mode::empty()).map_err(failed)?;
    }
    if is_folder(&deepest) == folder {
        Ok(deepest)
    } else {
        let (there, wanted) = if folder {
            ("a file", "a folder")
        } else {
            ("a folder", "a file")
        };
        Err(Failure(format!(
            "{} is {there} in the image and {wanted} in the pod",
            path.display()
        )))
    }
}

/// Binds what `source` shows, with what is mounted in it, to `target`.
pub(super) fn bind(source: &Path, target: &Path) -> Result<(), Failure> {
    mount(
        Some(source),
        target,
        None::<&str>,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        None::<&str>,
    )
    .map_err(Failure::of(format_args!(
        "cannot mount {} at {}",
        source.display(),
        target.display()
    )))
}

/// A file system of the kernel's own.
pub(super) fn mount_new(kind: &str, target: &Path, flags: MsFlags, options: &str) -> Result<(), Failure> {
    mount(Some(kind), target, Some(kind), flags, Some(options)).map_err(Failure::of(format_args!(
        "cannot mount a {kind} at {}",
        target.display()
    )))
}

/// Makes one mount more strict. What was strict about it stays so: a user namespace may not take that away.
pub(super) fn restrict(target: &Path, present: MsFlags, wanted: MsFlags) -> nix::Result<()> {
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | present | wanted;
    mount(None::<&str>, target, None::<&str>, flags, None::<&str>)
}

/// The flags of the mount that an open file lies on.
pub(super) fn flags_of(file: &impl AsFd) -> MsFlags {
    use nix::sys::statvfs::{FsFlags, fstatvfs};
    let Ok(state) = fstatvfs(file) else {
        return MsFlags::empty();
    };
    let pairs = [
        (FsFlags::ST_RDONLY, MsFlags::MS_RDONLY),
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ];
    pairs
        .into_iter()
        .filter(|(is, _)| state.flags().contains(*is))
        .map(|(_, flag)| flag)
        .collect()
}

/// Makes the mount at `top` read-only, and every mount in it.
pub(super) fn read_only_below(top: &Path) -> Result<(), Failure> {
    let table = fs::read("/proc/self/mountinfo").map_err(Failure::of("cannot read /proc/self/mountinfo"))?;
    for (place, flags) in table.split(|byte| *byte == b'\n').filter_map(parse_mount) {
        if !place.starts_with(top) || flags.contains(MsFlags::MS_RDONLY) {
            continue;
        }
        match restrict(&place, flags, MsFlags::MS_RDONLY) {
            Ok(()) => {}
            // Something else is mounted over it, or we may not look there: then the container cannot either.
            Err(_) if place != top => {}
            Err(error) => return Err(Failure(format!("cannot make {} read-only: {error}", top.display()))),
        }
    }
    Ok(())
}

/// The place and the flags of one line of `mountinfo`.
fn parse_mount(line: &[u8]) -> Option<(PathBuf, MsFlags)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let place = PathBuf::from(OsString::from_vec(unescape(fields.nth(4)?)));
    let flags = fields
        .next()?
        .split(|byte| *byte == b',')
        .map(|option| match option {
            b"ro" => MsFlags::MS_RDONLY,
            b"nosuid" => MsFlags::MS_NOSUID,
            b"nodev" => MsFlags::MS_NODEV,
            b"noexec" => MsFlags::MS_NOEXEC,
            b"noatime" => MsFlags::MS_NOATIME,
            b"nodiratime" => MsFlags::MS_NODIRATIME,
            b"relatime" => MsFlags::MS_RELATIME,
            _ => MsFlags::empty(),
        })
        .collect();
    Some((place, flags))
}

/// Blanks and backslashes of a path are written as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after
            .first_chunk::<3>()
            .filter(|digits| byte == b'\\' && digits.iter().all(u8::is_ascii_digit));
        match digits {
            Some(digits) => {
                let value = digits
                    .iter()
                    .fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                plain.push(u8::try_from(value).unwrap_or(b'?'));
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    plain
}

/// An empty file to mount over.
pub(super) fn touch(path: &Path) -> Result<(), Failure> {
    File::create(path)
        .map(drop)
        .map_err(Failure::of(format_args!("cannot make {}", path.display())))
}

/// A folder of our own making.
pub(super) fn make_folder(path: &Path) -> Result<(), Failure> {
    fs::create_dir(path).map_err(Failure::of(format_args!("cannot make {}", path.display())))
}

/// Where an open file is, as this process sees it.
pub(super) fn path_of(file: &OwnedFd) -> Result<PathBuf, Failure> {
    fs::read_link(by_number(file)).map_err(Failure::of("cannot find out where a folder is"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_may_have_blanks() {
        let line = br"36 35 98:0 /mnt1 /mnt/my\040disk\134x rw,noatime,nosuid master:1 - ext3 /dev/root rw";
        let (place, flags) = parse_mount(line).unwrap();
        assert_eq!(place, Path::new(r"/mnt/my disk\x"));
        assert_eq!(flags, MsFlags::MS_NOATIME | MsFlags::MS_NOSUID);
    }

    #[test]
    fn a_path_with_dots_is_refused_where_it_could_lead_out() {
        assert!(parts(Path::new("/a/../../etc")).is_err());
        assert_eq!(parts(Path::new("//a/./b/")).unwrap(), ["a", "b"]);
    }
}
