//! Pods of `usher up` as a user has them: examples, kubectl's words about workloads, what goes wrong, nodes that fail.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::process::{Up, command};

const DEPLOYMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/workload/deployment.yaml");
/// Generous: two cores are shared with a compiler and with other tests.
const PATIENCE: Duration = Duration::from_secs(60);
const LISTEN: [&str; 2] = ["--listen", "127.0.0.1:0"];

fn flags<'a>(more: &[&'a str]) -> Vec<&'a str> {
    LISTEN.iter().copied().chain(more.iter().copied()).collect()
}

/// What kubectl says, whether or not it is content.
fn said(up: &Up, words: &[&str]) -> String {
    let output = Command::new("kubectl")
        .arg("--kubeconfig")
        .arg(up.kubeconfig())
        .args(words)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Until kubectl says something that will do.
fn until(up: &Up, words: &[&str], will_do: impl Fn(&str) -> bool) -> String {
    let begun = Instant::now();
    loop {
        let told = said(up, words);
        if will_do(&told) {
            return told;
        }
        assert!(begun.elapsed() < PATIENCE, "kubectl {words:?} still says: {told}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn stop(up: Up) -> String {
    up.signal(Signal::SIGINT);
    let (code, said) = up.ended();
    assert_eq!(code, 0, "{said}");
    said
}

fn apply(up: &Up, manifest: &str) {
    let file = up.kubeconfig().with_file_name("manifest.yaml");
    fs::write(&file, manifest).unwrap();
    up.kubectl(&["apply", "-f", file.to_str().unwrap()]);
}

fn pod(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{terminationGracePeriodSeconds: 1, {spec}}}\n"
    )
}

#[test]
fn e5_examples_become_ready_and_a_second_start_finds_everything_as_it_was() {
    let home = tempfile::tempdir().unwrap();
    let run = || {
        let output = command(home.path(), &flags(&["--examples", "--exit", "--keep-pods"]))
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
        told
    };
    let told = run();
    for words in ["isolation ", "subnets", "workload", "All examples are Ready"] {
        assert!(told.contains(words), "{words:?} is missing: {told}");
    }
    let containers = |up: &Up| {
        let path = "jsonpath={.items[*].status.containerStatuses[*].containerID}";
        up.kubectl(&["get", "pods", "-l", "app=greeter", "-o", path])
    };
    let up = Up::ready(home.path(), &LISTEN);
    let before = containers(&up);
    assert_eq!(before.split_whitespace().count(), 3, "{before}");
    up.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "subnetclaims,pods",
        "--all",
        "--timeout=60s",
    ]);
    up.signal(Signal::SIGKILL);
    drop(up);
    run();
    let up = Up::ready(home.path(), &LISTEN);
    assert_eq!(containers(&up), before, "pods were started anew");
    let greeting = up.kubectl(&["exec", "deploy/greeter", "--", "cat", "/work/greeting"]);
    assert!(greeting.starts_with("hello from greeter-"), "{greeting}");
    stop(up);
    // A supervisor that has told that nothing is left is itself a moment longer there.
    wait_until(
        || processes_below(home.path()).is_empty(),
        || format!("Ctrl-C left {:?}", processes_below(home.path())),
    );
}

#[test]
fn examples_that_are_not_awaited_to_the_end_are_no_success() {
    let home = tempfile::tempdir().unwrap();
    let table = home.path().join("empty.yaml");
    fs::write(&table, "images: []\n").unwrap();
    let table = table.display().to_string();
    let flags = flags(&["--examples", "--exit", "--images", &table]);
    let up = Up::that_said(home.path(), &flags, "Examples:");
    until(&up, &["get", "pods"], |told| told.contains("greeter-"));
    up.signal(Signal::SIGINT);
    let (code, said) = up.ended();
    assert_eq!(code, 1, "{said}");
    assert!(!said.contains("All examples are Ready"), "{said}");
}

fn wait_until(holds: impl Fn() -> bool, otherwise: impl Fn() -> String) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{}", otherwise());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Supervisors of pods whose folders are there.
fn processes_below(home: &Path) -> Vec<String> {
    let home = home.to_str().unwrap();
    let lines = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines
        .filter(|line| line.contains("pod-supervisor") && line.contains(home))
        .collect()
}

