//! The command line without a cluster: help, completions, generated text, and what is said about a kubeconfig that does
//! not work. No sentence may hold a secret.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const TOKEN: &str = "s3cr3t-token-that-nobody-may-see";

struct Answer {
    code: i32,
    out: String,
    err: String,
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        let answer = Self {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        };
        for text in [&answer.out, &answer.err] {
            assert!(!text.contains(TOKEN), "a secret is shown: {text}");
        }
        answer
    }
}

fn usher(arguments: &[&str]) -> Answer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
    for variable in ["KUBECONFIG", "POD_NAMESPACE", "POD_NAME", "KUBERNETES_SERVICE_HOST"] {
        command.env_remove(variable);
    }
    command.env("HOME", "/nonexistent").args(arguments);
    command.output().unwrap().into()
}

/// What is said about a kubeconfig; always one line, and never success.
fn complaint(kubeconfig: &Path, more: &[&str]) -> String {
    let mut arguments = vec!["plan", "subnetpool/x", "--kubeconfig", kubeconfig.to_str().unwrap()];
    arguments.extend(more);
    let answer = usher(&arguments);
    assert_eq!((answer.code, answer.out.as_str()), (1, ""), "{}", answer.err);
    assert_eq!(answer.err.lines().count(), 1, "{}", answer.err);
    answer.err.replace(&kubeconfig.display().to_string(), "FILE")
}

/// A kubeconfig that would work, but for what the test changes in it.
fn kubeconfig(change: impl Fn(String) -> String) -> tempfile::NamedTempFile {
    let good = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: k\n  cluster: {{server: \"https://127.0.0.1:1\"}}\n\
         users:\n- name: u\n  user:\n    token: {TOKEN}\ncontexts:\n- name: c\n  context: {{cluster: k, user: u}}\n"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), change(good)).unwrap();
    file
}

fn complaint_about(from: &str, to: &str) -> String {
    let file = kubeconfig(|good| {
        assert!(good.contains(from));
        good.replace(from, to)
    });
    complaint(file.path(), &[])
}

