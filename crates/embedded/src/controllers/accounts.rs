//! Each namespace has a ServiceAccount `default` (C2): whoever names no account runs as that one.

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::hand::{made, name_of};
use super::{Census, Control, Hand, Next, Wishes};
use crate::fault::Fault;
use crate::store::{Entry, LogEntry};

const DEFAULT: &str = "default";

/// Keys are names of namespaces.
#[derive(Debug, Default)]
pub(super) struct ServiceAccounts;

/// Whether a namespace takes new objects.
pub(super) fn is_open(namespace: &Namespace) -> bool {
    namespace.metadata.deletion_timestamp.is_none()
}

impl Control for ServiceAccounts {
    fn begin(&mut self, hand: &Hand, _: &[Entry], _: &Census, wishes: &mut Wishes) {
        for namespace in hand.mirror.namespaces.list(None) {
            wishes.sync(name_of(&namespace.metadata));
        }
    }

    fn see(&mut self, _: &Hand, line: &LogEntry, _: &Census, wishes: &mut Wishes) {
        match (line.key.group(), line.key.resource()) {
            ("", "namespaces") => wishes.sync(line.key.name()),
            ("", "serviceaccounts") if line.key.name() == DEFAULT && line.entry().is_none() => {
                wishes.sync(line.key.namespace().unwrap_or_default());
            }
            _ => {}
        }
    }

    fn sync<'a>(&'a mut self, hand: &'a Hand, key: &'a str, _: &'a mut Wishes) -> BoxFuture<'a, Result<Next, Fault>> {
        async move {
            let is_wanted = hand
                .mirror
                .namespaces
                .get(None, key)
                .is_some_and(|found| is_open(&found));
            if is_wanted && hand.mirror.accounts.get(Some(key), DEFAULT).is_none() {
                let account = ServiceAccount {
                    metadata: ObjectMeta {
                        name: Some(DEFAULT.to_owned()),
                        ..ObjectMeta::default()
                    },
                    ..ServiceAccount::default()
                };
                made(hand.make(Some(key), &account).await)?;
            }
            Ok(Next::Done)
        }
        .boxed()
    }
}
