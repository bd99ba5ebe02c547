//! `usher up` as a user has it: one process, kubectl beside it, Ctrl-C at the end. kubectl must be on PATH.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod pods;
mod process;

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use nix::sys::signal::Signal;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};

use process::{Up, command, kubectl};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/subnets");

const BOUND: [&str; 5] = [
    "wait",
    "--for=jsonpath={.status.phase}=Bound",
    "subnetclaims",
    "--all",
    "--timeout=60s",
];

#[test]
fn e5_in_memory_a_claim_is_bound_and_ctrl_c_stops_it_cleanly() {
    let home = tempfile::tempdir().unwrap();
    let up = Up::ready(home.path(), &["--memory", "--listen", "127.0.0.1:0"]);
    let said = up.said.join("\n");
    assert!(said.contains("The API is at https://127.0.0.1:"), "{said}");
    assert!(said.contains("Single user, no authorization"), "X2: {said}");
    assert!(said.contains("SubnetClaim") && said.contains("SubnetPool"), "{said}");
    for example in ["pool.yaml", "claims.yaml"] {
        up.kubectl(&["apply", "-f", &format!("{EXAMPLES}/{example}")]);
    }
    up.kubectl(&BOUND);
    let (kubeconfig, token) = (up.kubeconfig(), up.token());
    up.signal(Signal::SIGINT);
    let (code, said) = up.ended();
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("\nStopping: ") && said.contains("\nStopped."), "{said}");
    assert!(!said.contains(&token), "the token is shown: {said}");
    assert!(!kubeconfig.parent().unwrap().exists(), "nothing is kept");
}

#[test]
fn e5_on_disk_everything_is_found_again_after_a_stop_and_after_kill_9() {
    let home = tempfile::tempdir().unwrap();
    // The default folder, below $HOME.
    let flags = ["--listen", "127.0.0.1:0"];
    let up = Up::ready(home.path(), &flags);
    let folder = home.path().join(".local/share/usher/default");
    let folder = fs::canonicalize(folder).unwrap();
    assert_eq!(up.kubeconfig(), folder.join("kubeconfig"));
    for example in ["pool.yaml", "claims.yaml"] {
        up.kubectl(&["apply", "-f", &format!("{EXAMPLES}/{example}")]);
    }
    up.kubectl(&BOUND);
    let state = |up: &Up| up.kubectl(&["get", "subnets,subnetclaims", "-o", "jsonpath={.items[*].metadata.uid}"]);
    let (before, token) = (state(&up), up.token());
    up.signal(Signal::SIGTERM);
    assert_eq!(up.ended().0, 0);

    let up = Up::ready(home.path(), &flags);
    assert_eq!((state(&up), up.token()), (before.clone(), token.clone()));
    up.kubectl(&["annotate", "subnetpool", "office", "note=acknowledged"]);
    up.signal(Signal::SIGKILL);
    drop(up);

    let up = Up::ready(home.path(), &flags);
    let note = up.kubectl(&[
        "get",
        "subnetpool",
        "office",
        "-o",
        "jsonpath={.metadata.annotations.note}",
    ]);
    assert_eq!(note, "acknowledged");
    assert_eq!(state(&up), before);
    let log = fs::read_to_string(folder.join("audit.log")).unwrap();
    assert!(log.contains(r#""name":"office""#), "X5");
    assert!(!log.contains(&token));
}

/// A request whose body is awaited: `100 Continue` tells that the server has begun to read it.
fn half_a_request(up: &Up, length: usize) -> rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    let authority = fs::read(up.kubeconfig().with_file_name("ca.crt")).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let line = up
        .said
        .iter()
        .find_map(|line| line.strip_prefix("The API is at https://"));
    let address = line.unwrap().split(';').next().unwrap();
    let tcp = TcpStream::connect(address).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = rustls::StreamOwned::new(connection, tcp);
    write!(
        stream,
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n",
        up.token()
    )
    .unwrap();
    assert!(some(&mut stream).starts_with("HTTP/1.1 100"));
    stream
}

fn some(stream: &mut impl std::io::Read) -> String {
    let mut bytes = vec![0; 4_096];
    let length = stream.read(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

const MAP: &[u8] = br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"late"}}"#;

#[test]
fn a_request_under_way_is_answered_before_it_stops() {
    let home = tempfile::tempdir().unwrap();
    let mut up = Up::ready(home.path(), &["--memory", "--listen", "127.0.0.1:0"]);
    let mut request = half_a_request(&up, MAP.len());
    up.signal(Signal::SIGINT);
    up.until("Stopping");
    request.write_all(MAP).unwrap();
    assert!(some(&mut request).starts_with("HTTP/1.1 201"));
    drop(request);
    assert_eq!(up.ended().0, 0);
}

#[test]
fn e5_a_second_ctrl_c_stops_at_once() {
    let home = tempfile::tempdir().unwrap();
    let mut up = Up::ready(home.path(), &["--memory", "--listen", "127.0.0.1:0"]);
    let request = half_a_request(&up, MAP.len());
    up.signal(Signal::SIGINT);
    up.until("Stopping");
    up.signal(Signal::SIGINT);
    let (code, said) = up.ended();
    assert_eq!(code, 130, "{said}");
    assert!(said.contains("stopped at once; what was in memory is gone"), "{said}");
    drop(request);
}

#[test]
fn e5_the_context_is_added_to_a_kubeconfig_and_nothing_else_is_touched() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("my config");
    let before = "# mine\ncurrent-context: other\nclusters:\n- name: other\n  cluster: {server: 'https://x'}\n";
    fs::write(&file, before).unwrap();
    let flags = [
        "--memory",
        "--listen",
        "127.0.0.1:0",
        "--kubeconfig",
        file.to_str().unwrap(),
    ];
    let up = Up::ready(home.path(), &flags);
    let after = fs::read_to_string(&file).unwrap();
    assert!(after.starts_with(before), "{after}");
    let names = kubectl(&file, &["--context", "usher", "get", "subnetpools", "-A", "-o", "name"]);
    assert_eq!(names, "");
    // The line that it prints is one that a shell takes.
    let line = up.said.iter().find(|line| line.starts_with("kubectl ")).unwrap();
    let shell = Command::new("sh")
        .args(["-c", line])
        .env("HOME", home.path())
        .output()
        .unwrap();
    assert!(
        shell.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&shell.stderr)
    );
}