#[test]
fn help_lists_the_commands_and_the_exit_codes() {
    let answer = usher(&["--help"]);
    assert_eq!(answer.code, 0);
    insta::assert_snapshot!(answer.out, @"
    Changes what Kubernetes finds hard to change, one safe, explained step at a time

    Usage: usher [OPTIONS] <COMMAND>

    Commands:
      install      Installs Usher: CRDs, rights, and the operator's Deployment. Run it again to update
      uninstall    Removes what `install` made. Pools, claims and Subnets stay unless you say otherwise
      plan         Says what Usher would do next for one object, and why. Reads only
      explain      Says why an object is as it is: its place in the queue, what it waits for, who has that. Reads only
      crds         Prints the custom resource definitions
      operator     Runs the operator against the current kubeconfig, or in a cluster
      up           Runs a small Kubernetes and the operator in one process, on this machine, for trying Usher
      node         Stops, kills, cuts off or starts a node of `usher up`, or lists them
      images       Says which programs the images of `usher up` stand for, and which images pods want in vain
      completions  Prints a completion script for a shell
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help
      -V, --version  Print version

    Cluster:
          --kubeconfig <FILE>  Kubeconfig file. Default: $KUBECONFIG, ~/.kube/config, or the pod's service account
          --context <NAME>     Context of the kubeconfig. Default: its current one

    Exit codes:
      0  done
      1  not done; one sentence on standard error says why, and what to do about it
      2  wrong usage: an unknown command, flag or value
    ");
    assert_eq!(
        usher(&["--version"]).out,
        format!("usher {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn wrong_usage_ends_with_2_and_says_what_would_be_right() {
    for (arguments, said) in [
        (&["frobnicate"][..], "unrecognized subcommand 'frobnicate'"),
        (&["plan"], "<KIND/NAME>"),
        (&["plan", "subnetpool"], "write KIND/NAME, like subnetclaim/web"),
        (&["plan", "pod/x"], "it plans subnetpool, subnet, subnetclaim"),
        (
            &["plan", "subnet/x", "-n", "Not_A_Namespace"],
            "must be 1 to 63 of a-z, 0-9 and -",
        ),
        (
            &["plan", "subnet/x", "-o", "xml"],
            "[possible values: text, json, yaml]",
        ),
        (&["install", "--replicas", "0"], "0 is not in 1..=9"),
        (&["uninstall", "--delete-all-data"], "--crds"),
        (
            &["operator", "--writes-at-once", "0"],
            "--writes-at-once must be at least 1",
        ),
    ] {
        let answer = usher(arguments);
        assert_eq!(answer.code, 2, "{arguments:?}: {}", answer.err);
        assert!(answer.err.contains(said), "{arguments:?}: {}", answer.err);
    }
}

#[test]
fn completions_are_made_for_every_shell() {
    for (shell, said) in [
        ("bash", "complete -F _usher"),
        ("zsh", "#compdef usher"),
        ("fish", "complete -c usher"),
    ] {
        let answer = usher(&["completions", shell]);
        assert_eq!(answer.code, 0);
        assert!(
            answer.out.contains(said) && answer.out.contains("uninstall"),
            "{}",
            answer.out
        );
    }
}

#[test]
fn a_link_named_kubectl_usher_speaks_of_kubectl_usher() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["kubectl-usher", "kubectl_complete-usher"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_usher"), folder.path().join(name)).unwrap();
    }
    let run = |name: &str, arguments: &[&str]| -> Answer {
        Command::new(folder.path().join(name))
            .args(arguments)
            .output()
            .unwrap()
            .into()
    };
    let help = run("kubectl-usher", &["plan", "-h"]).out;
    assert!(
        help.contains("Usage: kubectl usher plan [OPTIONS] <KIND/NAME>"),
        "{help}"
    );
    let usage = run("kubectl-usher", &["install", "--bogus"]);
    assert!(
        usage.code == 2 && usage.err.contains("Usage: kubectl usher install"),
        "{}",
        usage.err
    );
    assert_eq!(
        run("kubectl_complete-usher", &["un"]).out,
        "uninstall\tRemoves what `install` made. Pools, claims and Subnets stay unless you say otherwise\n:4\n"
    );
}

#[test]
fn crds_and_install_print_the_same_objects_in_both_formats_without_a_cluster() {
    for arguments in [
        &["crds"][..],
        &["install"],
        &["install", "--namespace-scoped", "a", "--skip-crds"],
    ] {
        let with = |format: &str| usher(&[arguments, &["-o", format]].concat()).out;
        let list: serde_json::Value = serde_json::from_str(&with("json")).unwrap();
        let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(&with("yaml")).unwrap();
        assert_eq!(list["items"].as_array().unwrap(), &documents);
        assert!(documents.len() >= 4);
    }
}

#[test]
fn generated_files_are_the_same_every_time_and_do_not_depend_on_the_environment() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let generate = |folder: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
        command.args(["generate-artifacts", "--out"]).arg(folder);
        command
    };
    assert!(generate(one.path()).status().unwrap().success());
    let mut elsewhere = generate(two.path());
    elsewhere
        .env("POD_NAMESPACE", "x")
        .env("POD_NAME", "y")
        .env("USHER_NAMESPACE", "z")
        .env("COLUMNS", "40");
    assert!(elsewhere.status().unwrap().success());
    for file in [
        "deploy/crds.yaml",
        "deploy/rbac.yaml",
        "deploy/install.yaml",
        "docs/reference/api.md",
        "docs/reference/cli.md",
    ] {
        let read = |folder: &Path| std::fs::read_to_string(folder.join(file)).unwrap();
        assert!(!read(one.path()).is_empty());
        assert_eq!(read(one.path()), read(two.path()), "{file}");
    }
}

#[test]
fn a_kubeconfig_that_is_no_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    insta::assert_snapshot!(complaint(&folder.path().join("missing"), &[]),
        @"usher: kubeconfig FILE does not exist; name another with --kubeconfig FILE or $KUBECONFIG");
    insta::assert_snapshot!(complaint(folder.path(), &[]), @"usher: kubeconfig FILE is a folder; name the file in it");
    let answer = usher(&["plan", "subnet/x"]);
    insta::assert_snapshot!(answer.err, @"usher: no cluster found: there is no ~/.kube/config, and this is no pod; name a kubeconfig with --kubeconfig FILE or $KUBECONFIG");
}

