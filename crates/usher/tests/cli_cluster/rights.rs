//! Missing rights and wrong credentials: who lacks what, where, and never the credential itself.

use std::path::Path;

use super::control_plane::{Answer, Caller, Namespace};
use crate::support::plane::left_out;

/// Signed by nobody that any of our servers knows.
const ANOTHER_AUTHORITY: &str = "\
-----BEGIN CERTIFICATE-----
MIIBjTCCATOgAwIBAgIUEPqvmTe5VGa4df8GtnCsHMdLUP8wCgYIKoZIzj0EAwIw
HDEaMBgGA1UEAwwRYW5vdGhlciBhdXRob3JpdHkwHhcNMjYxMTE1MTA0OTQ3WhcN
MzYxMTEyMTA0OTQ3WjAcMRowGAYDVQQDDBFhbm90aGVyIGF1dGhvcml0eTBZMBMG
ByqGSM49AgEGCCqGSM49AwEHA0IABCxn6aJMTQ/JsinTfU7uz3uWCDsZm2WtxFBo
FH7tV2oXdB5bW8Iuc63SIX7YZALpW59Adpr5PGYeU4+cKzcerw6jUzBRMB0GA1Ud
DgQWBBRv3K0TxLGQbdPRpPq6c6X+5ZB6vDAfBgNVHSMEGDAWgBRv3K0TxLGQbdPR
pPq6c6X+5ZB6vDAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIQCF
koMrPllDN+CgFt6Sst0URwuWRVEdQOTmu7mkGHCI2gIgPDHHyW0PwNS1vUO9B/9n
I2dy6rOFE+vsgNDhHxCfsRU=
-----END CERTIFICATE-----
";

fn without(secret: &str, answer: Answer) -> Answer {
    for text in [&answer.out, &answer.err] {
        assert!(!text.contains(secret), "a secret is shown: {text}");
    }
    answer
}

#[test]
fn every_command_tells_which_right_is_missing() {
    if left_out("every_command_tells_which_right_is_missing") {
        return;
    }
    let admin = Caller::shared();
    let namespace = Namespace::new(&admin, "rights");
    let name = namespace.name.as_str();
    let folder = tempfile::tempdir().unwrap();
    admin
        .kubectl(&["create", "serviceaccount", "nobody", "-n", name])
        .done();
    let (nobody, token) = admin.service_account(name, "nobody", folder.path());
    let complaint = |arguments: &[&str]| without(&token, nobody.usher(arguments)).refused();

    let said = complaint(&["plan", "subnetpool/p"]);
    assert!(
        said.contains(&format!("cannot read SubnetPool {name}/p: user nobody of kubeconfig ")),
        "{said}"
    );
    assert!(
        said.contains("lacks the right (403)") && said.contains("cannot get resource \"subnetpools\""),
        "{said}"
    );
    let said = complaint(&["install", "-n", name]);
    assert!(
        said.contains("cannot list deployments: user nobody") && said.contains("(403)"),
        "{said}"
    );
    let said = complaint(&["uninstall", "-n", name]);
    assert!(
        said.contains("cannot list deployments: user nobody") && said.contains("(403)"),
        "{said}"
    );

    // Who may read the object, and not what its plan depends on.
    admin
        .kubectl(&[
            "create",
            "role",
            "some",
            "-n",
            name,
            "--verb=get,list,watch",
            "--resource=subnetpools",
        ])
        .done();
    let subject = format!("--serviceaccount={name}:nobody");
    admin
        .kubectl(&["create", "rolebinding", "some", "-n", name, "--role=some", &subject])
        .done();
    admin.apply(&format!(
        "apiVersion: plexaubnet.io/v1alpha1\nkind: SubnetPool\nmetadata: {{name: p, namespace: {name}}}\nspec: {{cidr: 10.0.0.0/23}}\n"
    ));
    let said = complaint(&["plan", "subnetpool/p"]);
    assert!(
        said.contains(&format!("cannot watch subnets in namespace {name}: ")),
        "{said}"
    );
    assert!(said.contains("cannot watch resource \"subnets\""), "{said}");
}

#[test]
fn a_wrong_token_or_authority_is_told_by_user_and_file() {
    let admin = Caller::shared();
    let folder = tempfile::tempdir().unwrap();
    let wrong = "wrong-t0ken-of-nobody";
    let stranger = admin.with_token("stranger", "default", wrong, folder.path());
    for arguments in [&["plan", "subnetpool/p"][..], &["install"], &["uninstall"]] {
        let said = without(wrong, stranger.usher(arguments)).refused();
        assert!(
            said.contains("does not accept the credentials of user stranger (401)"),
            "{said}"
        );
        assert!(said.contains(&stranger.kubeconfig.display().to_string()), "{said}");
    }

    let authority = folder.path().join("another.crt");
    std::fs::write(&authority, ANOTHER_AUTHORITY).unwrap();
    let distrustful = with_authority(&admin, &authority, folder.path());
    let said = distrustful.usher(&["plan", "subnetpool/p"]).refused();
    assert!(
        said.contains("shows a certificate that certificate-authority in kubeconfig"),
        "{said}"
    );
}

fn with_authority(admin: &Caller, authority: &Path, folder: &Path) -> Caller {
    let copy = folder.join("distrustful");
    std::fs::copy(&admin.kubeconfig, &copy).unwrap();
    let caller = Caller { kubeconfig: copy };
    let view = caller
        .kubectl(&["config", "view", "-o", "jsonpath={.clusters[0].name}"])
        .done();
    let authority = format!("--certificate-authority={}", authority.display());
    caller.kubectl(&["config", "set-cluster", &view, &authority]).done();
    caller
}
