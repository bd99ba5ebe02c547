//! Held to what servers of each version have said (`recorded/`), and to whatever else they might.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// One server's answers at one moment, in a cluster of four: two primaries with slots, one of them dead; one that has got
/// slots 0-10 and 20 and imports 200; a replica.
const RECORDED: [(&str, &str); 4] = [
    ("9.0.0", include_str!("recorded/9.0.0.txt")),
    ("9.1.0", include_str!("recorded/9.1.0.txt")),
    ("9.1.1", include_str!("recorded/9.1.1.txt")),
    ("9.1.2", include_str!("recorded/9.1.2.txt")),
];

fn part<'t>(recorded: &'t str, name: &str) -> &'t str {
    let (_, after) = recorded.split_once(&format!("== {name}\n")).expect(name);
    after.split("\n== ").next().unwrap()
}

fn reply(value: &Value) -> Reply {
    match value {
        Value::Array(parts) => Reply::List(parts.iter().map(reply).collect()),
        Value::Number(number) => Reply::Number(number.as_i64().unwrap()),
        Value::String(text) => Reply::of(text.as_str()),
        other => panic!("{other}"),
    }
}

fn answers(recorded: &str, who: &str) -> Vec<Reply> {
    let text = |what: &str| Reply::of(part(recorded, &format!("{who} {what}")).trim_end());
    let listed = |what: &str| reply(&serde_json::from_str(part(recorded, &format!("{who} {what}"))).unwrap());
    vec![
        text("id"),
        text("shard"),
        text("state"),
        text("nodes"),
        text("info"),
        listed("role"),
        Reply::Number(7),
        listed("jobs"),
    ]
}

fn recorded(text: &str, who: &str) -> Says {
    says(&answers(text, who)).unwrap()
}

#[test]
fn what_a_primary_of_each_version_says_is_read_whole() {
    for (version, text) in RECORDED {
        let [primary, replica, importer] = ["primary", "replica", "importer"].map(|who| recorded(text, who));
        assert_eq!(primary.version.to_string(), version);
        assert!(primary.state_ok, "{version}");
        assert_eq!((primary.view.len(), primary.keys), (4, 7), "{version}");
        assert_eq!(primary.current_epoch, Epoch(5), "{version}");
        assert_eq!(primary.own_slots().to_string(), "11-19,21-8000", "{version}");
        let migrating = OpenSlot::Migrating {
            slot: Slot(200),
            to: importer.id.clone(),
        };
        assert_eq!(primary.myself().unwrap().open, [migrating], "{version}");
        let RoleSaid::Primary { replicas, .. } = &primary.role else {
            panic!("{version}")
        };
        let address = primary.view[&replica.id].address.unwrap();
        assert_eq!(replicas.keys().collect::<Vec<_>>(), [&address], "{version}");
        assert_eq!(primary.shard, replica.shard, "{version}");
        assert_eq!(primary.view[&replica.id].primary, Some(primary.id.clone()), "{version}");
        let dead = primary
            .view
            .values()
            .find(|peer| peer.slots.contains(Slot(16_383)))
            .unwrap();
        assert!(
            !dead.connected && (dead.flags.suspected || dead.flags.failed),
            "{version}"
        );
    }
}

#[test]
fn what_a_replica_and_an_importer_of_each_version_say_is_read_whole() {
    for (version, text) in RECORDED {
        let [primary, replica, importer] = ["primary", "replica", "importer"].map(|who| recorded(text, who));
        assert!(
            matches!(replica.role, RoleSaid::Replica { link: Link::Up, offset } if offset > 0),
            "{version}"
        );
        assert!(replica.myself().unwrap().flags.replica, "{version}");
        let importing = OpenSlot::Importing {
            slot: Slot(200),
            from: primary.id.clone(),
        };
        assert_eq!(importer.myself().unwrap().open, [importing], "{version}");
        assert_eq!(importer.own_slots().to_string(), "0-10,20", "{version}");
    }
}

#[test]
fn a_job_is_told_by_both_ends_under_one_name() {
    for (version, text) in RECORDED {
        let (given, taken) = (recorded(text, "primary"), recorded(text, "importer"));
        let ([export], [import]) = (&given.jobs[..], &taken.jobs[..]) else {
            panic!("{version}")
        };
        assert_eq!(export.name, import.name, "{version}");
        assert_eq!((export.exports, import.exports), (true, false), "{version}");
        assert_eq!((&export.source, &export.target), (&given.id, &taken.id), "{version}");
        assert_eq!(
            (export.slots.to_string(), &export.state),
            ("0-10,20".into(), &JobState::Success),
            "{version}"
        );
        assert!(export.updated.is_some() && export.is_over(), "{version}");
        // 9.1 tells how much is left.
        assert_eq!(export.remaining.is_some(), version != "9.0.0", "{version}");
    }
}

#[test]
fn those_who_are_being_met_are_handshakes() {
    for (version, text) in RECORDED {
        let (myself, view) = nodes(part(text, "handshake nodes")).unwrap();
        let handshakes = view.iter().filter(|(_, peer)| peer.flags.handshake);
        assert_eq!(handshakes.count(), 3, "{version}");
        assert!(myself.is_some_and(|id| view[&id].epoch == Epoch(1)), "{version}");
    }
}