#[test]
fn kubectl_rolls_out_undoes_pauses_reads_logs_and_runs_commands() {
    let home = tempfile::tempdir().unwrap();
    let up = Up::ready(home.path(), &flags(&["--memory"]));
    up.kubectl(&["apply", "-f", DEPLOYMENT]);
    let done = "deployment \"greeter\" successfully rolled out";
    let status = ["rollout", "status", "deployment/greeter", "--timeout=60s"];
    assert!(up.kubectl(&status).contains(done));
    up.kubectl(&["set", "image", "deployment/greeter", "greeter=busybox:1.37"]);
    assert!(up.kubectl(&status).contains(done));
    let image = [
        "get",
        "deployment",
        "greeter",
        "-o",
        "jsonpath={.spec.template.spec.containers[0].image}",
    ];
    assert_eq!(up.kubectl(&image), "busybox:1.37");
    let history = up.kubectl(&["rollout", "history", "deployment/greeter"]);
    assert!(history.contains("\n1 ") && history.contains("\n2 "), "{history}");
    up.kubectl(&["rollout", "undo", "deployment/greeter"]);
    assert!(up.kubectl(&status).contains(done));
    assert_eq!(up.kubectl(&image), "busybox:1.36");
    up.kubectl(&["rollout", "pause", "deployment/greeter"]);
    up.kubectl(&["rollout", "resume", "deployment/greeter"]);
    up.kubectl(&["rollout", "restart", "deployment/greeter"]);
    assert!(up.kubectl(&status).contains(done));
    until(&up, &["get", "pods", "-l", "app=greeter", "--no-headers"], |told| {
        told.lines().count() == 3
    });

    let logs = until(
        &up,
        &["logs", "-l", "app=greeter", "--tail=1", "--timestamps"],
        |told| told.contains("hello from"),
    );
    assert_eq!(logs.lines().count(), 3, "{logs}");
    assert!(logs.lines().all(|line| line.starts_with("20")), "--timestamps: {logs}");
    assert_eq!(up.kubectl(&["logs", "deploy/greeter", "--since=1h"]).lines().count(), 1);
    let previous = said(&up, &["logs", "deploy/greeter", "-p"]);
    assert!(
        previous.contains("previous terminated container \"greeter\" in pod"),
        "{previous}"
    );
    let told = said(
        &up,
        &[
            "exec",
            "deploy/greeter",
            "--",
            "sh",
            "-c",
            "echo out; echo err >&2; exit 7",
        ],
    );
    assert!(told.contains("out\n") && told.contains("err\n"), "{told}");
    assert!(told.contains("command terminated with exit code 7"), "{told}");
    let top = said(&up, &["top", "pods"]);
    assert!(
        top.contains("Metrics API not available") || top.contains("no metrics"),
        "{top}"
    );
    stop(up);
}

#[test]
fn c8_a_node_is_cordoned_drained_under_a_budget_and_tainted() {
    let home = tempfile::tempdir().unwrap();
    let up = Up::ready(home.path(), &flags(&["--memory", "--nodes", "2"]));
    up.kubectl(&["apply", "-f", DEPLOYMENT]);
    apply(
        &up,
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: greeter}\nspec:\n  minAvailable: 2\n  selector: {matchLabels: {app: greeter}}\n",
    );
    up.kubectl(&["rollout", "status", "deployment/greeter", "--timeout=60s"]);
    up.kubectl(&["cordon", "node-1"]);
    assert!(up.kubectl(&["get", "node", "node-1"]).contains("SchedulingDisabled"));
    up.kubectl(&[
        "drain",
        "node-1",
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--timeout=60s",
    ]);
    let there = up.kubectl(&["get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"]);
    assert!(!there.contains("node-1"), "{there}");
    up.kubectl(&["rollout", "status", "deployment/greeter", "--timeout=60s"]);
    // Nowhere to go: the budget stops the drain of the other node.
    let told = said(&up, &["drain", "node-2", "--delete-emptydir-data", "--timeout=3s"]);
    assert!(
        told.contains("Cannot evict pod as it would violate the pod's disruption budget."),
        "{told}"
    );
    up.kubectl(&["uncordon", "node-1", "node-2"]);
    up.kubectl(&["taint", "node", "node-1", "kept=free:NoSchedule"]);
    apply(
        &up,
        &pod(
            "elsewhere",
            "nodeSelector: {kubernetes.io/hostname: node-1}, containers: [{name: a, image: 'busybox:1', command: [sleep, '1000']}]",
        ),
    );
    let told = until(&up, &["describe", "pod", "elsewhere"], |told| {
        told.contains("FailedScheduling")
    });
    assert!(told.contains("untolerated taint"), "{told}");
    stop(up);
}

