//! The life of an installation, on a control plane of its own: from nothing, through updates and refusals, to nothing.

use serde_json::Value;

use super::control_plane::{Caller, ControlPlane, Operator, until};
use crate::support::plane::left_out;

const TEAM: &str = "team-a";

fn pool_and_claim() -> String {
    format!(
        "apiVersion: plexaubnet.io/v1alpha1\nkind: SubnetPool\nmetadata: {{name: p, namespace: {TEAM}}}\n\
         spec: {{cidr: 10.0.0.0/16}}\n---\n\
         apiVersion: plexaubnet.io/v1alpha1\nkind: SubnetClaim\nmetadata: {{name: web, namespace: {TEAM}}}\n\
         spec: {{poolRef: p, clusterID: c1}}\n"
    )
}

fn finalizers(admin: &Caller) -> Vec<Value> {
    let objects = admin.get(&["subnetpools,subnets,subnetclaims", "-A"]).unwrap();
    let items = objects["items"].as_array().unwrap().iter();
    items
        .map(|item| item["metadata"]["finalizers"].clone())
        .filter(|f| !f.is_null())
        .collect()
}

/// Writes of `usher install` that the server has seen.
fn writes(admin: &Caller) -> usize {
    let install = admin.audited("(install)");
    install
        .iter()
        .filter(|entry| !["get", "list"].contains(&entry["verb"].as_str().unwrap()))
        .count()
}

#[test]
fn an_installation_from_nothing_to_nothing() {
    let plane = ControlPlane::up();
    let admin = &plane.admin;
    let said = admin.usher(&["plan", "subnetpool/p"]).refused();
    assert!(said.contains("the CRDs are not installed; `usher install`"), "{said}");
    let said = admin.usher(&["uninstall"]).done();
    assert!(
        said.contains("Nothing of `usher install` was in namespace usher-system."),
        "{said}"
    );

    installs_and_leaves_alone_what_is_right(admin);
    kubectl_reads_the_same_objects_and_the_server_takes_them(admin);
    runs_with_the_rights_it_was_given_and_refuses_to_be_pulled_away(&plane);
    what_stays_can_be_deleted(admin);
    changes_of_scope_and_size_leave_nothing_behind(admin);
    a_tenant_installs_and_uninstalls_in_their_own_namespace(&plane);
    keeps_a_namespace_that_holds_something_else(admin);
    deletes_data_only_when_told_so(admin);
}

fn installs_and_leaves_alone_what_is_right(admin: &Caller) {
    let dry = admin.usher(&["install", "--dry-run"]).done();
    assert_eq!(dry.matches("would create").count(), 17, "{dry}");
    assert!(admin.get(&["namespace", "usher-system"]).is_none());

    let first = admin.usher(&["install"]).done();
    assert_eq!(first.matches("created ").count(), 17, "{first}");
    assert!(first.contains("the API server serves all 4 CRDs"), "{first}");
    until("the writes are in the audit log", || writes(admin) == 17);
    let second = admin.usher(&["install"]).done();
    assert_eq!(second.matches("unchanged ").count(), 17, "{second}");

    // By hand, and by another version.
    admin
        .kubectl(&[
            "scale",
            "deployment/usher-operator",
            "-n",
            "usher-system",
            "--replicas=5",
        ])
        .done();
    let third = admin.usher(&["install"]).done();
    assert!(
        third.contains("updated       Deployment usher-system/usher-operator"),
        "{third}"
    );
    assert_eq!(third.matches("unchanged ").count(), 16, "{third}");
    let deployment = admin
        .get(&["deployment", "usher-operator", "-n", "usher-system"])
        .unwrap();
    assert_eq!(deployment["spec"]["replicas"], 2);
    until("only that one was written", || writes(admin) == 18);

    let said = admin.usher(&["install", "-n", "elsewhere"]).refused();
    assert!(
        said.contains("Usher is installed in namespace usher-system already (Deployment usher-system/usher-operator)"),
        "{said}"
    );
    assert!(admin.get(&["namespace", "elsewhere"]).is_none());
    let said = admin.usher(&["install", "--namespace-scoped", "kube-public"]).refused();
    assert!(said.contains("looks after the same objects"), "{said}");
}

