//! N12 on a disk that is full: the pod runs on, its end is told and written, and nothing runs twice.

use std::fs;
use std::io::Write;
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags};
use usher_embedded::node::supervisor::protocol::Phase;

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
