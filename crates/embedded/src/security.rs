//! Who may ask, and how they prove who they are (X1-X3).

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, Uri};
use jiff::{SignedDuration, Timestamp};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::caller::Caller;
use crate::fault::Fault;
use crate::registry::object;
use crate::serve::certificate::Authority;

/// Who signs tokens, and whom a token is for if it does not say.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const ACCOUNT: &str = "system:serviceaccount:";

/// The admin's token and the key that signs those of service accounts. Never shown.
#[derive(Clone)]
pub struct Secrets {
    pub(crate) token: Arc<str>,
    key: Arc<hmac::Key>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secrets")
    }
}

/// From the operating system.
fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0_u8; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| "the operating system gives no random numbers".to_owned())?;
    Ok(bytes)
}

/// See [`random`].
pub(crate) fn random_number() -> Result<u64, String> {
    random().map(u64::from_le_bytes)
}

impl Secrets {
    /// From the operating system, never from the seed (E1).
    pub fn random() -> Result<Self, String> {
        let (token, key): ([u8; 32], [u8; 32]) = (random()?, random()?);
        Ok(Self::new(&BASE64_URL_SAFE_NO_PAD.encode(token), &key))
    }

    #[must_use]
    pub fn new(token: &str, key: &[u8]) -> Self {
        Self {
            token: token.into(),
            key: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, key)),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Security {
    secrets: Secrets,
    /// Where the API listens, once it does.
    address: RwLock<SocketAddr>,
    /// Whom its clients are to believe: what `kube-root-ca.crt` says.
    pub(crate) authority: Authority,
}

/// A token that was given out.
#[derive(Debug)]
pub(crate) struct Issued {
    pub(crate) token: String,
    pub(crate) audiences: Vec<String>,
    pub(crate) expires: Timestamp,
}

/// Who a token says its bearer is.
#[derive(Debug)]
pub(crate) struct Proven {
    pub(crate) caller: Caller,
    /// Those of the wanted ones that it is for.
    pub(crate) audiences: Vec<String>,
    /// What the token dies with, beside its account.
    pub(crate) bound: Option<Bound>,
}

/// An object that a token is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bound {
    /// `pod`, `secret` or `node`, as claims call it.
    #[serde(skip)]
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// In this order: a token of a pod also names the pod's node, but does not die with it.
const BOUND: [&str; 3] = ["pod", "secret", "node"];

#[derive(Debug, Serialize, Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Vec<String>,
    iat: i64,
    nbf: i64,
    exp: i64,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Value,
    /// Its own name, for whoever looks for it in logs.
    #[serde(default)]
    jti: String,
}

