//! Stopping, dying, and what is left: nothing.

use std::time::Duration;

use usher_embedded::node::supervisor::client::{self, Found, SupervisorError};
use usher_embedded::node::supervisor::processes;
use usher_embedded::node::supervisor::protocol::{ExitReason, Phase, Refusal};

use super::world::{Pod, kill, levels, mount, program, until};

const SIGTERM: i32 = 15;
const SIGSTOP: i32 = 19;

#[tokio::test]
async fn n9_a_container_that_handles_its_signal_ends_by_itself() {
    for level in levels() {
        let pod = Pod::start(level).await;
        pod.start_ready(pod.script("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done"))
            .await;
        pod.supervisor
            .stop("c", 0, SIGTERM, Duration::from_secs(600))
            .await
            .unwrap();
        let phase = pod.until_phase("c", 0, Phase::has_ended).await;
        assert!(matches!(phase, Phase::Exited { code: 3, .. }), "{level:?}: {phase:?}");
        assert!(pod.log("c", 0).ends_with("bye\n"), "{level:?}");
    }
}

#[tokio::test]
async fn n9_a_container_that_ignores_sigterm_is_killed_after_its_grace_without_any_agent() {
    for level in levels() {
        let pod = Pod::start(level).await;
        pod.start_ready(pod.script("trap '' TERM; echo ready; while :; do sleep 0.01; done"))
            .await;
        let grace = Duration::from_millis(300);
        pod.supervisor.stop("c", 0, SIGTERM, grace).await.unwrap();
        // Nobody is connected while the grace runs.
        until(|| {
            matches!(pod.find(), Found::Alive(_))
                && std::fs::read_to_string(pod.folder().join("state.json"))
                    .unwrap()
                    .contains("exited")
        })
        .await;
        let state = pod.supervisor.look().await.unwrap();
        let attempt = state.attempt("c", 0).unwrap();
        let Phase::Exited {
            code: 137,
            signal: Some(9),
            finished_at,
            ..
        } = attempt.phase
        else {
            panic!("{level:?}: {attempt:?}")
        };
        let stopping = attempt.stopping.as_ref().unwrap();
        assert!(finished_at >= stopping.kill_at, "{level:?}: {attempt:?}");
        assert!(!pod.has_processes());
    }
}

#[tokio::test]
async fn n9_the_earlier_of_two_ends_counts() {
    for level in levels() {
        let pod = Pod::start(level).await;
        pod.start_ready(pod.script("trap 'echo once' TERM; echo ready; while :; do sleep 0.01; done"))
            .await;
        pod.supervisor
            .stop("c", 0, SIGTERM, Duration::from_secs(600))
            .await
            .unwrap();
        until(|| pod.log("c", 0).contains("once")).await;
        pod.supervisor.stop("c", 0, SIGTERM, Duration::ZERO).await.unwrap();
        pod.until_phase("c", 0, Phase::has_ended).await;
        assert_eq!(pod.log("c", 0), "ready\nonce\n", "{level:?}");
        let unknown = pod.supervisor.stop("d", 0, SIGTERM, Duration::ZERO).await;
        assert!(
            matches!(
                unknown,
                Err(SupervisorError::Refused {
                    refusal: Refusal::Unknown,
                    ..
                })
            ),
            "{unknown:?}"
        );
    }
}

/// A process that has left its session, its parent and its environment behind.
const STRAY: &str =
    "setsid sh -c 'echo stray; exec sleep 1000' </dev/null & setsid env -i sleep 1001 & sleep 1002 & echo ready; ";

#[tokio::test]
async fn n3_what_a_container_forks_away_goes_with_it() {
    for level in levels() {
        for killed in [true, false] {
            let pod = Pod::start(level).await;
            pod.start_ready(pod.script(&format!("trap 'exit 0' TERM; {STRAY} while :; do sleep 0.01; done")))
                .await;
            until(|| pod.log("c", 0).contains("stray")).await;
            if killed {
                pod.supervisor.stop("c", 0, SIGTERM, Duration::ZERO).await.unwrap();
            } else {
                pod.supervisor.signal("c", 0, SIGTERM).await.unwrap();
            }
            let phase = pod.until_phase("c", 0, Phase::has_ended).await;
            let children = descendants(&pod);
            assert!(
                children.is_empty() && !pod.has_processes(),
                "{level:?}, {killed}: {children:?}"
            );
            let code = if killed { 137 } else { 0 };
            assert!(
                matches!(phase, Phase::Exited { code: told, .. } if told == code),
                "{level:?}: {phase:?}"
            );
        }
    }
}

