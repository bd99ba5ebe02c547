//! valkey.conf: what servers are configured by. No path and no secret is in it; those are arguments and files of their own.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::api::{Fsync, Replication};
use crate::records::ClusterRecord;
use crate::words::ServerVersion;

/// Milliseconds after which a silent member is suspected, where the spec's config says nothing else.
const NODE_TIMEOUT_MS: u64 = 5000;

/// What only newer servers know: since when, and what it is to be.
const NEWER: [(ServerVersion, &str, &str); 3] = [
    // Last resort only: the hand-over comes before (R30).
    (ServerVersion::V9, "shutdown-on-sigterm", "failover"),
    // 0, the default, waits for an empty buffer, which constant writes never let happen.
    (ServerVersion::V9, "slot-migration-max-failover-repl-bytes", "1048576"),
    (ServerVersion::V9, "cluster-slot-migration-log-max-len", "1000"),
];

/// Keys that Usher must know for itself, each with where to set what it is about; `*` at an end stands for any.
const FIXED: [(&str, &str); 37] = [
    ("cluster-enabled", ALWAYS),
    ("cluster-config-file", ALWAYS),
    ("cluster-port", ALWAYS),
    ("cluster-announce-*", ALWAYS),
    ("cluster-allow-replica-migration", ALWAYS),
    ("cluster-migration-barrier", ALWAYS),
    ("replica-announce-*", ALWAYS),
    ("slave-announce-*", ALWAYS),
    ("replicaof", ALWAYS),
    ("slaveof", ALWAYS),
    ("port", ALWAYS),
    ("bind", ALWAYS),
    ("bind-source-addr", ALWAYS),
    ("protected-mode", ALWAYS),
    ("dir", ALWAYS),
    ("include", ALWAYS),
    ("daemonize", ALWAYS),
    ("supervised", ALWAYS),
    ("cluster-databases", ALWAYS),
    ("rename-command", ALWAYS),
    ("dbfilename", ALWAYS),
    ("appendfilename", ALWAYS),
    ("appenddirname", ALWAYS),
    ("requirepass", "spec.auth"),
    ("primaryauth", "spec.auth"),
    ("masterauth", "spec.auth"),
    ("primaryuser", "spec.auth"),
    ("masteruser", "spec.auth"),
    ("aclfile", "spec.auth"),
    ("user", "spec.auth"),
    ("tls-*", "spec.tls"),
    ("appendonly", "spec.persistence.aof"),
    ("appendfsync", "spec.persistence.aof"),
    ("save", "spec.persistence.rdb"),
    ("repl-diskless-sync*", "spec.replication"),
    ("min-replicas-*", "spec.replication"),
    ("min-slaves-*", "spec.replication"),
];

/// Where to set what Usher always sets itself: nowhere.
const ALWAYS: &str = "";

/// Whether a key of `spec.config` is Usher's, and where to set what it is about (empty: nowhere).
pub fn fixed(key: &str) -> Option<&'static str> {
    let key = key.to_ascii_lowercase();
    let fits = |pattern: &str| match pattern.strip_suffix('*') {
        Some(start) => key.starts_with(start),
        None => key == pattern,
    };
    FIXED
        .iter()
        .find(|(pattern, _)| fits(pattern))
        .map(|(_, instead)| *instead)
}

/// The version that the image's tag tells, where it tells one.
pub fn version(cluster: &ClusterRecord) -> Option<ServerVersion> {
    ServerVersion::parse(&cluster.spec.image.tag)
}

/// Milliseconds after which a silent member is suspected.
pub fn node_timeout_ms(cluster: &ClusterRecord) -> u64 {
    let config = cluster.spec.config.iter();
    let said = config.filter(|(key, _)| key.eq_ignore_ascii_case("cluster-node-timeout"));
    let mut said = said.filter_map(|(_, value)| value.trim().parse().ok());
    said.next_back().unwrap_or(NODE_TIMEOUT_MS)
}

/// How many replicas a primary wants before it takes writes (R37). Unset, an only replica may always restart.
pub fn min_replicas(cluster: &ClusterRecord) -> u16 {
    let said = cluster.spec.replication.as_ref().and_then(|r| r.min_replicas_to_write);
    let unset = u16::from(cluster.replicas_per_master() > 1);
    said.map_or(unset, |wanted| u16::try_from(wanted).unwrap_or_default())
}

