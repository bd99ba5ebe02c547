//! The private root: what a container sees, and what it cannot touch.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use usher_embedded::node::supervisor::protocol::{ExitReason, Mount, Phase};

use super::world::{Pod, exec_plan, finish, is_root, mount, own, private_levels, until};

#[tokio::test]
async fn the_hosts_root_is_read_only_and_tmp_and_dev_are_its_own() {
    for level in private_levels() {
        let pod = Pod::start(level).await;
        let marker = tempfile::Builder::new()
            .prefix("usher-marker")
            .tempfile_in("/tmp")
            .unwrap();
        let script = format!(
            "for place in / /usr /etc /home /opt; do touch $place/usher-test 2>/dev/null && echo can write $place; done
             test -e {marker} && echo sees the host\\'s /tmp
             echo mine > /tmp/mine && cat /tmp/mine
             echo x > /dev/null && head -c 2 /dev/zero | od -An -tx1
             ls /dev/pts /dev/shm && echo x > /dev/shm/x && echo out > /dev/stdout
             (echo x > /proc/sys/kernel/domainname) 2>/dev/null && echo can write /proc/sys
             ls -d /proc/1/root/ >/dev/null && echo end",
            marker = marker.path().display()
        );
        let mut plan = pod.script(&script);
        (plan.uid, plan.gid) = (if level.gives_ids() { 0 } else { 77 }, 0);
        let said = pod.output(plan).await;
        assert_eq!(
            said, "mine\n 00 00\n/dev/pts:\nptmx\n\n/dev/shm:\nout\nend\n",
            "{level:?}"
        );
        let mut plan =
            pod.script("touch /tmp/x /run/x 2>/dev/null || echo refused; touch /tmp/deep/v/x && echo allowed");
        plan.read_only_root = true;
        plan.mounts = vec![mount(&pod.volume("v"), "/tmp/deep/v", false)];
        assert_eq!(pod.output(plan).await, "refused\nallowed\n", "{level:?}");
    }
}

#[tokio::test]
async fn n5_volumes_are_mounted_where_the_image_has_nothing_and_read_only_is_read_only() {
    for level in private_levels() {
        let pod = Pod::start(level).await;
        let (data, config) = (pod.volume("data"), pod.volume("config"));
        fs::write(config.join("key"), "value").unwrap();
        let message = pod.data.path().join("termination");
        fs::write(&message, "").unwrap();
        own(level, &message);
        fs::create_dir(data.join("inner")).unwrap();
        let mut plan = pod.script(
            "echo kept > /var/lib/usher-test/deep/data/file && cat /etc/usher-test/key && ls /etc/passwd /var/lib/dpkg/status
             touch /etc/usher-test/x 2>/dev/null && echo can write
             touch /var/lib/x 2>/dev/null && echo can write too
             cat /var/lib/usher-test/deep/data/inner/key
             echo why > /dev/termination-log; pwd; touch here && echo mine",
        );
        plan.mounts = vec![
            mount(&data, "/var/lib/usher-test/deep/data", false),
            mount(&config, "/etc/usher-test", true),
            mount(&config, "/var/lib/usher-test/deep/data/inner", true),
            mount(&message, "/dev/termination-log", false),
        ];
        plan.workdir = "/var/lib/usher-test/deep/data".into();
        let said = pod.output(plan).await;
        let wanted = "value/etc/passwd\n/var/lib/dpkg/status\nvalue/var/lib/usher-test/deep/data\nmine\n";
        assert_eq!(said, wanted, "{level:?}");
        assert_eq!(fs::read_to_string(data.join("file")).unwrap(), "kept\n");
        assert_eq!(fs::read_to_string(&message).unwrap(), "why\n");
        // Nothing was made on the host to mount over.
        assert!(fs::read_dir(pod.folder().join("root.d")).unwrap().next().is_none());
        assert!(!PathBuf::from("/var/lib/usher-test").exists() && !PathBuf::from("/etc/usher-test").exists());
    }
}

#[tokio::test]
async fn w6_a_file_of_etc_that_is_replaced_by_a_rename_is_seen_inside_at_once() {
    for level in private_levels() {
        let pod = Pod::start(level).await;
        let etc = pod.volume("etc");
        fs::write(etc.join("hosts"), "127.64.1.1 one\n").unwrap();
        fs::write(etc.join("hostname"), "the-pod\n").unwrap();
        let mut plan = pod.script("cat /etc/hosts /etc/hostname; head -c 5 /etc/passwd; echo; echo ready; sleep 1000");
        plan.etc = Some(etc.clone());
        pod.start_ready(plan).await;
        assert_eq!(pod.log("c", 0), "127.64.1.1 one\nthe-pod\nroot:\nready\n", "{level:?}");
        fs::write(etc.join(".hosts.new"), "127.64.1.2 two\n").unwrap();
        fs::rename(etc.join(".hosts.new"), etc.join("hosts")).unwrap();
        let mut exec = pod
            .supervisor
            .exec(exec_plan(&["sh", "-c", "cat /etc/hosts; getent hosts two"]))
            .await
            .unwrap();
        let (stdout, _, _) = finish(&mut exec).await.unwrap();
        assert_eq!(stdout, "127.64.1.2 two\n127.64.1.2      two\n", "{level:?}");
    }
}

