//! The cgroup that containers of one node are in: one folder of that name in every hierarchy of the machine, be it the
//! single one of version 2 or the many of version 1.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::process::ProcessId;

const MOUNT: &str = "/sys/fs/cgroup";
/// New processes may come while old ones are killed, for as long as one of them can fork.
const KILL_LIMIT: Duration = Duration::from_secs(10);

fn hierarchies() -> Vec<PathBuf> {
    let mount = Path::new(MOUNT);
    if mount.join("cgroup.controllers").exists() {
        return vec![mount.to_owned()];
    }
    let entries = mount.read_dir().into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        // `cpu` may be a link to `cpu,cpuacct`.
        .filter(|path| !path.is_symlink() && path.join("cgroup.procs").exists())
        .collect()
}

pub(super) fn create(name: &str) -> Result<()> {
    for hierarchy in hierarchies() {
        let cgroup = hierarchy.join(name);
        std::fs::create_dir_all(&cgroup).map_err(Error::at("create", &cgroup))?;
        // Version 1 begins with no processor and no memory at all.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let all = std::fs::read_to_string(hierarchy.join(file)).unwrap_or_default();
            if !all.trim().is_empty() {
                let place = cgroup.join(file);
                std::fs::write(&place, all.trim()).map_err(Error::at("write", &place))?;
            }
        }
        // Version 2 gives no controller to those below unless told to.
        let offered = std::fs::read_to_string(cgroup.join("cgroup.controllers")).unwrap_or_default();
        for controller in offered.split_whitespace() {
            let _ = std::fs::write(cgroup.join("cgroup.subtree_control"), format!("+{controller}"));
        }
    }
    Ok(())
}

/// Kills every process in it and below.
pub(super) fn kill(name: &str) {
    let deadline = Instant::now() + KILL_LIMIT;
    loop {
        let processes: Vec<ProcessId> = hierarchies()
            .iter()
            .flat_map(|hierarchy| below(&hierarchy.join(name)))
            .filter_map(|cgroup| std::fs::read_to_string(cgroup.join("cgroup.procs")).ok())
            .flat_map(|pids| {
                let pids = pids.lines().filter_map(|line| line.parse().ok());
                pids.filter_map(ProcessId::of).collect::<Vec<_>>()
            })
            .collect();
        if processes.is_empty() || Instant::now() > deadline {
            return;
        }
        processes.into_iter().for_each(ProcessId::kill_now);
    }
}

/// The folders, from the bottom up.
pub(super) fn remove(name: &str) {
    for hierarchy in hierarchies() {
        for cgroup in below(&hierarchy.join(name)) {
            let _ = std::fs::remove_dir(cgroup);
        }
    }
}

/// The deepest first, itself last.
fn below(cgroup: &Path) -> Vec<PathBuf> {
    let entries = cgroup.read_dir().into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .flat_map(|entry| below(&entry.path()))
        .collect();
    found.push(cgroup.to_owned());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths;

    #[test]
    fn what_is_below_comes_before_what_it_is_in() {
        let root = paths::temporary_folder("usher-cgroups").unwrap();
        paths::create_folder(&root.join("a/b")).unwrap();
        paths::write_private(&root.join("a/cgroup.procs"), "").unwrap();
        assert_eq!(below(&root), [root.join("a/b"), root.join("a"), root.clone()]);
        paths::remove(&root).unwrap();
    }
}
