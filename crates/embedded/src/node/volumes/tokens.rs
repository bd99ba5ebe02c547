//! Service-account tokens in projected volumes: which ones a pod wants, and when to get new ones.
//!
//! Getting one is a request to the API, which the agent makes: it asks [`TokenKeeper::due`] at every refresh, requests
//! those, and hands them in with [`TokenKeeper::keep`]. Kept in memory only: after a restart every pod gets new ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

/// What the reference asks for where the volume says nothing.
const DEFAULT_SECONDS: i64 = 3600;
/// However long a token lives, a new one is written after a day.
const OLDEST: SignedDuration = SignedDuration::from_hours(24);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenRequest {
    /// `None`: the API server's own.
    pub audience: Option<String>,
    pub expiration_seconds: i64,
}

/// The tokens of all pods of a node.
#[derive(Debug, Default)]
pub struct TokenKeeper {
    held: Mutex<BTreeMap<String, BTreeMap<TokenRequest, Held>>>,
}

#[derive(Debug, Clone)]
struct Held {
    token: String,
    renew_at: Timestamp,
}

impl TokenKeeper {
    /// The tokens that the pod has not, or not for much longer: a fifth of its life before it ends.
    #[must_use]
    pub fn due(&self, pod: &Pod, now: Timestamp) -> Vec<TokenRequest> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let own = held.get(uid(pod));
        wanted(pod)
            .into_iter()
            .filter(|request| {
                own.and_then(|own| own.get(request))
                    .is_none_or(|held| held.renew_at <= now)
            })
            .collect()
    }

    /// Keeps a token that was issued now.
    pub fn keep(&self, pod: &Pod, request: TokenRequest, token: String, expires: Timestamp, now: Timestamp) {
        let life = expires.duration_since(now);
        let use_for = (life - life / 5).min(OLDEST);
        let renew_at = now.saturating_add(use_for).unwrap_or(Timestamp::MAX);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.entry(uid(pod).to_owned())
            .or_default()
            .insert(request, Held { token, renew_at });
    }

    /// The token in use. An old one is better than none: it is the server that says when it is over.
    ///
    /// # Errors
    /// There is none yet.
    pub fn token(&self, pod: &Pod, request: &TokenRequest) -> Result<String, String> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(uid(pod))
            .and_then(|own| own.get(request))
            .map(|held| held.token.clone())
            .ok_or_else(|| "no token has been issued yet".to_owned())
    }

    pub fn forget(&self, pod_uid: &str) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.remove(pod_uid);
    }
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Every token that one of the pod's volumes holds.
fn wanted(pod: &Pod) -> BTreeSet<TokenRequest> {
    super::volumes(pod)
        .filter_map(|volume| volume.projected.as_ref())
        .flat_map(|projected| projected.sources.iter().flatten())
        .filter_map(|source| source.service_account_token.as_ref())
        .map(TokenRequest::of)
        .collect()
}

impl TokenRequest {
    pub(super) fn of(source: &k8s_openapi::api::core::v1::ServiceAccountTokenProjection) -> Self {
        Self {
            audience: source.audience.clone().filter(|audience| !audience.is_empty()),
            expiration_seconds: source.expiration_seconds.unwrap_or(DEFAULT_SECONDS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn n5_a_token_is_renewed_a_fifth_of_its_life_before_it_ends_and_at_least_daily() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"uid": "u"},
            "spec": {"containers": [], "volumes": [
                {"name": "a", "projected": {"sources": [
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                    {"serviceAccountToken": {"path": "vault", "audience": "vault", "expirationSeconds": 864000}},
                    {"configMap": {"name": "kube-root-ca.crt"}},
                ]}},
                {"name": "b", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3607}}]}},
            ]},
        }))
        .unwrap();
        let keeper = TokenKeeper::default();
        let start = Timestamp::UNIX_EPOCH;
        let after = |seconds| start + SignedDuration::from_secs(seconds);
        let due = keeper.due(&pod, start);
        assert_eq!(due.len(), 2, "{due:?}");
        assert!(keeper.token(&pod, &due[0]).is_err());
        for request in &due {
            let expires = after(request.expiration_seconds);
            keeper.keep(&pod, request.clone(), format!("{:?}", request.audience), expires, start);
        }
        assert_eq!(keeper.token(&pod, &due[1]).unwrap(), "Some(\"vault\")");
        assert_eq!(keeper.due(&pod, after(2885)), []);
        assert_eq!(keeper.due(&pod, after(2886)), due[..1]);
        assert_eq!(keeper.due(&pod, after(24 * 3600)), due);
        keeper.forget("u");
        assert_eq!(keeper.due(&pod, start), due);
    }
}