/// What lives below the supervisor.
fn descendants(pod: &Pod) -> Vec<processes::Seen> {
    let mut found = processes::descendants(&processes::all(), &[pod.supervisor.mark().pid].into());
    found.retain(|seen| !seen.zombie);
    found
}

#[tokio::test]
async fn n3_the_stray_of_one_container_goes_and_the_other_container_stays() {
    for level in levels() {
        let pod = Pod::start(level).await;
        let mut other = pod.script("echo ready; sleep 1000");
        other.name = "other".to_owned();
        other.attempt = 0;
        pod.start_ready(other).await;
        let plan = pod.script("(setsid sh -c 'sleep 1000; :' &) ; echo ready; exit 0");
        let attempt = plan.attempt;
        pod.run(plan).await;
        let state = pod.supervisor.look().await.unwrap();
        assert!(state.attempt("c", attempt).unwrap().phase.has_ended());
        assert!(
            matches!(state.attempt("other", 0).unwrap().phase, Phase::Running { .. }),
            "{level:?}"
        );
        // The other container's shell and its sleep.
        assert_eq!(descendants(&pod).len(), 2, "{level:?}");
    }
}

#[tokio::test]
async fn n12_a_supervisor_that_is_killed_leaves_nothing_that_remains_does_not_find() {
    for level in levels() {
        let pod = Pod::start(level).await;
        let plan = pod.script("setsid sleep 1000 & echo ready; sleep 1000");
        let again = plan.clone();
        pod.start_ready(plan).await;
        kill(pod.supervisor.mark(), 9);
        pod.until_supervisor_ends().await;
        let Found::Dead(Some(state)) = pod.find() else {
            panic!("{level:?}: it is dead")
        };
        assert!(matches!(state.attempt("c", 0).unwrap().phase, Phase::Running { .. }));
        client::remains(&pod.plan.uid).await.unwrap();
        assert!(!pod.has_processes(), "{level:?}");

        // The next supervisor knows that it ran, and runs it no second time.
        let next = client::start(&program(level.as_nobody), pod.folder(), None)
            .await
            .unwrap();
        next.start(again).await.unwrap();
        let state = next.look().await.unwrap();
        let attempt = state.attempt("c", 0).unwrap();
        assert!(
            matches!(
                attempt.phase,
                Phase::Exited {
                    code: 137,
                    reason: ExitReason::ContainerStatusUnknown,
                    ..
                }
            ),
            "{level:?}: {attempt:?}"
        );
        next.end().await.unwrap();
    }
}

#[tokio::test]
async fn n12_the_next_supervisor_clears_up_by_itself() {
    for level in levels() {
        let pod = Pod::start(level).await;
        pod.start_ready(pod.script("setsid sleep 1000 & echo ready; sleep 1000"))
            .await;
        kill(pod.supervisor.mark(), 9);
        pod.until_supervisor_ends().await;
        let next = client::start(&program(level.as_nobody), pod.folder(), None)
            .await
            .unwrap();
        assert!(!pod.has_processes(), "{level:?}");
        next.end().await.unwrap();
    }
}

#[tokio::test]
async fn n12_a_stopped_container_can_still_be_killed() {
    for level in levels() {
        let pod = Pod::start(level).await;
        let pid = pod.start_ready(pod.script("echo ready; sleep 1000")).await;
        pod.supervisor.signal("c", 0, SIGSTOP).await.unwrap();
        until(|| {
            std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .unwrap()
                .contains(") T ")
        })
        .await;
        pod.supervisor
            .stop("c", 0, SIGTERM, Duration::from_millis(50))
            .await
            .unwrap();
        let phase = pod.until_phase("c", 0, Phase::has_ended).await;
        assert!(matches!(phase, Phase::Exited { code: 137, .. }), "{level:?}: {phase:?}");
    }
}

#[tokio::test]
async fn n12_a_supervisor_that_is_stopped_is_silent_and_can_be_put_down() {
    let level = *levels().last().unwrap();
    let pod = Pod::start(level).await;
    pod.start_ready(pod.script("echo ready; sleep 1000")).await;
    kill(pod.supervisor.mark(), SIGSTOP);
    let silent = pod.supervisor.look().await;
    assert!(matches!(silent, Err(SupervisorError::Silent { .. })), "{silent:?}");
    client::put_down(&pod.supervisor, &pod.plan.uid).await.unwrap();
    pod.until_supervisor_ends().await;
    assert!(!pod.has_processes());
}

