//! The operator's rights, from what the code asks for. Pure.

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::objects::LEASE;

/// What the operator needs wherever it looks after objects: its kinds' own rights, and events about them.
pub(crate) fn operator_rules() -> Vec<PolicyRule> {
    let mut rules = usher_subnets::rules();
    rules.push(rule("events.k8s.io", &["events"], &["create", "patch"]));
    rules
}

/// What the operator needs in its own namespace. `create` cannot be bound to a name: the server does not know it yet.
pub(crate) fn lease_rules() -> Vec<PolicyRule> {
    let mut held = rule("coordination.k8s.io", &["leases"], &["get", "update"]);
    held.resource_names = Some(vec![LEASE.to_owned()]);
    vec![rule("coordination.k8s.io", &["leases"], &["create"]), held]
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rule_has_a_wildcard_and_every_crd_is_covered() {
        let rules: Vec<PolicyRule> = operator_rules().into_iter().chain(lease_rules()).collect();
        for rule in &rules {
            let words = rule.verbs.iter().chain(rule.resources.iter().flatten());
            assert!(
                words.chain(rule.api_groups.iter().flatten()).all(|word| word != "*"),
                "{rule:?}"
            );
        }
        for crd in usher_subnets::api::crds() {
            for subresource in ["", "/status", "/finalizers"] {
                let resource = format!("{}{subresource}", crd.spec.names.plural);
                assert!(
                    rules.iter().any(|rule| {
                        rule.api_groups.iter().flatten().any(|group| *group == crd.spec.group)
                            && rule.resources.iter().flatten().any(|r| *r == resource)
                    }),
                    "{resource}"
                );
            }
        }
    }
}
