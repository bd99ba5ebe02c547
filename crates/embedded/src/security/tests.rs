//! Whose a token is, and whose it is not.

use super::*;

fn security() -> Security {
    Security::new(Secrets::new("admin-token", b"key"))
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn later(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn account() -> Value {
    json!({"metadata": {"namespace": "team", "name": "bot", "uid": "u-1"}})
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let name: http::HeaderName = name.parse().unwrap();
        headers.append(name, value.parse().unwrap());
    }
    headers
}

#[test]
fn x1_the_admins_token_is_the_admins_and_nothing_near_it_is() {
    let security = security();
    let who = |text: &str| security.caller(&headers(&[("authorization", text)]), now());
    assert_eq!(who("Bearer admin-token").unwrap().caller, Caller::admin());
    assert_eq!(who("bearer admin-token").unwrap().caller, Caller::admin());
    for wrong in [
        "Bearer admin-toke",
        "Bearer admin-tokenn",
        "Bearer Admin-token",
        "Bearer",
        "admin-token",
        "",
    ] {
        assert_eq!(who(wrong).unwrap_err().code, 401, "{wrong}");
    }
}

#[test]
fn x1_secrets_are_not_shown() {
    let shown = format!("{:?}", security());
    assert!(!shown.contains("admin-token"), "{shown}");
}

#[test]
fn x2_a_service_accounts_token_names_it_until_it_ends_and_for_its_audience_only() {
    let security = security();
    let bound = Bound {
        kind: "pod",
        name: "p".to_owned(),
        uid: "u-2".to_owned(),
    };
    let issued = security
        .issue(&account(), Vec::new(), 600, &[bound], now(), "id".to_owned())
        .unwrap();
    let Proven { caller, audiences, .. } = security.token_caller(&issued.token, &[], later(599)).unwrap();
    assert_eq!(caller.name, "system:serviceaccount:team:bot");
    assert_eq!(caller.groups.first().unwrap(), "system:serviceaccounts");
    assert_eq!(caller.extra["authentication.kubernetes.io/pod-uid"], ["u-2"]);
    assert_eq!(audiences, [ISSUER]);
    assert!(
        security.token_caller(&issued.token, &[], later(600)).is_err(),
        "it has ended"
    );
    assert!(security.token_caller(&issued.token, &["other"], now()).is_err());
    let other = security
        .issue(&account(), vec!["other".to_owned()], 600, &[], now(), "id".to_owned())
        .unwrap();
    assert!(
        security.token_caller(&other.token, &[], now()).is_err(),
        "it is for somebody else"
    );
    assert!(security.token_caller(&other.token, &["other"], now()).is_ok());
}

#[test]
fn x2_a_token_that_was_changed_or_signed_by_another_is_none() {
    let security = security();
    let issued = security
        .issue(&account(), Vec::new(), 600, &[], now(), "id".to_owned())
        .unwrap();
    let stranger = Security::new(Secrets::new("t", b"another key"));
    let foreign = stranger
        .issue(&account(), Vec::new(), 600, &[], now(), "id".to_owned())
        .unwrap();
    assert!(security.token_caller(&foreign.token, &[], now()).is_err());
    let (head, rest) = issued.token.split_once('.').unwrap();
    let (body, signature) = rest.split_once('.').unwrap();
    let claims = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(body).unwrap()).unwrap();
    let changed = BASE64_URL_SAFE_NO_PAD.encode(claims.replace(":bot", ":boss"));
    let none = BASE64_URL_SAFE_NO_PAD.encode(br#"{"alg":"none"}"#);
    for wrong in [
        format!("{head}.{changed}.{signature}"),
        format!("{none}.{body}."),
        format!("{head}.{body}"),
        "a.b.c".to_owned(),
        "..".to_owned(),
        String::new(),
    ] {
        assert!(security.token_caller(&wrong, &[], now()).is_err(), "{wrong}");
    }
}

#[test]
fn a7_who_is_somebody_may_ask_as_somebody_else() {
    let security = security();
    let asked = headers(&[
        ("impersonate-user", "jane"),
        ("impersonate-group", "dev"),
        ("impersonate-extra-example.org%2fteam", "a"),
    ]);
    let jane = security.impersonated(&Caller::admin(), &asked).unwrap().unwrap();
    assert_eq!(
        (jane.name.as_str(), jane.groups.join(" ")),
        ("jane", "dev system:authenticated".to_owned())
    );
    assert_eq!(jane.extra["example.org/team"], ["a"]);
    assert_eq!(security.impersonated(&Caller::admin(), &headers(&[])).unwrap(), None);
    assert_eq!(security.impersonated(&Caller::anonymous(), &asked).unwrap(), None);
    let nobody = security.impersonated(&Caller::admin(), &headers(&[("impersonate-group", "dev")]));
    assert_eq!(nobody.unwrap_err().code, 400);
}

#[test]
fn x3_other_machines_ask_by_number_where_they_may_and_never_by_a_strangers_name() {
    let security = security();
    let uri: Uri = "/api".parse().unwrap();
    let check = |host: &str| security.check_origin(&headers(&[("host", host)]), &uri).is_ok();
    assert!(check("127.0.0.1:6443") && check("127.64.0.1") && !check("10.0.0.7:6443"));
    security.set_address(SocketAddr::from(([0, 0, 0, 0], 6443)));
    assert!(check("10.0.0.7:6443") && check("localhost") && !check("attacker.example"));
}