/// Whether the append-only file is written. Without a volume nothing is kept, and so nothing is written.
pub fn writes_aof(cluster: &ClusterRecord) -> bool {
    let persistence = &cluster.spec.persistence;
    persistence.enabled && persistence.aof.enabled
}

/// Whether snapshots are taken.
pub fn writes_rdb(cluster: &ClusterRecord) -> bool {
    let persistence = &cluster.spec.persistence;
    persistence.enabled && persistence.rdb.enabled && !persistence.rdb.save_rules.is_empty()
}

/// What only newer servers know, and the spec's config does not say otherwise: for servers whose version no tag tells.
pub fn newer(cluster: &ClusterRecord) -> impl Iterator<Item = (ServerVersion, &'static str, &'static str)> {
    let said = |key: &str| cluster.spec.config.keys().any(|own| own.eq_ignore_ascii_case(key));
    NEWER.into_iter().filter(move |(_, key, _)| !said(key))
}

/// The file.
pub fn render(cluster: &ClusterRecord) -> String {
    let mut lines = BTreeMap::new();
    let mut set = |key: &str, value: String| drop(lines.insert(key.to_owned(), value));
    set("cluster-enabled", "yes".into());
    set("cluster-config-file", "nodes.conf".into());
    set("port", super::CLIENT_PORT.to_string());
    // Whoever reaches the pod may ask; without this, servers without a password answer their own machine only.
    set("protected-mode", "no".into());
    set("cluster-allow-replica-migration", "no".into());
    set("cluster-node-timeout", NODE_TIMEOUT_MS.to_string());
    set("cluster-require-full-coverage", "no".into());
    set("cluster-allow-reads-when-down", "no".into());
    set("cluster-replica-validity-factor", "10".into());
    for (since, key, value) in NEWER {
        if version(cluster).is_some_and(|version| version >= since) {
            set(key, value.into());
        }
    }
    // A wait for more replicas is a wait at every restart: without wishes there is none.
    let quick = Replication {
        diskless_sync: true,
        diskless_sync_delay: 0,
        ..Replication::default()
    };
    let replication = cluster.spec.replication.as_ref().unwrap_or(&quick);
    set("repl-diskless-sync", yes_or_no(replication.diskless_sync));
    set("repl-diskless-sync-delay", replication.diskless_sync_delay.to_string());
    set("min-replicas-to-write", min_replicas(cluster).to_string());
    set("min-replicas-max-lag", replication.min_replicas_max_lag.to_string());
    let persistence = &cluster.spec.persistence;
    set("appendonly", yes_or_no(writes_aof(cluster)));
    let fsync = match persistence.aof.fsync {
        Fsync::Always => "always",
        Fsync::Everysec => "everysec",
        Fsync::No => "no",
    };
    set("appendfsync", fsync.into());
    let rules = if writes_rdb(cluster) {
        persistence.rdb.save_rules.join(" ")
    } else {
        "\"\"".into()
    };
    set("save", rules);
    if !writes_aof(cluster) && !writes_rdb(cluster) {
        // What came by a sync long ago must not come back as data.
        set("rdb-del-sync-files", "yes".into());
    }
    for (key, value) in &cluster.spec.config {
        set(&key.to_ascii_lowercase(), value.clone());
    }
    let mut file = String::new();
    for (key, value) in lines {
        // Writing into a String does not fail.
        let _ = writeln!(file, "{key} {value}");
    }
    file
}

/// The file with the password: what clients and other members must give.
pub fn render_auth(cluster: &ClusterRecord, password: &[u8]) -> String {
    let quoted = quoted(password);
    let before_8 = version(cluster).is_none_or(|version| version.major < 8);
    // Newer servers understand the old word too.
    let primary = if before_8 { "masterauth" } else { "primaryauth" };
    format!("requirepass {quoted}\n{primary} {quoted}\n")
}

fn yes_or_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.into()
}

/// As one word of a configuration, whatever bytes it has.
fn quoted(bytes: &[u8]) -> String {
    let mut word = String::from("\"");
    for byte in bytes {
        match byte {
            b'"' | b'\\' => word.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => word.push(char::from(*byte)),
            other => drop(write!(word, "\\x{other:02x}")),
        }
    }
    word.push('"');
    word
}
