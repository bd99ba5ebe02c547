//! The acceptance cases are run three times: by `acceptance` on a usual control plane, by `acceptance_bare` on one without
//! kube-controller-manager, by `acceptance_embedded` on our own; the other programs twice, the second time by
//! `faults_embedded` and `cluster_embedded`. What a case cannot do there, and which programs have no business there, is in
//! the two lists below, with the reasons.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::control_plane::Server;

/// Which kind of API server a test program runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plane {
    Usual,
    Bare,
    Embedded,
}

/// The one of this test program.
pub const PLANE: Plane = match env!("CARGO_CRATE_NAME").as_bytes() {
    b"acceptance_bare" => Plane::Bare,
    b"acceptance_embedded" | b"cluster_embedded" | b"faults_embedded" => Plane::Embedded,
    _ => Plane::Usual,
};

/// Why most of them are left out on the embedded cluster.
const NO_AUTHORIZATION: &str =
    "the embedded cluster has one user and no authorization: no right is ever missing (embedded X2)";

/// Cases, and steps of cases, that are about what a plane does not have. Each begins with [`left_out`]; the programs of
/// those planes hold this list and the cases to each other.
pub const LEFT_OUT: &[(Plane, &str, &str)] = &[
    (
        Plane::Bare,
        "a14_a_labelled_pool_deleted_in_the_foreground_goes_and_its_holder_after_it",
        "the garbage collector takes off the finalizer that foreground deletion puts on",
    ),
    (
        Plane::Bare,
        "a25_a_namespace_with_everything_in_it_can_be_deleted",
        "the namespace controller deletes what is in a namespace, and takes off the namespace's finalizer",
    ),
    (
        Plane::Bare,
        "a28_a_claim_deleted_in_any_way_gives_its_range_back_when_its_subnet_is_gone",
        "the garbage collector takes off the finalizers that foreground and orphan deletion put on",
    ),
    (
        Plane::Embedded,
        "a_missing_right_is_named_and_once_granted_all_goes_on_without_a_restart",
        NO_AUTHORIZATION,
    ),
    (Plane::Embedded, "who_may_not_gets_403", NO_AUTHORIZATION),
    (
        // What keeps it from being ready is a right it lacks.
        Plane::Embedded,
        "a_replica_that_is_not_ready_gives_503",
        NO_AUTHORIZATION,
    ),
    (
        Plane::Embedded,
        "without_rights_for_secrets_and_reviews_it_runs_and_tells_what_is_missing",
        NO_AUTHORIZATION,
    ),
    (
        // What lets passes fail is a right they lack.
        Plane::Embedded,
        "a26_passes_that_fail_are_counted_as_errors_with_what_asked_for_them",
        NO_AUTHORIZATION,
    ),
    (
        Plane::Embedded,
        "every_command_tells_which_right_is_missing",
        NO_AUTHORIZATION,
    ),
    (Plane::Embedded, "who_triggers_cannot_read_the_keys", NO_AUTHORIZATION),
    (Plane::Embedded, "a_tenant_cannot_install_the_crds", NO_AUTHORIZATION),
];

/// Test programs, and parts of them, that do not run on the embedded cluster a second time.
const ELSEWHERE: &[(&str, &str)] = &[
    ("acceptance_bare", "the acceptance cases, on a plane of its own"),
    ("cli", "asks no API server"),
    ("docs", "about documents, not a part of the acceptance suite"),
    (
        "faults/server",
        "kills kube-apiserver and etcd; the embedded cluster is killed by up_kill",
    ),
    ("monitoring/promql", "asks no API server"),
    ("monitoring/rules", "rules, board and documents: asks no API server"),
    ("tidy", "asks no API server"),
    ("up", "runs on the embedded cluster only"),
    ("up_kill", "runs on the embedded cluster only"),
];

/// Whether the case of this name is left out here; it then says so and returns.
pub fn left_out(case: &str) -> bool {
    assert!(
        LEFT_OUT.iter().any(|(_, listed, _)| *listed == case),
        "{case} is not in the list of cases that are left out somewhere"
    );
    let reason = LEFT_OUT
        .iter()
        .find(|(plane, listed, _)| *plane == PLANE && *listed == case);
    if let Some((_, _, reason)) = reason {
        println!("left out here: {reason}");
    }
    reason.is_some()
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// What is in a folder, by name without an ending.
fn names(folder: &Path) -> BTreeMap<String, PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let stem = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    entries
        .filter(|path| path.is_dir() || path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| (stem(&path), path))
        .collect()
}

