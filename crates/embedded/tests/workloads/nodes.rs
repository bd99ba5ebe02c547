//! A node that is killed, and one that is drained (C8, C9): statuses, events and times, as a story.

use serde_json::json;

use crate::chronicle::{Chronicle, NODES};
use crate::stage::{DEPLOYMENTS, PODS, STATEFUL, deployment, is_deleting, name, stateful_set};

/// The moment of the first line that has all of these.
fn moment(story: &str, words: &[&str]) -> f64 {
    let line = story.lines().find(|line| words.iter().all(|word| line.contains(word)));
    let line = line.unwrap_or_else(|| panic!("no line has {words:?}:\n{story}"));
    line.trim_start().split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn c9_the_pods_of_a_killed_node_leave_when_their_patience_ends() {
    let mut chronicle = Chronicle::new(&["n1", "n2", "n3"]);
    chronicle.stage.world.post(DEPLOYMENTS, &deployment(3, "a:1"));
    chronicle.pass(15);
    let mut set = stateful_set(3, "a:1");
    set["spec"]["selector"] = json!({"matchLabels": {"app": "db"}});
    set["spec"]["template"]["metadata"]["labels"] = json!({"app": "db"});
    chronicle.stage.world.post(STATEFUL, &set);
    chronicle.pass(45);
    chronicle.begin();
    chronicle.kill("n1");
    chronicle.pass(400);
    chronicle.revive("n1");
    chronicle.pass(30);
    let story = &chronicle.stage.story;
    // The last renewal was at 0: a grace of 50 s, then 300 s of patience.
    let lost = moment(story, &["node n1", "Ready Unknown"]);
    assert!((50.0..50.1).contains(&lost), "{lost}");
    let tainted = moment(story, &["node n1", "unreachable:NoExecute"]);
    assert!(tainted - lost < 0.1, "{tainted}");
    for pod in ["pod web", "pod db"] {
        let left = moment(story, &[pod, "on n1", "DeletionByTaintManager"]);
        // The taint says since when in whole seconds.
        assert!((300.0 - 1.0..300.1).contains(&(left - tainted)), "{pod} at {left}");
    }
    chronicle.stage.ends_as("killed-node");
}

#[test]
fn c8_a_drained_node_is_empty_when_the_budget_has_let_all_go() {
    let mut chronicle = Chronicle::new(&["n1", "n2"]);
    chronicle.start_seconds = 7;
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    chronicle.stage.world.post(budgets, &budget);
    chronicle.stage.world.post(DEPLOYMENTS, &deployment(4, "a:1"));
    chronicle.pass(60);
    chronicle.begin();
    chronicle.write("n1 is cordoned");
    let cordon = json!({"spec": {"unschedulable": true}});
    chronicle.stage.world.patch(&format!("{NODES}/n1"), &cordon);
    chronicle.catch_up();
    // What `kubectl drain` does: all at once, and again every five seconds for those that may not go yet.
    let mut refusals = 0;
    for _ in 0..20 {
        let pods = chronicle.stage.list(PODS);
        let left: Vec<_> = pods.iter().filter(|pod| pod["spec"]["nodeName"] == "n1").collect();
        if left.is_empty() {
            break;
        }
        for pod in left.into_iter().filter(|pod| !is_deleting(pod)) {
            let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name(pod)}});
            let path = format!("{PODS}/{}/eviction", name(pod));
            let (code, answer) = chronicle.stage.world.ask("POST", &path, Some(&body));
            refusals += usize::from(code == 429);
            let said = answer["message"].as_str().unwrap_or_default().to_owned();
            let cause = answer["details"]["causes"][0]["message"].as_str().unwrap_or_default();
            let line = format!("evict {}: {code} {said} {cause}", name(pod));
            chronicle.write(line.trim_end());
            chronicle.catch_up();
        }
        chronicle.pass(5);
        // Whenever it is looked: three of four are there.
        let ready = chronicle
            .stage
            .list(PODS)
            .iter()
            .filter(|pod| crate::stage::is_ready(pod) && !is_deleting(pod))
            .count();
        assert!(ready >= 3, "{ready} are ready:\n{}", chronicle.stage.story);
    }
    assert!(refusals > 0, "{}", chronicle.stage.story);
    assert!(
        chronicle
            .stage
            .list(PODS)
            .iter()
            .all(|pod| pod["spec"]["nodeName"] == "n2")
    );
    chronicle.stage.ends_as("drained-node");
}
