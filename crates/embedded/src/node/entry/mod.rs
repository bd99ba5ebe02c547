//! Node entries: which nodes a cluster has (11.1). They come from `Options.nodes`, and there from `--nodes N|FILE` and
//! `--hollow N`.
//!
//! - [`NodeEntry`]: name, labels, taints, declared capacity, and what kind of node it is.
//! - [`file`]: entries as YAML. What is wrong there is told with the file, the entry, the field and the fix.
//! - [`object`]: the Node and the Lease that an entry's agent keeps, as a kubelet would write them.

mod file;
pub(crate) mod object;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;

pub use file::EntryError;

use super::hollow::stages::Stages;

/// The reference's `maxPods`.
pub const DEFAULT_PODS: u32 = 110;
/// A hollow node's pods have their addresses in a block of this many, and there is room for so many blocks below 10/8.
pub const MOST_HOLLOW_PODS: u32 = 1_000;
pub const MOST_NODES: usize = 4_096;

pub const HOSTNAME: &str = "kubernetes.io/hostname";
pub const ARCH: &str = "kubernetes.io/arch";
pub const OS: &str = "kubernetes.io/os";
pub const ZONE: &str = "topology.kubernetes.io/zone";
pub const REGION: &str = "topology.kubernetes.io/region";

/// One node that a cluster is to have.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeEntry {
    pub name: String,
    /// All that its Node object gets, the well-known ones too.
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub capacity: Capacity,
    pub kind: NodeKind,
}

/// What it runs pods with.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeKind {
    /// Pods are processes of this machine.
    Process,
    /// Pods are only said to run, as the stages tell.
    Hollow(Stages),
}

/// What a node declares to have: amounts as Kubernetes writes them. Nothing measures or limits what pods really take, but
/// for the limits that they set themselves to what they have on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    pub cpu: String,
    pub memory: String,
    pub pods: u32,
    /// `ephemeral-storage`, and extended resources such as `nvidia.com/gpu`.
    pub extended: BTreeMap<String, String>,
}

impl Capacity {
    /// This machine's.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let cpu = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let kibibytes = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
            line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
        });
        let disk = rustix::fs::statvfs("/").map(|disk| disk.f_blocks.saturating_mul(disk.f_frsize) / 1024);
        // Where the system does not tell: enough for what fits a laptop.
        let or_else =
            |amount: Option<u64>, usual: &str| amount.map_or(usual.to_owned(), |amount| format!("{amount}Ki"));
        Self {
            cpu: cpu.to_string(),
            memory: or_else(kibibytes, "8Gi"),
            pods: DEFAULT_PODS,
            extended: storage(or_else(disk.ok(), "64Gi")),
        }
    }

    /// A hollow node's: the same on every machine, so that one seed gives the same bytes everywhere (E1).
    #[must_use]
    pub fn of_a_hollow_node() -> Self {
        Self {
            cpu: "32".to_owned(),
            memory: "256Gi".to_owned(),
            pods: DEFAULT_PODS,
            extended: storage("256Gi".to_owned()),
        }
    }
}

/// Without any, no pod could be placed that limits what it has on the disk.
fn storage(amount: String) -> BTreeMap<String, String> {
    BTreeMap::from([("ephemeral-storage".to_owned(), amount)])
}

impl NodeEntry {
    #[must_use]
    pub fn process(name: &str) -> Self {
        Self::new(name, NodeKind::Process)
    }

    #[must_use]
    pub fn hollow(name: &str, stages: Stages) -> Self {
        Self::new(name, NodeKind::Hollow(stages))
    }

    /// With the default labels and capacity of its kind.
    #[must_use]
    pub fn new(name: &str, kind: NodeKind) -> Self {
        // What a hollow node says it is must not depend on the machine.
        let (arch, capacity) = match kind {
            NodeKind::Process => (arch(), Capacity::of_this_machine()),
            NodeKind::Hollow(_) => ("amd64", Capacity::of_a_hollow_node()),
        };
        let labels = [
            (HOSTNAME, name),
            (ARCH, arch),
            (OS, "linux"),
            (ZONE, "local"),
            (REGION, "local"),
        ];
        Self {
            name: name.to_owned(),
            labels: labels
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            taints: Vec::new(),
            capacity,
            kind,
        }
    }

    /// `--nodes N`: process nodes `node-1` to `node-N`.
    #[must_use]
    pub fn processes(count: usize) -> Vec<Self> {
        (1..=count).map(|n| Self::process(&format!("node-{n}"))).collect()
    }

    /// `--hollow N`: hollow nodes `hollow-1` to `hollow-N`, whose pods are Ready at once.
    #[must_use]
    pub fn hollows(count: usize) -> Vec<Self> {
        (1..=count)
            .map(|n| Self::hollow(&format!("hollow-{n}"), Stages::default()))
            .collect()
    }

    #[must_use]
    pub fn with_label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    #[must_use]
    pub fn is_hollow(&self) -> bool {
        matches!(self.kind, NodeKind::Hollow(_))
    }
}

/// This machine's architecture, as Kubernetes names it.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}
