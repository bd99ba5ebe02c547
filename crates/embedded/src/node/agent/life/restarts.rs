//! Whether a container that ended runs again: its own rules, its own policy, the pod's (N10).

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::is_sidecar;

/// `is_init`: of the pod's init containers.
pub(super) fn runs_again(spec: &PodSpec, container: &Container, is_init: bool, code: i32) -> bool {
    if is_init && is_sidecar(container) {
        return true;
    }
    if let Some(own) = &container.restart_policy {
        let rules = container.restart_policy_rules.iter().flatten();
        let has_rule = rules
            .filter(|rule| rule.action == "Restart")
            .filter_map(|rule| rule.exit_codes.as_ref())
            .any(|codes| {
                let is_listed = codes.values.iter().flatten().any(|value| *value == code);
                (codes.operator == "In") == is_listed
            });
        return has_rule || follows(own, is_init, code);
    }
    follows(spec.restart_policy.as_deref().unwrap_or("Always"), is_init, code)
}

/// An init container that succeeded is done, whatever the policy.
fn follows(policy: &str, is_init: bool, code: i32) -> bool {
    match policy {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => !is_init || code != 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn n10_rules_go_over_the_containers_policy_and_that_over_the_pods() {
        let spec = |policy: &str| -> PodSpec {
            serde_json::from_value(json!({"containers": [], "restartPolicy": policy})).unwrap()
        };
        let container = |text: serde_json::Value| -> Container { serde_json::from_value(text).unwrap() };
        let plain = container(json!({"name": "c"}));
        let never = container(json!({"name": "c", "restartPolicy": "Never"}));
        let ruled = container(json!({"name": "c", "restartPolicy": "Never", "restartPolicyRules": [
            {"action": "Restart", "exitCodes": {"operator": "In", "values": [42, 43]}}]}));
        let negated = container(json!({"name": "c", "restartPolicy": "Never", "restartPolicyRules": [
            {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [0, 1]}}]}));
        let sidecar = container(json!({"name": "c", "restartPolicy": "Always"}));
        for (policy, container, is_init, code, expected) in [
            ("Always", &plain, false, 0, true),
            ("OnFailure", &plain, false, 0, false),
            ("OnFailure", &plain, false, 1, true),
            ("Never", &plain, false, 1, false),
            ("Always", &plain, true, 0, false),
            ("Always", &plain, true, 1, true),
            ("Never", &sidecar, true, 0, true),
            ("Always", &never, false, 1, false),
            ("Never", &ruled, false, 42, true),
            ("Never", &ruled, false, 1, false),
            ("Never", &negated, false, 7, true),
            ("Never", &negated, false, 1, false),
        ] {
            assert_eq!(
                runs_again(&spec(policy), container, is_init, code),
                expected,
                "{policy} {container:?} {code}"
            );
        }
    }
}
