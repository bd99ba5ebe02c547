//! What a case needs around its story: a namespace of its own, CRDs in one line, and everything gone in the end.

use serde_json::{Value, json};

use super::{Got, Player};
use crate::case::{Needs, Options, Until};
use crate::render::render;

impl Player<'_> {
    /// A CRD whose only version is the body, and waits until it is served. Answers only if it is refused.
    pub(super) async fn crd(&mut self, kind: &str, options: &Options) -> Result<String, String> {
        let mut version: Value =
            serde_saphyr::from_str(&self.fill(options.body.as_deref().unwrap_or("{}"))).map_err(|e| e.to_string())?;
        let plural = format!("{}s", kind.to_lowercase());
        let group = self.names["group"].clone();
        let name = format!("{plural}.{group}");
        let fields = version.as_object_mut().ok_or("the body is a version")?;
        let mut schema = fields
            .remove("schema")
            .unwrap_or_else(|| json!({"x-kubernetes-preserve-unknown-fields": true}));
        schema["type"] = "object".into();
        fields.insert("schema".into(), json!({ "openAPIV3Schema": schema }));
        fields.insert("name".into(), "v1".into());
        fields.insert("served".into(), true.into());
        fields.insert("storage".into(), true.into());
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name},
            "spec": {"group": group, "scope": "Namespaced", "versions": [version],
                     "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()}},
        });
        let post = Options {
            body: Some(crd.to_string()),
            ..Options::default()
        };
        let got = self
            .ask(self.request("POST", "$crd", "application/json", &post)?)
            .await?;
        if got.code != 201 {
            return Ok(self.tell(&got, options));
        }
        self.made.push(format!("{}/{name}", self.names["crd"]));
        let until = |until| Options {
            until: vec![until],
            ..Options::default()
        };
        self.ask_until("GET", &format!("$crs/{plural}"), "", &until(Until::Code(200)))
            .await?;
        Ok("served\n".to_owned())
    }

    pub(super) fn remember(&mut self, method: &str, path: &str, got: &Got) {
        let Ok(path) = self.path(path) else { return };
        let path = path.split('?').next().unwrap_or_default();
        let inside = path.contains(&format!("/namespaces/{}/", self.namespace));
        let name = got
            .json()
            .and_then(|body| body["metadata"]["name"].as_str().map(str::to_owned));
        match (method, name) {
            _ if inside => {}
            ("POST", Some(name)) => self.made.push(format!("{path}/{name}")),
            ("POST", None) => {}
            _ => self.made.push(path.to_owned()),
        }
    }

    /// The namespace, and the ServiceAccount every pod needs, which on a bare server nobody else makes.
    pub(super) async fn move_in(&self) -> Result<(), String> {
        let post = |object: Value| Options {
            body: Some(object.to_string()),
            ..Options::default()
        };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        for (path, object) in [("/api/v1/namespaces", namespace), ("$core/serviceaccounts", account)] {
            let got = self
                .ask(self.request("POST", path, "application/json", &post(object))?)
                .await?;
            if !matches!(got.code, 201 | 409) {
                return Err(format!(
                    "cannot make ready: {}\n{}",
                    got.code,
                    render(&got.json().unwrap_or_default())
                ));
            }
        }
        Ok(())
    }

    /// Leaves no trace, as far as a bare server lets one.
    pub(super) async fn move_out(&mut self) {
        self.watches.clear();
        // Where a scheduler is, they would be put on the next case's nodes; and on nodes that are no machines nobody
        // lets them end.
        if self.target.needs() != Needs::Nothing {
            let pods = self.request("DELETE", "$core/pods?gracePeriodSeconds=0", "", &Options::default());
            if let Ok(pods) = pods {
                let _ = self.ask(pods).await;
            }
        }
        let namespace = format!("/api/v1/namespaces/{}", self.namespace);
        for path in self.made.iter().rev().chain([&namespace]) {
            let plain = Options::default();
            let Ok(delete) = self.request("DELETE", path, "", &plain) else {
                continue;
            };
            let Ok(left) = self.ask(delete).await else { continue };
            let is_namespace = path
                .strip_prefix("/api/v1/namespaces/")
                .is_some_and(|name| !name.contains('/'));
            let Some(mut object) = left
                .json()
                .filter(|_| is_namespace && self.target.needs() == Needs::Nothing)
            else {
                continue;
            };
            object["spec"]["finalizers"] = json!([]);
            let finalize = Options {
                body: Some(object.to_string()),
                ..Options::default()
            };
            if let Ok(request) = self.request("PUT", &format!("{path}/finalize"), "application/json", &finalize) {
                let _ = self.ask(request).await;
            }
        }
    }
}
