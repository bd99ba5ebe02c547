//! How many pods a deployment may have and must have, as numbers.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// What the spec comes to for its number of replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) replicas: i32,
    pub(super) is_rolling: bool,
    /// How many pods more than wanted there may be; 0 unless it rolls.
    pub(super) surge: i32,
    /// How many of them may be unavailable; 0 unless it rolls.
    pub(super) unavailable: i32,
}

impl Limits {
    pub(super) fn of(deployment: &Deployment) -> Self {
        let spec = deployment.spec.as_ref();
        let replicas = spec.and_then(|spec| spec.replicas).unwrap_or(1);
        let strategy = spec.and_then(|spec| spec.strategy.as_ref());
        let is_rolling = strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("Recreate");
        if !is_rolling {
            return Self {
                replicas,
                is_rolling,
                surge: 0,
                unavailable: 0,
            };
        }
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let surge = share(
            rolling.and_then(|rolling| rolling.max_surge.as_ref()),
            replicas,
            Round::Up,
        );
        let unavailable = share(
            rolling.and_then(|rolling| rolling.max_unavailable.as_ref()),
            replicas,
            Round::Down,
        );
        // Neither one more nor one less would be no way forward.
        let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
        Self {
            replicas,
            is_rolling,
            surge,
            unavailable: unavailable.min(replicas),
        }
    }

    /// The most pods there may be.
    pub(super) fn most(self) -> i32 {
        self.replicas.saturating_add(self.surge)
    }

    /// The fewest available pods there must be.
    pub(super) fn least_available(self) -> i32 {
        self.replicas - self.unavailable
    }
}

#[derive(Debug, Clone, Copy)]
enum Round {
    Up,
    Down,
}

/// A number, or a share of `total`.
fn share(value: Option<&IntOrString>, total: i32, round: Round) -> i32 {
    match value {
        None => 0,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(text)) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or_default();
            let parts = percent.saturating_mul(i64::from(total));
            let whole = match round {
                Round::Up => parts.saturating_add(99).div_euclid(100),
                Round::Down => parts.div_euclid(100),
            };
            i32::try_from(whole).unwrap_or(i32::MAX)
        }
    }
}

/// By how much a set of `size` grows or shrinks when the most that its deployment may have goes from `before` to what
/// the limits say: its share, rounded half away from zero, within what is left to give.
pub(super) fn proportion(limits: Limits, size: i32, before: i32, to_add: i32, added: i32) -> i32 {
    if size == 0 || to_add == 0 || to_add == added {
        return 0;
    }
    let share = if limits.replicas == 0 {
        -size
    } else if before == 0 {
        0
    } else {
        // size * most / before, to the nearest; all of them are positive.
        let (parts, before) = (i64::from(size) * i64::from(limits.most()), i64::from(before));
        let rounded = (2 * parts + before) / (2 * before);
        i32::try_from(rounded).unwrap_or(i32::MAX) - size
    };
    let left = to_add - added;
    if to_add > 0 { share.min(left) } else { share.max(left) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn limits(replicas: i32, surge: Value, unavailable: Value) -> (i32, i32) {
        let deployment: Deployment = serde_json::from_value(json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {}, "spec": {"replicas": replicas, "selector": {}, "template": {},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}}))
        .unwrap();
        let limits = Limits::of(&deployment);
        (limits.surge, limits.unavailable)
    }

    #[test]
    fn c4_surge_rounds_up_unavailable_rounds_down_and_both_zero_is_one_unavailable() {
        assert_eq!(limits(10, json!("25%"), json!("25%")), (3, 2));
        assert_eq!(limits(3, json!("25%"), json!("25%")), (1, 0));
        assert_eq!(limits(3, json!(0), json!("25%")), (0, 1));
        assert_eq!(limits(3, json!(0), json!(0)), (0, 1));
        assert_eq!(limits(4, json!(2), json!(9)), (2, 4));
        assert_eq!(limits(0, json!("25%"), json!("25%")), (0, 0));
        assert_eq!(limits(4, json!("0%"), json!("100%")), (0, 4));
    }

    #[test]
    fn c4_a_set_grows_and_shrinks_by_its_share_rounded() {
        let of = |replicas: i32, surge: i32| Limits {
            replicas,
            is_rolling: true,
            surge,
            unavailable: 0,
        };
        // 10 + 3 become 15 + 3: the set with 8 of 13 gets round(8 * 18 / 13) - 8 = 3, the one with 5 gets 2.
        assert_eq!(proportion(of(15, 3), 8, 13, 5, 0), 3);
        assert_eq!(proportion(of(15, 3), 5, 13, 5, 3), 2);
        // No more than is left to give.
        assert_eq!(proportion(of(15, 3), 8, 13, 2, 0), 2);
        // Down: 8 * 7 / 13 = 4.3.
        assert_eq!(proportion(of(5, 2), 8, 13, -6, 0), -4);
        assert_eq!(proportion(of(5, 2), 5, 13, -6, -4), -2);
        // A half goes up.
        assert_eq!(proportion(of(3, 0), 1, 2, 1, 0), 1);
        assert_eq!(proportion(of(0, 0), 5, 13, -5, 0), -5);
        assert_eq!(proportion(of(5, 0), 0, 13, -5, 0), 0);
    }
}
