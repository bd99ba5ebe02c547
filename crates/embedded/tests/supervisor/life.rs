//! Starting, running, and what a container finds around it.

use std::os::unix::net::UnixStream;

use usher_embedded::node::supervisor::client::{self, Found, SupervisorError};
use usher_embedded::node::supervisor::probe::probe;
use usher_embedded::node::supervisor::protocol::{ExitReason, Isolation, Phase, Refusal};

use super::world::{Pod, is_root, levels, private_levels, program, until};

#[tokio::test]
async fn n1_a_program_runs_and_its_code_is_told() {
    for level in levels() {
        let pod = Pod::start(level).await;
        let Phase::Exited {
            code,
            signal,
            started_at,
            finished_at,
            reason,
            message,
        } = pod.run(pod.script("echo hello; exit 0")).await
        else {
            unreachable!()
        };
        assert_eq!(
            (code, signal, reason, message.as_str()),
            (0, None, ExitReason::Completed, ""),
            "{level:?}"
        );
        assert!(started_at.unwrap() <= finished_at, "{level:?}");
        assert_eq!(pod.log("c", 0), "hello\n", "{level:?}");

        let phase = pod.run(pod.script("echo oops >&2; exit 7")).await;
        assert!(
            matches!(
                phase,
                Phase::Exited {
                    code: 7,
                    reason: ExitReason::Error,
                    ..
                }
            ),
            "{level:?}: {phase:?}"
        );
        let text = std::fs::read_to_string(pod.folder().join("c/1.log")).unwrap();
        assert!(text.ends_with(" stderr F oops\n"), "{level:?}: {text}");
    }
}

