//! What the desk asks of the API server, and nothing more: whose token it is, whether they may, and the one annotation.

use std::fmt;
use std::pin::Pin;

use http::Request;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use usher_engine::ObjectKey;

use super::Trigger;
use super::request::Token;

/// Who changes the annotation, in the object's managedFields.
const MANAGER: &str = "usher-trigger";
/// For the two reviews, which no Role of a namespace can grant.
const DELEGATOR: &str = "the built-in ClusterRole system:auth-delegator";
const RULES: &str = "deploy/rbac.yaml";

pub(super) type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, Trouble>> + Send + 'a>>;

/// Why the API server was of no help. What it said itself goes into the log, not to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// We lack a right.
    NoRight { missing: String, see: &'static str },
    /// No answer, or none that could be understood.
    NoAnswer,
}

/// The API server, as the desk needs it.
pub(super) trait Cluster: Send + Sync {
    /// Whose token it is; `None` when it is nobody's.
    fn who<'a>(&'a self, token: &'a Token) -> Reply<'a, Option<UserInfo>>;
    /// Whether they may update the object.
    fn may_update<'a>(&'a self, user: &'a UserInfo, trigger: &'a Trigger, key: &'a ObjectKey) -> Reply<'a, bool>;
    /// Writes the annotation; the object with it, or `None` when there is no such object.
    fn annotate<'a>(&'a self, trigger: &'a Trigger, key: &'a ObjectKey, value: &'a str) -> Reply<'a, Option<Value>>;
    /// The object, or `None`.
    fn read<'a>(&'a self, trigger: &'a Trigger, key: &'a ObjectKey) -> Reply<'a, Option<Value>>;
}

/// A real one.
pub(super) struct KubeCluster {
    client: kube::Client,
}

impl fmt::Debug for KubeCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeCluster").finish_non_exhaustive()
    }
}

impl KubeCluster {
    pub(super) fn new(client: kube::Client) -> Self {
        Self { client }
    }

    /// Not `kube::Api::create`: kube logs an answer that it cannot read, and a TokenReview comes back with the token.
    async fn review<R: Serialize + DeserializeOwned>(
        &self,
        path: &str,
        review: &R,
        right: Trouble,
    ) -> Result<R, Trouble> {
        let body = serde_json::to_vec(review).map_err(|_| Trouble::NoAnswer)?;
        let text = self.send(Request::post(path), body, right).await?;
        let text = text.ok_or(Trouble::NoAnswer)?;
        serde_json::from_str(&text).map_err(|_| {
            tracing::warn!(path, "the API server's answer cannot be read");
            Trouble::NoAnswer
        })
    }

    /// The body of an answer; `None` for 404.
    async fn send(
        &self,
        request: http::request::Builder,
        body: Vec<u8>,
        right: Trouble,
    ) -> Result<Option<String>, Trouble> {
        let request = request.body(body).map_err(|_| Trouble::NoAnswer)?;
        let path = request.uri().path().to_owned();
        match self.client.request_text(request).await {
            Ok(text) => Ok(Some(text)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => {
                tracing::warn!(path, problem = status.message, "a trigger could not be served");
                Err(right)
            }
            Err(error) => {
                tracing::warn!(path, %error, "a trigger could not be served");
                Err(Trouble::NoAnswer)
            }
        }
    }

    async fn object(
        &self,
        request: http::request::Builder,
        body: Vec<u8>,
        (verb, trigger): (&str, &Trigger),
    ) -> Result<Option<Value>, Trouble> {
        let right = Trouble::NoRight {
            missing: format!("{verb} {}.{}", trigger.resource.plural, trigger.resource.group),
            see: RULES,
        };
        let text = self.send(request, body, right).await?;
        text.map(|text| serde_json::from_str(&text).map_err(|_| Trouble::NoAnswer))
            .transpose()
    }
}

fn path(trigger: &Trigger, key: &ObjectKey) -> String {
    let resource = trigger.resource;
    let root = if resource.group.is_empty() { "api" } else { "apis" };
    format!(
        "/{root}/{}/namespaces/{}/{}/{}",
        resource.api_version(),
        key.namespace(),
        resource.plural,
        key.name()
    )
}

impl Cluster for KubeCluster {
    fn who<'a>(&'a self, token: &'a Token) -> Reply<'a, Option<UserInfo>> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.reveal().to_owned(),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let right = Trouble::NoRight {
            missing: "create tokenreviews.authentication.k8s.io".to_owned(),
            see: DELEGATOR,
        };
        Box::pin(async move {
            let path = "/apis/authentication.k8s.io/v1/tokenreviews";
            let status = self.review(path, &review, right).await?.status.unwrap_or_default();
            let user = status
                .user
                .filter(|user| user.username.as_ref().is_some_and(|name| !name.is_empty()));
            Ok(user.filter(|_| status.authenticated == Some(true)))
        })
    }

    fn may_update<'a>(&'a self, user: &'a UserInfo, trigger: &'a Trigger, key: &'a ObjectKey) -> Reply<'a, bool> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username.clone(),
                uid: user.uid.clone(),
                groups: user.groups.clone(),
                extra: user.extra.clone(),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some("update".to_owned()),
                    group: Some(trigger.resource.group.to_owned()),
                    version: Some(trigger.resource.version.to_owned()),
                    resource: Some(trigger.resource.plural.to_owned()),
                    namespace: Some(key.namespace().to_owned()),
                    name: Some(key.name().to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let right = Trouble::NoRight {
            missing: "create subjectaccessreviews.authorization.k8s.io".to_owned(),
            see: DELEGATOR,
        };
        Box::pin(async move {
            let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
            let status = self.review(path, &review, right).await?.status.unwrap_or_default();
            Ok(status.allowed && status.denied != Some(true))
        })
    }

    fn annotate<'a>(&'a self, trigger: &'a Trigger, key: &'a ObjectKey, value: &'a str) -> Reply<'a, Option<Value>> {
        let patch = json!({"metadata": {"annotations": {trigger.annotation: value}}});
        let path = format!("{}?fieldManager={MANAGER}", path(trigger, key));
        let request = Request::patch(path).header(http::header::CONTENT_TYPE, "application/merge-patch+json");
        Box::pin(async move {
            self.object(request, patch.to_string().into_bytes(), ("patch", trigger))
                .await
        })
    }

    fn read<'a>(&'a self, trigger: &'a Trigger, key: &'a ObjectKey) -> Reply<'a, Option<Value>> {
        let request = Request::get(path(trigger, key));
        Box::pin(async move { self.object(request, Vec::new(), ("get", trigger)).await })
    }
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
