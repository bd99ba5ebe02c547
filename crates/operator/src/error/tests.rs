//! What each answer of a client means.

use kube::core::response::Status;
use serde_json::{Value, json};

use super::*;
use crate::client::NotLeading;

fn api(status: Value) -> kube::Error {
    let status: Status = serde_json::from_value(status).unwrap();
    kube::Error::Api(status.boxed())
}

fn sorted(error: kube::Error) -> Failure {
    Failure::from_client("update", "ConfigMap ns/x".into(), error)
}

#[test]
fn every_answer_has_its_meaning() {
    use ErrorClass::{Permanent, Transient, Validation};
    let terminating =
        json!({"causes": [{"reason": "NamespaceTerminating", "message": "m", "field": "metadata.namespace"}]});
    for (code, reason, details, label, class) in [
        (400, "BadRequest", json!({}), "invalid", Validation),
        (401, "Unauthorized", json!({}), "forbidden", Transient),
        (403, "Forbidden", json!({}), "forbidden", Transient),
        (403, "Forbidden", terminating, "namespace_ending", Permanent),
        (
            404,
            "NotFound",
            json!({"name": "x", "kind": "configmaps"}),
            "gone",
            Transient,
        ),
        (404, "NotFound", json!({}), "unknown", Transient),
        (405, "MethodNotAllowed", json!({}), "invalid", Validation),
        (408, "Timeout", json!({}), "unknown", Transient),
        (409, "AlreadyExists", json!({}), "exists", Transient),
        (409, "Conflict", json!({}), "conflict", Transient),
        (410, "Expired", json!({}), "unknown", Transient),
        (413, "RequestEntityTooLarge", json!({}), "invalid", Validation),
        (415, "UnsupportedMediaType", json!({}), "invalid", Validation),
        (422, "Invalid", json!({}), "invalid", Validation),
        (429, "TooManyRequests", json!({}), "too_many", Transient),
        (500, "InternalError", json!({}), "unknown", Transient),
        (502, "", json!({}), "unknown", Transient),
        (503, "ServiceUnavailable", json!({}), "unknown", Transient),
        (504, "Timeout", json!({}), "unknown", Transient),
    ] {
        let failure = sorted(api(json!({"status": "Failure", "code": code, "reason": reason,
                                        "message": "the server's words", "details": details})));
        assert_eq!((failure.label(), failure.class()), (label, class), "{code} {reason}");
        let sentence = failure.to_string();
        assert!(sentence.contains("ConfigMap ns/x"), "{code}: {sentence}");
        let words_matter = matches!(label, "forbidden" | "invalid" | "unknown");
        assert_eq!(
            sentence.contains("the server's words"),
            words_matter,
            "{code}: {sentence}"
        );
        if label == "unknown" {
            assert!(sentence.contains(&code.to_string()), "{sentence}");
        }
    }
}

/// Quota admission counts under a lock that is a version: two creations at once, and one is told to try again.
#[test]
fn a_conflict_on_what_does_not_exist_yet_is_tried_again() {
    let error = api(json!({"status": "Failure", "code": 409, "reason": "Conflict",
                           "message": "Operation cannot be fulfilled on resourcequotas \"q\""}));
    let failure = Failure::from_client("create", "ConfigMap ns/x".into(), error);
    assert!(matches!(failure, Failure::Unknown { .. }), "{failure}");
}

#[test]
fn a_wait_that_the_server_asks_for_is_kept_within_reason() {
    for (asked, seconds) in [
        (json!({}), 1),
        (json!({"retryAfterSeconds": 7}), 7),
        (json!({"retryAfterSeconds": 100_000}), 120),
    ] {
        let failure = sorted(api(json!({"status": "Failure", "code": 429, "details": asked})));
        let Failure::TooMany { wait, .. } = failure else {
            panic!("{failure}")
        };
        assert_eq!(wait, Duration::from_secs(seconds));
    }
    let silent = sorted(api(json!({"status": "Failure", "code": 429})));
    assert!(matches!(silent, Failure::TooMany { wait, .. } if wait == Duration::from_secs(1)));
}

#[test]
fn only_the_fence_says_that_nothing_was_sent() {
    let refused = sorted(kube::Error::Service(NotLeading.into()));
    assert!(matches!(refused, Failure::NotLeader { .. }), "{refused}");
    let broken = sorted(kube::Error::Service("connection reset".into()));
    assert!(matches!(broken, Failure::Unknown { .. }), "{broken}");
    let sentence = broken.to_string();
    assert!(sentence.contains("may or may not have taken effect"), "{sentence}");
    let garbled = sorted(kube::Error::SerdeError(serde_json::from_str::<Value>("{").unwrap_err()));
    assert!(
        matches!(garbled, Failure::Unknown { .. }),
        "an answer that cannot be read proves nothing"
    );
}

#[test]
fn what_a_kind_finds_keeps_its_class_and_words() {
    let failure = Failure::Kind {
        class: ErrorClass::Permanent,
        message: "the disk of ns/x is full; make room".into(),
    };
    assert_eq!((failure.class(), failure.label()), (ErrorClass::Permanent, "kind"));
    assert_eq!(failure.to_string(), "the disk of ns/x is full; make room");
}