#[test]
fn broken_yaml_is_told_by_its_place_and_never_by_its_content() {
    let broken = complaint_about(&format!("token: {TOKEN}"), &format!("token: [{TOKEN}\n  x"));
    assert!(
        broken.contains("kubeconfig FILE is no valid kubeconfig at line 1"),
        "{broken}"
    );
    let mistyped = complaint_about(&format!("\n    token: {TOKEN}"), &format!(" {TOKEN}"));
    assert!(
        mistyped.contains("kubeconfig FILE is no valid kubeconfig at line 9"),
        "{mistyped}"
    );
    let file = kubeconfig(|_| String::new());
    let empty = complaint(file.path(), &[]);
    assert!(
        empty.contains("sets no current-context") && empty.contains("it has no contexts"),
        "{empty}"
    );
}

#[test]
fn a_kubeconfig_that_does_not_add_up_is_told_by_its_field() {
    let file = kubeconfig(|good| good);
    insta::assert_snapshot!(complaint(file.path(), &["--context", "d"]), @r#"usher: kubeconfig FILE has no context "d"; it has: c"#);
    insta::assert_snapshot!(complaint_about("current-context: c\n", ""),
        @"usher: kubeconfig FILE sets no current-context; choose one with --context NAME or `kubectl config use-context NAME` (it has: c)");
    insta::assert_snapshot!(complaint_about("name: u\n", "name: v\n"),
        @r#"usher: kubeconfig FILE: context c names user "u", which is not among its users; add it"#);
    insta::assert_snapshot!(complaint_about("name: k\n", "name: l\n"),
        @r#"usher: kubeconfig FILE, context c: the context names cluster "k", which is not among its clusters; add it"#);
    insta::assert_snapshot!(complaint_about("https://127.0.0.1:1", "not a url"),
        @"usher: kubeconfig FILE, context c: server of cluster k is no URL (invalid uri character); correct it");
    insta::assert_snapshot!(complaint_about(":1\"}", ":1\", certificate-authority: /nonexistent/ca.crt}"),
        @"usher: kubeconfig FILE, context c: cluster k: certificate-authority /nonexistent/ca.crt cannot be read: No such file or directory (os error 2)");
    insta::assert_snapshot!(complaint_about(":1\"}", ":1\", certificate-authority-data: '%%%'}"),
        @"usher: kubeconfig FILE, context c: cluster k: certificate-authority-data is no base64; correct it");
    insta::assert_snapshot!(complaint_about(":1\"}", ":1\", certificate-authority-data: bm90IGEgY2VydGlmaWNhdGU=}"),
        @"usher: kubeconfig FILE, context c: certificate-authority of cluster k holds no certificate; it must be PEM (BEGIN CERTIFICATE)");
}

#[test]
fn a_credential_plugin_that_fails_is_named_and_what_it_printed_is_not_repeated() {
    let exec = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, interactiveMode: Never, \
         args: [-c, 'echo {TOKEN}; exit 3']}}"
    );
    let said = complaint_about(&format!("token: {TOKEN}"), &exec);
    insta::assert_snapshot!(said, @r#"usher: the credential plugin "/bin/sh" of user u in kubeconfig FILE, context c failed; run it by hand to see why"#);
}

#[test]
fn a_server_that_is_gone_is_named_by_its_address() {
    let file = kubeconfig(|good| good);
    insta::assert_snapshot!(complaint(file.path(), &[]),
        @"usher: cannot read SubnetPool default/x: https://127.0.0.1:1 (kubeconfig FILE, context c) cannot be reached: Connection refused (os error 111); is the API server running?");
}

#[test]
fn a_server_that_says_nothing_is_given_up_after_ten_seconds() {
    // Takes connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let file = kubeconfig(|good| good.replace("127.0.0.1:1", &address));
    let begun = Instant::now();
    let said = complaint(file.path(), &[]);
    assert!(begun.elapsed() < Duration::from_secs(15));
    assert!(said.contains(&address) && said.contains("within 10 s"), "{said}");
}
