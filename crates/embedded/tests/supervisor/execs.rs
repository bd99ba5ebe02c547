//! Programs beside a container's own.

use std::time::Duration;

use usher_embedded::node::supervisor::client::{ExecEvent, SupervisorError};
use usher_embedded::node::supervisor::protocol::Refusal;

use super::world::{LIMIT, Pod, exec_plan, finish, levels, until};

async fn running(level: super::world::Level) -> Pod {
    let pod = Pod::start(level).await;
    let mut plan = pod.script("echo ready; exec sleep 1000");
    plan.env.insert("COLOUR".to_owned(), "green".to_owned());
    plan.workdir = "/usr".into();
    (plan.uid, plan.gid) = (1234, 4321);
    pod.start_ready(plan).await;
    pod
}

#[tokio::test]
async fn an_exec_has_the_containers_environment_directory_user_and_namespaces() {
    for level in levels() {
        let pod = running(level).await;
        let script =
            "echo $COLOUR; pwd; id -u; readlink /proc/self/ns/pid /proc/self/ns/mnt; hostname; echo oops >&2; exit 9";
        let mut exec = pod.supervisor.exec(exec_plan(&["sh", "-c", script])).await.unwrap();
        let (stdout, stderr, exit) = finish(&mut exec).await.unwrap();
        assert_eq!(
            (stderr.as_str(), exit.code, exit.timed_out),
            ("oops\n", 9, false),
            "{level:?}: {stdout} {exit:?}"
        );
        let lines: Vec<&str> = stdout.lines().collect();
        assert_eq!(lines[..2], ["green", "/usr"], "{level:?}");
        if level.isolation.has_private_root() {
            let pid = pod.until_state(|_| true).await;
            let usher_embedded::node::supervisor::protocol::Phase::Running { pid, .. } =
                pid.attempt("c", 0).unwrap().phase
            else {
                panic!("it runs")
            };
            let of = |name: &str| std::fs::read_link(format!("/proc/{pid}/ns/{name}")).unwrap();
            assert_eq!(lines[2], "1234", "{level:?}");
            assert_eq!(
                (lines[3], lines[4]),
                (of("pid").to_str().unwrap(), of("mnt").to_str().unwrap()),
                "{level:?}"
            );
            assert_eq!(lines[5], "the-pod", "{level:?}");
        }
    }
}

#[tokio::test]
async fn n9_no_signal_is_blocked_in_containers_and_execs() {
    for level in levels() {
        let pod = running(level).await;
        let plan = exec_plan(&["grep", "SigBlk", "/proc/self/status"]);
        let mut exec = pod.supervisor.exec(plan).await.unwrap();
        let (stdout, _, _) = finish(&mut exec).await.unwrap();
        assert_eq!(stdout, "SigBlk:\t0000000000000000\n", "{level:?}: an exec");
        let pod = Pod::start(level).await;
        let said = pod.output(pod.script("grep SigBlk /proc/self/status")).await;
        assert_eq!(said, "SigBlk:\t0000000000000000\n", "{level:?}: a container");
    }
}

#[tokio::test]
async fn an_exec_reads_what_it_is_sent_and_says_more_than_any_buffer_holds() {
    for level in levels() {
        let pod = running(level).await;
        let mut plan = exec_plan(&["cat"]);
        plan.stdin = true;
        let exec = pod.supervisor.exec(plan).await.unwrap();
        let (mut input, mut output) = (exec.input, exec.output);
        let sent: Vec<u8> = (0..2_000_000u32).map(|number| (number % 251) as u8).collect();
        let copy = sent.clone();
        let sender = tokio::spawn(async move {
            input.stdin(&copy).await.unwrap();
            input.end_stdin().await.unwrap();
            input
        });
        let mut received = Vec::new();
        let exit = loop {
            match tokio::time::timeout(LIMIT, output.next()).await.unwrap().unwrap() {
                ExecEvent::Stdout(bytes) => received.extend(bytes),
                ExecEvent::Stderr(_) => {}
                ExecEvent::Exit(exit) => break exit,
            }
        };
        sender.await.unwrap();
        assert_eq!(exit.code, 0);
        assert!(
            received == sent,
            "{level:?}: {} of {} bytes",
            received.len(),
            sent.len()
        );
    }
}

