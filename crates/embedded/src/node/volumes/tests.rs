use super::*;
use crate::node::environment::Gathered;
use serde_json::{Value, json};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

/// [`mounts`] or [`mounted`].
type Asked = fn(&Setting<'_>, &Container, &BTreeMap<String, String>) -> Result<Vec<Mount>, ConfigError>;

/// A pod with its folder, its claims' folders and its objects.
struct Stage {
    folder: tempfile::TempDir,
    pod: Pod,
    facts: Facts,
    objects: Gathered,
    host_paths: HostPaths,
    now: Timestamp,
}

impl Stage {
    fn new(spec: Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let facts = Facts {
            node_name: "n1".to_owned(),
            pod_ips: vec!["127.70.1.5".to_owned()],
            volumes: folder.path().join("volumes"),
            ..Facts::default()
        };
        let host_paths = HostPaths::new(true, vec![folder.path().join("host")], &folder.path().join("data"));
        std::fs::create_dir(folder.path().join("host")).unwrap();
        Self {
            folder,
            pod: pod(spec),
            facts,
            objects: Gathered::default(),
            host_paths,
            now: Timestamp::UNIX_EPOCH,
        }
    }

    fn config_map(mut self, name: &str, value: Value) -> Self {
        self.set_config_map(name, value);
        self
    }

    fn set_config_map(&mut self, name: &str, value: Value) {
        let map = serde_json::from_value(value).unwrap();
        self.objects.config_maps.insert(name.to_owned(), map);
    }

    fn secret(mut self, name: &str, value: Value) -> Self {
        let secret = serde_json::from_value(value).unwrap();
        self.objects.secrets.insert(name.to_owned(), secret);
        self
    }

    fn with<T>(&self, ask: impl FnOnce(&Setting<'_>) -> T) -> T {
        let claims = |name: &str| {
            let folder = self.folder.path().join(format!("claim-{name}"));
            if name == "none" {
                return Err(format!("persistentvolumeclaim {name:?} not found"));
            }
            std::fs::create_dir_all(&folder).unwrap();
            Ok(folder)
        };
        let tokens = |request: &TokenRequest| match request.audience.as_deref() {
            Some("down") => Err("the API is away".to_owned()),
            audience => Ok(format!("token for {audience:?}")),
        };
        ask(&Setting {
            pod: &self.pod,
            facts: &self.facts,
            objects: &self.objects,
            claims: &claims,
            tokens: &tokens,
            host_paths: &self.host_paths,
            now: self.now,
        })
    }

    fn set_up(&self) -> Result<(), Vec<String>> {
        self.with(set_up)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    fn refresh(&mut self) -> Refreshed {
        self.now += jiff::SignedDuration::from_secs(1);
        self.with(refresh)
    }

    fn mounts(&self, mounts: Value) -> Result<Vec<Mount>, String> {
        self.asked(mounts, super::mounts)
    }

    fn mounted(&self, mounts: Value) -> Result<Vec<Mount>, String> {
        self.asked(mounts, super::mounted)
    }

    fn asked(&self, mounts: Value, ask: Asked) -> Result<Vec<Mount>, String> {
        let container = serde_json::from_value(json!({"name": "c", "volumeMounts": mounts})).unwrap();
        let env = [
            ("POD".to_owned(), "web-0".to_owned()),
            ("UP".to_owned(), "../x".to_owned()),
        ]
        .into();
        self.with(|setting| ask(setting, &container, &env))
            .map_err(|why| why.to_string())
    }

    fn path(&self, path: &str) -> PathBuf {
        self.facts.volumes.join(path)
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }
}

fn pod(spec: Value) -> Pod {
    let mut whole = json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "1500m"}}}]});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "metadata": {"name": "web-0", "namespace": "shop", "uid": "u-1", "labels": {"app": "web"}},
        "spec": whole,
    }))
    .unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn n5_an_empty_dir_is_a_folder_for_all_and_keeps_its_files() {
    let stage = Stage::new(json!({"volumes": [
        {"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {"medium": "Memory"}}]}));
    stage.set_up().unwrap();
    std::fs::write(stage.path("a/x"), "kept").unwrap();
    stage.set_up().unwrap();
    assert_eq!(stage.read("a/x"), "kept");
    assert_eq!((mode(&stage.path("a")), mode(&stage.path("b"))), (0o777, 0o777));
    let mounts = stage.mounts(json!([
        {"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/b", "readOnly": true}]));
    let real = |name| stage.path(name).canonicalize().unwrap();
    let expected = [("a", "/a", false), ("b", "/b", true)].map(|(volume, target, read_only)| Mount {
        volume: volume.to_owned(),
        source: real(volume),
        within: real(volume),
        target: target.to_owned(),
        read_only,
    });
    assert_eq!(mounts.unwrap(), expected);
}

#[test]
fn n5_claims_are_the_folders_that_the_agent_names() {
    let stage = Stage::new(json!({"volumes": [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "r", "persistentVolumeClaim": {"claimName": "data", "readOnly": true}},
        {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]}));
    stage.set_up().unwrap();
    let mounts = stage
        .mounts(json!([{"name": "a", "mountPath": "/a"}, {"name": "r", "mountPath": "/r"}, {"name": "e", "mountPath": "/e"}]))
        .unwrap();
    assert!(mounts[0].source.ends_with("claim-data") && !mounts[0].read_only);
    assert!(mounts[1].source.ends_with("claim-data") && mounts[1].read_only);
    assert!(mounts[2].source.ends_with("claim-web-0-e"));
    let stage = Stage::new(json!({"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "none"}}]}));
    assert_eq!(
        stage.set_up().unwrap_err(),
        ["MountVolume.SetUp failed for volume \"a\" : persistentvolumeclaim \"none\" not found"]
    );
}

#[test]
fn n5_config_volumes_have_their_keys_items_and_modes() {
    let stage = Stage::new(json!({"volumes": [
        {"name": "all", "configMap": {"name": "conf", "defaultMode": 0o600}},
        {"name": "some", "configMap": {"name": "conf", "items": [
            {"key": "a", "path": "deep/er/a.txt", "mode": 0o400}, {"key": "bin", "path": "b"}]}},
        {"name": "s", "secret": {"secretName": "key", "defaultMode": 0o440}},
        {"name": "opt", "configMap": {"name": "none", "optional": true}},
        {"name": "optkey", "secret": {"secretName": "key", "optional": true, "items": [{"key": "no", "path": "no"}]}},
        {"name": "down", "downwardAPI": {"items": [
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
            {"path": "cpu", "mode": 0o444, "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}}]}},
    ]}))
    .config_map(
        "conf",
        json!({"data": {"a": "A", "b": "B"}, "binaryData": {"bin": "AP8="}}),
    )
    .secret("key", json!({"data": {"pw": "cHc="}}));
    stage.set_up().unwrap();
    assert_eq!(
        (stage.read("all/a"), stage.read("all/b")),
        ("A".to_owned(), "B".to_owned())
    );
    assert_eq!(mode(&stage.path("all/a")), 0o600);
    assert_eq!(stage.read("some/deep/er/a.txt"), "A");
    assert_eq!(mode(&stage.path("some/deep/er/a.txt")), 0o400);
    assert_eq!(std::fs::read(stage.path("some/b")).unwrap(), [0, 255]);
    assert_eq!(mode(&stage.path("some/b")), 0o644);
    assert!(!stage.path("some/a").exists());
    assert_eq!(
        (stage.read("s/pw"), mode(&stage.path("s/pw"))),
        ("pw".to_owned(), 0o440)
    );
    assert!(!stage.path("opt/a").exists() && stage.path("opt").is_dir());
    assert!(!stage.path("optkey/no").exists());
    assert_eq!(
        (stage.read("down/labels"), stage.read("down/cpu")),
        ("app=\"web\"".to_owned(), "2".to_owned())
    );
    let mounts = stage.mounts(json!([{"name": "all", "mountPath": "/x"}])).unwrap();
    assert!(mounts[0].read_only, "nobody writes to a config volume");
}

#[test]
fn n5_a_projected_volume_has_all_its_sources() {
    let sources = json!([
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        {"secret": {"name": "key", "optional": true}},
        {"clusterTrustBundle": {"path": "x", "optional": true}},
    ]);
    let spec = json!({"volumes": [{"name": "api", "projected": {"defaultMode": 0o644, "sources": sources}}]});
    let ca = json!({"data": {"ca.crt": "CA"}});
    let stage = Stage::new(spec.clone()).config_map("kube-root-ca.crt", ca.clone());
    stage.set_up().unwrap();
    assert_eq!(stage.read("api/token"), "token for None");
    assert_eq!(mode(&stage.path("api/token")), 0o644);
    assert_eq!(
        (stage.read("api/ca.crt"), stage.read("api/namespace")),
        ("CA".to_owned(), "shop".to_owned())
    );
    let mut private = Stage::new(spec).config_map("kube-root-ca.crt", ca);
    private.pod.spec.as_mut().unwrap().security_context =
        serde_json::from_value(json!({"runAsUser": 1_111_111})).unwrap();
    private.set_up().unwrap();
    assert_eq!(mode(&private.path("api/token")), 0o600);
    assert_eq!(mode(&private.path("api/ca.crt")), 0o644);
    if is_root() {
        assert_eq!(std::fs::metadata(private.path("api/token")).unwrap().uid(), 1_111_111);
    }
}

#[test]
fn n5_every_volume_that_fails_is_told_in_the_kubelets_words() {
    let stage = Stage::new(json!({"volumes": [
        {"name": "x", "configMap": {"name": "y"}},
        {"name": "good", "emptyDir": {}},
        {"name": "z", "secret": {"secretName": "y"}},
        {"name": "k", "configMap": {"name": "conf", "items": [{"key": "no", "path": "p"}]}},
        {"name": "l", "secret": {"secretName": "key", "items": [{"key": "no", "path": "p"}]}},
        {"name": "p", "projected": {"sources": [{"configMap": {"name": "y"}}, {"secret": {"name": "y"}}]}},
        {"name": "q", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "down"}}]}},
        {"name": "n", "nfs": {"server": "s", "path": "/"}},
        {"name": "up", "configMap": {"name": "conf", "items": [{"key": "a", "path": "../../etc/x"}]}},
    ]}))
    .config_map("conf", json!({"data": {"a": "A"}}))
    .secret("key", json!({}));
    let expected = [
        "MountVolume.SetUp failed for volume \"x\" : configmap \"y\" not found",
        "MountVolume.SetUp failed for volume \"z\" : secret \"y\" not found",
        "MountVolume.SetUp failed for volume \"k\" : configmap references non-existent config key: no",
        "MountVolume.SetUp failed for volume \"l\" : references non-existent secret key: no",
        "MountVolume.SetUp failed for volume \"p\" : [configmap \"y\" not found, secret \"y\" not found]",
        "MountVolume.SetUp failed for volume \"q\" : failed to fetch token: the API is away",
        "MountVolume.SetUp failed for volume \"n\" : this node has no volumes of the kind that volume \"n\" asks for: use \
         emptyDir, persistentVolumeClaim, ephemeral, configMap, secret, downwardAPI, projected or hostPath",
        "MountVolume.SetUp failed for volume \"up\" : path \"../../etc/x\" must be relative, without \"..\": correct the \
         volume's items",
    ];
    assert_eq!(stage.set_up().unwrap_err(), expected);
    assert!(stage.path("good").is_dir());
}

#[test]
fn n5_a_refresh_follows_changes_and_keeps_the_files_of_an_object_that_is_gone() {
    let mut stage = Stage::new(json!({"volumes": [
        {"name": "a", "configMap": {"name": "conf"}}, {"name": "opt", "configMap": {"name": "maybe", "optional": true}},
        {"name": "e", "emptyDir": {}}]}))
    .config_map("conf", json!({"data": {"x": "1", "y": "1"}}));
    stage.set_up().unwrap();
    assert_eq!(stage.refresh(), Refreshed::default());
    stage.set_config_map("conf", json!({"data": {"x": "2", "z": "2"}}));
    stage.set_config_map("maybe", json!({"data": {"m": "3"}}));
    assert_eq!(stage.refresh().changed, ["a", "opt"]);
    assert_eq!(
        (stage.read("a/x"), stage.read("a/z"), stage.read("opt/m")),
        ("2".into(), "2".into(), "3".into())
    );
    assert!(std::fs::symlink_metadata(stage.path("a/y")).is_err());
    stage.objects.config_maps.clear();
    let refreshed = stage.refresh();
    assert_eq!(refreshed.changed, ["opt"]);
    let told = "MountVolume.SetUp failed for volume \"a\" : configmap \"conf\" not found";
    assert_eq!(
        refreshed.errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [told]
    );
    assert_eq!(stage.read("a/x"), "2");
    assert!(!stage.path("opt/m").exists());
}

#[test]
fn n5_a_sub_path_of_a_config_volume_does_not_change_until_the_next_start() {
    let mut stage =
        Stage::new(json!({"volumes": [{"name": "a", "configMap": {"name": "conf", "defaultMode": 0o440}}]}))
            .config_map("conf", json!({"data": {"app.conf": "1"}}));
    stage.set_up().unwrap();
    let start = |stage: &Stage| {
        let mounts = json!([{"name": "a", "mountPath": "/etc/app.conf", "subPath": "app.conf"}]);
        stage.mounts(mounts).unwrap().remove(0).source
    };
    let source = start(&stage);
    assert_eq!(
        (std::fs::read_to_string(&source).unwrap(), mode(&source)),
        ("1".to_owned(), 0o440)
    );
    assert!(source.ends_with("app.conf"));
    stage.set_config_map("conf", json!({"data": {"app.conf": "2"}}));
    for _ in 0..3 {
        let _ = stage.refresh();
    }
    assert_eq!(stage.read("a/app.conf"), "2");
    let look = stage
        .mounted(json!([{"name": "a", "mountPath": "/etc/app.conf", "subPath": "app.conf"}]))
        .unwrap();
    assert_eq!(look[0].source, source, "looking copies nothing");
    assert_eq!(std::fs::read_to_string(&source).unwrap(), "1");
    assert_eq!(std::fs::read_to_string(start(&stage)).unwrap(), "2");
}

#[test]
fn n5_a_sub_path_is_made_with_the_volumes_rights_and_expressions_are_expanded() {
    let stage = Stage::new(json!({"volumes": [{"name": "a", "emptyDir": {}}]}));
    stage.set_up().unwrap();
    let mount = |fields: Value| {
        let mut mount = json!({"name": "a", "mountPath": "/m"});
        mount
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        stage.mounts(json!([mount])).map(|mut mounts| mounts.remove(0).source)
    };
    let looked = stage.mounted(json!([{"name": "a", "mountPath": "/m", "subPath": "x/y"}]));
    assert_eq!(
        looked.unwrap_err(),
        "failed to prepare subPath for volumeMount \"a\" of container \"c\""
    );
    assert!(!stage.path("a/x").exists(), "looking makes nothing");
    assert!(mount(json!({"subPath": "x/y"})).unwrap().ends_with("a/x/y"));
    let looked = stage
        .mounted(json!([{"name": "a", "mountPath": "m", "subPath": "x/y"}]))
        .unwrap();
    assert!(looked[0].source.ends_with("a/x/y") && looked[0].within.ends_with("a"));
    assert_eq!(looked[0].target, "/m");
    assert_eq!((mode(&stage.path("a/x")), mode(&stage.path("a/x/y"))), (0o777, 0o777));
    assert!(
        mount(json!({"subPathExpr": "logs/$(POD)"}))
            .unwrap()
            .ends_with("a/logs/web-0")
    );
    std::fs::write(stage.path("a/file"), "").unwrap();
    assert!(mount(json!({"subPath": "file"})).unwrap().ends_with("a/file"));
    let refused = |fields: Value| mount(fields).unwrap_err();
    assert_eq!(refused(json!({"subPathExpr": "$(NOT)"})), "missing value for NOT");
    assert_eq!(
        refused(json!({"subPath": "/etc"})),
        "error SubPath `/etc` must not be an absolute path"
    );
    let back = "unable to provision SubPath `../x`: must not contain '..'";
    assert_eq!(refused(json!({"subPath": "../x"})), back);
    assert_eq!(refused(json!({"subPathExpr": "$(UP)"})), back);
    assert_eq!(
        refused(json!({"subPath": "file/below"})),
        "failed to create subPath directory for volumeMount \"a\" of container \"c\""
    );
}

#[test]
fn n5_a_sub_path_never_leads_out_of_its_volume() {
    let stage = Stage::new(json!({"volumes": [{"name": "a", "emptyDir": {}}]}));
    stage.set_up().unwrap();
    let outside = stage.folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::create_dir(stage.path("a/inside")).unwrap();
    symlink(&outside, stage.path("a/link")).unwrap();
    symlink("../..", stage.path("a/inside/up")).unwrap();
    symlink("/no/such/place", stage.path("a/dangling")).unwrap();
    symlink("inside", stage.path("a/fine")).unwrap();
    let mount = |path: &str| {
        let mounts = json!([{"name": "a", "mountPath": "/m", "subPath": path}]);
        stage.mounts(mounts).map(|mut mounts| mounts.remove(0).source)
    };
    for (path, verb) in [
        ("link", "prepare subPath"),
        ("link/new", "create subPath directory"),
        ("link/new/er", "create subPath directory"),
        ("inside/up", "prepare subPath"),
        ("inside/up/new", "create subPath directory"),
        ("dangling", "create subPath directory"),
        ("dangling/new", "create subPath directory"),
    ] {
        let told = format!("failed to {verb} for volumeMount \"a\" of container \"c\"");
        assert_eq!(mount(path).unwrap_err(), told, "{path}");
    }
    assert!(mount("fine/new").unwrap().ends_with("a/inside/new"));
    assert_eq!(
        std::fs::read_dir(outside).unwrap().count(),
        0,
        "nothing was made outside"
    );
}

#[test]
fn n5_host_paths_are_checked_by_their_type() {
    let stage = Stage::new(json!({}));
    let host = stage.folder.path().join("host");
    std::fs::create_dir(host.join("dir")).unwrap();
    std::fs::write(host.join("file"), "").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(host.join("sock")).unwrap();
    let check = |name: &str, kind: &str| {
        let path = host.join(name);
        host_path::check(&path, kind).map_err(|why| why.replace(&format!("{}/", host.display()), ""))
    };
    for (name, kind) in [
        ("dir", "Directory"),
        ("dir", "DirectoryOrCreate"),
        ("made/deep", "DirectoryOrCreate"),
        ("made/deep", "Directory"),
        ("file", "File"),
        ("file", "FileOrCreate"),
        ("new-file", "FileOrCreate"),
        ("new-file", "File"),
        ("sock", "Socket"),
        ("file", ""),
        ("unchecked", ""),
        ("unchecked", "Directory"),
    ] {
        assert_eq!(check(name, kind), Ok(()), "{name} {kind}");
    }
    for (name, kind, what) in [
        ("none", "Directory", "none is not a directory"),
        ("file", "Directory", "file is not a directory"),
        ("file", "DirectoryOrCreate", "file is not a directory"),
        ("dir", "File", "dir is not a file"),
        ("dir", "Socket", "dir is not a socket file"),
        ("dir", "CharDevice", "dir is not a character device"),
        ("dir", "BlockDevice", "dir is not a block device"),
    ] {
        assert_eq!(check(name, kind), Err(format!("hostPath type check failed: {what}")));
    }
    assert_eq!(host_path::check(Path::new("/dev/null"), "CharDevice"), Ok(()));
    assert_eq!(
        check("dir", "Folder"),
        Err("Folder is an invalid volume type".to_owned())
    );
}

#[test]
fn x4_a_host_path_outside_of_what_is_allowed_names_the_path_and_the_flag() {
    let stage = Stage::new(json!({"volumes": [{"name": "h", "hostPath": {"path": "/etc"}}]}));
    assert_eq!(
        stage.set_up().unwrap_err(),
        [
            "MountVolume.SetUp failed for volume \"h\" : hostPath \"/etc\" is outside of the folders that pods may see: \
             start usher with --host-path PREFIX, where PREFIX is that path or a folder above it"
        ]
    );
    let host = stage.folder.path().join("host");
    symlink("/etc", host.join("link")).unwrap();
    let allowed = |path: &str| stage.host_paths.allowed(path).is_ok();
    let inside = |name: &str| host.join(name).display().to_string();
    assert!(allowed(&inside("a")) && allowed(&host.display().to_string()));
    assert!(!allowed(&inside("link")), "a link leads out");
    assert!(!allowed(&inside("link/passwd")));
    assert!(!allowed(&inside("../x")));
    assert!(!allowed(&format!("{}-beside", host.display())));
    assert!(!allowed("relative"));
    let free = HostPaths::new(false, Vec::new(), Path::new("/nowhere"));
    assert!(free.allowed("/etc").is_ok());
}

#[test]
fn x4_of_the_clusters_own_folder_pods_see_the_volumes_and_what_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir_all(data.join("volumes/pv")).unwrap();
    std::fs::write(data.join("token"), "secret").unwrap();
    symlink(data.join("token"), folder.path().join("link")).unwrap();
    let above = || vec![folder.path().to_owned()];
    for (what, paths) in [
        ("root", HostPaths::new(true, Vec::new(), &data)),
        ("root, and a name above it", HostPaths::new(true, above(), &data)),
        ("anybody", HostPaths::new(false, Vec::new(), &data)),
    ] {
        let told = |path: PathBuf| paths.allowed(path.to_str().unwrap());
        for hidden in [
            &data,
            &data.join("token"),
            &data.join("pods"),
            &folder.path().join("link"),
        ] {
            let why = told(hidden.clone()).unwrap_err();
            assert!(
                why.contains("volumes is for pods") || why.contains("--host-path"),
                "{what}: {why}"
            );
        }
        assert!(told(data.join("volumes/pv")).is_ok(), "{what}");
    }
    let named = HostPaths::new(true, vec![data.join("pods")], &data);
    assert!(named.allowed(data.join("pods/x").to_str().unwrap()).is_ok());
    assert!(named.allowed(data.join("token").to_str().unwrap()).is_err());
}

#[test]
fn n5_fs_group_owns_volumes_where_we_may_give_files_away() {
    let mut stage = Stage::new(json!({
        "securityContext": {"fsGroup": 4242},
        "volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "s", "secret": {"secretName": "key", "defaultMode": 0o400}}]}))
    .secret("key", json!({"data": {"pw": "cHc="}}));
    let claim = stage.folder.path().join("claim-data");
    std::fs::create_dir_all(claim.join("sub")).unwrap();
    std::fs::write(claim.join("sub/file"), "x").unwrap();
    std::fs::set_permissions(claim.join("sub/file"), std::fs::Permissions::from_mode(0o600)).unwrap();
    symlink("/etc/passwd", claim.join("link")).unwrap();
    stage.set_up().unwrap();
    let group = |path: &Path| std::fs::symlink_metadata(path).unwrap().gid();
    if !is_root() {
        assert_eq!(
            mode(&claim.join("sub/file")),
            0o600,
            "nothing is done where nothing may be given"
        );
        return;
    }
    for path in [
        claim.clone(),
        claim.join("sub"),
        claim.join("sub/file"),
        claim.join("link"),
    ] {
        assert_eq!(group(&path), 4242, "{}", path.display());
    }
    assert_eq!(mode(&claim.join("sub")) & 0o2070, 0o2070);
    assert_eq!(mode(&claim.join("sub/file")), 0o660);
    assert_ne!(group(Path::new("/etc/passwd")), 4242);
    let secret = stage.path("s/pw").canonicalize().unwrap();
    assert_eq!((group(&secret), mode(&secret)), (4242, 0o440));
    // OnRootMismatch: a volume that is given already is not walked again.
    let security = stage.pod.spec.as_mut().unwrap().security_context.as_mut().unwrap();
    security.fs_group_change_policy = Some("OnRootMismatch".to_owned());
    std::os::unix::fs::chown(claim.join("sub/file"), None, Some(0)).unwrap();
    stage.set_up().unwrap();
    assert_eq!(group(&claim.join("sub/file")), 0);
}

#[test]
fn a_mount_of_what_is_no_volume_and_a_block_device_are_told() {
    let stage = Stage::new(json!({"volumes": [{"name": "a", "emptyDir": {}}]}));
    stage.set_up().unwrap();
    assert_eq!(
        stage.mounts(json!([{"name": "b", "mountPath": "/b"}])).unwrap_err(),
        "cannot find volume \"b\" to mount into container \"c\""
    );
    let container = serde_json::from_value(json!({"name": "c", "volumeDevices": [{"name": "a", "devicePath": "/d"}]}));
    let told = stage.with(|setting| super::mounts(setting, &container.unwrap(), &BTreeMap::new()));
    assert!(told.unwrap_err().to_string().contains("this node has no block devices"));
}
