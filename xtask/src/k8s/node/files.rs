//! Configuration of containerd, kubelet and the CNI plugins.

use super::{ADDRESS, BRIDGE, POD_RANGE, cgroup, home, images, socket};
use crate::error::Result;
use crate::k8s::folder::Folder;
use crate::paths;
use crate::setup::debian::Packages;

pub(super) fn write(folder: &Folder, packages: &Packages) -> Result<()> {
    let home = home(folder);
    paths::create_private_folder(&home.join("cni"))?;
    for (name, text) in [
        ("containerd.toml", containerd(folder, packages)),
        ("kubelet.yaml", kubelet(folder)),
        ("cni/10-bridge.conflist", network(folder)),
        // Where the machine's own servers are is nothing that pods could reach.
        ("resolv.conf", format!("nameserver {ADDRESS}\n")),
    ] {
        paths::write_private(&home.join(name), &text)?;
    }
    Ok(())
}

/// `restrict_oom_score_adj`: containers shall start where we may not make them less likely victims than ourselves.
fn containerd(folder: &Folder, packages: &Packages) -> String {
    let home = home(folder);
    format!(
        r#"version = 2
root = "{home}/containerd"
state = "{home}/containerd-state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.internal.v1.opt",
  "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
  address = "{socket}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{plugins}"
  conf_dir = "{home}/cni"

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  BinaryName = "{runc}"
  Root = "{home}/runc"
  SystemdCgroup = false
"#,
        home = home.display(),
        socket = socket(folder).display(),
        pause = images::PAUSE,
        plugins = packages.file("usr/lib/cni").display(),
        runc = packages.file("usr/sbin/runc").display(),
    )
}

/// Whoever is in the room may ask it anything: that is the API server and root. Disks may be nearly full: what is
/// tested is not the machine. What is in volumes is counted every few seconds, not every minute: tests wait for it.
fn kubelet(folder: &Folder) -> String {
    let home = home(folder);
    format!(
        "\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {{enabled: true}}
  webhook: {{enabled: false}}
authorization: {{mode: AlwaysAllow}}
cgroupDriver: cgroupfs
cgroupRoot: /{cgroup}
clusterDNS: [{ADDRESS}]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix://{socket}
evictionHard: {{memory.available: 20Mi, nodefs.available: 1%, nodefs.inodesFree: 1%, imagefs.available: 1%}}
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100
resolvConf: {home}/resolv.conf
volumePluginDir: {home}/volume-plugins
volumeStatsAggPeriod: 5s
",
        cgroup = cgroup(folder),
        socket = socket(folder).display(),
        home = home.display(),
    )
}

fn network(folder: &Folder) -> String {
    let network = serde_json::json!({
        "cniVersion": "0.4.0",
        "name": "usher",
        "plugins": [{
            "type": "bridge",
            "bridge": BRIDGE,
            "isGateway": true,
            "ipam": {
                "type": "host-local",
                "dataDir": home(folder).join("addresses"),
                "ranges": [[{"subnet": POD_RANGE}]],
            },
        }],
    });
    network.to_string()
}