#[test]
fn bad_pods_say_what_is_wrong_and_disturb_nobody() {
    let home = tempfile::tempdir().unwrap();
    let up = Up::ready(home.path(), &flags(&["--memory"]));
    let sleep = "command: [sleep, '1000']";
    apply(
        &up,
        &pod(
            "good",
            &format!("containers: [{{name: a, image: 'busybox:1', {sleep}}}]"),
        ),
    );
    apply(
        &up,
        &pod(
            "unknown-image",
            &format!("containers: [{{name: a, image: 'nowhere/at-all:9', {sleep}}}]"),
        ),
    );
    apply(
        &up,
        &pod(
            "too-much",
            &format!(
                "containers: [{{name: a, image: 'busybox:1', {sleep}, resources: {{requests: {{cpu: '1000'}}}}}}]"
            ),
        ),
    );
    apply(
        &up,
        &pod(
            "privileged",
            &format!("containers: [{{name: a, image: 'busybox:1', {sleep}, securityContext: {{privileged: true}}}}]"),
        ),
    );
    apply(
        &up,
        &pod(
            "outside",
            &format!(
                "volumes: [{{name: v, hostPath: {{path: /etc}}}}], containers: [{{name: a, image: 'busybox:1', {sleep}, volumeMounts: [{{name: v, mountPath: /v}}]}}]"
            ),
        ),
    );
    let data = up.kubeconfig().parent().unwrap().display().to_string();
    apply(
        &up,
        &pod(
            "inside",
            &format!(
                "volumes: [{{name: v, hostPath: {{path: {data}}}}}], containers: [{{name: a, image: 'busybox:1', {sleep}, volumeMounts: [{{name: v, mountPath: /v}}]}}]"
            ),
        ),
    );
    for (name, words) in [
        (
            "unknown-image",
            "Container image \"nowhere/at-all:9\" is not in the image table",
        ),
        ("too-much", "0/1 nodes are available: 1 Insufficient cpu."),
        ("privileged", "privileged"),
        ("outside", "--host-path"),
        ("inside", "where its token is"),
    ] {
        let told = until(&up, &["describe", "pod", name], |told| told.contains(words));
        assert!(!told.contains("Status:           Running"), "{told}");
    }
    up.kubectl(&["wait", "--for=condition=Ready", "pod/good", "--timeout=60s"]);
    assert!(said(&up, &["get", "pod", "unknown-image"]).contains("ErrImageNeverPull"));
    stop(up);
}

#[test]
fn c9_a_killed_node_is_found_out_and_its_pods_move_on() {
    let home = tempfile::tempdir().unwrap();
    let up = Up::ready(home.path(), &flags(&["--memory", "--nodes", "2", "--node-grace", "2s"]));
    apply(
        &up,
        &pod(
            "moving",
            "nodeName: node-1, tolerations: [{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 0}, {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 0}], containers: [{name: a, image: 'busybox:1', command: [sleep, '1000']}]",
        ),
    );
    up.kubectl(&["wait", "--for=condition=Ready", "pod/moving", "--timeout=60s"]);
    let usher = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
        let output = command.args(words).env("KUBECONFIG", up.kubeconfig()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
        told
    };
    usher(&["node", "node-1", "kill"]);
    until(&up, &["get", "node", "node-1"], |told| told.contains("NotReady"));
    let told = until(
        &up,
        &["get", "pod", "moving", "-o", "jsonpath={.metadata.deletionTimestamp}"],
        |told| !told.is_empty(),
    );
    assert!(told.starts_with("20"), "evicted: {told}");
    usher(&["node", "node-1", "start"]);
    until(&up, &["get", "node", "node-1"], |told| told.contains(" Ready"));
    until(&up, &["get", "pod", "moving"], |told| told.contains("NotFound"));
    assert!(usher(&["node"]).contains("node-2"), "the list");
    assert!(usher(&["images"]).contains("busybox:*"), "the table");
    stop(up);
}

