//! The operator's rights, from what the code asks for. Pure.

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::objects::{AUTHORITIES, CERTIFICATES, LEASE};

/// What the operator needs wherever it looks after objects: its kinds' own rights, and events about them.
pub(crate) fn operator_rules() -> Vec<PolicyRule> {
    let mut rules = usher_subnets::rules();
    rules.push(rule("events.k8s.io", &["events"], &["create", "patch"]));
    rules
}

/// What it needs to know who sends a trigger, and whether they may. These resources belong to no namespace, so a Role
/// cannot grant them.
pub(crate) fn review_rules() -> Vec<PolicyRule> {
    vec![
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
    ]
}

/// What the operator needs in its own namespace: its Lease.
pub(crate) fn lease_rules() -> Vec<PolicyRule> {
    own("coordination.k8s.io", "leases", LEASE).into()
}

/// And, in its own namespace, the certificates of its TLS port, and what clients of that port are to trust.
pub(crate) fn certificate_rules() -> Vec<PolicyRule> {
    [own("", "secrets", CERTIFICATES), own("", "configmaps", AUTHORITIES)].concat()
}

/// One object, made and kept. `create` cannot be bound to a name: the server does not know it yet.
fn own(group: &str, resource: &str, name: &str) -> [PolicyRule; 2] {
    let mut held = rule(group, &[resource], &["get", "update"]);
    held.resource_names = Some(vec![name.to_owned()]);
    [rule(group, &[resource], &["create"]), held]
}

/// What everybody may read: which authority the TLS port's certificate is from. There is no secret in it.
pub(crate) fn authorities_rules() -> Vec<PolicyRule> {
    let mut read = rule("", &["configmaps"], &["get"]);
    read.resource_names = Some(vec![AUTHORITIES.to_owned()]);
    vec![read]
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
        let rules: Vec<PolicyRule> = [
            operator_rules(),
            review_rules(),
            lease_rules(),
            certificate_rules(),
            authorities_rules(),
        ]
        .concat();
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