#[tokio::test]
async fn an_image_with_a_root_of_its_own_shows_nothing_of_the_host() {
    for level in private_levels() {
        let pod = Pod::start(level).await;
        let image = pod.volume("image");
        for folder in ["bin", "lib", "srv"] {
            fs::create_dir(image.join(folder)).unwrap();
        }
        // A static program is the smallest image there is; without one, the shell and its libraries.
        copy_with_libraries("/bin/sh", &image);
        copy_with_libraries("/bin/ls", &image);
        let mut plan = pod.script("ls /; ls /etc; echo > /srv/x || echo refused");
        plan.root = Some(image.clone());
        plan.mounts = vec![mount(&pod.volume("v"), "/data/v", false)];
        let said = pod.output(plan).await;
        assert!(
            !said.contains("home") && said.contains("data\n") && said.contains("refused"),
            "{level:?}: {said}"
        );
        assert!(
            said.contains("proc\n") && said.contains("sys\n") && said.contains("tmp\n"),
            "{level:?}: {said}"
        );
        assert!(!image.join("data").exists());
    }
}

fn copy_with_libraries(program: &str, image: &std::path::Path) {
    let listed = std::process::Command::new("ldd").arg(program).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    let libraries = text.split_whitespace().filter(|word| word.starts_with('/'));
    for file in libraries.chain([program]) {
        let target = image.join(file.trim_start_matches('/'));
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(file, target).unwrap();
    }
}

#[tokio::test]
async fn the_data_folder_is_not_seen_except_through_mounts() {
    for level in private_levels() {
        // Outside /tmp, which is hidden anyhow; without root there may be no such place, and then it is hidden by that.
        let place = if is_root() { "/var" } else { env!("CARGO_TARGET_TMPDIR") };
        let data = tempfile::Builder::new().prefix("usher-data").tempdir_in(place).unwrap();
        let masked = data.path().to_owned();
        let pod = Pod::start_in(level, data, |plan| plan.masked = vec![masked.clone()]).await;
        let volume = pod.volume("v");
        fs::write(volume.join("file"), "mine").unwrap();
        let mut plan = pod.script(&format!("ls -A {} 2>/dev/null; cat /v/file", masked.display()));
        plan.mounts = vec![mount(&volume, "/v", true)];
        assert_eq!(pod.output(plan).await, "mine\n", "{level:?}");
        // X4: nor through a mount of what it lies in.
        let name = masked.file_name().unwrap().to_str().unwrap();
        let mut plan = pod.script(&format!(
            "test -d /above/{name} && ls -A /above/{name}; echo that is all"
        ));
        plan.mounts = vec![mount(masked.parent().unwrap(), "/above", true)];
        assert_eq!(pod.output(plan).await, "that is all\n", "{level:?}");
    }
}

#[tokio::test]
async fn n5_a_sub_path_cannot_lead_out_of_its_volume() {
    for level in private_levels() {
        let pod = Pod::start(level).await;
        let volume = pod.volume("v");
        fs::create_dir(volume.join("inside")).unwrap();
        fs::write(volume.join("inside/file"), "mine").unwrap();
        symlink("inside", volume.join("good")).unwrap();
        symlink("/etc", volume.join("bad")).unwrap();
        symlink("../..", volume.join("worse")).unwrap();
        let below = |name: &str| Mount {
            below: Some(name.into()),
            ..mount(&volume, "/v", false)
        };
        let mut plan = pod.script("cat /v/file");
        plan.mounts = vec![below("good")];
        assert_eq!(pod.output(plan).await, "mine\n", "{level:?}");
        for name in ["bad", "worse", "missing"] {
            let mut plan = pod.script("cat /v/passwd");
            plan.mounts = vec![below(name)];
            let phase = pod.run(plan).await;
            let Phase::Exited {
                code: 128,
                reason: ExitReason::StartError,
                message,
                ..
            } = &phase
            else {
                panic!("{level:?}, {name}: {phase:?}")
            };
            assert!(
                message.starts_with(&format!("cannot open subPath {name} of the volume for /v")),
                "{message}"
            );
        }
    }
}

#[tokio::test]
async fn a_link_in_a_volume_cannot_lead_a_later_mount_out_of_the_container() {
    for level in private_levels() {
        let pod = Pod::start(level).await;
        let (volume, other) = (pod.volume("v"), pod.volume("w"));
        symlink("/etc", volume.join("link")).unwrap();
        fs::write(other.join("file"), "mine").unwrap();
        let mut plan = pod.script("cat /etc/file; echo ready; sleep 1000");
        plan.mounts = vec![mount(&volume, "/v", false), mount(&other, "/v/link", false)];
        pod.start_ready(plan).await;
        // As inside any root: the link is the container's own /etc, never the host's.
        until(|| pod.log("c", 0).starts_with("mine")).await;
        assert!(!PathBuf::from("/etc/file").exists(), "{level:?}");
    }
}
