//! The documents are true: every ```sh block of them is run, every example is accepted by the API server, every link leads
//! somewhere.
//!
//! A document is one shell session, from the root of the repository, in a namespace of its own. Its commands are run as
//! they are written, with these stand-ins on PATH, since a test must neither build nor start a second cluster:
//!
//! - `cargo run … -- ARGUMENTS` is the built `usher ARGUMENTS`; so is `usher`, and `kubectl usher`.
//! - `cargo xtask …`, `cargo test`, `clippy`, `fmt` and `build` do nothing: they are what runs this test. The control
//!   plane that `k8s up` would start is the one of the test run, found where the documents say it is: HOME is a scratch
//!   folder that has `.cache/usher/k8s/default/kubeconfig`.
//! - `usher operator` looks after the document's own namespace (`USHER_NAMESPACE`), and has a port of its own; `curl` to
//!   the usual 127.0.0.1:8080 goes there.
//!
//! `kubectl` is the real one. What a document leaves running is killed with its process group.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

/// A document takes seconds; past this it hangs.
const DEADLINE: Duration = Duration::from_secs(120);

/// How a block may be marked. Only `sh` is run; another word for a shell would be a way around it.
const MARKS: [&str; 8] = ["sh", "text", "yaml", "rust", "toml", "json", "mermaid", "promql"];

/// In a cluster that others use, too, these are no commands for a test: such a block is marked `text`.
const NOT_TO_BE_RUN: [&str; 5] = ["uninstall", "delete crd", "delete namespace", "delete ns", "sleep "];

static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap().to_path_buf()
});

#[derive(Debug)]
struct Block {
    mark: String,
    line: usize,
    text: String,
}

#[derive(Debug)]
struct Document {
    path: PathBuf,
    text: String,
    blocks: Vec<Block>,
}

impl Document {
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap();
        let mut blocks: Vec<Block> = Vec::new();
        let mut open = false;
        for (number, line) in text.lines().enumerate() {
            match line.trim_start().strip_prefix("```") {
                Some(mark) if !open => blocks.push(Block {
                    mark: mark.trim().to_owned(),
                    line: number + 1,
                    text: String::new(),
                }),
                None if open => {
                    let block = blocks.last_mut().unwrap();
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                _ => {}
            }
            open ^= line.trim_start().starts_with("```");
        }
        assert!(!open, "{}: a block is not closed", path.display());
        Self { path, text, blocks }
    }

    fn shown(&self) -> String {
        self.path.strip_prefix(&*ROOT).unwrap().display().to_string()
    }

    /// Every block is marked, and none that is run would disturb others.
    fn check(&self) {
        for block in &self.blocks {
            let at = format!("{}:{}", self.shown(), block.line);
            assert!(
                MARKS.contains(&block.mark.as_str()),
                "{at}: a block is marked {:?}; take `sh` if it is to be run, else one of {MARKS:?}",
                block.mark
            );
            for words in NOT_TO_BE_RUN.iter().filter(|_| block.mark == "sh") {
                assert!(
                    !block.text.contains(words),
                    "{at}: {words:?} is not for a test: mark it `text`"
                );
            }
        }
    }

    fn commands(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|block| block.mark == "sh")
    }
}

/// README first, then the others of the root, then `docs`.
fn documents() -> Vec<Document> {
    let mut paths = Vec::new();
    for folder in [ROOT.clone(), ROOT.join("docs"), ROOT.join("docs/reference")] {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
        files.sort_by_key(|path| (!path.ends_with("README.md"), path.clone()));
        paths.extend(files);
    }
    paths.into_iter().map(Document::read).collect()
}

#[test]
fn every_block_says_what_it_is() {
    for document in documents() {
        document.check();
    }
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    for document in documents() {
        for link in document
            .text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if link.contains("://") || link.contains(' ') {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => document.path.clone(),
                file => document.path.parent().unwrap().join(file),
            };
            assert!(target.exists(), "{}: {link} leads nowhere", document.shown());
            if !anchor.is_empty() {
                let text = fs::read_to_string(&target).unwrap();
                let found = text
                    .lines()
                    .any(|line| line.starts_with('#') && anchor_of(line) == anchor);
                assert!(found, "{}: {link}: no such heading", document.shown());
            }
        }
    }
}

