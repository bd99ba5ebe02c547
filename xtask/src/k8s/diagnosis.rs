//! Why a server did not come up: its last words, and what they usually mean.

use std::path::Path;

use super::folder::Folder;
use super::state::Started;
use crate::error::Error;

const LINES_SHOWN: usize = 20;
/// The end of the log we look through; a log line of the API server may be long.
const BYTES_READ: usize = 64 * 1024;

const PORT_TAKEN: &str = "address already in use";

pub(crate) fn failed(started: &Started, folder: &Folder, log_from: u64, what: &str) -> Error {
    let log = started.component.log(folder);
    let words = last_words(&log, log_from);
    let mut causes = causes(&words, started, folder);
    if causes.is_empty() && started.running().is_some() {
        causes.push("the machine is too busy, or the server waits for another one; see its log".into());
    }
    Error::Component {
        component: started.component.name().into(),
        what: what.into(),
        tail: words
            .lines()
            .skip(words.lines().count().saturating_sub(LINES_SHOWN))
            .collect::<Vec<_>>()
            .join("\n"),
        log,
        causes,
    }
}

/// Another program was quicker; other ports will do.
pub(crate) fn is_port_taken(error: &Error) -> bool {
    matches!(error, Error::Component { tail, .. } if tail.contains(PORT_TAKEN))
}

/// What the log says since `from`.
fn last_words(log: &Path, from: u64) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let from = usize::try_from(from)
        .unwrap_or(0)
        .max(bytes.len().saturating_sub(BYTES_READ));
    String::from_utf8_lossy(bytes.get(from..).unwrap_or_default()).into_owned()
}

fn causes(words: &str, started: &Started, folder: &Folder) -> Vec<String> {
    let dir = folder.path().display();
    let again = format!("`cargo xtask k8s down --dir {dir}` removes it, then `up` starts afresh");
    let known: [(&[&str], String); 6] = [
        (
            &[PORT_TAKEN],
            format!(
                "another program listens at {}; `down` and `up` again choose other ports",
                started.address
            ),
        ),
        (
            &["no space left on device"],
            format!("the disk that holds {dir} is full"),
        ),
        (
            &["permission denied", "operation not permitted"],
            format!("{dir} was used by another user; {again}"),
        ),
        (
            &["too many open files"],
            "the limit of open files is too low (`ulimit -n`)".to_owned(),
        ),
        (
            &[
                "failed to recover",
                "walpb",
                "wal: ",
                "database file",
                "snapshot file",
                "cannot downgrade",
                "file lock",
            ],
            format!("a stale or damaged data folder in {dir}; {again}"),
        ),
        (
            &["etcd.sock: connect", "error while dialing"],
            "etcd is not running; see `cargo xtask k8s status` and its log".to_owned(),
        ),
    ];
    let words = words.to_lowercase();
    let matching = known
        .into_iter()
        .filter(|(signs, _)| signs.iter().any(|sign| words.contains(sign)));
    matching.map(|(_, cause)| cause).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::k8s::state::Component;
    use crate::paths;
    use crate::setup::Version;

    #[test]
    fn a_failure_shows_the_last_lines_since_the_start_and_names_the_cause() {
        let temporary = paths::temporary_folder("usher-diagnosis").unwrap();
        let folder = Folder::locate(Some(temporary.clone())).unwrap();
        let started = Started {
            component: Component::KubeApiserver,
            program: "kube-apiserver".into(),
            version: Version::new(1, 36, 3),
            arguments: Vec::new(),
            address: "https://127.0.0.1:20001".into(),
            process: None,
        };
        let before = "an older run: no space left on device\n";
        let lines: String = (1..=30).map(|number| format!("line {number}\n")).collect();
        let log = format!("{before}{lines}listen tcp 127.0.0.1:20001: bind: address already in use\n");
        paths::write_private(&folder.file("kube-apiserver.log"), &log).unwrap();
        let error = failed(&started, &folder, before.len() as u64, "ended at once");
        assert!(is_port_taken(&error));
        let text = error.to_string();
        assert!(text.starts_with("kube-apiserver ended at once"), "{text}");
        assert!(
            text.contains("another program listens at https://127.0.0.1:20001"),
            "{text}"
        );
        assert!(!text.contains("disk"), "{text}");
        assert!(text.contains("line 12\n") && !text.contains("line 11\n"), "{text}");
        paths::remove(&temporary).unwrap();
    }
}