fn kubectl_reads_the_same_objects_and_the_server_takes_them(admin: &Caller) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    admin.usher(&["generate-artifacts", "--out", root]).done();
    let file = format!("{root}/deploy/install.yaml");
    let ours: Value = serde_json::from_str(&admin.usher(&["install", "-o", "json"]).done()).unwrap();
    // kubectl's YAML reader is another one than ours.
    let read = admin
        .kubectl(&["create", "--dry-run=client", "-o", "json", "-f", &file])
        .done();
    let read: Value = serde_json::from_str(&format!("[{}]", read.trim().replace("}\n{", "},{"))).unwrap();
    let read = match read[0]["items"].as_array() {
        Some(items) => items.clone(),
        None => read.as_array().unwrap().clone(),
    };
    let ours = ours["items"].as_array().unwrap();
    assert_eq!(read.len(), ours.len());
    for (read, ours) in read.iter().zip(ours) {
        // CRD schemas say 1.0 where kubectl says 1.
        assert_eq!(numbers_as_floats(read), numbers_as_floats(ours));
    }
    for name in ["install", "crds", "rbac"] {
        let file = format!("{root}/deploy/{name}.yaml");
        let strict = [
            "--server-side",
            "--force-conflicts",
            "--dry-run=server",
            "--validate=strict",
            "-f",
            &file,
        ];
        admin.kubectl(&[&["apply"], &strict[..]].concat()).done();
    }
}

fn numbers_as_floats(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::from(number.as_f64()),
        Value::Array(items) => items.iter().map(numbers_as_floats).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, field)| (name.clone(), numbers_as_floats(field)))
            .collect(),
        other => other.clone(),
    }
}

fn runs_with_the_rights_it_was_given_and_refuses_to_be_pulled_away(plane: &ControlPlane) {
    let admin = &plane.admin;
    admin.kubectl(&["create", "namespace", TEAM]).done();
    let (account, _) = admin.service_account("usher-system", "usher-operator", plane.folder.path());
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let tls = format!("--tls-address={port}");
    let operator = Operator::start(&account, &["--identity=on-a-laptop", &tls]);
    admin.apply(&pool_and_claim());
    admin
        .kubectl(&[
            "wait",
            "--for=condition=Ready",
            "--timeout=30s",
            "subnetclaim/web",
            "-n",
            TEAM,
        ])
        .done();
    triggers_with_the_rights_it_was_given(plane, port);
    let user = "system:serviceaccount:usher-system:usher-operator";
    until("an event is written", || {
        admin
            .audited(user)
            .iter()
            .any(|entry| entry["objectRef"]["resource"] == "events")
    });
    for entry in admin.audited(user) {
        assert_ne!(entry["responseStatus"]["code"], 403, "{entry}");
    }

    let said = admin.usher(&["uninstall"]).refused();
    assert!(
        said.contains("nothing was removed: 1 Subnet (team-a/p-10-0-0-0-24), 1 SubnetPool (team-a/p) carry"),
        "{said}"
    );
    assert!(said.contains("--remove-finalizers"), "{said}");
    let said = admin.usher(&["uninstall", "--crds", "--remove-finalizers"]).refused();
    assert!(
        said.contains("deleting the CRDs would delete 1 Subnet") && said.contains("1 SubnetClaim (team-a/web)"),
        "{said}"
    );
    let said = admin.usher(&["uninstall", "--remove-finalizers"]).refused();
    assert!(
        said.contains("operator on-a-laptop still renews Lease usher-system/usher-operator"),
        "{said}"
    );
    assert!(
        admin
            .get(&["deployment", "usher-operator", "-n", "usher-system"])
            .is_some()
    );
    assert_eq!(finalizers(admin).len(), 2);
    operator.kill();
}

