//! Plays one scenario: a folder with its files as home and working directory, a namespace of its own, and a shell in
//! which `kubectl` is the one that is tried.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::normal::Normaliser;
use crate::program::Kubectl;
use crate::recorded::Transcript;
use crate::scenario::{NAMESPACE, Scenario, Step};
use crate::server::Server;

/// What takes longer hangs. Generous: a real server may share two cores with a compiler.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn play(scenario: &Scenario, kubectl: &Kubectl, server: &Server, namespace: &str) -> Transcript {
    assert_eq!(namespace.len(), NAMESPACE.len(), "or columns would shift");
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell {
        folder: folder.path(),
        namespace,
    };
    shell.move_in(scenario, kubectl, server);
    let mut normal = Normaliser::new(namespace, folder.path().to_str().unwrap(), &scenario.text);
    let mut transcript = Transcript::new();
    let mut background: Option<(String, Line)> = None;
    for step in &scenario.steps {
        match step {
            Step::Run(line) => {
                let said = shell.start(line).finish();
                transcript.push((format!("$ {line}"), normal.text(&said)));
            }
            Step::Start(line) => {
                assert!(
                    background.is_none(),
                    "{}: one at a time in the background",
                    scenario.name
                );
                background = Some((line.clone(), shell.start(line)));
            }
            Step::Await(line) => {
                let deadline = Instant::now() + PATIENCE;
                while !shell.start(line).succeeds() {
                    assert!(
                        Instant::now() < deadline,
                        "{}: it never succeeds: {line}",
                        scenario.name
                    );
                }
            }
            Step::Until(words) => {
                let (_, line) = background.as_mut().expect("`&` starts something before `until`");
                line.until(words);
            }
            Step::Stop | Step::Done => {
                let (title, line) = background.take().expect("`&` starts something before it ends");
                let said = match step {
                    Step::Stop => line.stop(),
                    _ => line.finish(),
                };
                transcript.push((format!("& {title}"), normal.text(&said)));
            }
        }
    }
    if server.shared {
        shell.move_out(server);
    }
    transcript
}

struct Shell<'a> {
    folder: &'a Path,
    namespace: &'a str,
}

impl Shell<'_> {
    fn move_in(&self, scenario: &Scenario, kubectl: &Kubectl, server: &Server) {
        for (name, content) in &scenario.files {
            std::fs::write(self.folder.join(name), content.replace(NAMESPACE, self.namespace)).unwrap();
        }
        let home = self.folder.join(".home");
        std::fs::create_dir(&home).unwrap();
        std::os::unix::fs::symlink(&kubectl.path, home.join("kubectl")).unwrap();
        std::fs::copy(&server.kubeconfig, home.join("kubeconfig")).unwrap();
        // On a bare server nobody makes the account that every pod needs; with controllers, whoever is first.
        let ready = self.start(
            "printf '%s' '{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"the-namespace\"}}' | \
               kubectl create -f - && \
             kubectl config set-context --current --namespace=the-namespace && \
             (printf '%s' '{\"apiVersion\":\"v1\",\"kind\":\"ServiceAccount\",\"metadata\":{\"name\":\"default\"}}' | \
               kubectl create -f - || kubectl get serviceaccount default) && echo ready",
        );
        let said = ready.finish();
        assert!(
            said.ends_with("ready\n"),
            "{}: cannot make ready: {said}",
            scenario.name
        );
    }

    fn move_out(&self, server: &Server) {
        let finalize = "kubectl get namespace the-namespace -o json | sed 's/\"kubernetes\"$//' | \
                        kubectl replace --raw /api/v1/namespaces/the-namespace/finalize -f -";
        let delete = "kubectl delete namespace the-namespace --wait=false";
        self.start(delete).finish();
        if !server.controllers {
            // Nobody else does.
            self.start(finalize).finish();
        }
    }

    fn start(&self, line: &str) -> Line {
        let home = self.folder.join(".home");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([home.clone()].into_iter().chain(std::env::split_paths(&path))).unwrap();
        let mut command = Command::new("sh");
        command
            .arg("-c")
            // One pipe, so that what is printed stays in order.
            .arg(format!("exec 2>&1\n{}", line.replace(NAMESPACE, self.namespace)))
            .current_dir(self.folder)
            .env_clear()
            .env("PATH", path)
            .env("HOME", &home)
            .env("KUBECONFIG", home.join("kubeconfig"))
            .env("KUBECACHEDIR", home.join("cache"))
            .env("TMPDIR", self.folder)
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (send, said) = channel();
        std::thread::spawn(move || {
            loop {
                let mut line = Vec::new();
                match output.read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => break,
                    Ok(_) => {
                        let _ = send.send(String::from_utf8_lossy(&line).into_owned());
                    }
                }
            }
        });
        Line {
            child,
            said,
            heard: String::new(),
            deadline: Instant::now() + PATIENCE,
        }
    }
}

/// A line of the shell that runs. Its processes go with it.
struct Line {
    child: Child,
    said: Receiver<String>,
    heard: String,
    deadline: Instant,
}

impl Line {
    /// Hears one line more; says whether there was one.
    fn hear(&mut self) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match self.said.recv_timeout(left) {
            Ok(line) => self.heard += &line,
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => {
                self.kill();
                self.heard += &format!("[no end after {} s]\n", PATIENCE.as_secs());
                return false;
            }
        }
        true
    }

    fn until(&mut self, words: &str) {
        self.deadline = Instant::now() + PATIENCE;
        while !self.heard.contains(words) && self.hear() {}
        if !self.heard.contains(words) {
            self.heard += &format!("[never printed: {words}]\n");
        }
    }

    /// What it printed until it ended, and how, unless well.
    fn finish(mut self) -> String {
        self.deadline = Instant::now() + PATIENCE;
        while self.hear() {}
        let how = self.child.wait().unwrap();
        self.ending(how)
    }

    fn succeeds(mut self) -> bool {
        while self.hear() {}
        self.child.wait().is_ok_and(|how| how.success())
    }

    fn stop(mut self) -> String {
        self.kill();
        while self.hear() {}
        let how = self.child.wait().unwrap();
        match how.signal() {
            Some(_) => std::mem::take(&mut self.heard),
            None => self.ending(how) + "[it had ended by itself]\n",
        }
    }

    fn ending(&mut self, how: ExitStatus) -> String {
        if !self.heard.is_empty() && !self.heard.ends_with('\n') {
            self.heard += "[no newline]\n";
        }
        match how.code() {
            Some(0) => {}
            Some(code) => self.heard += &format!("[exit {code}]\n"),
            None => self.heard += "[killed]\n",
        }
        std::mem::take(&mut self.heard)
    }

    fn kill(&self) {
        if let Ok(group) = i32::try_from(self.child.id()) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // A line that was waited for has no group any more, and its number is not given to another so soon.
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.kill();
            let _ = self.child.wait();
        }
    }
}
