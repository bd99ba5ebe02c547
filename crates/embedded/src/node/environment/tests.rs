use super::*;
use crate::node::images::User;
use serde_json::{Value, json};

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "web-0", "namespace": "shop", "uid": "u-1", "labels": {"app": "web"}},
        "spec": spec,
    }))
    .unwrap()
}

fn container(value: Value) -> Container {
    let mut whole = json!({"name": "c"});
    whole
        .as_object_mut()
        .unwrap()
        .extend(value.as_object().unwrap().clone());
    serde_json::from_value(whole).unwrap()
}

fn objects() -> Gathered {
    let config: ConfigMap =
        serde_json::from_value(json!({"data": {"COLOR": "red", "SIZE": "$(COLOR)"}, "binaryData": {"B": "AAE="}}))
            .unwrap();
    let secret: Secret = serde_json::from_value(json!({"data": {"PASSWORD": "cHc="}})).unwrap();
    let services = serde_json::from_value(json!([
        {"metadata": {"name": "kubernetes", "namespace": "default"},
         "spec": {"clusterIP": "127.70.224.1", "ports": [{"name": "https", "port": 6443}]}},
        {"metadata": {"name": "shop-db", "namespace": "shop"},
         "spec": {"clusterIP": "127.70.224.9", "ports": [
            {"name": "sql-main", "port": 5432, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}},
        {"metadata": {"name": "headless", "namespace": "shop"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]}},
        {"metadata": {"name": "other", "namespace": "default"}, "spec": {"clusterIP": "127.70.224.7", "ports": [{"port": 1}]}},
    ]))
    .unwrap();
    Gathered {
        config_maps: [("conf".to_owned(), config)].into(),
        secrets: [("key".to_owned(), secret)].into(),
        services,
    }
}

fn facts() -> Facts {
    Facts {
        node_name: "n1".to_owned(),
        host_ips: vec!["127.70.0.16".to_owned()],
        pod_ips: vec!["127.70.1.5".to_owned()],
        ..Facts::default()
    }
}

fn env(value: Value) -> Result<BTreeMap<String, String>, ConfigError> {
    let pod = pod(json!({"containers": [], "enableServiceLinks": false}));
    let mut services_only_api = objects();
    services_only_api.services.truncate(0);
    variables(&pod, &container(value), &facts(), &services_only_api)
}

fn map<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

#[test]
fn n6_env_goes_over_env_from_and_sees_what_stands_before_it() {
    let found = env(json!({
        "envFrom": [
            {"configMapRef": {"name": "conf"}},
            {"prefix": "S_", "secretRef": {"name": "key"}},
            {"configMapRef": {"name": "none", "optional": true}},
            {"secretRef": {"name": "none", "optional": true}},
        ],
        "env": [
            {"name": "A", "value": "$(COLOR)-$(LATER)-$$(COLOR)"},
            {"name": "COLOR", "value": "blue"},
            {"name": "B", "value": "$(COLOR)"},
            {"name": "LATER", "value": "l"},
            {"name": "EMPTY"},
            {"name": "FROM", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "SIZE"}}},
            {"name": "PW", "valueFrom": {"secretKeyRef": {"name": "key", "key": "PASSWORD"}}},
            {"name": "NOT", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "x", "optional": true}}},
            {"name": "NOR", "valueFrom": {"secretKeyRef": {"name": "key", "key": "x", "optional": true}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}}},
        ],
        "resources": {"requests": {"cpu": "100m"}},
    }));
    let expected = map([
        ("A", "red-$(LATER)-$(COLOR)"),
        ("COLOR", "blue"),
        ("SIZE", "$(COLOR)"),
        ("S_PASSWORD", "pw"),
        ("B", "blue"),
        ("LATER", "l"),
        ("EMPTY", ""),
        ("FROM", "$(COLOR)"),
        ("PW", "pw"),
        ("IP", "127.70.1.5"),
        ("APP", "web"),
        ("CPU", "100"),
    ]);
    assert_eq!(found.unwrap(), expected);
}

