//! `usher plan` on a real server: what it shows, what it asks for, and that it writes nothing.

use std::process::Command;

use super::control_plane::{Caller, Namespace, until};

/// Made by hand, with nobody to serve them.
fn objects(namespace: &str) -> String {
    format!(
        "apiVersion: plexaubnet.io/v1alpha1\nkind: SubnetPool\nmetadata: {{name: p, namespace: {namespace}}}\n\
         spec: {{cidr: 10.0.0.0/23}}\n---\n\
         apiVersion: plexaubnet.io/v1alpha1\nkind: SubnetClaim\nmetadata: {{name: web, namespace: {namespace}}}\n\
         spec: {{poolRef: p, clusterID: c1}}\n---\n\
         apiVersion: plexaubnet.io/v1alpha1\nkind: SubnetClaim\nmetadata: {{name: lost, namespace: {namespace}}}\n\
         spec: {{poolRef: nope, clusterID: c1}}\n"
    )
}

const READER: &[&str] = &[
    "--verb=get,list,watch",
    "--resource=subnets,subnetpools,subnetclaims,subnetpoolclaims",
];

#[test]
fn a_plan_needs_only_read_rights_in_its_namespace_and_sends_no_write() {
    let admin = Caller::shared();
    let namespace = Namespace::new(&admin, "plan");
    let name = namespace.name.as_str();
    let folder = tempfile::tempdir().unwrap();
    admin.apply(&objects(name));
    admin
        .kubectl(&["create", "serviceaccount", "reader", "-n", name])
        .done();
    admin
        .kubectl(&[&["create", "role", "reader", "-n", name], READER].concat())
        .done();
    let subject = format!("--serviceaccount={name}:reader");
    admin
        .kubectl(&["create", "rolebinding", "reader", "-n", name, "--role=reader", &subject])
        .done();
    let (reader, token) = admin.service_account(name, "reader", folder.path());

    let before = admin.get(&["subnetpools,subnetclaims", "-n", name]).unwrap();
    let pool = reader.usher(&["plan", "SubnetPool/p", "-n", name]).done();
    assert!(
        pool.starts_with(&format!("SubnetPool {name}/p\n\nNext:\n  1. ")),
        "{pool}"
    );
    assert!(
        pool.contains("Status would be:\n") && pool.contains("serves 10.0.0.0/23"),
        "{pool}"
    );
    // The context's namespace, and the words in two.
    let claim = reader.usher(&["plan", "subnetclaims", "web"]).done();
    assert!(claim.contains(&format!("SubnetPool {name}/p: ")), "{claim}");
    let lost = reader.usher(&["plan", "subnetclaim/lost"]).done();
    assert!(lost.contains("waiting: pool nope does not exist"), "{lost}");
    assert!(lost.contains("[PoolNotFound] (since 20"), "{lost}");

    let json = reader.usher(&["plan", "subnetclaim/web", "-o", "json"]).done();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["kind"], "SubnetClaim");
    assert_eq!(json["decidedBy"]["kind"], "SubnetPool");
    let yaml = reader.usher(&["plan", "subnetclaim/lost", "-o", "yaml"]).done();
    let yaml: serde_json::Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(yaml["findings"][0]["reason"], "PoolNotFound");

    let after = admin.get(&["subnetpools,subnetclaims", "-n", name]).unwrap();
    assert_eq!(before["items"], after["items"], "a plan changed something");
    let user = format!("system:serviceaccount:{name}:reader");
    // The log is written behind the answers.
    until("the reads are in the audit log", || admin.audited(&user).len() >= 10);
    for entry in admin.audited(&user) {
        let verb = entry["verb"].as_str().unwrap();
        assert!(["get", "list", "watch"].contains(&verb), "{entry}");
        assert_ne!(entry["responseStatus"]["code"], 403, "{entry}");
    }
    for text in [pool, claim, lost] {
        assert!(!text.contains(&token));
    }
}

#[test]
fn an_object_that_is_not_there_is_named_with_its_namespace() {
    let admin = Caller::shared();
    let namespace = Namespace::new(&admin, "absent");
    let name = namespace.name.as_str();
    let said = admin.usher(&["plan", "subnet/ghost", "-n", name]).refused();
    assert_eq!(
        said,
        format!(
            "usher: Subnet ghost does not exist in namespace {name}; `kubectl get subnets -n {name}` lists what does, -n \
             chooses another namespace\n"
        )
    );
    let said = admin
        .usher(&["plan", "subnet/ghost", "-n", "no-such-namespace"])
        .refused();
    assert!(said.contains("does not exist in namespace no-such-namespace"), "{said}");
}

#[test]
fn kubectl_finds_usher_as_its_plugin() {
    let admin = Caller::shared();
    let namespace = Namespace::new(&admin, "plugin");
    admin.apply(&objects(&namespace.name));
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_usher"), folder.path().join("kubectl-usher")).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let output = Command::new("kubectl")
        .args(["usher", "plan", "subnetpool/p", "-n", &namespace.name])
        .env("PATH", path)
        .env("KUBECONFIG", &admin.kubeconfig)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.starts_with("SubnetPool "), "{text}");
}
