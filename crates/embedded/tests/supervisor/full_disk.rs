//! N12 on a disk that is full or broken: the pod runs on, its end is told and written, and nothing runs twice.

use std::fs;
use std::io::Write;
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags};
use usher_embedded::node::supervisor::client::SupervisorError;
use usher_embedded::node::supervisor::protocol::{Phase, Refusal};

use super::world::{Pod, is_root, levels, until};

/// A small disk. Only root can make one.
struct Disk {
    folder: Option<tempfile::TempDir>,
}

impl Disk {
    fn new() -> Disk {
        let folder = tempfile::tempdir().unwrap();
        nix::mount::mount(
            Some("tmpfs"),
            folder.path(),
            Some("tmpfs"),
            MsFlags::empty(),
            Some("size=256k"),
        )
        .unwrap();
        Disk { folder: Some(folder) }
    }

    fn path(&self) -> &std::path::Path {
        self.folder.as_ref().unwrap().path()
    }

    fn fill(&self) {
        let mut file = fs::File::create(self.path().join("filler")).unwrap();
        while file.write_all(&[1; 1024]).is_ok() {}
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let folder = self.folder.take().unwrap();
        let _ = nix::mount::umount2(folder.path(), MntFlags::MNT_DETACH);
    }
}

#[tokio::test]
async fn n12_on_a_full_disk_containers_run_end_and_start_and_only_lines_are_lost() {
    if !is_root() {
        eprintln!("not tried: a disk of its own needs root");
        return;
    }
    for level in levels() {
        let disk = Disk::new();
        let data = tempfile::tempdir_in(disk.path()).unwrap();
        let pod = Pod::start_in(level, data, |_| {}).await;
        pod.start_ready(
            pod.script("trap 'exit 4' TERM; echo ready; while :; do echo line after line; sleep 0.001; done"),
        )
        .await;
        disk.fill();
        // It writes on, although nobody keeps it.
        let length = || fs::metadata(pod.folder().join("c/0.log")).unwrap().len();
        let full = length();
        pod.supervisor.stop("c", 0, 15, Duration::from_secs(600)).await.unwrap();
        let phase = pod.until_phase("c", 0, Phase::has_ended).await;
        assert!(matches!(phase, Phase::Exited { code: 4, .. }), "{level:?}: {phase:?}");
        assert!(length() <= full + 4096);
        let log = fs::read_to_string(pod.folder().join("c/0.log")).unwrap();
        assert!(log.is_empty() || log.ends_with('\n'), "{level:?}: half a line: {log:?}");

        // The record had its room all along, so even a start is written down, and runs once.
        let phase = pod.run(pod.script("exit 6")).await;
        assert!(matches!(phase, Phase::Exited { code: 6, .. }), "{level:?}: {phase:?}");
        let state = pod.supervisor.look().await.unwrap();
        assert_eq!(state.not_durable, None, "{level:?}");
        let written = fs::read_to_string(pod.folder().join("state.json")).unwrap();
        assert!(written.contains("\"code\": 6"), "{level:?}: {written}");
        fs::remove_file(disk.path().join("filler")).unwrap();
        let said = || pod.log("c", 2);
        pod.run(pod.script("echo heard again")).await;
        until(|| said() == "heard again\n").await;
    }
}

#[tokio::test]
async fn n12_a_start_that_cannot_be_written_down_is_refused_and_what_runs_runs_on() {
    for level in levels() {
        let pod = Pod::start(level).await;
        let mut other = pod.script("trap 'exit 4' TERM; echo ready; while :; do sleep 0.01; done");
        (other.name, other.attempt) = ("other".to_owned(), 0);
        pod.start_ready(other).await;
        // A folder where the next state would be written: no disk is as broken as that.
        let spare = pod.folder().join("state.json.spare");
        fs::remove_file(&spare).unwrap();
        fs::create_dir(&spare).unwrap();
        let plan = pod.script("echo ran");
        let refused = pod.supervisor.start(plan.clone()).await;
        let Err(SupervisorError::Refused {
            refusal: Refusal::System,
            message,
        }) = refused
        else {
            panic!("{level:?}: {refused:?}")
        };
        assert!(message.starts_with("container c is not started"), "{message}");
        let state = pod.supervisor.look().await.unwrap();
        assert!(
            state.not_durable.is_some() && !state.containers.contains_key("c"),
            "{level:?}: {state:?}"
        );

        // What ends is told, written or not.
        pod.supervisor
            .stop("other", 0, 15, Duration::from_secs(600))
            .await
            .unwrap();
        let phase = pod.until_phase("other", 0, Phase::has_ended).await;
        assert!(matches!(phase, Phase::Exited { code: 4, .. }), "{level:?}: {phase:?}");
        let written = || fs::read_to_string(pod.folder().join("state.json")).unwrap();
        assert!(!written().contains("\"code\": 4"), "{level:?}");

        // And written as soon as it can be, without being asked.
        fs::remove_dir(&spare).unwrap();
        let state = pod.until_state(|state| state.not_durable.is_none()).await;
        assert!(state.attempt("other", 0).unwrap().phase.has_ended());
        assert!(written().contains("\"code\": 4"), "{level:?}");
        assert_eq!(pod.output(plan).await, "ran\n", "{level:?}");
    }
}