#[test]
fn n6_what_is_not_there_is_said_as_the_kubelet_says_it() {
    let from = |source: Value| json!({"env": [{"name": "X", "valueFrom": source}]});
    let rows = [
        (
            json!({"envFrom": [{"configMapRef": {"name": "x"}}]}),
            "configmap \"x\" not found",
        ),
        (
            json!({"envFrom": [{"secretRef": {"name": "x"}}]}),
            "secret \"x\" not found",
        ),
        (
            from(json!({"configMapKeyRef": {"name": "x", "key": "K"}})),
            "configmap \"x\" not found",
        ),
        (
            from(json!({"secretKeyRef": {"name": "x", "key": "K"}})),
            "secret \"x\" not found",
        ),
        (
            from(json!({"configMapKeyRef": {"name": "conf", "key": "K"}})),
            "couldn't find key K in ConfigMap shop/conf",
        ),
        (
            from(json!({"configMapKeyRef": {"name": "conf", "key": "B"}})),
            "couldn't find key B in ConfigMap shop/conf",
        ),
        (
            from(json!({"secretKeyRef": {"name": "key", "key": "K"}})),
            "couldn't find key K in Secret shop/key",
        ),
        (
            from(json!({"fieldRef": {"fieldPath": "spec.x"}})),
            "unsupported fieldPath: spec.x",
        ),
    ];
    for (value, expected) in rows {
        assert_eq!(env(value).unwrap_err().to_string(), expected);
    }
}

#[test]
fn n6_service_links_tell_of_the_namespace_and_the_api_is_always_told_of() {
    let found = |links: Option<bool>| {
        let mut pod = pod(json!({"containers": []}));
        pod.spec.as_mut().unwrap().enable_service_links = links;
        let own = container(json!({"env": [{"name": "AT", "value": "$(KUBERNETES_SERVICE_HOST)"}]}));
        variables(&pod, &own, &facts(), &objects()).unwrap()
    };
    let api = map([
        ("AT", "127.70.224.1"),
        ("KUBERNETES_SERVICE_HOST", "127.70.224.1"),
        ("KUBERNETES_SERVICE_PORT", "6443"),
        ("KUBERNETES_SERVICE_PORT_HTTPS", "6443"),
        ("KUBERNETES_PORT", "tcp://127.70.224.1:6443"),
        ("KUBERNETES_PORT_6443_TCP", "tcp://127.70.224.1:6443"),
        ("KUBERNETES_PORT_6443_TCP_PROTO", "tcp"),
        ("KUBERNETES_PORT_6443_TCP_PORT", "6443"),
        ("KUBERNETES_PORT_6443_TCP_ADDR", "127.70.224.1"),
    ]);
    assert_eq!(found(Some(false)), api);
    let mut all = api;
    all.extend(map([
        ("SHOP_DB_SERVICE_HOST", "127.70.224.9"),
        ("SHOP_DB_SERVICE_PORT", "5432"),
        ("SHOP_DB_SERVICE_PORT_SQL_MAIN", "5432"),
        ("SHOP_DB_PORT", "tcp://127.70.224.9:5432"),
        ("SHOP_DB_PORT_5432_TCP", "tcp://127.70.224.9:5432"),
        ("SHOP_DB_PORT_5432_TCP_PROTO", "tcp"),
        ("SHOP_DB_PORT_5432_TCP_PORT", "5432"),
        ("SHOP_DB_PORT_5432_TCP_ADDR", "127.70.224.9"),
        ("SHOP_DB_PORT_53_UDP", "udp://127.70.224.9:53"),
        ("SHOP_DB_PORT_53_UDP_PROTO", "udp"),
        ("SHOP_DB_PORT_53_UDP_PORT", "53"),
        ("SHOP_DB_PORT_53_UDP_ADDR", "127.70.224.9"),
    ]));
    assert_eq!(found(None), all);
    let mut hidden = objects();
    let service = json!({"metadata": {"name": "kubernetes", "namespace": "shop"},
        "spec": {"clusterIP": "127.70.224.8", "ports": [{"port": 1}]}});
    hidden.services.insert(0, serde_json::from_value(service).unwrap());
    let pod = pod(json!({"containers": []}));
    let found = variables(&pod, &container(json!({})), &facts(), &hidden).unwrap();
    assert_eq!(found["KUBERNETES_SERVICE_HOST"], "127.70.224.8");
    assert!(
        !found.contains_key("KUBERNETES_PORT_6443_TCP"),
        "the other one is hidden whole"
    );
}

#[test]
fn n6_command_and_args_go_over_entrypoint_and_cmd_as_in_the_reference() {
    let image = Image {
        entrypoint: vec!["entry".to_owned()],
        cmd: vec!["$(COLOR)".to_owned()],
        ..Image::default()
    };
    let rows = [
        (json!({}), vec!["entry", "$(COLOR)"]),
        (json!({"args": ["$(COLOR)", "$(NOT)"]}), vec!["entry", "blue", "$(NOT)"]),
        (
            json!({"command": ["sh", "-c", "$$(COLOR)"]}),
            vec!["sh", "-c", "$(COLOR)"],
        ),
        (json!({"command": ["sh"], "args": ["x"]}), vec!["sh", "x"]),
        (json!({"command": [], "args": []}), vec!["entry", "$(COLOR)"]),
    ];
    for (value, expected) in rows {
        let mut container = container(value.clone());
        container.env = serde_json::from_value(json!([{"name": "COLOR", "value": "blue"}])).unwrap();
        let found = process(
            &pod(json!({"containers": []})),
            &container,
            &image,
            &facts(),
            &objects(),
        )
        .unwrap();
        assert_eq!(found.argv, expected, "{value}");
    }
    let nothing = process(
        &pod(json!({"containers": []})),
        &container(json!({})),
        &Image::default(),
        &facts(),
        &objects(),
    );
    assert!(
        nothing
            .unwrap_err()
            .to_string()
            .starts_with("container c has nothing to run: give")
    );
}