/// What is said by an `usher up` that does not come up.
fn refusal(home: &Path, flags: &[&str], code: i32) -> String {
    let output = command(home, flags).stderr(Stdio::piped()).output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(code), "{out}{err}");
    assert_eq!(out, "");
    if code == 1 {
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    err.into_owned()
}

#[test]
fn what_keeps_it_from_coming_up_is_said_in_a_sentence() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).display().to_string();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = refusal(home.path(), &["--memory", "--listen", &address], 1);
    assert!(
        said.starts_with(&format!("usher: {address} is taken by another program; stop it, or")),
        "{said}"
    );
    let said = refusal(home.path(), &["--memory", "--listen", "0.0.0.0:0"], 1);
    assert!(said.contains("insist with --listen-unsafe"), "{said}");

    let broken = path("broken");
    fs::write(&broken, "users:\n- name: [s3cr3t\nclusters: {}\n").unwrap();
    let flags = ["--memory", "--listen", "127.0.0.1:0", "--kubeconfig", &broken];
    let said = refusal(home.path(), &flags, 1);
    assert!(
        said.contains(&format!("kubeconfig {broken} is no valid kubeconfig at line 3")),
        "{said}"
    );
    assert!(!said.contains("s3cr3t"), "{said}");

    let data = path("data");
    let up = Up::ready(
        home.path(),
        &["--data", &data, "--listen", "127.0.0.1:0", "--durability", "relaxed"],
    );
    let said = refusal(home.path(), &["--data", &data, "--listen", "127.0.0.1:0"], 1);
    let holder = format!(
        "store.redb is in use by process {}; stop it, or choose another folder",
        up.child.id()
    );
    assert!(said.contains(&holder), "{said}");

    fs::write(path("file"), "").unwrap();
    let said = refusal(home.path(), &["--data", &path("file")], 1);
    assert!(said.contains("is a file; a data folder is needed"), "{said}");
    let said = refusal(Path::new(""), &[], 1);
    assert!(said.contains("name one with --data FOLDER"), "{said}");
}

#[test]
fn wrong_flags_end_with_2() {
    let home = tempfile::tempdir().unwrap();
    for flags in [
        &["--memory", "--data", "x"][..],
        &["--memory", "--durability", "fsync"],
        &["--durability", "never"],
        &["--listen", "6443"],
        &["--context", "prod"],
    ] {
        refusal(home.path(), flags, 2);
    }
    let said = refusal(home.path(), &["--memory", "--data", "x"], 2);
    assert!(said.contains("leave one of the two out"), "{said}");
    let output = Command::new(env!("CARGO_BIN_EXE_usher"))
        .args(["node", "node-7"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("Say `usher node node-7 WHAT`, where WHAT is one of stop, kill, cut, start"),
        "{said}"
    );
}

#[test]
fn what_a_killed_one_in_memory_left_is_taken_away_by_the_next_and_a_living_ones_is_not() {
    let home = tempfile::tempdir().unwrap();
    let flags = ["--memory", "--nodes", "0", "--listen", "127.0.0.1:0"];
    let folder = |up: &Up| up.kubeconfig().parent().unwrap().to_owned();
    let living = Up::ready(home.path(), &flags);
    let killed = Up::ready(home.path(), &flags);
    let left = folder(&killed);
    killed.signal(Signal::SIGKILL);
    drop(killed);
    assert!(left.join("kubeconfig").exists(), "nobody was there to take it away");
    let next = Up::ready(home.path(), &flags);
    assert!(!left.exists(), "{} is still there", left.display());
    for up in [&living, &next] {
        assert!(folder(up).join("kubeconfig").exists());
        up.kubectl(&["get", "namespaces"]);
    }
}
