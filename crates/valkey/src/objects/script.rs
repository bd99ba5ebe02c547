//! What starts, probes and stops a server: short scripts for any `sh`, with `valkey-cli` used where it is there.
//!
//! No path is in them: paths are arguments, so that a cluster without mounts can say where volumes are.

use super::conf;
use crate::records::ClusterRecord;

/// Binds the pod's address, and the loopback one where that is another: port-forward comes by it.
const BIND: &str = r#"data="$1"
shift
bind="$POD_IP"
case "$POD_IP" in
  127.*) ;;
  *:*) bind="$POD_IP ::1" ;;
  *) bind="$POD_IP 127.0.0.1" ;;
esac
"#;

/// Looks whether this server was a primary with a replica. Without an append-only file it may come back with less data than
/// that replica has, and must not be the one that others follow.
const GATE: &str = r#"own=
if [ -s "$data/nodes.conf" ]; then
  while read -r id address flags rest; do
    case "$flags" in *myself,master*) own="$id" ;; esac
  done < "$data/nodes.conf"
fi
followed=
if [ -n "$own" ]; then
  while read -r id address flags primary rest; do
    if [ "$primary" = "$own" ]; then followed=yes; fi
  done < "$data/nodes.conf"
fi
if [ -n "$followed" ]; then
"#;

/// With no snapshot either: come back as somebody new and empty. A file of no length is to servers as no file.
const FORGET: &str = r#"  echo "a primary with replicas comes back without data: it joins as a new member"
  : > "$data/nodes.conf"
fi
"#;

const START: &str = r#"# The list of addresses is several words.
exec valkey-server "$@" --bind $bind --cluster-announce-ip "$POD_IP" --replica-announce-ip "$POD_IP"
"#;

/// Starts the server. Its first argument is the data folder, the others are the server's.
pub fn start(cluster: &ClusterRecord) -> String {
    let mut script = BIND.to_owned();
    if !conf::writes_aof(cluster) {
        script.push_str(GATE);
        if conf::writes_rdb(cluster) {
            let seconds = (3 * conf::node_timeout_ms(cluster)).div_ceil(1000);
            script.push_str(&format!(
                "  echo \"a primary with replicas comes back with a snapshot: {seconds} s for a replica with newer data\"\n  \
                 sleep {seconds}\nfi\n"
            ));
        } else {
            script.push_str(FORGET);
        }
    }
    if conf::version(cluster).is_none() {
        script.push_str(&ask_version(cluster));
    }
    script.push_str(START);
    script
}

/// Where no tag tells the version, the server does.
fn ask_version(cluster: &ClusterRecord) -> String {
    let options: String = conf::newer(cluster)
        .map(|(_, key, value)| format!(" --{key} {value}"))
        .collect();
    if options.is_empty() {
        return String::new();
    }
    format!("case \"$(valkey-server --version)\" in\n  *' v='[1-8].*) ;;\n  *' v='*) set -- \"$@\"{options} ;;\nesac\n")
}

/// Whether clients should be sent here: it answers, is not loading, and is a primary or in touch with its own. Not whether
/// the whole cluster is well: one shard that fails is no reason to take every pod out of service.
pub const READY: &str = r#"command -v valkey-cli >/dev/null 2>&1 || exit 0
if [ -n "$VALKEY_PASSWORD" ]; then export REDISCLI_AUTH="$VALKEY_PASSWORD"; fi
[ "$(valkey-cli -h "$POD_IP" ping)" = PONG ] || exit 1
case "$(valkey-cli -h "$POD_IP" info replication)" in
  *role:master*|*master_link_status:up*) exit 0 ;;
esac
exit 1
"#;

/// Gives a primary that is about to go time to hand over: while replicas follow it, at most 10 s.
pub const STOP: &str = r#"if ! command -v valkey-cli >/dev/null 2>&1; then
  sleep 3
  exit 0
fi
if [ -n "$VALKEY_PASSWORD" ]; then export REDISCLI_AUTH="$VALKEY_PASSWORD"; fi
turn=0
while [ "$turn" -lt 20 ]; do
  info="$(valkey-cli -h "$POD_IP" info replication)"
  case "$info" in *role:master*) ;; *) exit 0 ;; esac
  case "$info" in *connected_slaves:0*) exit 0 ;; esac
  sleep 0.5
  turn=$((turn + 1))
done
"#;
