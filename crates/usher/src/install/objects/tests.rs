use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;

fn scoped() -> Installation {
    Installation {
        scope: Some("team-a".to_owned()),
        replicas: 1,
        ..Installation::default()
    }
}

fn names(installation: &Installation) -> Vec<String> {
    installation
        .objects()
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// The value as the type knows it: a misspelt field would be missing.
fn through<K: Serialize + DeserializeOwned>(value: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<K>(value.clone()).unwrap()).unwrap()
}

#[test]
fn every_field_is_one_that_kubernetes_knows() {
    for installation in [Installation::default(), scoped()] {
        for Object { kind, value, .. } in installation.objects().unwrap() {
            let known = match kind.kind.as_str() {
                "Namespace" => through::<Namespace>(&value),
                "Service" => through::<Service>(&value),
                "ServiceAccount" => through::<ServiceAccount>(&value),
                "ClusterRole" => through::<ClusterRole>(&value),
                "ClusterRoleBinding" => through::<ClusterRoleBinding>(&value),
                "Role" => through::<Role>(&value),
                "RoleBinding" => through::<RoleBinding>(&value),
                "Deployment" => through::<Deployment>(&value),
                "PodDisruptionBudget" => through::<PodDisruptionBudget>(&value),
                other => panic!("{other}"),
            };
            assert_eq!(known, value);
        }
    }
}

#[test]
fn a_scoped_installation_has_no_right_outside_its_namespaces_and_one_replica_no_budget() {
    assert_eq!(
        names(&Installation::default()),
        [
            "Namespace usher-system",
            "ServiceAccount usher-system/usher-operator",
            "ClusterRole usher-operator",
            "ClusterRoleBinding usher-operator",
            "Role usher-system/usher-operator-lease",
            "RoleBinding usher-system/usher-operator-lease",
            "Role usher-system/usher-operator-tls",
            "RoleBinding usher-system/usher-operator-tls",
            "Role usher-system/usher-operator-ca",
            "RoleBinding usher-system/usher-operator-ca",
            "Service usher-system/usher-operator",
            "Deployment usher-system/usher-operator",
            "PodDisruptionBudget usher-system/usher-operator",
        ]
    );
    assert_eq!(
        names(&scoped()),
        [
            "Namespace usher-system",
            "ServiceAccount usher-system/usher-operator",
            "Role team-a/usher-operator",
            "RoleBinding team-a/usher-operator",
            "Role usher-system/usher-operator-lease",
            "RoleBinding usher-system/usher-operator-lease",
            "Role usher-system/usher-operator-tls",
            "RoleBinding usher-system/usher-operator-tls",
            "Role usher-system/usher-operator-ca",
            "RoleBinding usher-system/usher-operator-ca",
            "Service usher-system/usher-operator",
            "Deployment usher-system/usher-operator",
        ]
    );
}

#[test]
fn the_pod_meets_the_restricted_pod_security_standard() {
    let deployment = Installation::default().deployment().value;
    let at = |pointer: &str| deployment.pointer(pointer).cloned().unwrap_or_default();
    let pod = "/spec/template/spec";
    assert_eq!(at(&format!("{pod}/securityContext/runAsNonRoot")), true);
    assert_eq!(
        at(&format!("{pod}/securityContext/seccompProfile/type")),
        "RuntimeDefault"
    );
    let container = format!("{pod}/containers/0");
    assert_eq!(
        at(&format!("{container}/securityContext/allowPrivilegeEscalation")),
        false
    );
    assert_eq!(at(&format!("{container}/securityContext/readOnlyRootFilesystem")), true);
    assert_eq!(
        at(&format!("{container}/securityContext/capabilities/drop")),
        json!(["ALL"])
    );
    assert_eq!(at(&format!("{container}/args/1")), "--health-address=0.0.0.0:8080");
}

#[test]
fn the_service_leads_to_the_port_that_the_operator_is_told_to_open() {
    let installation = Installation::default();
    let (service, deployment) = (installation.service().value, installation.deployment().value);
    let pod = deployment.pointer("/spec/template").unwrap();
    assert_eq!(service.pointer("/spec/selector"), pod.pointer("/metadata/labels"));
    let container = pod.pointer("/spec/containers/0").unwrap();
    let target = service.pointer("/spec/ports/0/targetPort").unwrap();
    let ports = container["ports"].as_array().unwrap();
    let port = ports.iter().find(|port| port["name"] == *target).unwrap();
    let flag = json!(format!("--tls-address=0.0.0.0:{}", port["containerPort"]));
    assert!(container["args"].as_array().unwrap().contains(&flag), "{container}");
}

/// The operator makes them by the names its own defaults give, and may touch no others.
#[test]
fn the_rights_are_for_the_objects_that_the_operator_makes() {
    let service = usher_engine::ObjectKey::new("usher-system", OPERATOR).unwrap();
    let port = usher_operator::port::PortSettings {
        address: "127.0.0.1:0".parse().unwrap(),
        service,
        triggers: Vec::new(),
        webhooks: usher_operator::webhook::Routes::default(),
        configuration: None,
    };
    assert_eq!(port.secret().unwrap().name(), CERTIFICATES);
    assert_eq!(port.config_map().unwrap().name(), AUTHORITIES);
}

#[test]
fn the_hash_tells_changes_and_is_not_part_of_what_is_hashed() {
    let deployment = Installation::default().deployment();
    let (hash, sent) = deployment.marked().unwrap();
    assert_eq!(
        sent.pointer("/metadata/annotations/usher.dev~1applied-hash").unwrap(),
        &hash.to_string()
    );
    assert_eq!(deployment.marked().unwrap().0, hash);
    let other = Installation {
        image: "other".to_owned(),
        ..Installation::default()
    };
    assert_ne!(other.deployment().marked().unwrap().0, hash);
}