#[tokio::test]
async fn a_terminal_has_a_name_and_a_size_that_follows() {
    for level in levels() {
        let pod = running(level).await;
        let mut plan = exec_plan(&[
            "sh",
            "-c",
            "test -t 0 && test -t 1 && tty; until [ \"$(stty size)\" = '40 120' ]; do sleep 0.01; done; stty size; read line; stty size; echo got $line $TERM; exit 5",
        ]);
        (plan.tty, plan.stdin) = (true, true);
        let mut exec = pod.supervisor.exec(plan).await.unwrap();
        exec.input.resize(120, 40).await.unwrap();
        let mut said = String::new();
        while !said.contains("40 120") {
            match tokio::time::timeout(LIMIT, exec.output.next()).await.unwrap().unwrap() {
                ExecEvent::Stdout(bytes) => said.push_str(&String::from_utf8_lossy(&bytes)),
                other => panic!("{level:?}: {other:?} after {said}"),
            }
        }
        exec.input.resize(100, 30).await.unwrap();
        exec.input.stdin(b"word\n").await.unwrap();
        let (stdout, _, exit) = finish(&mut exec).await.unwrap();
        assert!(said.starts_with("/dev/pts/"), "{level:?}: {said}");
        assert!(
            stdout.contains("30 100\r\n") && stdout.contains("got word xterm\r\n"),
            "{level:?}: {stdout}"
        );
        assert_eq!(exit.code, 5, "{level:?}");
    }
}

#[tokio::test]
async fn n8_an_exec_that_takes_too_long_is_killed_with_what_it_started() {
    for level in levels() {
        let pod = running(level).await;
        let mut plan = exec_plan(&["sh", "-c", "sleep 1003; echo never"]);
        plan.timeout_milliseconds = Some(100);
        let mut exec = pod.supervisor.exec(plan).await.unwrap();
        let (_, _, exit) = finish(&mut exec).await.unwrap();
        assert!(exit.timed_out && exit.code == 137, "{level:?}: {exit:?}");
        until(|| commands(&pod) == ["sleep"]).await;
    }
}

#[tokio::test]
async fn an_exec_whose_caller_goes_away_is_killed() {
    for level in levels() {
        let pod = running(level).await;
        let mut exec = pod
            .supervisor
            .exec(exec_plan(&["sh", "-c", "echo here; exec sleep 1003"]))
            .await
            .unwrap();
        assert_eq!(exec.output.next().await.unwrap(), ExecEvent::Stdout(b"here\n".to_vec()));
        assert_eq!(commands(&pod).len(), 2);
        drop(exec);
        until(|| commands(&pod).len() == 1).await;
    }
}

/// The programs below the supervisor.
fn commands(pod: &Pod) -> Vec<String> {
    use usher_embedded::node::supervisor::processes;
    processes::descendants(&processes::all(), &[pod.supervisor.mark().pid].into())
        .iter()
        .filter(|seen| !seen.zombie)
        .filter_map(|seen| {
            Some(
                std::fs::read_to_string(format!("/proc/{}/comm", seen.pid))
                    .ok()?
                    .trim()
                    .to_owned(),
            )
        })
        .collect()
}

#[tokio::test]
async fn n8_output_beyond_what_was_asked_for_is_dropped() {
    for level in levels() {
        let pod = running(level).await;
        let mut plan = exec_plan(&["sh", "-c", "head -c 100000 /dev/zero; exit 2"]);
        plan.max_output_bytes = Some(10_240);
        let (stdout, _, exit) = finish(&mut pod.supervisor.exec(plan).await.unwrap()).await.unwrap();
        assert_eq!((stdout.len(), exit.code), (10_240, 2), "{level:?}");
    }
}

#[tokio::test]
async fn an_exec_of_what_is_not_there_says_so() {
    for level in levels() {
        let pod = running(level).await;
        let (_, _, exit) = finish(&mut pod.supervisor.exec(exec_plan(&["no-such-program"])).await.unwrap())
            .await
            .unwrap();
        assert_eq!(exit.code, 127, "{level:?}");
        assert_eq!(
            exit.start_error.as_deref(),
            Some("exec: \"no-such-program\": executable file not found in $PATH")
        );
        let mut plan = exec_plan(&["true"]);
        plan.container = "nobody".to_owned();
        let refused = pod.supervisor.exec(plan).await.map(drop);
        assert!(
            matches!(
                refused,
                Err(SupervisorError::Refused {
                    refusal: Refusal::Unknown,
                    ..
                })
            ),
            "{refused:?}"
        );
        pod.supervisor.stop("c", 0, 9, Duration::ZERO).await.unwrap();
        pod.until_phase("c", 0, |phase| phase.has_ended()).await;
        let refused = pod.supervisor.exec(exec_plan(&["true"])).await.map(drop);
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