impl Security {
    pub(crate) fn new(secrets: Secrets) -> Self {
        Self {
            secrets,
            address: RwLock::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 6443))),
            authority: Authority::new(false),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        *self.address.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_address(&self, address: SocketAddr) {
        *self.address.write().unwrap_or_else(PoisonError::into_inner) = address;
    }

    /// The admin's. For kubeconfigs, never for a log.
    pub(crate) fn token(&self) -> &str {
        &self.secrets.token
    }

    /// X3: a page in a browser that was lured to this address names another host, or comes from one.
    pub(crate) fn check_origin(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Fault> {
        let host = headers
            .get(HOST)
            .and_then(|value| value.to_str().ok())
            .or_else(|| uri.authority().map(http::uri::Authority::as_str));
        let foreign = |what: &str, value: &str| {
            Err(Fault::new(
                403,
                "Forbidden",
                format!(
                    "the {what} header names {value:?}, which is not this server: use 127.0.0.1 or localhost in the address"
                ),
            ))
        };
        if let Some(host) = host
            && !self.is_ours(host)
        {
            return foreign("Host", host);
        }
        if let Some(origin) = headers.get(ORIGIN) {
            let text = origin.to_str().unwrap_or_default();
            let authority = text.split_once("://").map_or(text, |(_, rest)| rest);
            if !self.is_ours(authority) {
                return foreign("Origin", text);
            }
        }
        Ok(())
    }

    /// Loopback by number or by name, and the names that pods know the API by.
    fn is_ours(&self, authority: &str) -> bool {
        let host = host_of(authority);
        if let Ok(address) = host.parse::<IpAddr>() {
            // Rebinding needs a name. Where other machines may ask, they do so by whatever number reaches us.
            return address.is_loopback() || !self.address().ip().is_loopback();
        }
        let host = host.to_ascii_lowercase();
        matches!(
            host.as_str(),
            "localhost"
                | "kubernetes"
                | "kubernetes.default"
                | "kubernetes.default.svc"
                | "kubernetes.default.svc.cluster.local"
        )
    }

    /// Who a request is from.
    pub(crate) fn caller(&self, headers: &HeaderMap, now: Timestamp) -> Result<Proven, Fault> {
        let unauthorized = || Fault::new(401, "Unauthorized", "Unauthorized");
        let header = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .ok_or_else(unauthorized)?;
        let (scheme, token) = header.split_once(' ').ok_or_else(unauthorized)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(unauthorized());
        }
        self.token_caller(token.trim(), &[], now).map_err(|_| unauthorized())
    }

    /// Whose token this is, and for which of the wanted audiences.
    pub(crate) fn token_caller(&self, token: &str, wanted: &[&str], now: Timestamp) -> Result<Proven, String> {
        let own = [ISSUER];
        let wanted = if wanted.is_empty() { own.as_slice() } else { wanted };
        if same(token.as_bytes(), self.secrets.token.as_bytes()) {
            let audiences = wanted.iter().filter(|audience| **audience == ISSUER);
            return Ok(Proven {
                caller: Caller::admin(),
                audiences: audiences.map(|audience| (*audience).to_owned()).collect(),
                bound: None,
            });
        }
        let claims = self.verified(token)?;
        let seconds = now.as_second();
        if seconds >= claims.exp {
            return Err("[invalid bearer token, service account token has expired]".to_owned());
        }
        let audiences: Vec<String> = claims
            .aud
            .iter()
            .filter(|audience| wanted.contains(&audience.as_str()))
            .cloned()
            .collect();
        if audiences.is_empty() {
            return Err(format!(
                "[invalid bearer token, token audiences {:?} is invalid for the target audiences {wanted:?}]",
                claims.aud
            ));
        }
        let namespace = claims
            .kubernetes
            .get("namespace")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let named: Vec<Bound> = BOUND
            .iter()
            .filter_map(|kind| {
                let bound = Bound::deserialize(claims.kubernetes.get(*kind)?).ok()?;
                Some(Bound { kind, ..bound })
            })
            .collect();
        let mut extra = BTreeMap::new();
        if !claims.jti.is_empty() {
            let id = format!("JTI={}", claims.jti);
            extra.insert("authentication.kubernetes.io/credential-id".to_owned(), vec![id]);
        }
        // Secrets are nobody else's matter.
        for bound in named.iter().filter(|bound| bound.kind != "secret") {
            let key = format!("authentication.kubernetes.io/{}", bound.kind);
            extra.insert(format!("{key}-name"), vec![bound.name.clone()]);
            extra.insert(format!("{key}-uid"), vec![bound.uid.clone()]);
        }
        let uid = object::at(&claims.kubernetes, "serviceaccount.uid")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let caller = Caller {
            name: claims.sub,
            uid: uid.to_owned(),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ],
            extra,
        };
        Ok(Proven {
            caller,
            audiences,
            bound: named.into_iter().next(),
        })
    }

    fn verified(&self, token: &str) -> Result<Claims, String> {
        let wrong = || "invalid bearer token".to_owned();
        let (signed, signature) = token.rsplit_once('.').ok_or_else(wrong)?;
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).map_err(|_| wrong())?;
        hmac::verify(&self.secrets.key, signed.as_bytes(), &signature).map_err(|_| wrong())?;
        let (_, body) = signed.split_once('.').ok_or_else(wrong)?;
        let body = BASE64_URL_SAFE_NO_PAD.decode(body).map_err(|_| wrong())?;
        serde_json::from_slice(&body).map_err(|_| wrong())
    }

    /// A token for a service account (X2).
    pub(crate) fn issue(
        &self,
        account: &Value,
        audiences: Vec<String>,
        seconds: i64,
        bound: &[Bound],
        now: Timestamp,
        id: String,
    ) -> Result<Issued, Fault> {
        let audiences = if audiences.is_empty() {
            vec![ISSUER.to_owned()]
        } else {
            audiences
        };
        let expires = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
        let (namespace, name) = (object::text(account, "namespace"), object::name(account));
        let mut kubernetes = json!({
            "namespace": namespace,
            "serviceaccount": {"name": name, "uid": object::text(account, "uid")},
        });
        for bound in bound {
            let what = json!({"name": bound.name, "uid": bound.uid});
            object::as_map(&mut kubernetes).insert(bound.kind.to_owned(), what);
        }
        let claims = Claims {
            iss: ISSUER.to_owned(),
            sub: format!("{ACCOUNT}{namespace}:{name}"),
            aud: audiences.clone(),
            iat: now.as_second(),
            nbf: now.as_second(),
            exp: expires.as_second(),
            jti: id,
            kubernetes,
        };
        let part = |value: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(value);
        let body = serde_json::to_vec(&claims).map_err(Fault::internal)?;
        let signed = format!("{}.{}", part(br#"{"alg":"HS256","typ":"JWT"}"#), part(&body));
        let signature = hmac::sign(&self.secrets.key, signed.as_bytes());
        Ok(Issued {
            token: format!("{signed}.{}", part(signature.as_ref())),
            audiences,
            expires,
        })
    }

    /// A7: who asks may ask as somebody else, since whatever is authenticated is allowed; but nobody is not somebody.
    pub(crate) fn impersonated(&self, caller: &Caller, headers: &HeaderMap) -> Result<Option<Caller>, Fault> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let Some(user) = text("impersonate-user") else {
            if headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
                return Err(Fault::bad_request(
                    "requested groups, uid or extra to impersonate without a user: send Impersonate-User too",
                ));
            }
            return Ok(None);
        };
        if *caller == Caller::anonymous() {
            return Ok(None);
        }
        let mut groups: Vec<String> = headers
            .get_all("impersonate-group")
            .iter()
            .filter_map(|value| value.to_str().ok().map(str::to_owned))
            .collect();
        if let Some(rest) = user.strip_prefix(ACCOUNT)
            && groups.is_empty()
            && let Some((namespace, _)) = rest.split_once(':')
        {
            groups = vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ];
        }
        if user != "system:anonymous" && !groups.iter().any(|group| group == "system:authenticated") {
            groups.push("system:authenticated".to_owned());
        }
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in headers {
            if let Some(key) = name.as_str().strip_prefix("impersonate-extra-")
                && let Ok(value) = value.to_str()
            {
                extra
                    .entry(key.replace("%2f", "/").replace("%2F", "/"))
                    .or_default()
                    .push(value.to_owned());
            }
        }
        Ok(Some(Caller {
            name: user.to_owned(),
            uid: text("impersonate-uid").unwrap_or_default().to_owned(),
            groups,
            extra,
        }))
    }
}

/// The host of `host`, `host:port`, `[address]:port`.
fn host_of(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    }
}

/// Takes as long for a wrong first byte as for a wrong last one.
fn same(one: &[u8], two: &[u8]) -> bool {
    one.len() == two.len() && one.iter().zip(two).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests;
