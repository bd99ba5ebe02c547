//! The steps of a pod that take time, each as one future. They run beside each other and beside the worker, which hears
//! of their end; a worker that is dropped drops them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::Agent;
use super::folder::PodFolder;
use super::launch::{self, Refusal};
use super::life::{Measured, Telling, Usage};
use super::measure;
use super::patience::{Word, wait_for_word};
use super::surroundings::{Surroundings, renew_tokens};
use crate::node::environment::{Facts, hostname};
use crate::node::hooks::{self, HookFailure, Moment};
use crate::node::machine::Machine;
use crate::node::net::HostsFolder;
use crate::node::probes::{self, Executed};
use crate::node::supervisor::client::{self, ExecEvent, Found, Supervisor, SupervisorError};
use crate::node::supervisor::processes;
use crate::node::supervisor::protocol::{self, ExecPlan, Isolation, PodPlan};
use crate::node::volumes::{self, MountError, Rewriter, Setting};

const CONTINUE: i32 = 18;
/// A hook or a probe may say so much.
const MOST_OUTPUT: u64 = 10 * 1024;
/// A postStart hook has no limit in the reference; one that never ends is ended with the pod.
const LONGEST_HOOK: Duration = Duration::from_secs(24 * 3600);

/// What all chores of a pod know.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) agent: Arc<Agent>,
    pub(super) uid: String,
    pub(super) folder: PodFolder,
    /// Where nothing can be mounted: how the words of a container's probes, hooks and commands are read.
    rewriters: Mutex<BTreeMap<String, Rewriter>>,
}

/// One attempt of a container, and whom to ask about it.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) supervisor: Supervisor,
    pub(super) pod: Arc<Pod>,
    pub(super) container: Container,
    pub(super) attempt: u32,
    /// The pod's.
    pub(super) address: String,
}

/// What went wrong with a pod's ground, as events tell it.
#[derive(Debug)]
pub(super) struct Unprepared {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// How a container's start went.
#[derive(Debug)]
pub(super) enum Started {
    Accepted,
    Refused(Refusal),
    /// The supervisor does not answer.
    Lost(String),
}

impl Context {
    pub(super) fn new(agent: Arc<Agent>, uid: String, folder: PodFolder) -> Self {
        Self {
            agent,
            uid,
            folder,
            rewriters: Mutex::default(),
        }
    }

    fn machine(&self) -> &Arc<Machine> {
        &self.agent.machine
    }

    pub(super) fn facts(&self, address: &str) -> Facts {
        Facts {
            node_name: self.agent.entry.name.clone(),
            host_ips: vec![self.agent.address.to_string()],
            pod_ips: vec![address.to_owned()],
            allocatable: super::admission::allocatable(&self.agent.entry),
            volumes: self.folder.volumes(),
        }
    }

