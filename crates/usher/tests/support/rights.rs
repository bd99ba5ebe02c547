//! Users of a test's namespace: a ServiceAccount each, and what they may do. The audit log tells them apart.

use std::path::PathBuf;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::world::World;

/// All that the operator of one namespace needs (spec, section 3), with its lease there.
pub fn all() -> Value {
    json!([
        {"apiGroups": ["plexaubnet.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
    ])
}

/// The name by which the audit log calls a ServiceAccount of this world.
pub fn user(world: &World, account: &str) -> String {
    format!("system:serviceaccount:{}:{account}", world.namespace)
}

impl World {
    /// Sets what the ServiceAccounts of this namespace may do.
    pub async fn grant(&self, rules: Value) {
        let roles: Api<Role> = Api::namespaced(self.client.clone(), &self.namespace);
        let bindings: Api<RoleBinding> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = PatchParams::apply("usher-tests").force();
        let api = "rbac.authorization.k8s.io/v1";
        let role = json!({"apiVersion": api, "kind": "Role", "metadata": {"name": "usher"}, "rules": rules});
        roles.patch("usher", &params, &Patch::Apply(&role)).await.unwrap();
        let group = format!("system:serviceaccounts:{}", self.namespace);
        let binding = json!({
            "apiVersion": api, "kind": "RoleBinding", "metadata": {"name": "usher"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "usher"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
        });
        bindings.patch("usher", &params, &Patch::Apply(&binding)).await.unwrap();
    }

    /// A new ServiceAccount, as the kubeconfig of somebody who has its token.
    pub async fn account(&self, name: &str) -> PathBuf {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
        let new = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        accounts.create(&PostParams::default(), &new).await.unwrap();
        let request: TokenRequest = serde_json::from_value(json!({
            "spec": {"audiences": [], "expirationSeconds": 3600},
        }))
        .unwrap();
        let token = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .unwrap();
        let mut kubeconfig = kube::config::Kubeconfig::read_from(&self.server.kubeconfig).unwrap();
        for user in &mut kubeconfig.auth_infos {
            user.auth_info = Some(kube::config::AuthInfo {
                token: token.status.as_ref().unwrap().token.clone().map(Into::into),
                ..kube::config::AuthInfo::default()
            });
        }
        let path = self.file(name);
        // JSON is YAML. The token is kept secret from a struct's own serialisation, so it is put in as text.
        let mut text = serde_json::to_value(&kubeconfig).unwrap();
        for user in text["users"].as_array_mut().unwrap() {
            user["user"] = json!({"token": token.status.as_ref().unwrap().token});
        }
        std::fs::write(&path, text.to_string()).unwrap();
        path
    }
}
