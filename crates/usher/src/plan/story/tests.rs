use serde_json::json;
use usher_engine::ObjectKey;

use super::*;

fn preview(kind: &'static str, name: &str) -> Preview {
    Preview {
        kind,
        resource: ObjectKey::new("team-a", name).unwrap(),
        steps: Vec::new(),
        findings: Vec::new(),
        status_changes: false,
        status: Value::Null,
        again_after_seconds: None,
    }
}

fn step(name: &'static str, description: &str) -> PreviewStep {
    PreviewStep {
        name,
        description: description.to_owned(),
        disruptive: false,
    }
}

fn told(shown: &Shown, live: Value) -> String {
    tell(shown, Some(&live), "2026-01-01T12:00:00Z".parse().unwrap())
}

#[test]
fn nothing_to_do_is_said_in_so_many_words() {
    let shown = Shown {
        preview: preview("Subnet", "a"),
        decided_by: None,
    };
    insta::assert_snapshot!(told(&shown, json!({})), @"
    Subnet team-a/a

    Nothing to do: it is as it should be.

    Looks again when something changes.
    ");
}

#[test]
fn a_waiting_claim_is_told_what_its_pool_will_do_for_it_and_not_what_for_others() {
    let mut claim = preview("SubnetClaim", "web");
    claim.findings.push(Finding::new(
        Stance::Doing,
        "Placing",
        "a range is being placed for this claim",
    ));
    claim.again_after_seconds = Some(0.75);
    let mut pool = preview("SubnetPool", "p");
    pool.steps = vec![
        step("AddPoolFinalizer", "put the finalizer on the pool"),
        step("Grant", "grant 10.0.0.0/24 to SubnetClaim team-a/web-2"),
        step("Grant", "grant 10.0.1.0/24 to SubnetClaim team-a/web"),
    ];
    let shown = Shown {
        preview: claim,
        decided_by: Some(pool),
    };
    insta::assert_snapshot!(told(&shown, json!({})), @"
    SubnetClaim team-a/web

    Next:
      1. SubnetPool team-a/p: put the finalizer on the pool
      2. SubnetPool team-a/p: grant 10.0.1.0/24 to SubnetClaim team-a/web

    Why:
      doing: a range is being placed for this claim [Placing]

    Looks again when something changes, or after 0.8 s at the latest.
    ");
}

#[test]
fn a_change_of_status_is_shown_field_by_field() {
    let mut claim = preview("SubnetClaim", "web");
    let since: jiff::Timestamp = "2026-01-01T11:30:00.123Z".parse().unwrap();
    claim
        .findings
        .push(Finding::new(Stance::Waiting, "PoolExhausted", "no free /24 in pool p").since(since));
    claim.status_changes = true;
    claim.status = json!({"phase": "Pending", "message": "no free /24 in pool p", "conditions": [
        {"type": "Ready", "status": "False", "reason": "PoolExhausted", "message": "no free"},
    ]});
    let shown = Shown {
        preview: claim,
        decided_by: None,
    };
    let live = json!({"phase": "Pending", "subnetRef": "x", "conditions": [
        {"type": "Stalled", "status": "True"},
        {"type": "Ready", "status": "False", "reason": "PoolNotFound"},
    ]});
    insta::assert_snapshot!(told(&shown, live), @"
    SubnetClaim team-a/web

    Why:
      waiting: no free /24 in pool p [PoolExhausted] (since 2026-01-01T11:30:00Z, 29 min)

    Status would change:
      conditions[Ready]: False (PoolNotFound) -> False (PoolExhausted): no free
      conditions[Stalled]: True (removed)
      message: no free /24 in pool p (new)
      subnetRef: x (removed)

    Looks again when something changes.
    ");
}

#[test]
fn a_thousand_steps_are_not_a_thousand_lines() {
    let mut pool = preview("SubnetPool", "p");
    pool.steps = (0..1000).map(|n| step("Grant", &format!("grant number {n}"))).collect();
    let shown = Shown {
        preview: pool,
        decided_by: None,
    };
    let text = told(&shown, json!({}));
    assert!(
        text.contains("  20. grant number 19\n  … and 980 more; -o json shows all\n"),
        "{text}"
    );
}