#[tokio::test]
async fn n2_a_supervisor_whose_folder_is_gone_stops_its_pod_and_ends() {
    for level in levels() {
        let pod = Pod::start(level).await;
        pod.start_ready(pod.script("echo ready; sleep 1000")).await;
        std::fs::remove_dir_all(pod.folder()).unwrap();
        pod.until_supervisor_ends().await;
        assert!(!pod.has_processes(), "{level:?}");
    }
}

#[tokio::test]
async fn n2_a_folder_that_was_taken_away_around_a_state_that_was_being_written_is_gone() {
    for level in levels() {
        let pod = Pod::start(level).await;
        pod.start_ready(pod.script("echo ready; sleep 1000")).await;
        for entry in std::fs::read_dir(pod.folder()).unwrap().flatten() {
            if entry.file_name() == "state.json" {
                continue;
            }
            let path = entry.path();
            if path.is_dir() {
                std::fs::remove_dir_all(path).unwrap();
            } else {
                std::fs::remove_file(path).unwrap();
            }
        }
        pod.until_supervisor_ends().await;
        assert!(!pod.has_processes(), "{level:?}");
    }
}

#[tokio::test]
async fn n1_in_memory_mode_a_pod_dies_with_the_process_that_it_belongs_to() {
    for level in levels() {
        let mut patron = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let mark = processes::mark(patron.id());
        let pod = Pod::start_with(level, |plan| plan.dies_with = mark).await;
        pod.start_ready(pod.script("echo ready; sleep 1000")).await;
        patron.kill().unwrap();
        patron.wait().unwrap();
        pod.until_supervisor_ends().await;
        assert!(!pod.has_processes(), "{level:?}");
    }
}

#[tokio::test]
async fn an_end_kills_everything_and_then_the_supervisor_itself() {
    for level in levels() {
        let pod = Pod::start(level).await;
        pod.start_ready(pod.script(&format!("{STRAY}sleep 1000"))).await;
        pod.supervisor.end().await.unwrap();
        pod.until_supervisor_ends().await;
        assert!(!pod.has_processes(), "{level:?}");
        let Found::Dead(Some(state)) = pod.find() else {
            panic!("{level:?}: it is dead")
        };
        let phase = &state.attempt("c", 0).unwrap().phase;
        assert!(matches!(phase, Phase::Exited { code: 137, .. }), "{level:?}: {phase:?}");
    }
}

#[tokio::test]
async fn a_supervisor_that_the_system_ends_gives_containers_their_time_first() {
    for level in levels() {
        let pod = Pod::start(level).await;
        pod.start_ready(pod.script("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done"))
            .await;
        kill(pod.supervisor.mark(), SIGTERM);
        pod.until_supervisor_ends().await;
        assert!(pod.log("c", 0).ends_with("bye\n"), "{level:?}");
        let Found::Dead(Some(state)) = pod.find() else {
            panic!("{level:?}: it is dead")
        };
        let phase = &state.attempt("c", 0).unwrap().phase;
        assert!(matches!(phase, Phase::Exited { code: 3, .. }), "{level:?}: {phase:?}");
    }
}

#[tokio::test]
async fn n12_whenever_a_supervisor_is_killed_an_attempt_runs_once_at_most() {
    for level in levels() {
        for cut in 0..12u32 {
            let pod = Pod::start(level).await;
            let volume = pod.volume("v");
            let place = if level.isolation.has_private_root() {
                "/v".to_owned()
            } else {
                volume.display().to_string()
            };
            let mut plan = pod.script("echo ran >> $FILE; exec sleep 1000");
            plan.env.insert("FILE".to_owned(), format!("{place}/runs"));
            plan.mounts = vec![mount(&volume, "/v", false)];
            let again = plan.clone();
            // Not a wait for anything, but a place to cut: a start takes some ten of these.
            let started = pod.supervisor.start(plan);
            let _ = tokio::time::timeout(Duration::from_millis(1) * cut, async {
                let _ = started.await;
                std::future::pending::<()>().await;
            })
            .await;
            kill(pod.supervisor.mark(), 9);
            pod.until_supervisor_ends().await;
            let next = client::start(&program(level.as_nobody), pod.folder(), None)
                .await
                .unwrap();
            next.start(again).await.unwrap();
            // Running, or unknown for ever: it is no longer starting.
            until(|| {
                !std::fs::read_to_string(pod.folder().join("state.json"))
                    .unwrap()
                    .contains("starting")
            })
            .await;
            next.end().await.unwrap();
            let runs = std::fs::read_to_string(volume.join("runs")).unwrap_or_default();
            assert!(runs.len() <= "ran\n".len(), "{level:?}, cut {cut}: {runs}");
        }
    }
}
