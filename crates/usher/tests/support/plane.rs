//! The acceptance cases are run three times: by `acceptance` on a usual control plane, by `acceptance_bare` on one without
//! kube-controller-manager, by `acceptance_embedded` (and `faults_embedded`) on our own. What a case cannot do there is in the one list below, with
//! the reason.

use std::path::Path;
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
    b"acceptance_embedded" | b"faults_embedded" => Plane::Embedded,
    _ => Plane::Usual,
};

/// Cases that are about what a plane does not have. Each begins with [`left_out`]; the programs of those planes hold this
/// list and the cases to each other.
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
        "the embedded cluster has one user and no authorization: no right is ever missing (embedded X2)",
    ),
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

/// Holds the list and the cases to each other.
pub fn check_left_out() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/acceptance");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let sources = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let code: String = sources.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    for (_, case, reason) in LEFT_OUT {
        assert!(reason.len() > 10, "{case}: say why");
        assert!(code.contains(&format!("async fn {case}()")), "there is no case {case}");
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

/// The embedded cluster of this test program: on a socket, since operators and kubectl are processes of their own, with an
/// audit log of reads too, as the real one has it. It lives as long as the program.
pub fn embedded() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let (tell, told) = std::sync::mpsc::channel();
        // Tests have a runtime each, which ends with them; the server outlives them all.
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
                std::future::pending::<()>().await;
                drop(cluster);
            });
        });
        told.recv().unwrap()
    })
}