    /// Calls with all that the pod's volumes are made of.
    fn with_setting<T>(&self, pod: &Pod, facts: &Facts, call: impl FnOnce(&Setting<'_>) -> T) -> T {
        let machine = self.machine();
        let objects = Surroundings::new(machine, pod);
        let claims = |name: &str| objects.claim(machine.data(), name);
        let tokens = |request: &volumes::TokenRequest| machine.tokens().token(pod, request);
        call(&Setting {
            pod,
            facts,
            objects: &objects,
            claims: &claims,
            tokens: &tokens,
            host_paths: machine.host_paths(),
            now: machine.hand().now(),
        })
    }

    /// Folder, volumes, names, supervisor.
    pub(super) async fn prepare(
        self: Arc<Self>,
        pod: Arc<Pod>,
        address: std::net::Ipv4Addr,
    ) -> Result<Supervisor, Vec<Unprepared>> {
        let cannot = |message: String| {
            vec![Unprepared {
                reason: "FailedCreatePodSandBox",
                message: format!("Failed to create pod sandbox: {message}"),
            }]
        };
        let this = self.clone();
        let ground = tokio::task::spawn_blocking(move || this.lay_ground(&pod, address));
        match ground.await {
            Ok(Ok(())) => {}
            Ok(Err(errors)) => return Err(errors),
            Err(why) => return Err(cannot(why.to_string())),
        }
        let folder = self.folder.path();
        if let Ok(Found::Alive(supervisor)) = client::find(folder) {
            return Ok(supervisor);
        }
        self.machine().start_supervisor(folder).await.map_err(cannot)
    }

    fn lay_ground(&self, pod: &Pod, address: std::net::Ipv4Addr) -> Result<(), Vec<Unprepared>> {
        let cannot = |what: &str| {
            let folder = self.folder.path().display().to_string();
            let what = what.to_owned();
            move |why: std::io::Error| {
                vec![Unprepared {
                    reason: "FailedCreatePodSandBox",
                    message: format!("Failed to create pod sandbox: cannot {what} {folder}: {why}"),
                }]
            }
        };
        self.folder.make().map_err(cannot("make"))?;
        let facts = self.facts(&address.to_string());
        // A volume that needs the token says so itself.
        let no_token = renew_tokens(self.machine(), pod).err();
        let ready = self.with_setting(pod, &facts, volumes::set_up);
        if let Err(errors) = ready {
            return Err(errors
                .into_iter()
                .map(|error| Unprepared {
                    reason: "FailedMount",
                    message: mount_message(&error, no_token.as_deref()),
                })
                .collect());
        }
        self.write_names(pod, address).map_err(cannot("write into"))?;
        self.folder.keep_object(pod).map_err(cannot("write into"))?;
        self.write_plan(pod, &facts).map_err(cannot("write into"))
    }

    fn write_plan(&self, pod: &Pod, facts: &Facts) -> std::io::Result<()> {
        let machine = self.machine();
        let isolation = self.folder.isolation(machine);
        // Elsewhere a supervisor may mount nothing: these volumes are on the disk then, with the same limit.
        let in_memory = if isolation == Isolation::NamespacesAsRoot {
            volumes::in_memory(
                pod,
                &self.folder.volumes(),
                super::admission::memory_bytes(&self.agent.entry),
            )
        } else {
            BTreeMap::new()
        };
        let plan = PodPlan {
            uid: self.uid.clone(),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            isolation,
            hostname: hostname(pod, facts),
            dies_with: machine.dies_with().cloned(),
            masked: vec![machine.data().to_owned()],
            in_memory,
        };
        self.folder.keep_plan(&plan)
    }

    /// /etc/hosts and /etc/hostname, as of now.
    pub(super) fn write_names(&self, pod: &Pod, address: std::net::Ipv4Addr) -> std::io::Result<()> {
        let names = self.machine().names();
        let hosts = HostsFolder::new(&self.folder.own());
        hosts.write(&names.hosts(pod, address))?;
        let file = hosts.path().join("hostname");
        if !file.exists() {
            let name = hostname(pod, &self.facts(&address.to_string()));
            std::fs::write(file, format!("{name}\n"))?;
        }
        Ok(())
    }

    /// Brings config volumes up to date. What cannot be is told by events.
    pub(super) async fn refresh(self: Arc<Self>, pod: Arc<Pod>, address: String) -> Vec<MountError> {
        let this = self.clone();
        let refreshed = tokio::task::spawn_blocking(move || {
            let facts = this.facts(&address);
            // The old token is in use meanwhile.
            let _ = renew_tokens(this.machine(), &pod);
            this.with_setting(&pod, &facts, volumes::refresh)
        });
        refreshed.await.map(|refreshed| refreshed.errors).unwrap_or_default()
    }

    /// What the pod has on the disk, and how long it took to find out. One pod of the machine at a time: a look goes through
    /// all its files, and nobody waits for it.
    pub(super) async fn measure(self: Arc<Self>, wanted: Measured) -> (Usage, Duration) {
        // It is never closed.
        let _turn = self.machine().measuring().acquire().await;
        let begun = tokio::time::Instant::now();
        let folder = self.folder.clone();
        let usage = tokio::task::spawn_blocking(move || measure::usage(&folder, &wanted)).await;
        (usage.unwrap_or_default(), begun.elapsed())
    }

    /// Starts an attempt, once it is known how.
    pub(super) async fn start(self: Arc<Self>, subject: Subject) -> Started {
        let Subject {
            supervisor,
            pod,
            container,
            attempt,
            address,
        } = subject;
        let name = container.name.clone();
        let (this, theirs) = (self.clone(), pod.clone());
        let planned = tokio::task::spawn_blocking(move || {
            if let Some(refusal) = launch::refused(&theirs, &container) {
                return Err((false, refusal));
            }
            let machine = this.machine();
            let image = launch::image(machine, &container).map_err(|refusal| (false, refusal))?;
            let facts = this.facts(&address);
            let plan = launch::plan(machine, &theirs, &container, attempt, &image, &facts, &this.folder)
                .map_err(|refusal| (true, refusal))?;
            Ok((image.name, plan))
        })
        .await
        .unwrap_or_else(|why| {
            Err((
                false,
                Refusal {
                    reason: "CreateContainerError",
                    message: why.to_string(),
                },
            ))
        });
        let pulled = |image: &str| {
            format!("Container image {image:?} already present on machine and can be accessed by the pod")
        };
        let (image, plan) = match planned {
            Ok(planned) => planned,
            Err((has_image, refusal)) => {
                if has_image {
                    let image = container_image(&pod, &name);
                    self.tell(&pod, &name, false, "Pulled", pulled(&image));
                }
                self.tell_refusal(&pod, &name, &refusal);
                return Started::Refused(refusal);
            }
        };
        self.tell(&pod, &name, false, "Pulled", pulled(&image));
        self.tell(&pod, &name, false, "Created", "Container created".to_owned());
        match supervisor.start(plan).await {
            Ok(()) => Started::Accepted,
            Err(SupervisorError::Refused { message, .. }) => {
                let refusal = Refusal {
                    reason: "RunContainerError",
                    message,
                };
                self.tell_refusal(&pod, &name, &refusal);
                Started::Refused(refusal)
            }
            Err(why) => Started::Lost(why.to_string()),
        }
    }

    fn tell_refusal(&self, pod: &Arc<Pod>, container: &str, refusal: &Refusal) {
        match refusal.reason {
            reason @ ("ErrImageNeverPull" | "InvalidImageName") => {
                let first = if reason == "InvalidImageName" {
                    "InspectFailed"
                } else {
                    reason
                };
                self.tell(pod, container, true, first, refusal.message.clone());
                self.tell(pod, container, true, "Failed", format!("Error: {reason}"));
            }
            _ => self.tell(pod, container, true, "Failed", format!("Error: {}", refusal.message)),
        }
    }

    pub(super) fn tell(&self, pod: &Arc<Pod>, container: &str, is_warning: bool, reason: &str, message: String) {
        let telling = Telling {
            container: (!container.is_empty()).then(|| container.to_owned()),
            is_warning,
            reason: reason.to_owned(),
            message,
        };
        self.agent.tell(pod, telling);
    }

    /// Runs a hook, for at most that long.
    pub(super) async fn hook(
        self: Arc<Self>,
        subject: Subject,
        moment: Moment,
        within: Option<Duration>,
    ) -> Result<(), HookFailure> {
        let Subject {
            supervisor,
            pod,
            container,
            attempt,
            address,
        } = subject;
        let Some(hook) = moment.of(&container) else {
            return Ok(());
        };
        let rewriter = self.rewriter(&pod, &container, &address).await;
        let hook = rewriter.hook(hook);
        let limit = within.unwrap_or(LONGEST_HOOK);
        let exec = |argv| run(supervisor, container.name.clone(), attempt, argv, limit);
        let done = hooks::run(&hook, &pod, &container, &address, exec);
        // A hook that takes longer than the grace is left to itself: the container is stopped then.
        match tokio::time::timeout(limit, done).await {
            Ok(done) => done,
            Err(_) => Err(HookFailure(format!(
                "the hook of container {:?} took longer than the {} s it had",
                container.name,
                limit.as_secs()
            ))),
        }
    }

    /// Asks a container once.
    pub(super) async fn probe(self: Arc<Self>, subject: Subject, kind: probes::Kind) -> Option<probes::Answer> {
        let Subject {
            supervisor,
            pod,
            container,
            attempt,
            address,
        } = subject;
        let probe = kind.of(&container)?;
        let rewriter = self.rewriter(&pod, &container, &address).await;
        let probe = rewriter.probe(probe);
        let seconds = u64::try_from(probe.timeout_seconds.unwrap_or(1)).unwrap_or(1).max(1);
        // The asker gives up first; this ends what it asked.
        let limit = Duration::from_secs(seconds) + Duration::from_millis(200);
        let exec = |argv| run(supervisor, container.name.clone(), attempt, argv, limit);
        Some(probes::check(&probe, &container, &address, exec).await)
    }

    /// Empty where containers have a root of their own.
    pub(super) async fn rewriter(self: &Arc<Self>, pod: &Arc<Pod>, container: &Container, address: &str) -> Rewriter {
        if self.folder.isolation(self.machine()).has_private_root() {
            return Rewriter::default();
        }
        let known = {
            let rewriters = self.rewriters.lock().unwrap_or_else(PoisonError::into_inner);
            rewriters.get(&container.name).cloned()
        };
        if let Some(known) = known {
            return known;
        }
        let (this, pod, owned) = (self.clone(), pod.clone(), container.clone());
        let facts = self.facts(address);
        let made = tokio::task::spawn_blocking(move || {
            let mounts = this.with_setting(&pod, &facts, |setting| {
                volumes::mounts(setting, &owned, &BTreeMap::new())
            });
            mounts.map(|mounts| Rewriter::new(&mounts)).unwrap_or_default()
        })
        .await
        .unwrap_or_default();
        let mut rewriters = self.rewriters.lock().unwrap_or_else(PoisonError::into_inner);
        rewriters.insert(container.name.clone(), made.clone());
        made
    }

    /// Whether the supervisor still answers. One that was stopped is told to go on, and one that is only slow is waited for;
    /// one that is silent for too long is put down with all that it has, and the pod begins anew (N12).
    pub(super) async fn check(self: Arc<Self>, supervisor: Supervisor) -> Result<(), String> {
        let wake = || {
            // Of no effect on one that was not stopped.
            tracing::debug!(pod = self.uid, "a supervisor does not answer and is woken");
            if let Some(process) = processes::open_marked(supervisor.mark()) {
                let _ = processes::signal(&process, CONTINUE);
            }
        };
        match wait_for_word(|| supervisor.look(), wake, std::time::Instant::now).await {
            Word::Heard => Ok(()),
            Word::Gone(why) => Err(why),
            Word::Silent(why) => {
                tracing::warn!(pod = self.uid, "a supervisor does not answer and is put down");
                if let Err(left) = client::put_down(&supervisor, &self.uid).await {
                    tracing::warn!(pod = self.uid, %left, "a pod's processes are left");
                }
                Err(why)
            }
        }
    }
}

/// The reference names the token's trouble in the volume's.
fn mount_message(error: &MountError, no_token: Option<&str>) -> String {
    match no_token {
        Some(why) if error.why.contains("token") => {
            format!("MountVolume.SetUp failed for volume {:?} : {why}", error.volume)
        }
        _ => error.to_string(),
    }
}

fn container_image(pod: &Pod, name: &str) -> String {
    let spec = pod.spec.as_ref();
    let all = spec
        .into_iter()
        .flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    let found = all.into_iter().find(|container| container.name == name);
    found.and_then(|container| container.image.clone()).unwrap_or_default()
}

/// A command beside a container's own program, to its end.
async fn run(
    supervisor: Supervisor,
    container: String,
    attempt: u32,
    argv: Vec<String>,
    limit: Duration,
) -> Result<Executed, String> {
    let plan = ExecPlan {
        container,
        attempt: Some(attempt),
        argv,
        tty: false,
        stdin: false,
        timeout_milliseconds: u64::try_from(limit.as_millis()).ok(),
        max_output_bytes: Some(MOST_OUTPUT),
    };
    let mut exec = supervisor.exec(plan).await.map_err(|why| why.to_string())?;
    let mut output = Vec::new();
    loop {
        match exec.output.next().await.map_err(|why| why.to_string())? {
            ExecEvent::Stdout(bytes) | ExecEvent::Stderr(bytes) => output.extend(bytes),
            ExecEvent::Exit(protocol::Exit {
                start_error: Some(why), ..
            }) => return Err(why),
            ExecEvent::Exit(exit) => {
                return Ok(Executed {
                    code: exit.code,
                    output,
                });
            }
        }
    }
}
