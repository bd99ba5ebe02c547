//! In which order groups and versions are listed.

use std::cmp::Reverse;

/// Groups of the same priority go by name. Those of CRDs come last.
pub fn group_priority(group: &str) -> u32 {
    match group {
        "" => 18_000,
        "apps" => 17_800,
        "events.k8s.io" => 17_750,
        "authentication.k8s.io" => 17_700,
        "authorization.k8s.io" => 17_600,
        "autoscaling" => 17_500,
        "batch" => 17_400,
        "certificates.k8s.io" => 17_300,
        "networking.k8s.io" => 17_200,
        "policy" => 17_100,
        "rbac.authorization.k8s.io" => 17_000,
        "storage.k8s.io" => 16_800,
        "apiextensions.k8s.io" | "admissionregistration.k8s.io" => 16_700,
        "scheduling.k8s.io" => 16_600,
        "coordination.k8s.io" => 16_500,
        "node.k8s.io" => 16_300,
        "discovery.k8s.io" | "resource.k8s.io" => 16_200,
        "flowcontrol.apiserver.k8s.io" => 16_100,
        _ => 1_000,
    }
}

/// A version's place: stable ones first, then beta, then alpha, higher numbers first; what is not of the form
/// `v1beta2` comes last, by its text.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability<'a> {
    Stable(Reverse<u64>),
    Beta(Reverse<(u64, u64)>),
    Alpha(Reverse<(u64, u64)>),
    Other(&'a str),
}

impl<'a> Stability<'a> {
    pub fn of(version: &'a str) -> Self {
        Self::known(version).unwrap_or(Self::Other(version))
    }

    fn known(version: &str) -> Option<Self> {
        let rest = version.strip_prefix('v')?;
        let (major, rest) = number(rest)?;
        if rest.is_empty() {
            return Some(Self::Stable(Reverse(major)));
        }
        let (beta, rest) = match rest.strip_prefix("beta") {
            Some(rest) => (true, rest),
            None => (false, rest.strip_prefix("alpha")?),
        };
        let (minor, rest) = number(rest)?;
        match (rest, beta) {
            ("", true) => Some(Self::Beta(Reverse((major, minor)))),
            ("", false) => Some(Self::Alpha(Reverse((major, minor)))),
            _ => None,
        }
    }
}

/// Digits without a leading zero, and what follows them.
fn number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    if digits.starts_with('0') {
        return None;
    }
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_before_beta_and_alpha_and_others_last() {
        let mut versions = [
            "foo10",
            "v1alpha1",
            "v2",
            "foo1",
            "v10",
            "v3beta1",
            "v11alpha2",
            "v1",
            "v11beta2",
            "v12alpha1",
            "v1beta1",
        ];
        versions.sort_by_key(|version| Stability::of(version));
        assert_eq!(
            versions,
            [
                "v10",
                "v2",
                "v1",
                "v11beta2",
                "v3beta1",
                "v1beta1",
                "v12alpha1",
                "v11alpha2",
                "v1alpha1",
                "foo1",
                "foo10"
            ]
        );
    }
}