#[test]
fn n6_the_images_variables_come_under_the_pods_and_its_programs_first_on_the_path() {
    let image = Image {
        bin: Some("/opt/v/bin".into()),
        entrypoint: vec!["server".to_owned()],
        env: map([("LANG", "C"), ("MODE", "image"), ("HOME", "/h")]),
        workdir: Some("/data".to_owned()),
        ..Image::default()
    };
    let own = container(json!({"env": [{"name": "MODE", "value": "pod"}]}));
    let pod_of = pod(json!({"containers": [], "hostname": "me", "enableServiceLinks": false}));
    let found = process(&pod_of, &own, &image, &facts(), &Gathered::default()).unwrap();
    let expected = map([
        ("LANG", "C"),
        ("MODE", "pod"),
        ("HOSTNAME", "me"),
        ("HOME", "/h"),
        (
            "PATH",
            "/opt/v/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        ),
    ]);
    assert_eq!(found.env, expected);
    assert_eq!(found.workdir, "/data");
    let elsewhere = container(json!({"workingDir": "/w"}));
    assert_eq!(
        process(&pod_of, &elsewhere, &image, &facts(), &objects())
            .unwrap()
            .workdir,
        "/w"
    );
}

#[test]
fn a_pods_name_for_itself_is_cut_as_the_reference_cuts_it() {
    let mut long = pod(json!({"containers": []}));
    assert_eq!(hostname(&long, &facts()), "web-0");
    long.metadata.name = Some(format!("{}-tail", "a".repeat(62)));
    assert_eq!(hostname(&long, &facts()), "a".repeat(62));
    assert_eq!(
        hostname(&pod(json!({"containers": [], "hostNetwork": true})), &facts()),
        "n1"
    );
}

fn who(pod_context: Value, own: Value, image: &Image) -> Result<Identity, String> {
    let pod = pod(json!({"containers": [], "securityContext": pod_context}));
    identity(&pod, &container(json!({"securityContext": own})), image).map_err(|why| why.to_string())
}

fn image_of(user: Option<User>) -> Image {
    Image {
        user,
        ..Image::default()
    }
}

#[test]
fn n4_the_containers_ids_go_over_the_pods_over_the_images() {
    let image = image_of(Some(User::Id {
        uid: 999,
        gid: Some(998),
    }));
    let ids = |found: Identity| (found.uid, found.gid);
    assert_eq!(ids(who(json!({}), json!({}), &image).unwrap()), (Some(999), Some(998)));
    let found = who(json!({"runAsUser": 1111111, "runAsGroup": 7}), json!({}), &image);
    assert_eq!(ids(found.unwrap()), (Some(1_111_111), Some(7)));
    let found = who(
        json!({"runAsUser": 1111111, "runAsGroup": 7}),
        json!({"runAsUser": 2222222}),
        &image,
    );
    assert_eq!(ids(found.unwrap()), (Some(2_222_222), Some(7)));
    assert_eq!(ids(who(json!({}), json!({}), &image_of(None)).unwrap()), (None, None));
    let groups = who(json!({"supplementalGroups": [9, 5], "fsGroup": 5}), json!({}), &image).unwrap();
    assert_eq!(groups.groups, [5, 9]);
    let odd = who(json!({"runAsUser": -1}), json!({}), &image).unwrap_err();
    assert_eq!(odd, "runAsUser -1 is no id: use 0 to 2147483647");
}

#[test]
fn n4_run_as_non_root_is_checked_as_the_kubelet_checks_it() {
    let strict = json!({"runAsNonRoot": true});
    let place = "(pod: \"web-0_shop(u-1)\", container: c)";
    let named = User::Name {
        user: "app".to_owned(),
        group: None,
    };
    let refused = |pod_context: &Value, own: Value, user| who(pod_context.clone(), own, &image_of(user)).unwrap_err();
    let root = format!("container has runAsNonRoot and image will run as root {place}");
    assert_eq!(refused(&strict, json!({}), None), root);
    assert_eq!(refused(&strict, json!({}), Some(User::Id { uid: 0, gid: None })), root);
    assert_eq!(
        refused(&strict, json!({"runAsUser": 0}), None),
        format!("container's runAsUser breaks non-root policy {place}")
    );
    assert_eq!(
        refused(&strict, json!({}), Some(named)),
        format!(
            "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root {place}"
        )
    );
    assert!(who(strict.clone(), json!({"runAsNonRoot": false}), &image_of(None)).is_ok());
    assert!(who(strict, json!({"runAsUser": 5}), &image_of(None)).is_ok());
}

#[test]
fn n4_an_images_user_by_name_is_found_in_its_own_root() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("etc")).unwrap();
    std::fs::write(
        root.path().join("etc/passwd"),
        "root:x:0:0::/:/bin/sh\napp:x:71:72::/home/app:/bin/sh\n",
    )
    .unwrap();
    std::fs::write(
        root.path().join("etc/group"),
        "app:x:72:\nlog:x:90:root,app\nstaff:x:80:\n",
    )
    .unwrap();
    let image = |user: &str, group: Option<&str>| Image {
        root: Some(root.path().to_owned()),
        user: Some(User::Name {
            user: user.to_owned(),
            group: group.map(str::to_owned),
        }),
        ..Image::default()
    };
    let found = who(json!({}), json!({}), &image("app", None)).unwrap();
    assert_eq!((found.uid, found.gid, found.groups), (Some(71), Some(72), vec![90]));
    let found = who(
        json!({"supplementalGroupsPolicy": "Strict"}),
        json!({}),
        &image("app", Some("staff")),
    )
    .unwrap();
    assert_eq!((found.gid, found.groups), (Some(80), vec![]));
    let told = who(json!({}), json!({}), &image("none", None)).unwrap_err();
    assert!(
        told.contains("image user \"none\" of container c is not in") && told.contains("runAsUser"),
        "{told}"
    );
}

