//! What is built, and how: the versions in a module's `go.mod`, the checksums in its `go.sum`, and the flags here. Together
//! they make the cache key, so a changed pin is a new folder and an old build is never taken for it. Each set of programs
//! has a module and a key of its own: what changes in one leaves the other's build alone.

use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::version::Version;
use crate::error::{Error, Result};
use crate::paths;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Etcd,
    ApiServer,
    ControllerManager,
    Scheduler,
    Kubectl,
    Kubelet,
    Promtool,
}

/// Programs that are built together, from one Go module of this repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Set {
    /// The control plane that tests run against.
    Kubernetes,
    /// What runs pods beside it. Only where it is asked for: its build is another minute, and only root can start it.
    Node,
    /// What runs the tests of the alert rules.
    Prometheus,
}

impl Set {
    /// What `cargo xtask test` needs.
    pub(crate) const TESTS: [Self; 2] = [Self::Kubernetes, Self::Prometheus];

    pub(super) const fn programs(self) -> &'static [Program] {
        match self {
            Self::Kubernetes => &[
                Program::Etcd,
                Program::ApiServer,
                Program::ControllerManager,
                Program::Scheduler,
                Program::Kubectl,
            ],
            Self::Node => &[Program::Kubelet],
            Self::Prometheus => &[Program::Promtool],
        }
    }

    /// The Go module, in this repository.
    pub(super) fn module(self) -> PathBuf {
        let folder = match self {
            Self::Kubernetes => "xtask/k8s",
            Self::Node => "xtask/kubelet",
            Self::Prometheus => "xtask/promtool",
        };
        paths::repository().join(folder)
    }
}