#[test]
fn a_server_before_nine_knows_no_jobs_and_one_since_nine_must_answer() {
    let (_, text) = RECORDED[0];
    let mut replies = answers(text, "primary");
    replies[7] = Reply::Refusal("ERR unknown subcommand 'GETSLOTMIGRATIONS'. Try CLUSTER HELP.".into());
    assert!(says(&replies).is_err());
    replies[4] = Reply::of("# Server\nredis_version:7.2.4\nvalkey_version:8.1.3\n");
    let says = says(&replies).unwrap();
    assert_eq!((says.version.to_string(), says.jobs.len()), ("8.1.3".into(), 0));
}

#[test]
fn a_server_that_is_reset_between_two_answers_says_nothing() {
    let (_, text) = RECORDED[3];
    let mut replies = answers(text, "primary");
    replies[0] = Reply::of("f".repeat(40));
    let error = says(&replies).unwrap_err().to_string();
    assert!(error.contains("does not call ffff"), "{error}");
}

#[test]
fn addresses_are_split_from_the_right() {
    let cases = [
        ("127.0.0.1:6379@16379", Some("127.0.0.1")),
        ("10.0.0.7:6379@16379,pod-0.svc", Some("10.0.0.7")),
        ("10.0.0.7:6379@16379,,tls-port=0,shard-id=abc", Some("10.0.0.7")),
        ("2001:db8::7:6379@16379", Some("2001:db8::7")),
        ("[2001:db8::7]:6379@16379", Some("2001:db8::7")),
        (":0@0", None),
        (":6379@16379", None),
        ("", None),
        ("host:6379@16379", None),
    ];
    for (word, ip) in cases {
        assert_eq!(address(word).map(|ip| ip.to_string()).as_deref(), ip, "{word}");
    }
}

#[test]
fn failed_is_not_suspected_and_flags_that_are_new_are_passed_over() {
    let of = |words| flags(words).0;
    assert!(of("master,fail").failed && !of("master,fail").suspected);
    assert!(of("slave,fail?").suspected && !of("slave,fail?").failed);
    assert!(of("noaddr,handshake").no_address && of("handshake").handshake);
    assert!(flags("myself,master,nofailover,tomorrow").1);
}

#[test]
fn what_cannot_be_read_is_a_sentence_that_shows_it() {
    let id = "a".repeat(40);
    for (line, why) in [
        ("short".to_owned(), "is no id"),
        (format!("{id} 1.1.1.1:1@2 master - 0 0 x connected"), "is no number"),
        (format!("{id} 1.1.1.1:1@2 master - 0 0"), "there is no epoch"),
        (format!("{id} 1.1.1.1:1@2 master - 0 0 1 connected 9-3"), "no range"),
        (format!("{id} 1.1.1.1:1@2 master - 0 0 1 connected 16384"), "no range"),
        (
            format!("{id} 1.1.1.1:1@2 master - 0 0 1 connected [1->-x]"),
            "no open slot",
        ),
    ] {
        let error = nodes(&line).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot read its CLUSTER NODES") && error.contains(why),
            "{error}"
        );
    }
}

/// Real answers, cut and changed at random: a value or a sentence, never a panic.
fn damaged() -> impl Strategy<Value = (usize, Vec<(usize, usize, char)>)> {
    (
        0..RECORDED.len(),
        prop::collection::vec((0..8usize, 0..4_000usize, any::<char>()), 0..6),
    )
}

fn any_reply() -> impl Strategy<Value = Reply> {
    let leaf = prop_oneof![
        Just(Reply::Nil),
        any::<i64>().prop_map(Reply::Number),
        "[a-z0-9 :\\-\\[\\]<>@,\n]{0,60}".prop_map(Reply::of),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Reply::Bytes),
        ".{0,20}".prop_map(Reply::Refusal),
    ];
    leaf.prop_recursive(3, 40, 20, |inner| {
        prop::collection::vec(inner, 0..20).prop_map(Reply::List)
    })
}

proptest! {
    #[test]
    fn damaged_answers_are_read_or_refused((version, damages) in damaged()) {
        let mut replies = answers(RECORDED[version].1, "primary");
        for (which, at, with) in damages {
            if let Reply::Bytes(bytes) = &mut replies[which] {
                let mut text = String::from_utf8_lossy(bytes).into_owned();
                if let Some((start, old)) = text.char_indices().nth(at % text.chars().count().max(1)) {
                    text.replace_range(start..start + old.len_utf8(), &with.to_string());
                }
                *bytes = text.into_bytes();
            }
        }
        if let Ok(says) = says(&replies) {
            prop_assert!(says.myself().is_some());
        }
    }

    #[test]
    fn whatever_is_answered_is_read_or_refused(replies in prop::collection::vec(any_reply(), 0..10)) {
        let _ = says(&replies);
        for reply in &replies {
            let _ = (jobs(reply), role(reply, &Info::default()));
            if let Some(text) = reply.text() {
                let _ = nodes(&text);
            }
        }
    }
}