/// Holds the list and the cases to each other.
pub fn check_left_out() {
    let mut sources: Vec<PathBuf> = Vec::new();
    for (name, path) in names(&tests()) {
        match path.is_dir() {
            true if name == "support" => {}
            true => sources.extend(names(&path).into_values().filter(|path| path.is_file())),
            false => sources.push(path),
        }
    }
    let code: String = sources
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    for (_, case, reason) in LEFT_OUT {
        assert!(reason.len() > 10, "{case}: say why");
        assert!(code.contains(&format!("fn {case}(")), "there is no case {case}");
        assert!(
            code.contains(&format!("left_out(\"{case}\")")),
            "{case} does not begin with left_out: it is run here, so take it off the list"
        );
    }
    assert_eq!(
        code.matches("left_out(\"").count(),
        LEFT_OUT.len(),
        "each by its own name, once"
    );
}

/// Every test program, and every file of one that is taken apart, runs on the embedded cluster or says why not.
pub fn check_elsewhere() {
    let programs = names(&tests());
    let ours: Vec<(&String, String)> = programs
        .iter()
        .filter(|(name, _)| name.ends_with("_embedded"))
        .map(|(name, path)| (name, std::fs::read_to_string(path).unwrap()))
        .collect();
    let mut missing = Vec::new();
    let mut reasons: BTreeMap<&str, &str> = ELSEWHERE.iter().copied().collect();
    let mut check = |what: String, runs: bool| match (runs, reasons.remove(what.as_str())) {
        (false, None) => missing.push(what),
        (true, Some(reason)) => panic!("{what} runs on the embedded cluster, so take this off the list: {reason}"),
        _ => {}
    };
    for (name, path) in &programs {
        if name == "support" || name.ends_with("_embedded") {
            continue;
        }
        let whole = ours.iter().any(|(_, text)| text.contains(&format!("mod {name};")));
        let apart = ours.iter().find_map(|(_, text)| {
            let (_, inside) = text.split_once(&format!("mod {name} {{"))?;
            inside.split_once('}').map(|(inside, _)| inside)
        });
        check(name.clone(), whole || apart.is_some());
        if let Some(inside) = apart {
            for part in names(path).into_keys().filter(|part| part != "main") {
                check(format!("{name}/{part}"), inside.contains(&format!("mod {part};")));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "on the embedded cluster run neither {missing:?}, nor is there a reason"
    );
    assert!(reasons.is_empty(), "there is nothing of these names: {reasons:?}");
}

/// An embedded cluster: on a socket, since operators and kubectl are processes of their own, with an audit log of reads too,
/// as the real one has it. It goes with this value.
#[derive(Debug)]
pub struct Embedded {
    pub server: Server,
    /// Nothing is sent: when it goes, the cluster goes.
    _alive: tokio::sync::oneshot::Sender<()>,
}

impl Embedded {
    pub fn start() -> Self {
        let (alive, gone) = tokio::sync::oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        // Tests have a runtime each, which ends with them; the server may outlive them.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let options = usher_embedded::Options {
                    audit: Some(usher_embedded::AuditOptions {
                        reads: true,
                        // No rotation: tests read on from a place in the file.
                        file_bytes: u64::MAX,
                    }),
                    ..usher_embedded::Options::default()
                };
                let cluster = usher_embedded::Cluster::start(options).unwrap();
                let listening = cluster.listen(usher_embedded::ListenOptions::default()).await.unwrap();
                let kubeconfig = listening.kubeconfig_file().to_owned();
                let dir = kubeconfig.parent().unwrap().to_owned();
                tell.send(Server { kubeconfig, dir }).unwrap();
                let _ = gone.await;
                drop(cluster);
            });
        });
        Self {
            server: told.recv().unwrap(),
            _alive: alive,
        }
    }
}

/// The embedded cluster of this test program. It lives as long as the program.
pub fn embedded() -> &'static Server {
    static CLUSTER: OnceLock<Embedded> = OnceLock::new();
    &CLUSTER.get_or_init(Embedded::start).server
}