impl Program {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubectl => "kubectl",
            Self::Kubelet => "kubelet",
            Self::Promtool => "promtool",
        }
    }

    pub(super) const fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::ApiServer => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::ControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::Scheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
            Self::Kubelet => "k8s.io/kubernetes/cmd/kubelet",
            Self::Promtool => "github.com/prometheus/prometheus/cmd/promtool",
        }
    }

    /// What `go build -o FOLDER/` calls it: the last part of the package path that is not a major version.
    pub(super) const fn built_name(self) -> &'static str {
        match self {
            Self::Etcd => "server",
            other => other.name(),
        }
    }

    pub(super) const fn version_question(self) -> &'static [&'static str] {
        match self {
            Self::Kubectl => &["version", "--client"],
            _ => &["--version"],
        }
    }

    /// The oldest installed one that is used instead of a build. 1.33 is the API level of our client types; kubectl is
    /// only asked to talk to it.
    pub(super) const fn oldest(self) -> Version {
        match self {
            Self::Etcd => Version::new(3, 5, 0),
            Self::ApiServer | Self::ControllerManager | Self::Scheduler | Self::Kubelet => Version::new(1, 33, 0),
            Self::Kubectl => Version::new(1, 31, 0),
            Self::Promtool => Version::new(3, 0, 0),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pins {
    pub(super) set: Set,
    /// Kubernetes and etcd, or Prometheus.
    versions: Vec<Version>,
    /// `k8s-1.36.3-etcd-3.6.16-0123456789ab`, `promtool-3.15.0-0123456789ab`
    pub(super) key: String,
}

impl Pins {
    pub(super) fn read(set: Set) -> Result<Self> {
        let go_mod = paths::read(&set.module().join("go.mod"))?;
        let go_sum = paths::read(&set.module().join("go.sum"))?;
        Self::from_texts(set, &go_mod, &go_sum)
    }

    fn from_texts(set: Set, go_mod: &str, go_sum: &str) -> Result<Self> {
        let versions = match set {
            Set::Kubernetes => vec![
                required(go_mod, "k8s.io/kubernetes")?,
                required(go_mod, "go.etcd.io/etcd/server/v3")?,
            ],
            Set::Node => vec![required(go_mod, "k8s.io/kubernetes")?],
            Set::Prometheus => vec![released(required(go_mod, "github.com/prometheus/prometheus")?)],
        };
        let unkeyed = Self {
            set,
            versions,
            key: String::new(),
        };
        let mut hash = Sha256::new();
        for part in [
            go_mod,
            go_sum,
            &unkeyed.flags().join(" "),
            std::env::consts::OS,
            std::env::consts::ARCH,
        ] {
            // The length first, so that no two lists of parts run together to the same bytes.
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        let checksum: String = hash
            .finalize()
            .iter()
            .take(6)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let names: &[&str] = match set {
            Set::Kubernetes => &["k8s", "etcd"],
            Set::Node => &["kubelet"],
            Set::Prometheus => &["promtool"],
        };
        let pinned: Vec<String> = names
            .iter()
            .zip(&unkeyed.versions)
            .map(|(name, version)| format!("{name}-{version}"))
            .collect();
        Ok(Self {
            key: format!("{}-{checksum}", pinned.join("-")),
            ..unkeyed
        })
    }

    pub(super) fn of(&self, program: Program) -> Version {
        let pinned = match program {
            Program::Etcd => self.versions.last(),
            _ => self.versions.first(),
        };
        pinned.copied().unwrap_or(Version::new(0, 0, 0))
    }

    /// For people.
    pub(super) fn label(&self) -> String {
        match self.set {
            Set::Kubernetes => format!(
                "Kubernetes {} and etcd {}",
                self.of(Program::ApiServer),
                self.of(Program::Etcd)
            ),
            Set::Node => format!("kubelet {}", self.of(Program::Kubelet)),
            Set::Prometheus => format!("promtool {}", self.of(Program::Promtool)),
        }
    }

    /// Flags of `go build`. `-trimpath`: the same bytes from any folder. The release scripts set these version variables
    /// too; without them a server calls itself `v0.0.0-master`, and promtool does not know what to say.
    pub(super) fn flags(&self) -> Vec<String> {
        let mut link = String::from("-s -w");
        let mut flags = vec!["-mod=readonly".into(), "-trimpath".into(), "-buildvcs=false".into()];
        match self.set {
            Set::Kubernetes | Set::Node => {
                let version = self.of(Program::ApiServer);
                let Version { major, minor, .. } = version;
                for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
                    link += &format!(" -X {package}.gitVersion=v{version}");
                    link += &format!(" -X {package}.gitMajor={major} -X {package}.gitMinor={minor}");
                }
            }
            Set::Prometheus => {
                let version = self.of(Program::Promtool);
                link += &format!(" -X github.com/prometheus/common/version.Version={version}");
                // Two dozen clouds that no rule test asks for.
                flags.push("-tags=remove_all_sd".into());
            }
        }
        flags.push(format!("-ldflags={link}"));
        flags
    }
}

/// Prometheus 3.15.0 is v0.315.0 as a Go module.
fn released(module: Version) -> Version {
    Version::new(module.minor / 100, module.minor % 100, module.patch)
}

fn required(go_mod: &str, module: &str) -> Result<Version> {
    go_mod
        .lines()
        .filter_map(|line| line.trim().strip_prefix(module)?.strip_prefix(' '))
        .find_map(Version::find)
        .ok_or_else(|| Error::Machine(format!("go.mod below xtask requires no {module}; restore it from git")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GO_MOD: &str = "module x\n\nrequire (\n\tgo.etcd.io/etcd/server/v3 v3.6.16\n\tk8s.io/kubernetes v1.36.3\n)\n";

    fn kubernetes(go_mod: &str, go_sum: &str) -> Pins {
        Pins::from_texts(Set::Kubernetes, go_mod, go_sum).unwrap()
    }

    #[test]
    fn the_key_names_the_versions() {
        let pins = kubernetes(GO_MOD, "sum");
        assert_eq!(
            (pins.of(Program::Kubectl), pins.of(Program::Etcd)),
            (Version::new(1, 36, 3), Version::new(3, 6, 16))
        );
        assert!(pins.key.starts_with("k8s-1.36.3-etcd-3.6.16-"), "{}", pins.key);
        assert_eq!(pins, kubernetes(GO_MOD, "sum"));
        let go_mod = "require (\n\tgithub.com/prometheus/prometheus v0.315.2 // indirect\n)\n";
        let pins = Pins::from_texts(Set::Prometheus, go_mod, "sum").unwrap();
        assert_eq!(pins.of(Program::Promtool), Version::new(3, 15, 2));
        assert!(pins.key.starts_with("promtool-3.15.2-"), "{}", pins.key);
    }

    /// Minutes of work on every machine hang on it: a key changes when what is built does, and not when this code does.
    #[test]
    fn the_key_of_the_same_pins_is_the_same_for_ever() {
        let of_this_kind = ("linux", "x86_64") == (std::env::consts::OS, std::env::consts::ARCH);
        assert!(!of_this_kind || kubernetes(GO_MOD, "sum").key == "k8s-1.36.3-etcd-3.6.16-092c49517c16");
    }

    #[test]
    fn the_key_changes_with_every_pin() {
        let key = |go_mod: &str, go_sum: &str| kubernetes(go_mod, go_sum).key;
        let before = key(GO_MOD, "sum");
        assert_ne!(before, key(GO_MOD, "another sum"));
        assert_ne!(before, key(&GO_MOD.replace("1.36.3", "1.36.4"), "sum"));
        assert_ne!(before, key(&format!("{GO_MOD}\nreplace a => b v1.0.0"), "sum"));
        // Moving text from one file to the other is a change as well.
        assert_ne!(key(&format!("{GO_MOD}s"), "um"), key(GO_MOD, "sum"));
    }

    #[test]
    fn the_flags_carry_the_version_the_servers_report() {
        let flags = kubernetes(GO_MOD, "").flags().join(" ");
        assert!(
            flags.contains("k8s.io/component-base/version.gitVersion=v1.36.3"),
            "{flags}"
        );
        assert!(flags.contains("k8s.io/component-base/version.gitMinor=36"), "{flags}");
    }

    #[test]
    fn the_committed_modules_are_pinned() {
        for set in [Set::Kubernetes, Set::Node, Set::Prometheus] {
            let pins = Pins::read(set).unwrap();
            for &program in set.programs() {
                assert!(pins.of(program).fits(program.oldest()), "{}", program.name());
            }
        }
    }
}
