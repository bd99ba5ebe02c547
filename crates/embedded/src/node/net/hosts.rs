//! The names that a pod knows (W6): its `/etc/hosts`.
//!
//! [`Names`] is made of all Services and slices once for each change; [`Names::hosts`] is one pod's text, and
//! [`HostsFolder`] puts it where the pod's containers see it.
//!
//! **Never half-written.** A file that is bind-mounted into a container cannot be replaced by a rename (the mount stays
//! with the old file), and writing it in place is seen in the middle by readers on most file systems. So what containers
//! have is the folder `<pod folder>/etc`, which the supervisor lays over `/etc` file by file in such a way that a rename
//! there is seen inside (`ContainerPlan::etc`): a reader opens the old text or the new one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::node::net::endpoints::{self, Way};

/// What names end in, everywhere in a cluster.
pub const DOMAIN: &str = "cluster.local";
const FOLDER: &str = "etc";
const FILE: &str = "hosts";

/// The lines of all Services, by namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// `address`, `svc` and what goes before it, for every name of a namespace.
    of: BTreeMap<String, Vec<(Ipv4Addr, String)>>,
}

impl Names {
    #[must_use]
    pub fn new(services: &[Service], slices: &[EndpointSlice]) -> Self {
        let mut of: BTreeMap<String, Vec<(Ipv4Addr, String)>> = BTreeMap::new();
        for (key, Way { cluster_ip, named, .. }) in endpoints::ways(services, slices) {
            let lines = of.entry(key.namespace).or_default();
            lines.extend(cluster_ip.map(|address| (address, key.name.clone())));
            for endpoint in named {
                lines.push((endpoint.address, key.name.clone()));
                lines.extend(
                    endpoint
                        .hostname
                        .map(|host| (endpoint.address, format!("{host}.{}", key.name))),
                );
            }
        }
        Self { of }
    }

    /// The whole text for a pod, whose address is `address` (its node's, for a pod on the host's network).
    #[must_use]
    pub fn hosts(&self, pod: &Pod, address: Ipv4Addr) -> String {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut text = own(pod, namespace, address);
        let ours = self.of.get_key_value(namespace);
        let others = self.of.iter().filter(|(other, _)| *other != namespace);
        // A pod's own namespace first: of names that are short, the near one counts.
        for (place, lines) in ours.into_iter().chain(others) {
            for (address, name) in lines {
                let _ = write!(
                    text,
                    "{address}\t{name}.{place}.svc.{DOMAIN} {name}.{place}.svc {name}.{place}"
                );
                if place == namespace {
                    let _ = write!(text, " {name}");
                }
                text.push('\n');
            }
        }
        text
    }
}

/// What a pod is called itself, and what it calls others on its own account.
fn own(pod: &Pod, namespace: &str, address: Ipv4Addr) -> String {
    let spec = pod.spec.as_ref();
    let is_on_host = spec.and_then(|spec| spec.host_network).unwrap_or(false);
    let mut text = String::from("# Written by usher; changes are overwritten.\n");
    // A pod's localhost is its own: until `bind` and `connect` are rewritten (W3) the name at least leads there.
    let localhost = if is_on_host { Ipv4Addr::LOCALHOST } else { address };
    let _ = writeln!(text, "{localhost}\tlocalhost");
    let name = hostname(pod);
    match spec
        .and_then(|spec| spec.subdomain.as_deref())
        .filter(|subdomain| !subdomain.is_empty())
    {
        Some(subdomain) => {
            let _ = writeln!(text, "{address}\t{name}.{subdomain}.{namespace}.svc.{DOMAIN}\t{name}");
        }
        None => {
            let _ = writeln!(text, "{address}\t{name}");
        }
    }
    for alias in spec.and_then(|spec| spec.host_aliases.as_ref()).into_iter().flatten() {
        let names = alias.hostnames.clone().unwrap_or_default();
        if !names.is_empty() {
            let _ = writeln!(text, "{}\t{}", alias.ip, names.join("\t"));
        }
    }
    text
}

/// What `hostname` says in a pod: its `spec.hostname`, else its name, in at most 63 letters as in the reference.
#[must_use]
pub fn hostname(pod: &Pod) -> String {
    const MOST: usize = 63;
    let asked = pod.spec.as_ref().and_then(|spec| spec.hostname.as_deref());
    let name = asked.filter(|name| !name.is_empty()).or(pod.metadata.name.as_deref());
    let short: String = name.unwrap_or_default().chars().take(MOST).collect();
    short.trim_end_matches(['-', '.']).to_owned()
}

/// The folder of a pod's own files of `/etc`, and in it `hosts`.
#[derive(Debug, Clone)]
pub struct HostsFolder {
    folder: PathBuf,
    /// On the same file system, and not seen by containers.
    new: PathBuf,
}

impl HostsFolder {
    /// In a pod's folder. Made by the first [`HostsFolder::write`].
    #[must_use]
    pub fn new(pod_folder: &Path) -> Self {
        Self {
            folder: pod_folder.join(FOLDER),
            new: pod_folder.join("hosts.new"),
        }
    }

