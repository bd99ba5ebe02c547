//! A pod for a test: its folder, its supervisor, and the certainty that nothing of it is left afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use tempfile::TempDir;
use usher_embedded::node::supervisor::client::{self, ExecEvent, Found, Supervisor, SupervisorError};
use usher_embedded::node::supervisor::probe::probe;
use usher_embedded::node::supervisor::processes;
use usher_embedded::node::supervisor::protocol::{
    ContainerPlan, ExecPlan, Exit, Isolation, Mount, PLAN_FILE, POD_UID_VARIABLE, Phase, PodPlan, PodState, ProcessMark,
};

/// Longer than anything takes on a machine that is busy with other tests.
pub const LIMIT: Duration = Duration::from_secs(60);
const NOBODY: u32 = 65534;

/// Who runs the supervisor, and how it keeps containers apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    pub isolation: Isolation,
    /// As `nobody`, although the test is root.
    pub as_nobody: bool,
}

impl Level {
    /// Whether runAsUser means anything.
    pub fn gives_ids(self) -> bool {
        is_root() && !self.as_nobody
    }
}

pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Every level of this machine. `paths` is everywhere; user namespaces are where the probe says so.
pub fn levels() -> Vec<Level> {
    static LEVELS: OnceLock<Vec<Level>> = OnceLock::new();
    LEVELS
        .get_or_init(|| {
            let mut levels = Vec::new();
            for as_nobody in if is_root() { vec![false, true] } else { vec![false] } {
                levels.push(Level {
                    isolation: Isolation::Paths,
                    as_nobody,
                });
                let best = probe(&program(as_nobody)).isolation;
                if best != Isolation::Paths {
                    levels.push(Level {
                        isolation: best,
                        as_nobody,
                    });
                }
                let has_bwrap = ["/usr/bin/bwrap", "/usr/local/bin/bwrap"]
                    .iter()
                    .any(|path| Path::new(path).exists());
                if best == Isolation::NamespacesAsUser && has_bwrap {
                    // It would not be chosen here, but it can be tried.
                    levels.push(Level {
                        isolation: Isolation::Bubblewrap,
                        as_nobody,
                    });
                }
            }
            levels
        })
        .clone()
}

/// The levels with a root of their own.
pub fn private_levels() -> Vec<Level> {
    levels()
        .into_iter()
        .filter(|level| level.isolation.has_private_root())
        .collect()
}

/// Our program, or a script that gives up root and then becomes it.
pub fn program(as_nobody: bool) -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_usher-pod"));
    if !as_nobody {
        return built.to_owned();
    }
    static SCRIPT: OnceLock<TempDir> = OnceLock::new();
    let folder = SCRIPT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // The folder that it was built in may be closed to others.
        let copy = folder.path().join("usher-pod");
        fs::copy(built, &copy).unwrap();
        let script = folder.path().join("as-nobody");
        let text = format!(
            "#!/bin/sh\nexec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups {} \"$@\"\n",
            copy.display()
        );
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        folder
    });
    folder.path().join("as-nobody")
}

pub struct Pod {
    pub level: Level,
    pub plan: PodPlan,
    pub supervisor: Supervisor,
    pub data: TempDir,
    attempts: AtomicU32,
}

impl Pod {
    pub async fn start(level: Level) -> Pod {
        Pod::start_with(level, |_| {}).await
    }

    pub async fn start_with(level: Level, change: impl FnOnce(&mut PodPlan)) -> Pod {
        let data = tempfile::tempdir().unwrap();
        Pod::start_in(level, data, change).await
    }

