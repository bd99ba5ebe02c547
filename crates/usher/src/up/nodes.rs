//! Which nodes `usher up` has, and how they run pods: its flags, the images table of a new data folder, and what is said
//! about it at the start.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use usher_embedded::node::images::Images;
use usher_embedded::{IsolationChoice, NodeEntry, NodeKind, ProcessOptions, swap_in};

use crate::Failed;

/// The images table that a data folder gets when it has none.
const IMAGES: &str = include_str!("images.yaml");
const IMAGES_FILE: &str = "images.yaml";
/// Their addresses are 127.B.0.16 to 127.B.0.255.
const MOST_PROCESS_NODES: usize = 240;

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Pods")]
pub(super) struct NodeFlags {
    /// Nodes that run pods as processes of this machine: how many, or a YAML file that names them with labels, taints and
    /// capacity. 0: none.
    #[arg(long, default_value = "1", value_name = "N|FILE")]
    nodes: String,
    /// As many nodes more that only say that their pods run, for trials of scale.
    #[arg(long, default_value_t = 0, value_name = "N")]
    hollow: usize,
    /// Images table: which programs of this machine an image stands for. May be given several times, the first match
    /// counts. Default: images.yaml in the data folder.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    images: Vec<PathBuf>,
    /// How pods are kept apart from the rest of the machine. `auto` takes the best that it allows.
    #[arg(long, value_enum, default_value_t = Isolation::Auto)]
    isolation: Isolation,
    /// Lets pods mount paths below this one with hostPath, as root too. May be given several times.
    #[arg(long, value_name = "PREFIX", value_hint = clap::ValueHint::DirPath)]
    host_path: Vec<PathBuf>,
    /// The first and the longest wait before a container that ended is started again.
    #[arg(long, default_value = "10s..300s", value_name = "FIRST..LONGEST", value_parser = waits)]
    restart_backoff: (Duration, Duration),
    /// How long a node may be silent before it counts as lost.
    #[arg(long, default_value = "50s", value_name = "TIME", value_parser = time)]
    node_grace: Duration,
    /// Leaves pods running when it stops; the next start finds them again.
    #[arg(long)]
    pub(super) keep_pods: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Isolation {
    Auto,
    /// A root and processes of its own for each container.
    Namespaces,
    /// Volumes are folders of the machine, whose paths are put into words that begin with a mount's path.
    Paths,
}

/// `500ms`, `50s`, `5m`, `1h`.
fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time: write 500ms, 50s, 5m or 1h");
    let split = text.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let number: u32 = number.parse().map_err(|_| wrong())?;
    let unit = match unit {
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        "m" => Duration::from_secs(60),
        "h" => Duration::from_secs(3_600),
        _ => return Err(wrong()),
    };
    let whole = unit * number;
    if whole.is_zero() {
        return Err(format!("{text:?} is no time at all: write 1ms or more"));
    }
    Ok(whole)
}

fn waits(text: &str) -> Result<(Duration, Duration), String> {
    let (first, longest) = text
        .split_once("..")
        .ok_or_else(|| format!("{text:?} names one time: write the first and the longest, as in 10s..300s"))?;
    let (first, longest) = (time(first)?, time(longest)?);
    if first > longest {
        return Err(format!(
            "{text:?}: the first wait is longer than the longest: swap the two"
        ));
    }
    Ok((first, longest))
}

impl NodeFlags {
    /// The nodes, in the order in which they are given addresses.
    pub(super) fn entries(&self) -> Result<Vec<NodeEntry>, Failed> {
        let too_many = |processes: usize| {
            format!(
                "--nodes: {processes} nodes that run processes are too many, {MOST_PROCESS_NODES} have addresses; use --hollow for the rest"
            )
        };
        let file = Path::new(&self.nodes);
        let mut entries = match self.nodes.parse::<usize>() {
            Ok(count) if count > MOST_PROCESS_NODES => return Err(too_many(count).into()),
            Ok(count) => NodeEntry::processes(count),
            Err(_) if !file.exists() => {
                return Err(format!(
                    "--nodes {:?} is neither a number of nodes nor a file of them",
                    self.nodes
                )
                .into());
            }
            Err(_) => NodeEntry::read(file)?,
        };
        let processes = entries.iter().filter(|entry| entry.kind == NodeKind::Process).count();
        if processes > MOST_PROCESS_NODES {
            return Err(too_many(processes).into());
        }
        entries.extend(NodeEntry::hollows(self.hollow));
        Ok(entries)
    }

    pub(super) fn node_grace(&self) -> Duration {
        self.node_grace
    }

    /// `None`: no node runs processes. `data` is the folder of a cluster on disk.
    pub(super) fn process(&self, entries: &[NodeEntry], data: Option<&Path>) -> Result<Option<ProcessOptions>, Failed> {
        if !entries.iter().any(|entry| entry.kind == NodeKind::Process) {
            return Ok(None);
        }
        let mut images = self.images.clone();
        if images.is_empty()
            && let Some(data) = data
        {
            images.push(data.join(IMAGES_FILE));
        }
        if let Some(relative) = self.host_path.iter().find(|path| path.is_relative()) {
            return Err(format!(
                "--host-path {}: no hostPath is below a relative path; write the whole path",
                relative.display()
            )
            .into());
        }
        for file in &images {
            let broken = Images::new(vec![file.clone()]).errors();
            // One that is not there yet is made below, or is what --images got wrong.
            if let Some(why) = broken.first().filter(|_| file.exists() || !self.images.is_empty()) {
                return Err(why.to_string().into());
            }
        }
        Ok(Some(ProcessOptions {
            isolation: match self.isolation {
                Isolation::Auto => IsolationChoice::Auto,
                Isolation::Namespaces => IsolationChoice::Namespaces,
                Isolation::Paths => IsolationChoice::Paths,
            },
            images: self.images.clone(),
            host_paths: self.host_path.clone(),
            restart_backoff: self.restart_backoff,
            ..ProcessOptions::new(std::env::current_exe()?)
        }))
    }

    /// Gives a data folder its images table, unless it has one or others are named.
    pub(super) fn provide_images(&self, data: &Path) -> Result<(), Failed> {
        let file = data.join(IMAGES_FILE);
        if !self.images.is_empty() || file.exists() {
            return Ok(());
        }
        // Whole or not at all: it is read when it changes.
        swap_in(&file, IMAGES.as_bytes()).map_err(|why| format!("cannot write {}: {why}", file.display()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_nonsense_is_told_what_to_write() {
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("5m"), Ok(Duration::from_secs(300)));
        for wrong in ["", "5", "s", "5 s", "-1s", "0s", "99999999999s", "1d"] {
            assert!(time(wrong).is_err_and(|why| why.contains("write")), "{wrong}");
        }
        assert_eq!(waits("1s..2s"), Ok((Duration::from_secs(1), Duration::from_secs(2))));
        assert!(waits("2s..1s").is_err_and(|why| why.contains("swap")));
        assert!(waits("2s").is_err_and(|why| why.contains("10s..300s")));
    }

    #[test]
    fn the_table_of_a_new_folder_is_a_good_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("images.yaml");
        std::fs::write(&file, IMAGES).unwrap();
        let images = Images::new(vec![file]);
        assert!(images.errors().is_empty());
        assert!(images.resolve("busybox:1.36").is_ok());
    }
}