    /// What a container's plan names as its `etc`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.folder
    }

    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// Replaces the file as a whole. Whether it changed.
    pub fn write(&self, text: &str) -> io::Result<bool> {
        let file = self.file();
        if fs::read(&file).is_ok_and(|old| old == text.as_bytes()) {
            return Ok(false);
        }
        fs::create_dir_all(&self.folder)?;
        // Not synced: it is made again at every start.
        fs::File::create(&self.new)?.write_all(text.as_bytes())?;
        fs::rename(&self.new, &file)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use serde_json::{Value, json};

    use super::super::endpoints::tests::{service, slice};
    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 64, 1, 5);

    fn pod(namespace: &str, spec: Value) -> Pod {
        let object = json!({"metadata": {"name": "p", "namespace": namespace}, "spec": spec});
        serde_json::from_value(object).unwrap()
    }

    fn names() -> Names {
        let services = [
            service("web", json!({"clusterIP": "127.64.230.1", "ports": [{"port": 80}]})),
            service("db", json!({"clusterIP": "None"})),
            service("away", json!({"type": "ExternalName", "externalName": "a.example"})),
        ];
        let endpoints = json!([
            {"addresses": ["127.64.1.8"], "hostname": "db-0"},
            {"addresses": ["127.64.1.9"]},
            {"addresses": ["127.64.1.10"], "conditions": {"ready": false}},
        ]);
        Names::new(&services, &[slice("db", json!([]), endpoints)])
    }

    #[test]
    fn w6_a_service_has_four_names_and_a_headless_one_a_line_per_ready_address() {
        let text = names().hosts(&pod("shop", json!({"containers": []})), ADDRESS);
        let expected = "# Written by usher; changes are overwritten.\n\
            127.64.1.5\tlocalhost\n\
            127.64.1.5\tp\n\
            127.64.1.8\tdb.shop.svc.cluster.local db.shop.svc db.shop db\n\
            127.64.1.8\tdb-0.db.shop.svc.cluster.local db-0.db.shop.svc db-0.db.shop db-0.db\n\
            127.64.1.9\tdb.shop.svc.cluster.local db.shop.svc db.shop db\n\
            127.64.230.1\tweb.shop.svc.cluster.local web.shop.svc web.shop web\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn w6_the_shortest_name_is_for_pods_of_the_same_namespace() {
        let text = names().hosts(&pod("other", json!({"containers": []})), ADDRESS);
        let line = text.lines().find(|line| line.contains("web")).unwrap();
        assert_eq!(line, "127.64.230.1\tweb.shop.svc.cluster.local web.shop.svc web.shop");
    }

    #[test]
    fn w6_a_pod_knows_itself_its_aliases_and_localhost() {
        let spec = json!({"containers": [], "hostname": "db-3", "subdomain": "db", "hostAliases": [
            {"ip": "10.0.0.1", "hostnames": ["a.example", "b.example"]}, {"ip": "10.0.0.2"},
        ]});
        let text = Names::default().hosts(&pod("shop", spec), ADDRESS);
        let expected = "127.64.1.5\tlocalhost\n\
            127.64.1.5\tdb-3.db.shop.svc.cluster.local\tdb-3\n\
            10.0.0.1\ta.example\tb.example\n";
        assert_eq!(text.split_once('\n').unwrap().1, expected);
        let on_host = pod("shop", json!({"containers": [], "hostNetwork": true}));
        let text = Names::default().hosts(&on_host, ADDRESS);
        assert!(text.contains("127.0.0.1\tlocalhost\n127.64.1.5\tp\n"), "{text}");
    }

    #[test]
    fn a_long_name_is_cut_to_a_hostname() {
        let mut long = pod("shop", json!({"containers": []}));
        long.metadata.name = Some(format!("{}.b", "a-".repeat(40)));
        assert_eq!(hostname(&long), format!("{}a", "a-".repeat(31)));
    }

    #[test]
    fn w6_a_reader_sees_the_old_text_or_the_new_one_and_nothing_between() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = HostsFolder::new(folder.path());
        // Longer than a page, and of different lengths.
        let texts: Vec<String> = (0..3_usize)
            .map(|which| format!("{which} of some text\n").repeat(2_000 + 1_500 * which))
            .collect();
        hosts.write(&texts[0]).unwrap();
        let is_done = AtomicBool::new(false);
        let (file, is_done) = (hosts.file(), &is_done);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut seen = 0_usize;
                loop {
                    let is_last = is_done.load(Ordering::Relaxed);
                    let text = fs::read_to_string(&file).unwrap();
                    assert!(texts.contains(&text), "{} bytes", text.len());
                    seen += 1;
                    if is_last {
                        return seen;
                    }
                }
            });
            for round in 1..=600 {
                assert!(hosts.write(&texts[round % 3]).unwrap());
            }
            is_done.store(true, Ordering::Relaxed);
            assert!(reader.join().unwrap() > 0);
        });
        assert!(!hosts.write(&texts[0]).unwrap(), "the same again is not written");
    }
}
