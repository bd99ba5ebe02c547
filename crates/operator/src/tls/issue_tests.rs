use proptest::prelude::*;

use super::super::decide::{Verdict, Why, decide};
use super::*;

fn names() -> Names {
    Names::new(
        ["usher.usher-system.svc".to_owned(), "usher.usher-system".to_owned()],
        ["127.0.0.1".parse().unwrap()],
    )
    .unwrap()
}

fn start() -> Timestamp {
    "2026-11-05T12:00:00.123456Z".parse().unwrap()
}

fn days(n: u64) -> std::time::Duration {
    std::time::Duration::from_secs(n * 86_400)
}

#[test]
fn what_is_made_is_kept_and_comes_back_from_a_secret_as_it_was() {
    let lifetimes = Lifetimes::default();
    let made = create(&names(), &lifetimes, start()).unwrap();
    let mut data = std::collections::BTreeMap::new();
    made.put_into(&mut data);
    assert_eq!(
        data.keys().collect::<Vec<_>>(),
        ["ca.crt", "ca.key", "tls.crt", "tls.key"]
    );
    let read = Material::from_data(&data).unwrap();
    assert_eq!(read, made);
    assert!(read.presented().is_some());
    assert!(matches!(
        decide(&read.facts(&names(), None), &lifetimes, start()),
        Verdict::Keep { .. }
    ));
    for part in ["ca.crt", "ca.key", "tls.crt", "tls.key"] {
        let mut damaged = data.clone();
        damaged.insert(part.to_owned(), k8s_openapi::ByteString(b"nonsense".to_vec()));
        let facts = Material::from_data(&damaged).unwrap().facts(&names(), None);
        let expected = if part.starts_with("ca") {
            Verdict::Create
        } else {
            Verdict::RotateServing(Why::Missing)
        };
        assert_eq!(decide(&facts, &lifetimes, start()), expected, "{part}");
        damaged.remove(part);
        assert_eq!(Material::from_data(&damaged), None, "{part}");
    }
}

#[test]
fn a_certificate_without_all_names_is_replaced() {
    let lifetimes = Lifetimes::default();
    let made = create(&names(), &lifetimes, start()).unwrap();
    let more = Names::new(["usher.usher-system.svc".to_owned(), "new.example".to_owned()], []).unwrap();
    let facts = made.facts(&more, None);
    assert_eq!(decide(&facts, &lifetimes, start()), Verdict::RotateServing(Why::Names));
    let span = facts.authority.unwrap();
    let next = rotate_serving(&made, span, &more, &lifetimes, start()).unwrap();
    assert!(matches!(
        decide(&next.facts(&more, None), &lifetimes, start()),
        Verdict::Keep { .. }
    ));
    assert_eq!(next.authorities, made.authorities);
}

#[test]
fn a_key_of_another_authority_signs_nothing() {
    let lifetimes = Lifetimes::default();
    let one = create(&names(), &lifetimes, start()).unwrap();
    let two = create(&names(), &lifetimes, start()).unwrap();
    let mixed = Material {
        authority_key: two.authority_key.clone(),
        ..one.clone()
    };
    assert_eq!(mixed.facts(&names(), None).authority, None);
    let span = one.facts(&names(), None).authority.unwrap();
    assert_eq!(
        rotate_serving(&mixed, span, &names(), &lifetimes, start()),
        Err(IssueError::Unsound)
    );
    let unsigned = Material {
        authorities: two.authorities.clone(),
        authority_key: two.authority_key.clone(),
        ..one
    };
    assert_eq!(unsigned.facts(&names(), None).serving.unwrap().signer, Signer::Nobody);
}

#[test]
fn the_bundle_keeps_an_authority_until_it_expires() {
    let lifetimes = Lifetimes::default();
    let first = create(&names(), &lifetimes, start()).unwrap();
    let at_500 = later(start(), days(500));
    let second = rotate_authority(&first, &lifetimes, at_500).unwrap();
    assert_eq!(second.authorities.len(), 2);
    assert_eq!(second.authorities[1], first.authorities[0]);
    assert_eq!(
        (&second.serving, &second.serving_key),
        (&first.serving, &first.serving_key)
    );
    assert!(matches!(
        second.facts(&names(), None).serving.unwrap().signer,
        Signer::Older(_)
    ));
    let span = second.facts(&names(), None).authority.unwrap();
    let third = rotate_serving(&second, span, &names(), &lifetimes, later(start(), days(729))).unwrap();
    assert_eq!(third.authorities.len(), 2);
    let fourth = rotate_serving(&third, span, &names(), &lifetimes, later(start(), days(731))).unwrap();
    assert_eq!(fourth.authorities, second.authorities[..1]);
}

#[test]
fn keys_show_themselves_to_nobody() {
    let made = create(&names(), &Lifetimes::default(), start()).unwrap();
    let shown = format!("{made:?} {:?}", made.presented());
    assert!(shown.contains("[private key]"));
    assert!(!shown.contains("PRIVATE KEY"));
    for key in [&made.serving_key, &made.authority_key] {
        let line = key.reveal().lines().nth(1).unwrap();
        assert!(!shown.contains(line));
    }
}

#[test]
fn a_date_no_certificate_can_bear_is_an_error_not_a_panic() {
    for now in ["1969-12-31T00:00:00Z", "9998-01-01T00:00:00Z"] {
        let error = create(&names(), &Lifetimes::default(), now.parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("clock"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn serving_certificates_never_outlive_their_authority(serving in 1u64..100, authority in 1u64..100, wait in 0u64..100) {
        prop_assume!(serving <= authority && wait < authority);
        let lifetimes = Lifetimes { serving: days(serving), authority: days(authority), ..Lifetimes::default() };
        let made = create(&names(), &lifetimes, start()).unwrap();
        let span = made.facts(&names(), None).authority.unwrap();
        let next = rotate_serving(&made, span, &names(), &lifetimes, later(start(), days(wait))).unwrap();
        let serving = next.facts(&names(), None).serving.unwrap();
        prop_assert!(serving.span.until <= span.until);
        prop_assert!(serving.span.covers(later(start(), days(wait))));
    }
}