#[tokio::test]
async fn n11_a_program_that_a_signal_ends_has_128_more() {
    for level in levels() {
        let pod = Pod::start(level).await;
        // A program that is number 1 of its namespace is only killed from outside.
        pod.start_ready(pod.script("echo ready; exec sleep 1000")).await;
        pod.supervisor.signal("c", 0, 9).await.unwrap();
        let phase = pod.until_phase("c", 0, Phase::has_ended).await;
        assert!(
            matches!(
                phase,
                Phase::Exited {
                    code: 137,
                    signal: Some(9),
                    ..
                }
            ),
            "{level:?}: {phase:?}"
        );
        let refused = pod.supervisor.signal("c", 0, 9).await;
        assert!(
            matches!(
                refused,
                Err(SupervisorError::Refused {
                    refusal: Refusal::NotRunning,
                    ..
                })
            ),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn n1_what_is_told_is_on_disk_already() {
    for level in levels() {
        let pod = Pod::start(level).await;
        pod.start_ready(pod.script("echo ready; sleep 1000")).await;
        let told = pod.supervisor.look().await.unwrap();
        let written: serde_json::Value =
            serde_json::from_slice(&std::fs::read(pod.folder().join("state.json")).unwrap()).unwrap();
        assert_eq!(serde_json::to_value(&told).unwrap(), written, "{level:?}");
    }
}

#[tokio::test]
async fn n11_a_program_that_cannot_be_executed_is_a_start_error_128() {
    for level in levels() {
        let pod = Pod::start(level).await;
        for (program, message) in [
            (
                "no-such-program",
                "exec: \"no-such-program\": executable file not found in $PATH",
            ),
            (
                "/no/such/program",
                "exec: \"/no/such/program\": no such file or directory",
            ),
            ("/etc/passwd", "exec: \"/etc/passwd\": permission denied"),
        ] {
            let mut plan = pod.script("");
            plan.argv = vec![program.to_owned()];
            let phase = pod.run(plan).await;
            let Phase::Exited {
                code: 128,
                reason: ExitReason::StartError,
                started_at: None,
                message: said,
                ..
            } = &phase
            else {
                panic!("{level:?}: {phase:?}")
            };
            assert_eq!(said, message, "{level:?}");
        }
        let mut plan = pod.script("");
        plan.workdir = "/etc/passwd".into();
        let phase = pod.run(plan).await;
        assert!(matches!(phase, Phase::Exited { code: 128, .. }), "{level:?}: {phase:?}");
    }
}

#[tokio::test]
async fn a_container_has_its_environment_its_directory_and_its_user() {
    for level in levels() {
        let pod = Pod::start(level).await;
        let mut plan = pod.script("env | sort; pwd; id -u; id -g; umask");
        plan.env.insert("GREETING".to_owned(), "hello you".to_owned());
        plan.workdir = "/usr".into();
        (plan.uid, plan.gid) = (1234, 4321);
        let id = plan.id.clone();
        let said = pod.output(plan).await;
        let lines: Vec<&str> = said.lines().collect();
        for wanted in [
            "GREETING=hello you",
            &format!("USHER_POD_UID={}", pod.plan.uid),
            &format!("USHER_CONTAINER_ID={id}"),
        ] {
            assert!(lines.contains(&wanted), "{level:?}: no {wanted} in {said}");
        }
        // PATH, PWD of the shell, _ of the shell, and ours: nothing of whoever started the supervisor.
        assert!(!said.contains("HOME=") && !said.contains("CARGO"), "{level:?}: {said}");
        let ids = if level.isolation.has_private_root() || level.gives_ids() {
            ("1234", "4321")
        } else {
            ids_of(level.as_nobody)
        };
        assert!(
            said.ends_with(&format!("/usr\n{}\n{}\n0022\n", ids.0, ids.1)),
            "{level:?}: {said}"
        );
    }
}

fn ids_of(as_nobody: bool) -> (&'static str, &'static str) {
    if as_nobody {
        return ("65534", "65534");
    }
    let leak = |id: u32| &*Box::leak(id.to_string().into_boxed_str());
    (
        leak(nix::unistd::geteuid().as_raw()),
        leak(nix::unistd::getegid().as_raw()),
    )
}

#[tokio::test]
async fn x4_a_container_has_no_new_privileges_and_none_of_our_descriptors() {
    for level in levels() {
        let pod = Pod::start(level).await;
        let said = pod
            .output(pod.script("grep NoNewPrivs /proc/self/status; ls /proc/self/fd; grep CapBnd /proc/self/status"))
            .await;
        // 3 is the folder that ls reads.
        assert!(
            said.starts_with("NoNewPrivs:\t1\n0\n1\n2\n3\nCapBnd:"),
            "{level:?}: {said}"
        );
        if level.gives_ids() {
            let powers = u64::from_str_radix(said.trim().rsplit('\t').next().unwrap(), 16).unwrap();
            let (sys_admin, mknod, setuid) = (1 << 21, 1 << 27, 1 << 7);
            assert_eq!(powers & (sys_admin | mknod), 0, "{level:?}: {said}");
            assert_eq!(powers & setuid, setuid, "{level:?}: {said}");
        }
    }
}

#[tokio::test]
async fn a_container_is_alone_in_its_pid_namespace_and_has_the_pods_host_name() {
    for level in private_levels() {
        let pod = Pod::start(level).await;
        let said = pod.output(pod.script("echo $$; ps -e -o comm=; hostname")).await;
        assert_eq!(said, "1\nsh\nps\nthe-pod\n", "{level:?}");
    }
}

#[tokio::test]
async fn n12_the_same_start_asked_twice_runs_once() {
    for level in levels() {
        let pod = Pod::start(level).await;
        let volume = pod.volume("v");
        let mut plan = pod.script("echo ran >> $FILE; echo ready; exec sleep 1000");
        let place = if level.isolation.has_private_root() {
            "/v".to_owned()
        } else {
            volume.display().to_string()
        };
        plan.env.insert("FILE".to_owned(), format!("{place}/runs"));
        plan.mounts = vec![super::world::mount(&volume, "/v", false)];
        let again = plan.clone();
        let pid = pod.start_ready(plan).await;
        pod.supervisor.start(again.clone()).await.unwrap();
        let state = pod.supervisor.look().await.unwrap();
        assert!(
            matches!(state.latest("c"), Some((0, attempt)) if matches!(attempt.phase, Phase::Running { pid: same, .. } if same == pid))
        );

        // A later attempt must wait for this one.
        let busy = pod.supervisor.start(pod.script("true")).await;
        assert!(
            matches!(
                busy,
                Err(SupervisorError::Refused {
                    refusal: Refusal::Busy,
                    ..
                })
            ),
            "{busy:?}"
        );
        pod.supervisor.stop("c", 0, 9, std::time::Duration::ZERO).await.unwrap();
        pod.until_phase("c", 0, Phase::has_ended).await;
        pod.supervisor.start(again).await.unwrap();
        assert_eq!(pod.supervisor.look().await.unwrap().containers["c"].len(), 1);
        assert_eq!(
            std::fs::read_to_string(volume.join("runs")).unwrap(),
            "ran\n",
            "{level:?}"
        );
    }
}

#[tokio::test]
async fn n2_another_agent_finds_the_supervisor_and_its_container_as_they_were() {
    for level in levels() {
        let pod = Pod::start(level).await;
        let pid = pod.start_ready(pod.script("echo ready; sleep 1000")).await;
        let Found::Alive(supervisor) = pod.find() else {
            panic!("{level:?}: it is there")
        };
        let state = supervisor.look().await.unwrap();
        assert!(matches!(state.attempt("c", 0).unwrap().phase, Phase::Running { pid: same, .. } if same == pid));
        // And there is never a second one.
        let second = client::start(&program(level.as_nobody), pod.folder(), None).await;
        assert!(
            matches!(&second, Err(SupervisorError::NotStarted { reason, .. }) if reason.contains("another supervisor")),
            "{second:?}"
        );
    }
}

#[tokio::test]
async fn w1_the_descriptor_that_a_supervisor_is_given_stays_open_until_it_ends() {
    use std::io::Read;
    let level = levels()[0];
    let pod = Pod::start(level).await;
    pod.supervisor.end().await.unwrap();
    pod.until_supervisor_ends().await;
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let supervisor = client::start(&program(false), pod.folder(), Some(theirs.into()))
        .await
        .unwrap();
    assert_eq!(ours.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    supervisor.end().await.unwrap();
    until(|| ours.read(&mut [0]).is_ok_and(|count| count == 0)).await;
}

#[tokio::test]
async fn a_folder_with_a_long_path_is_no_problem_for_the_socket() {
    let data = tempfile::Builder::new().prefix(&"x".repeat(150)).tempdir().unwrap();
    let pod = Pod::start_in(levels()[0], data, |_| {}).await;
    assert_eq!(pod.output(pod.script("echo hi")).await, "hi\n");
}

#[test]
fn the_probe_says_in_a_sentence_what_was_chosen_and_why() {
    let probed = probe(&program(false));
    if is_root() {
        assert!(
            probed.isolation == Isolation::NamespacesAsRoot || probed.why.contains("because"),
            "{probed:?}"
        );
        assert!(probe(&program(true)).why.starts_with(if private_levels().len() >= 2 {
            "namespaces"
        } else {
            "paths"
        }));
    }
    assert!(probed.why.contains("because"), "{probed:?}");
    let nothing = probe(std::path::Path::new("/no/such/program"));
    assert_eq!(nothing.isolation, Isolation::Paths);
}

#[tokio::test]
async fn a_container_may_have_a_terminal() {
    for level in levels() {
        let pod = Pod::start(level).await;
        let mut plan = pod.script("test -t 0 && test -t 1 && tty");
        plan.tty = true;
        let said = pod.output(plan).await;
        assert!(said.starts_with("/dev/pts/"), "{level:?}: {said:?}");
    }
}

#[tokio::test]
async fn with_root_a_container_has_its_groups_and_no_others() {
    for level in levels().into_iter().filter(|level| level.gives_ids()) {
        let pod = Pod::start(level).await;
        let mut plan = pod.script("id -G");
        (plan.uid, plan.gid, plan.groups) = (1234, 4321, vec![5555, 6666]);
        assert_eq!(pod.output(plan).await, "4321 5555 6666\n", "{level:?}");
    }
}