/// Somebody who may update one pool finds what they need to trust, and nothing secret beside it.
fn triggers_with_the_rights_it_was_given(plane: &ControlPlane, port: std::net::SocketAddr) {
    let admin = &plane.admin;
    let make = |words: &str| admin.kubectl(&words.split(' ').collect::<Vec<_>>()).done();
    make(&format!("create serviceaccount nightly -n {TEAM}"));
    make(&format!(
        "create role nightly -n {TEAM} --verb=update --resource=subnetpools --resource-name=p"
    ));
    make(&format!(
        "create rolebinding nightly -n {TEAM} --role=nightly --serviceaccount={TEAM}:nightly"
    ));
    let (nightly, token) = admin.service_account(TEAM, "nightly", plane.folder.path());
    until("what clients are to trust is published", || {
        admin
            .get(&["configmap", "usher-operator-ca", "-n", "usher-system"])
            .is_some()
    });
    let trusted = [
        "get",
        "configmap",
        "usher-operator-ca",
        "-n",
        "usher-system",
        "-o",
        r"jsonpath={.data.ca\.crt}",
    ];
    let bundle = plane.folder.path().join("usher-ca.crt");
    std::fs::write(&bundle, nightly.kubectl(&trusted).done()).unwrap();
    who_triggers_cannot_read_the_keys(&nightly);
    let curl = std::process::Command::new("curl")
        .args(["--silent", "--show-error", "--request", "POST", "--cacert"])
        .arg(&bundle)
        .args(["--header", &format!("authorization: Bearer {token}")])
        .arg(format!("https://{port}/v1/trigger/subnetpools/{TEAM}/p"))
        .output()
        .unwrap();
    let said: Value = serde_json::from_slice(&curl.stdout).unwrap_or_else(|e| panic!("{e}: {curl:?}"));
    assert_eq!(said["pool"], format!("{TEAM}/p"), "{said}");
    let pool = admin.get(&["subnetpool", "p", "-n", TEAM]).unwrap();
    assert_eq!(
        pool["metadata"]["annotations"]["usher.dev/recalculate"],
        said["trigger"]
    );
}

fn who_triggers_cannot_read_the_keys(nightly: &Caller) {
    if left_out("who_triggers_cannot_read_the_keys") {
        return;
    }
    let keys = nightly.kubectl(&["get", "secret", "usher-operator-tls", "-n", "usher-system"]);
    assert!(keys.err.contains("Forbidden"), "{keys:?}");
}

