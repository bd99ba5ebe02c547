//! Secrets of type `kubernetes.io/service-account-token` (C2): filled in one pass, and gone with their account.

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use serde::Deserialize;
use serde_json::{Value, json};

use super::hand::{annotation, changed, name_of, place, uid_of};
use super::{Census, Control, Hand, Next, Wishes};
use crate::fault::Fault;
use crate::security::Bound;
use crate::store::{Entry, LogEntry};

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// Under which keys a Secret holds what; the first is also what `kube-root-ca.crt` calls it.
pub(super) const AUTHORITY: &str = "ca.crt";
const NAMESPACE: &str = "namespace";
const TOKEN: &str = "token";
/// The reference's tokens in Secrets never expire; ours have to say when, and outlast everybody.
const FOR_EVER: SignedDuration = SignedDuration::from_hours(24 * 365 * 100);

/// Keys are `namespace/name` of Secrets.
#[derive(Debug, Default)]
pub(super) struct Tokens;

pub(super) fn is_token(secret: &Secret) -> bool {
    secret.type_.as_deref() == Some(TYPE)
}

/// Of a Secret that is gone, only what it was.
#[derive(Deserialize)]
struct Typed {
    #[serde(rename = "type")]
    kind: Option<String>,
}

impl Control for Tokens {
    fn begin(&mut self, hand: &Hand, _: &[Entry], _: &Census, wishes: &mut Wishes) {
        for secret in hand.mirror.secrets.list(None).iter().filter(|secret| is_token(secret)) {
            wishes.sync(place(&secret.metadata));
        }
    }

    fn see(&mut self, hand: &Hand, line: &LogEntry, _: &Census, wishes: &mut Wishes) {
        let namespace = line.key.namespace().unwrap_or_default();
        let name = line.key.name();
        match (line.key.group(), line.key.resource()) {
            ("", "secrets") => {
                let was = serde_json::from_slice::<Typed>(line.value.json());
                if was.is_ok_and(|typed| typed.kind.as_deref() == Some(TYPE)) {
                    wishes.sync(format!("{namespace}/{name}"));
                }
            }
            ("", "serviceaccounts") => {
                for secret in hand.mirror.secrets.list(Some(namespace)) {
                    if is_token(&secret) && annotation(&secret.metadata, ACCOUNT) == Some(name) {
                        wishes.sync(place(&secret.metadata));
                    }
                }
            }
            _ => {}
        }
    }

    fn sync<'a>(&'a mut self, hand: &'a Hand, key: &'a str, _: &'a mut Wishes) -> BoxFuture<'a, Result<Next, Fault>> {
        async move {
            let Some((namespace, name)) = key.split_once('/') else {
                return Ok(Next::Done);
            };
            let Some(secret) = hand.mirror.secrets.get(Some(namespace), name) else {
                forget(hand, namespace, name).await?;
                return Ok(Next::Done);
            };
            if !is_token(&secret) || secret.metadata.deletion_timestamp.is_some() {
                return Ok(Next::Done);
            }
            let account = annotation(&secret.metadata, ACCOUNT)
                .and_then(|account| hand.mirror.accounts.get(Some(namespace), account))
                .filter(|account| is_of(&secret, account));
            let target = hand.target_of::<Secret>(Some(namespace), name)?;
            let Some(account) = account else {
                hand.remove(&target, uid_of(&secret.metadata), None).await?;
                return Ok(Next::Done);
            };
            let authority = hand.settings.security.authority.pem();
            if let Some(change) = missing(hand, &secret, &account, &authority)? {
                match hand.patch(&target, "", change).await {
                    // Who changed it meanwhile is seen next.
                    Err(fault) if fault.code == 409 => {}
                    outcome => changed(outcome)?,
                }
            }
            Ok(Next::Done)
        }
        .boxed()
    }
}

/// A Secret that names a uid is of that very account, not of a later one with the same name.
fn is_of(secret: &Secret, account: &ServiceAccount) -> bool {
    match annotation(&secret.metadata, ACCOUNT_UID) {
        None | Some("") => true,
        Some(uid) => uid == uid_of(&account.metadata),
    }
}

/// What the Secret lacks, as a patch.
fn missing(hand: &Hand, secret: &Secret, account: &ServiceAccount, authority: &str) -> Result<Option<Value>, Fault> {
    let has = |key: &str| {
        secret
            .data
            .as_ref()
            .and_then(|data| data.get(key))
            .filter(|bytes| !bytes.0.is_empty())
    };
    let mut data = serde_json::Map::new();
    let mut put = |key: &str, bytes: &[u8]| {
        let bytes = serde_json::to_value(ByteString(bytes.to_vec())).map_err(Fault::internal)?;
        data.insert(key.to_owned(), bytes);
        Ok::<(), Fault>(())
    };
    if !authority.is_empty() && has(AUTHORITY).is_none_or(|told| told.0 != authority.as_bytes()) {
        put(AUTHORITY, authority.as_bytes())?;
    }
    if has(NAMESPACE).is_none() {
        put(
            NAMESPACE,
            secret.metadata.namespace.as_deref().unwrap_or_default().as_bytes(),
        )?;
    }
    if has(TOKEN).is_none() {
        put(TOKEN, token(hand, secret, account)?.as_bytes())?;
    }
    if data.is_empty() {
        return Ok(None);
    }
    Ok(Some(json!({
        "metadata": {
            "resourceVersion": secret.metadata.resource_version,
            "annotations": {ACCOUNT: account.metadata.name, ACCOUNT_UID: account.metadata.uid},
        },
        "data": data,
    })))
}

/// A token that dies with its Secret.
fn token(hand: &Hand, secret: &Secret, account: &ServiceAccount) -> Result<String, Fault> {
    let bound = Bound {
        kind: "secret",
        name: name_of(&secret.metadata).to_owned(),
        uid: uid_of(&secret.metadata).to_owned(),
    };
    let account = serde_json::to_value(account).map_err(Fault::internal)?;
    let now: Timestamp = hand.now();
    let id = hand.registry.dice.uid();
    let issued = hand
        .settings
        .security
        .issue(&account, Vec::new(), FOR_EVER.as_secs(), &[bound], now, id)?;
    Ok(issued.token)
}

/// Accounts no longer list a Secret that is gone.
async fn forget(hand: &Hand, namespace: &str, name: &str) -> Result<(), Fault> {
    for account in hand.mirror.accounts.list(Some(namespace)) {
        let listed = account.secrets.as_deref().unwrap_or_default();
        let left: Vec<_> = listed
            .iter()
            .filter(|secret| secret.name.as_deref() != Some(name))
            .collect();
        if left.len() == listed.len() {
            continue;
        }
        let target = hand.target_of::<ServiceAccount>(Some(namespace), name_of(&account.metadata))?;
        let change = json!({"metadata": {"resourceVersion": account.metadata.resource_version}, "secrets": left});
        changed(hand.patch(&target, "", change).await)?;
    }
    Ok(())
}