#[test]
fn a_table_that_cannot_be_read_and_a_node_file_with_a_mistake_are_said_with_file_and_field() {
    let home = tempfile::tempdir().unwrap();
    for (flag, text, words) in [
        ("--images", "images:\n- match: 7\n", "match"),
        (
            "--images",
            "images:\n- {match: 'a', bin: [/bin], colour: red}\n",
            "colour",
        ),
        ("--nodes", "nodes:\n- {name: 'Not A Name'}\n", "name"),
    ] {
        let file = home.path().join("file.yaml");
        fs::write(&file, text).unwrap();
        let told = super::refusal(home.path(), &["--memory", flag, file.to_str().unwrap()], 1);
        assert!(told.contains(file.to_str().unwrap()) && told.contains(words), "{told}");
    }
}

#[test]
fn more_nodes_than_there_are_addresses_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let told = super::refusal(home.path(), &["--memory", "--nodes", "241"], 1);
    let words = "--nodes: 241 nodes that run processes are too many, 240 have addresses; use --hollow for the rest";
    assert!(told.contains(words), "{told}");
}

#[test]
fn nodes_that_a_start_has_no_more_go_with_a_warning_and_their_pods_are_replaced() {
    let home = tempfile::tempdir().unwrap();
    let start = |nodes: &str| Up::ready(home.path(), &flags(&["--nodes", nodes, "--keep-pods"]));
    let up = start("2");
    up.kubectl(&["apply", "-f", DEPLOYMENT]);
    up.kubectl(&["rollout", "status", "deployment/greeter", "--timeout=60s"]);
    let places = |up: &Up| {
        let path = "jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName}{\"\\n\"}{end}";
        up.kubectl(&["get", "pods", "-l", "app=greeter", "-o", path])
    };
    let before = places(&up);
    let (mut stays, mut goes) = (Vec::new(), Vec::new());
    for line in before.lines() {
        let (name, node) = line.split_once(' ').unwrap();
        if node == "node-2" { &mut goes } else { &mut stays }.push(name.to_owned());
    }
    assert!(
        !stays.is_empty() && !goes.is_empty(),
        "three pods are on two nodes: {before}"
    );
    stop(up);
    assert_eq!(processes_below(home.path()).len(), 3, "pods are kept");

    let up = start("1");
    wait_until(
        || processes_below(home.path()).len() < 3 && up.kubectl(&["get", "nodes", "-o", "name"]) == "node/node-1\n",
        || format!("{}{:?}", up.kubectl(&["get", "nodes"]), processes_below(home.path())),
    );
    let told = up.errors();
    let warning = "a node of an earlier start is not there any more: it goes, and so do its pods";
    assert!(told.contains(warning) && told.contains("node-2"), "{told}");
    // Pods of a node that vanished wait for it for 40 s, as in the reference.
    for name in &goes {
        up.kubectl(&["wait", "--for=delete", &format!("pod/{name}"), "--timeout=150s"]);
    }
    up.kubectl(&["rollout", "status", "deployment/greeter", "--timeout=60s"]);
    let after = places(&up);
    assert!(
        after.lines().count() == 3 && after.lines().all(|line| line.ends_with(" node-1")),
        "{after}"
    );
    assert!(stays.iter().all(|name| after.contains(name)), "{before}{after}");
    stop(up);

    let up = start("0");
    wait_until(
        || processes_below(home.path()).is_empty() && up.kubectl(&["get", "nodes", "-o", "name"]).is_empty(),
        || format!("{:?}", processes_below(home.path())),
    );
    stop(up);
}