/// As code forges make it from a heading.
fn anchor_of(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_command_of_the_documents_works() {
    let mut ran = 0;
    for document in documents() {
        if document.commands().next().is_none() {
            continue;
        }
        let begun = Instant::now();
        let stage = Stage::set(document.path.file_stem().unwrap().to_str().unwrap());
        let (status, said) = stage.play(&document);
        assert!(status.success(), "{} ended with {status}:\n{said}", document.shown());
        let left = stage.kubectl(&["get", "subnetpools,subnetclaims,subnets", "-o", "name"]);
        assert_eq!(left, "", "{} leaves something behind", document.shown());
        ran += document.commands().count();
        eprintln!("{}: {:.1} s", document.shown(), begun.elapsed().as_secs_f64());
    }
    assert!(ran >= 10, "only {ran} blocks were run");
}

#[test]
fn every_example_is_valid_and_shown_in_a_document() {
    let stage = Stage::set("examples");
    stage.run("usher crds | kubectl apply --server-side -f -");
    stage.run("kubectl wait --for=condition=Established crd/subnets.plexaubnet.io --timeout=60s");
    let documents = documents();
    let mut folders = vec![ROOT.join("examples")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let (more, found): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
        folders.extend(more);
        files.extend(found);
    }
    assert!(!files.is_empty());
    for file in files {
        let shown = file.strip_prefix(&*ROOT).unwrap().display().to_string();
        stage.kubectl(&["apply", "--dry-run=server", "--validate=strict", "-f", &shown]);
        let named = documents.iter().any(|document| document.text.contains(&shown));
        assert!(named, "{shown} is in no document");
    }
}

/// A namespace, a folder, and the stand-ins.
struct Stage {
    folder: TempDir,
    namespace: String,
    path: String,
}

impl Stage {
    fn set(name: &str) -> Self {
        let variable = |name: &str| {
            std::env::var(name).unwrap_or_else(|_| {
                panic!(
                    "{name} is not set: this test needs a real API server. `cargo xtask test` starts one and sets it; \
                     by hand: `cargo xtask k8s up`, then USHER_TEST_KUBECONFIG=<kubeconfig>"
                )
            })
        };
        let folder = tempfile::tempdir().unwrap();
        let tools = std::env::var("USHER_TOOLS").unwrap_or_default();
        let path = std::env::var("PATH").unwrap();
        let stage = Self {
            namespace: format!("docs-{}-{}", name.to_lowercase(), std::process::id()),
            path: format!("{}:{tools}:{path}", folder.path().join("bin").display()),
            folder,
        };
        stage.put_stand_ins(&path);
        let kubeconfig = stage.kubeconfig();
        fs::create_dir_all(kubeconfig.parent().unwrap()).unwrap();
        let shown = kubeconfig.display();
        let source = variable("USHER_TEST_KUBECONFIG");
        // Flattened: it may name files by their place beside it.
        stage.run(&format!(
            "umask 077
             kubectl config view --raw --flatten --minify --kubeconfig={source} > {shown}
             kubectl config set-context --current --kubeconfig={shown} --namespace={ns}
             kubectl create namespace {ns}",
            ns = stage.namespace
        ));
        stage
    }

    /// Where `cargo xtask k8s up` puts it, below HOME.
    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join(".cache/usher/k8s/default/kubeconfig")
    }

    fn put_stand_ins(&self, path: &str) {
        let bin = self.folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        let put = |name: &str, script: &str| {
            let file = bin.join(name);
            fs::write(&file, format!("#!/usr/bin/env bash\n{script}\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        };
        let usher = env!("CARGO_BIN_EXE_usher");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        put(
            "usher",
            &format!(
                "if [[ ${{1:-}} == operator && $* != *--health-address* ]]; then
                   shift; exec {usher} operator --health-address {address} \"$@\"
                 fi
                 exec {usher} \"$@\""
            ),
        );
        std::os::unix::fs::symlink(usher, bin.join("kubectl-usher")).unwrap();
        put(
            "cargo",
            "case ${1:-} in
               run) while [[ $# -gt 0 && $1 != -- ]]; do shift; done; shift; exec usher \"$@\" ;;
               xtask|test|clippy|fmt|build) echo \"(cargo $*: not inside a test)\" ;;
               *) echo \"cargo $*: tests/docs.rs knows no stand-in for it\" >&2; exit 2 ;;
             esac",
        );
        put(
            "curl",
            &format!("PATH={path}\nexec curl \"${{@//127.0.0.1:8080/{address}}}\""),
        );
    }

    /// A shell in its own process group, with the stand-ins. What it says goes to a file, so that nothing it leaves
    /// behind can keep a pipe open.
    fn shell(&self, script: &str) -> (ExitStatus, String) {
        let log = self.folder.path().join("said");
        let output = fs::File::create(&log).unwrap();
        let file = self.folder.path().join("script");
        fs::write(&file, script).unwrap();
        let mut child = Command::new("bash")
            .args(["-euo", "pipefail"])
            .arg(&file)
            .current_dir(&*ROOT)
            .env("PATH", &self.path)
            .env("HOME", self.folder.path())
            .env("KUBECONFIG", self.kubeconfig())
            .env("USHER_NAMESPACE", &self.namespace)
            .env("PS4", "[${SECONDS} s] + ")
            .env_remove("XDG_CACHE_HOME")
            .env_remove("USHER_CACHE")
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .process_group(0)
            .spawn()
            .expect("bash");
        let group = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let status = wait_until(|| child.try_wait().unwrap());
        let _ = killpg(group, Signal::SIGKILL);
        let said = fs::read_to_string(&log).unwrap();
        let status = status.unwrap_or_else(|| panic!("no end after {DEADLINE:?}:\n{said}"));
        (status, said)
    }

    /// All of a document's commands, each shown before it is run.
    fn play(&self, document: &Document) -> (ExitStatus, String) {
        document.check();
        let mut script = String::new();
        for block in document.commands() {
            let at = format!("{}:{}", document.shown(), block.line);
            script.push_str(&format!(
                "{{ set +x; }} 2>/dev/null; echo '--- {at}'; set -x\n{}",
                block.text
            ));
        }
        self.shell(&script)
    }

    /// A command that must work; its output.
    fn run(&self, script: &str) -> String {
        let (status, said) = self.shell(script);
        assert!(status.success(), "{script}: {status}\n{said}");
        said
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        self.run(&format!("kubectl {}", arguments.join(" ")))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // After a failure, objects may be left whose finalizer nobody takes off any more.
        let kinds = "subnets,subnetpools";
        let _ = self.shell(&format!(
            "kubectl delete namespace {} --wait=false --ignore-not-found
             kubectl get {kinds} -o name | while read -r object; do
               kubectl patch $object --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'
             done",
            self.namespace
        ));
    }
}

/// Looks until there is something to see, or the time is up.
fn wait_until<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    while begun.elapsed() < DEADLINE {
        if let Some(seen) = look() {
            return Some(seen);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}