fn what_stays_can_be_deleted(admin: &Caller) {
    let dry = admin.usher(&["uninstall", "--remove-finalizers", "--dry-run"]).done();
    assert!(dry.contains("would delete  Namespace usher-system"), "{dry}");
    assert_eq!(finalizers(admin).len(), 2);

    // Its lease is still there, and its holder dead.
    let said = admin.usher(&["uninstall", "--remove-finalizers"]).done();
    for line in [
        "deleted       Deployment usher-system/usher-operator",
        "held by on-a-laptop: watching for 3 s whether it still renews it",
        "unfinalized   1 subnets",
        "unfinalized   1 subnetpools",
        "deleted       ClusterRoleBinding usher-operator",
        "deleted       Lease usher-system/usher-operator",
        "deleted       Secret usher-system/usher-operator-tls",
        "deleted       ConfigMap usher-system/usher-operator-ca",
        "deleted       Service usher-system/usher-operator",
        "deleted       Namespace usher-system",
        "`usher install` takes them up again.",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
    assert!(finalizers(admin).is_empty());
    let claim = admin.get(&["subnetclaim", "web", "-n", TEAM]).unwrap();
    assert_eq!(claim["status"]["phase"], "Bound");
    for gone in [["namespace", "usher-system"], ["clusterrole", "usher-operator"]] {
        assert!(admin.get(&gone).is_none(), "{gone:?}");
    }
    admin
        .kubectl(&[
            "delete",
            "subnetpool,subnetclaim,subnet",
            "--all",
            "-n",
            TEAM,
            "--timeout=20s",
        ])
        .done();
}

fn changes_of_scope_and_size_leave_nothing_behind(admin: &Caller) {
    let scoped = ["install", "-n", "usher-system", "--namespace-scoped", TEAM];
    admin.usher(&["install"]).done();
    let said = admin.usher(&scoped).done();
    for line in [
        "created       Role team-a/usher-operator",
        "deleted       ClusterRole usher-operator",
        "deleted       ClusterRoleBinding usher-operator",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
    let one = admin.usher(&[&scoped[..], &["--replicas", "1"]].concat()).done();
    assert!(
        one.contains("deleted       PodDisruptionBudget usher-system/usher-operator"),
        "{one}"
    );
    let back = admin.usher(&["install"]).done();
    assert!(back.contains("deleted       Role team-a/usher-operator"), "{back}");

    admin.usher(&["uninstall"]).done();
}

/// Somebody with all rights in one namespace, and none anywhere else. The namespace is used, and outlives it all.
fn a_tenant_installs_and_uninstalls_in_their_own_namespace(plane: &ControlPlane) {
    let admin = &plane.admin;
    let subject = format!("--serviceaccount={TEAM}:tenant");
    admin
        .kubectl(&["create", "serviceaccount", "tenant", "-n", TEAM])
        .done();
    let binding = [
        "create",
        "rolebinding",
        "tenant",
        "-n",
        TEAM,
        "--clusterrole=cluster-admin",
        &subject,
    ];
    admin.kubectl(&binding).done();
    let (tenant, _) = admin.service_account(TEAM, "tenant", plane.folder.path());
    a_tenant_cannot_install_the_crds(&tenant);
    let said = tenant
        .usher(&["install", "--namespace-scoped", TEAM, "--skip-crds"])
        .done();
    assert!(
        said.contains("unchanged     Namespace team-a (not made by usher: used as it is)"),
        "{said}"
    );
    assert!(
        said.contains("created       RoleBinding team-a/usher-operator"),
        "{said}"
    );

    let json: Value = serde_json::from_str(&tenant.usher(&["uninstall", "-n", TEAM, "-o", "json"]).done()).unwrap();
    let done = json["done"].as_array().unwrap();
    assert!(done.iter().all(|deed| deed["action"] == "deleted"), "{json}");
    assert!(
        done.iter()
            .any(|deed| deed["object"] == "Role team-a/usher-operator-lease"),
        "{json}"
    );
    let team = admin.get(&["namespace", TEAM]).unwrap();
    assert_eq!(team["status"]["phase"], "Active");
}

fn a_tenant_cannot_install_the_crds(tenant: &Caller) {
    if left_out("a_tenant_cannot_install_the_crds") {
        return;
    }
    let said = tenant.usher(&["install", "--namespace-scoped", TEAM]).refused();
    assert!(
        said.contains("CustomResourceDefinition") && said.contains("(403)"),
        "{said}"
    );
}

fn keeps_a_namespace_that_holds_something_else(admin: &Caller) {
    admin.usher(&["install"]).done();
    // Also if it is called like one of ours.
    for name in ["precious", "usher-operator-ca"] {
        admin
            .kubectl(&["create", "configmap", name, "-n", "usher-system"])
            .done();
    }
    let said = admin.usher(&["uninstall"]).done();
    assert!(
        said.contains(
            "kept          Namespace usher-system (it also holds ConfigMap precious, ConfigMap usher-operator-ca;"
        ),
        "{said}"
    );
    for name in ["precious", "usher-operator-ca"] {
        assert!(admin.get(&["configmap", name, "-n", "usher-system"]).is_some());
    }
}

fn deletes_data_only_when_told_so(admin: &Caller) {
    admin.usher(&["install"]).done();
    admin.apply(&pool_and_claim());
    let finalizer = r#"{"metadata":{"finalizers":["ipam.plexaubnet.io/finalizer"]}}"#;
    admin
        .kubectl(&["patch", "subnetpool", "p", "-n", TEAM, "--type=merge", "-p", finalizer])
        .done();
    let said = admin.usher(&["uninstall", "--crds"]).refused();
    assert!(
        said.contains("nothing was removed") && said.contains("--delete-all-data"),
        "{said}"
    );
    assert!(admin.get(&["clusterrole", "usher-operator"]).is_some());

    let said = admin.usher(&["uninstall", "--crds", "--delete-all-data"]).done();
    assert!(
        said.contains("deleted       CustomResourceDefinition subnetpools.plexaubnet.io"),
        "{said}"
    );
    assert!(said.contains("The CRDs and all their objects are gone."), "{said}");
    let left = admin.kubectl(&["get", "crd", "-o", "name"]).done();
    assert!(!left.contains("plexaubnet.io"), "{left}");
}
