//! The scripts, run by the `sh` of this machine with servers that only tell what they were asked.

use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder with programs, and one with data.
struct Box {
    folder: PathBuf,
}

impl Box {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("usher-valkey-scripts-{}-{number}", std::process::id()));
        fs::create_dir_all(folder.join("data")).unwrap();
        let made = Self { folder };
        made.program(
            "valkey-server",
            "if [ \"$1\" = --version ]; then echo \"Valkey server v=$VERSION sha=0\"; else echo \"$@\"; fi",
        );
        made.program("sleep", "echo slept \"$1\"");
        made
    }

    fn program(&self, name: &str, body: &str) {
        let file = self.folder.join(name);
        fs::write(&file, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn nodes(&self, lines: &str) {
        fs::write(self.folder.join("data/nodes.conf"), lines).unwrap();
    }

    fn nodes_left(&self) -> String {
        fs::read_to_string(self.folder.join("data/nodes.conf")).unwrap_or_default()
    }

    fn run(&self, script: &str, address: &str, version: &str) -> Output {
        let path = format!("{}:/bin:/usr/bin", self.folder.display());
        Command::new("sh")
            .args(["-c", script, "valkey"])
            .arg(self.folder.join("data"))
            .arg("/etc/valkey/valkey.conf")
            .env("PATH", path)
            .env("POD_IP", address)
            .env("VERSION", version)
            .output()
            .unwrap()
    }

    fn start(&self, spec: Value, address: &str) -> String {
        let output = self.run(&script::start(&cluster(spec)), address, "9.1.2");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Box {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

const FOLLOWED: &str = "aaa 10.0.0.1:6379@16379 myself,master - 0 0 1 connected 0-5460\n\
                        bbb 10.0.0.2:6379@16379 slave aaa 0 1 1 connected\nvars currentEpoch 1 lastVoteEpoch 0\n";
const ALONE: &str = "aaa 10.0.0.1:6379@16379 myself,master - 0 0 1 connected 0-5460\n\
                     bbb 10.0.0.2:6379@16379 slave ccc 0 1 1 connected\nvars currentEpoch 1 lastVoteEpoch 0\n";
const REPLICA: &str = "aaa 10.0.0.1:6379@16379 myself,slave bbb 0 0 1 connected\n\
                       bbb 10.0.0.2:6379@16379 master - 0 1 1 connected 0-5460\nvars currentEpoch 1 lastVoteEpoch 0\n";

#[test]
fn a_server_binds_its_address_and_the_loopback_one() {
    let made = Box::new();
    let told = made.start(json!({}), "10.0.0.7");
    assert_eq!(
        told,
        "/etc/valkey/valkey.conf --bind 10.0.0.7 127.0.0.1 --cluster-announce-ip 10.0.0.7 --replica-announce-ip 10.0.0.7\n"
    );
    assert!(
        made.start(json!({}), "127.1.2.3")
            .contains("--bind 127.1.2.3 --cluster")
    );
    assert!(
        made.start(json!({}), "fd00::7")
            .contains("--bind fd00::7 ::1 --cluster")
    );
}

#[test]
fn a_primary_without_any_data_on_disk_comes_back_as_somebody_new() {
    let nothing = json!({"persistence": {"enabled": false}});
    let made = Box::new();
    assert!(
        made.start(nothing.clone(), "10.0.0.7").starts_with("/etc"),
        "the first start"
    );
    made.nodes(FOLLOWED);
    assert!(made.start(nothing.clone(), "10.0.0.7").contains("new member"));
    assert_eq!(made.nodes_left(), "");
    for lines in [ALONE, REPLICA] {
        made.nodes(lines);
        assert!(made.start(nothing.clone(), "10.0.0.7").starts_with("/etc"));
        assert_eq!(made.nodes_left(), lines);
    }
}

#[test]
fn a_primary_with_a_snapshot_gives_its_replicas_time() {
    let snapshots = json!({"persistence": {"aof": {"enabled": false}}, "config": {"cluster-node-timeout": "2100"}});
    let made = Box::new();
    made.nodes(FOLLOWED);
    assert!(made.start(snapshots.clone(), "10.0.0.7").contains("slept 7\n"));
    assert_eq!(made.nodes_left(), FOLLOWED);
    made.nodes(REPLICA);
    assert!(!made.start(snapshots, "10.0.0.7").contains("slept"));
}

#[test]
fn a_primary_with_every_write_on_disk_starts_at_once() {
    let made = Box::new();
    made.nodes(FOLLOWED);
    let told = made.start(json!({}), "10.0.0.7");
    assert!(told.starts_with("/etc"), "{told}");
    assert_eq!(made.nodes_left(), FOLLOWED);
}

#[test]
fn a_server_of_no_known_version_is_asked_for_it() {
    let made = Box::new();
    let script = script::start(&cluster(
        json!({"image": {"tag": "latest"}, "config": {"shutdown-on-sigterm": "now"}}),
    ));
    let told = |version| String::from_utf8(made.run(&script, "10.0.0.7", version).stdout).unwrap();
    for version in ["9.0.0", "9.1.2", "10.0.0"] {
        let told = told(version);
        assert!(
            told.contains("--cluster-slot-migration-log-max-len 1000"),
            "{version}: {told}"
        );
        assert!(!told.contains("shutdown"), "the spec's own word counts");
    }
    for version in ["8.1.3", "7.2.5"] {
        assert!(!told(version).contains("slot-migration"), "{version}");
    }
}

#[test]
fn readiness_is_answering_and_having_data() {
    let made = Box::new();
    let ready = |made: &Box| made.run(script::READY, "10.0.0.7", "").status.success();
    assert!(ready(&made), "nobody to ask");
    let answers = |ping: &str, info: &str| {
        made.program(
            "valkey-cli",
            &format!("case \"$*\" in *ping) echo '{ping}' ;; *) printf '{info}' ;; esac"),
        );
        ready(&made)
    };
    assert!(answers("PONG", "# Replication\\r\\nrole:master\\r\\n"));
    assert!(answers("PONG", "role:slave\\r\\nmaster_link_status:up\\r\\n"));
    assert!(!answers("PONG", "role:slave\\r\\nmaster_link_status:down\\r\\n"));
    assert!(!answers(
        "LOADING Valkey is loading the dataset in memory",
        "role:master\\r\\n"
    ));
}

#[test]
fn a_primary_that_stops_waits_for_its_successor() {
    let made = Box::new();
    let waited = |made: &Box| String::from_utf8(made.run(script::STOP, "10.0.0.7", "").stdout).unwrap();
    assert_eq!(waited(&made), "slept 3\n", "nobody to ask");
    let info = |info: &str| made.program("valkey-cli", &format!("printf '{info}'"));
    info("role:slave\\r\\n");
    assert_eq!(waited(&made), "");
    info("role:master\\r\\nconnected_slaves:0\\r\\n");
    assert_eq!(waited(&made), "");
    info("role:master\\r\\nconnected_slaves:1\\r\\n");
    assert_eq!(waited(&made), "slept 0.5\n".repeat(20));
}