#[test]
fn n6_a_variable_can_come_from_a_file_that_an_init_container_wrote() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("out")).unwrap();
    std::fs::write(folder.path().join("out/app.env"), "A='1'\nB='two words'\n").unwrap();
    std::fs::write(folder.path().join("outside"), "A='secret'\n").unwrap();
    std::os::unix::fs::symlink("../outside", folder.path().join("out/link")).unwrap();
    let facts = Facts {
        volumes: folder.path().to_owned(),
        ..facts()
    };
    let pod = pod(json!({"containers": [], "enableServiceLinks": false, "volumes": [{"name": "out", "emptyDir": {}}]}));
    let from = |volume: &str, path: &str, key: &str, optional: bool| {
        let own = container(json!({"env": [{"name": "X", "valueFrom": {"fileKeyRef":
            {"volumeName": volume, "path": path, "key": key, "optional": optional}}}]}));
        variables(&pod, &own, &facts, &Gathered::default()).map_err(|why| why.to_string())
    };
    assert_eq!(from("out", "app.env", "B", false).unwrap()["X"], "two words");
    assert_eq!(from("out", "app.env", "Z", true).unwrap(), map([]));
    assert_eq!(
        from("out", "app.env", "Z", false).unwrap_err(),
        format!(
            "environment variable key \"Z\" not found in file {:?}",
            folder.path().join("out/app.env")
        )
    );
    assert_eq!(from("out", "none", "A", true).unwrap_err(), "couldn't parse env file");
    assert_eq!(from("out", "link", "A", false).unwrap_err(), "couldn't parse env file");
    assert_eq!(
        from("other", "app.env", "A", false).unwrap_err(),
        "cannot find the volume \"other\" referenced by FileKeyRef"
    );
}

#[test]
fn a_pods_references_are_all_it_names() {
    let pod = pod(json!({
        "initContainers": [{"name": "i", "envFrom": [{"configMapRef": {"name": "c1"}}]}],
        "containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "s1"}}], "env": [
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c2", "key": "k"}}},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s2", "key": "k"}}},
        ]}],
        "volumes": [
            {"name": "a", "configMap": {"name": "c3"}},
            {"name": "b", "secret": {"secretName": "s3"}},
            {"name": "c", "projected": {"sources": [{"configMap": {"name": "c4"}}, {"secret": {"name": "s4"}}]}},
            {"name": "d", "persistentVolumeClaim": {"claimName": "p1"}},
            {"name": "e", "ephemeral": {}},
        ],
    }));
    let found = references(&pod);
    assert_eq!(Vec::from_iter(found.config_maps), ["c1", "c2", "c3", "c4"]);
    assert_eq!(Vec::from_iter(found.secrets), ["s1", "s2", "s3", "s4"]);
    assert_eq!(Vec::from_iter(found.claims), ["p1", "web-0-e"]);
}
