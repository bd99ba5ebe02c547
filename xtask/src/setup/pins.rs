//! Which servers are built, and how: the versions in `xtask/k8s/go.mod`, the checksums in its `go.sum`, and the flags
//! here. Together they make the cache key, so a changed pin is a new folder and an old build is never taken for it.

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
    Kubectl,
}

impl Program {
    pub(crate) const ALL: [Self; 4] = [Self::Etcd, Self::ApiServer, Self::ControllerManager, Self::Kubectl];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Kubectl => "kubectl",
        }
    }

    pub(super) const fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::ApiServer => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::ControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
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
            Self::ApiServer | Self::ControllerManager => Version::new(1, 33, 0),
            Self::Kubectl => Version::new(1, 31, 0),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pins {
    pub(super) kubernetes: Version,
    pub(super) etcd: Version,
    /// `k8s-1.36.3-etcd-3.6.16-0123456789ab`
    pub(super) key: String,
}

/// The Go module of the servers.
pub(super) fn module() -> PathBuf {
    paths::repository().join("xtask/k8s")
}

impl Pins {
    pub(super) fn read() -> Result<Self> {
        let go_mod = paths::read(&module().join("go.mod"))?;
        let go_sum = paths::read(&module().join("go.sum"))?;
        Self::from_texts(&go_mod, &go_sum)
    }

    fn from_texts(go_mod: &str, go_sum: &str) -> Result<Self> {
        let kubernetes = required(go_mod, "k8s.io/kubernetes")?;
        let etcd = required(go_mod, "go.etcd.io/etcd/server/v3")?;
        let unkeyed = Self {
            kubernetes,
            etcd,
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
        Ok(Self {
            key: format!("k8s-{kubernetes}-etcd-{etcd}-{checksum}"),
            ..unkeyed
        })
    }

    pub(super) fn of(&self, program: Program) -> Version {
        match program {
            Program::Etcd => self.etcd,
            _ => self.kubernetes,
        }
    }

    /// Flags of `go build`. `-trimpath`: the same bytes from any folder. The release scripts set these version variables
    /// too; without them a server calls itself `v0.0.0-master`.
    pub(super) fn flags(&self) -> Vec<String> {
        let Version { major, minor, .. } = self.kubernetes;
        let mut link = String::from("-s -w");
        for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
            link += &format!(" -X {package}.gitVersion=v{}", self.kubernetes);
            link += &format!(" -X {package}.gitMajor={major} -X {package}.gitMinor={minor}");
        }
        vec![
            "-mod=readonly".into(),
            "-trimpath".into(),
            "-buildvcs=false".into(),
            format!("-ldflags={link}"),
        ]
    }
}

fn required(go_mod: &str, module: &str) -> Result<Version> {
    go_mod
        .lines()
        .filter_map(|line| line.trim().strip_prefix(module)?.strip_prefix(' '))
        .find_map(Version::find)
        .ok_or_else(|| Error::Machine(format!("xtask/k8s/go.mod requires no {module}; restore it from git")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GO_MOD: &str = "module x\n\nrequire (\n\tgo.etcd.io/etcd/server/v3 v3.6.16\n\tk8s.io/kubernetes v1.36.3\n)\n";

    #[test]
    fn the_key_names_both_versions() {
        let pins = Pins::from_texts(GO_MOD, "sum").unwrap();
        assert_eq!(
            (pins.kubernetes, pins.etcd),
            (Version::new(1, 36, 3), Version::new(3, 6, 16))
        );
        assert!(pins.key.starts_with("k8s-1.36.3-etcd-3.6.16-"), "{}", pins.key);
        assert_eq!(pins, Pins::from_texts(GO_MOD, "sum").unwrap());
    }

    #[test]
    fn the_key_changes_with_every_pin() {
        let key = |go_mod: &str, go_sum: &str| Pins::from_texts(go_mod, go_sum).unwrap().key;
        let before = key(GO_MOD, "sum");
        assert_ne!(before, key(GO_MOD, "another sum"));
        assert_ne!(before, key(&GO_MOD.replace("1.36.3", "1.36.4"), "sum"));
        assert_ne!(before, key(&format!("{GO_MOD}\nreplace a => b v1.0.0"), "sum"));
        // Moving text from one file to the other is a change as well.
        assert_ne!(key(&format!("{GO_MOD}s"), "um"), key(GO_MOD, "sum"));
    }

    #[test]
    fn the_flags_carry_the_version_the_servers_report() {
        let flags = Pins::from_texts(GO_MOD, "").unwrap().flags().join(" ");
        assert!(
            flags.contains("k8s.io/component-base/version.gitVersion=v1.36.3"),
            "{flags}"
        );
        assert!(flags.contains("k8s.io/component-base/version.gitMinor=36"), "{flags}");
    }

    #[test]
    fn the_committed_module_is_pinned() {
        let pins = Pins::read().unwrap();
        assert!(
            Program::ALL
                .iter()
                .all(|&program| pins.of(program).fits(program.oldest()))
        );
    }
}