    pub async fn start_in(level: Level, data: TempDir, change: impl FnOnce(&mut PodPlan)) -> Pod {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut plan = PodPlan {
            uid: format!("test-{}-{number}", std::process::id()),
            namespace: "default".to_owned(),
            name: "p".to_owned(),
            isolation: level.isolation,
            hostname: "the-pod".to_owned(),
            dies_with: None,
            masked: Vec::new(),
            in_memory: std::collections::BTreeMap::new(),
        };
        change(&mut plan);
        fs::set_permissions(data.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let folder = data.path().join("pod");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o711)).unwrap();
        fs::write(folder.join(PLAN_FILE), serde_json::to_vec(&plan).unwrap()).unwrap();
        own(level, &folder);
        let supervisor = client::start(&program(level.as_nobody), &folder, None).await.unwrap();
        Pod {
            level,
            plan,
            supervisor,
            data,
            attempts: AtomicU32::new(0),
        }
    }

    pub fn folder(&self) -> &Path {
        self.supervisor.folder()
    }

    /// A folder on the host that the pod's user may write to.
    pub fn volume(&self, name: &str) -> PathBuf {
        let folder = self.data.path().join(name);
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        folder
    }

    /// The next attempt of container `c`, a shell script.
    pub fn script(&self, script: &str) -> ContainerPlan {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        ContainerPlan {
            name: "c".to_owned(),
            attempt,
            id: format!("usher://{}-{attempt}", self.plan.uid),
            argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
            env: BTreeMap::from([("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())]),
            workdir: PathBuf::from("/"),
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            root: None,
            read_only_root: false,
            etc: None,
            mounts: Vec::new(),
            tty: false,
        }
    }

    /// Runs it to its end, and gives back how that was.
    pub async fn run(&self, plan: ContainerPlan) -> Phase {
        let (name, attempt) = (plan.name.clone(), plan.attempt);
        self.supervisor.start(plan).await.unwrap();
        self.until_phase(&name, attempt, Phase::has_ended).await
    }

    /// Runs it to its end, which must be a good one, and gives back what it said.
    pub async fn output(&self, plan: ContainerPlan) -> String {
        let (name, attempt) = (plan.name.clone(), plan.attempt);
        let phase = self.run(plan).await;
        let text = self.log(&name, attempt);
        assert!(
            matches!(phase, Phase::Exited { code: 0, .. }),
            "{:?}: {phase:?}\n{text}",
            self.level
        );
        text
    }

    /// Starts it and waits until it runs and has said `ready`.
    pub async fn start_ready(&self, plan: ContainerPlan) -> u32 {
        let (name, attempt) = (plan.name.clone(), plan.attempt);
        self.supervisor.start(plan).await.unwrap();
        let phase = self
            .until_phase(&name, attempt, |phase| !matches!(phase, Phase::Starting))
            .await;
        until(|| self.log(&name, attempt).contains("ready")).await;
        match phase {
            Phase::Running { pid, .. } => pid,
            other => panic!(
                "{:?}: it does not run: {other:?}\n{}",
                self.level,
                self.log(&name, attempt)
            ),
        }
    }

    pub async fn until_phase(&self, container: &str, attempt: u32, wanted: impl Fn(&Phase) -> bool) -> Phase {
        let state = self.until_state(|state| {
            state
                .attempt(container, attempt)
                .is_some_and(|found| wanted(&found.phase))
        });
        state.await.attempt(container, attempt).unwrap().phase.clone()
    }

    pub async fn until_state(&self, wanted: impl Fn(&PodState) -> bool) -> PodState {
        let mut states = pin!(self.supervisor.watch().await.unwrap());
        let waiting = async {
            loop {
                let state = states.next().await.unwrap().unwrap();
                if wanted(&state) {
                    return state;
                }
            }
        };
        tokio::time::timeout(LIMIT, waiting)
            .await
            .expect("the state never came")
    }

    /// What the container wrote, without times and streams.
    pub fn log(&self, container: &str, attempt: u32) -> String {
        let path = self.folder().join(container).join(format!("{attempt}.log"));
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines()
            .map(|line| format!("{}\n", line.splitn(4, ' ').nth(3).unwrap_or_default()))
            .collect()
    }

    /// Whether any process of the pod is left, the supervisor aside.
    pub fn has_processes(&self) -> bool {
        !processes::of_pod(POD_UID_VARIABLE, &self.plan.uid).is_empty()
    }

    pub async fn until_supervisor_ends(&self) {
        until(|| !self.supervisor.is_alive()).await;
    }

    /// As if the agent had died and another looked into the folder.
    pub fn find(&self) -> Found {
        client::find(self.folder()).unwrap()
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        kill(self.supervisor.mark(), 9);
        processes::kill_until_none(|| processes::of_pod(POD_UID_VARIABLE, &self.plan.uid), LIMIT).unwrap();
    }
}

/// Gives a file to whoever runs the supervisor.
pub fn own(level: Level, path: &Path) {
    if level.as_nobody {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

pub fn kill(mark: &ProcessMark, signal: i32) {
    if let Some(pidfd) = processes::open_marked(mark) {
        let _ = processes::signal(&pidfd, signal);
    }
}

/// Waits for a condition that nothing tells us of.
pub async fn until(mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < LIMIT, "it never came true");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub fn mount(source: &Path, target: &str, read_only: bool) -> Mount {
    Mount {
        source: source.to_owned(),
        below: None,
        target: PathBuf::from(target),
        read_only,
    }
}

pub fn exec_plan(argv: &[&str]) -> ExecPlan {
    ExecPlan {
        container: "c".to_owned(),
        attempt: None,
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        tty: false,
        stdin: false,
        timeout_milliseconds: None,
        max_output_bytes: None,
    }
}

/// Everything an exec says until its end.
pub async fn finish(exec: &mut client::Exec) -> Result<(String, String, Exit), SupervisorError> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        match tokio::time::timeout(LIMIT, exec.output.next())
            .await
            .expect("it never ended")?
        {
            ExecEvent::Stdout(bytes) => stdout.extend(bytes),
            ExecEvent::Stderr(bytes) => stderr.extend(bytes),
            ExecEvent::Exit(exit) => {
                let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                return Ok((text(stdout), text(stderr), exit));
            }
        }
    }
}
