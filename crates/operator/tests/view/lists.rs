//! The few sequences worth reading one by one.

use std::time::Duration;

use kube::api::DynamicObject;
use usher_engine::{Moment, ObjectKey};
use usher_operator::view::{Event, SLICE, View};

use super::key;
use super::shadow::{Tally, view};
use super::world::{Content, Object, TYPES, Thing};

fn object(n: usize, uid: u64, revision: u64) -> Object {
    Object {
        of: 0,
        key: key(n),
        uid,
        revision,
        owner: None,
        content: Content {
            value: 1,
            groups: vec!["red"],
            readable: true,
        },
    }
}

fn unreadable(n: usize, uid: u64, revision: u64) -> Object {
    let mut object = object(n, uid, revision);
    object.content.readable = false;
    object
}

fn list(view: &mut View, objects: &[Object], revision: u64) {
    view.apply(TYPES[0], Event::ListStarted);
    for object in objects {
        view.apply(TYPES[0], Event::Listed(object.dynamic()));
    }
    view.apply(TYPES[0], Event::ListDone { revision });
}

/// A streaming list tells what its cache has, then what happened since: also that an object of it is gone.
#[test]
fn an_object_deleted_while_it_is_listed_does_not_come_back() {
    let mut view = view();
    list(&mut view, &[object(0, 1, 1)], 1);
    view.apply(TYPES[0], Event::ListStarted);
    view.apply(TYPES[0], Event::Listed(object(0, 1, 1).dynamic()));
    view.apply(TYPES[0], Event::Listed(object(1, 2, 2).dynamic()));
    view.apply(TYPES[0], Event::Deleted(object(0, 1, 3).dynamic()));
    assert!(
        !view.has_seen(TYPES[0], 2, u64::MAX),
        "what was listed is not shown yet"
    );
    view.apply(TYPES[0], Event::ListDone { revision: 3 });
    let left: Vec<_> = view.all::<Thing<0>>().map(|thing| thing.meta.key.clone()).collect();
    assert_eq!(left, [key(1)]);
}

#[test]
fn an_unreadable_object_is_reported_counts_as_seen_and_keeps_its_last_record() {
    let mut view = view();
    list(&mut view, &[object(0, 1, 1)], 1);
    let outcome = view.apply(TYPES[0], Event::Applied(unreadable(0, 1, 2).dynamic()));
    let sentence = outcome.unreadable.unwrap().to_string();
    assert_eq!(
        sentence,
        "Child ns-a/x cannot be read: spec.value is no number; correct the object or delete it"
    );
    assert!(outcome.wakes.is_empty());
    assert_eq!(outcome.touched, [key(0)], "whoever waits for its echo must hear of it");
    assert_eq!(view.get::<Thing<0>>(&key(0)).unwrap().meta.revision, 1);
    assert_eq!(
        view.identity(TYPES[0], &key(0)).unwrap().1,
        2,
        "what exists, not what could be read"
    );
    assert!(view.has_seen(TYPES[0], 2, u64::MAX));
}

/// A record of an incarnation that is gone must not stay because its successor cannot be read.
#[test]
fn an_unreadable_successor_does_not_keep_the_record_of_its_predecessor() {
    let mut view = view();
    list(&mut view, &[object(0, 1, 1)], 1);
    list(&mut view, &[unreadable(0, 2, 3)], 3);
    assert!(view.get::<Thing<0>>(&key(0)).is_none());
    assert!(view.absent_for_good::<Thing<0>>(&key(0), &"uid-1".into(), u64::MAX));
    assert!(
        !view.absent_for_good::<Thing<0>>(&key(0), &"uid-2".into(), 0),
        "it exists"
    );
}

#[test]
fn a_list_restored_from_a_backup_is_the_truth_whatever_its_revision() {
    let mut view = view();
    list(&mut view, &[object(0, 1, 7), object(1, 2, 9)], 9);
    list(&mut view, &[object(0, 1, 3)], 4);
    assert_eq!(view.get::<Thing<0>>(&key(0)).unwrap().meta.revision, 3);
    assert!(view.get::<Thing<0>>(&key(1)).is_none());
    assert!(!view.has_seen(TYPES[0], 5, u64::MAX));
}

/// A proxy, or a watch that goes on a little too early, may say something again.
#[test]
fn an_event_told_once_more_moves_nothing_back() {
    let mut view = view();
    list(&mut view, &[object(0, 1, 1), object(1, 2, 2)], 2);
    let told = [
        Event::Applied(object(0, 1, 3).dynamic()),
        Event::Applied(object(0, 1, 4).dynamic()),
        Event::Deleted(object(1, 2, 5).dynamic()),
        Event::Applied(object(1, 3, 6).dynamic()),
    ];
    for event in told.clone() {
        assert_eq!(view.apply(TYPES[0], event).touched.len(), 1);
    }
    for event in told {
        assert_eq!(view.apply(TYPES[0], event).touched, []);
        assert_eq!(view.get::<Thing<0>>(&key(0)).unwrap().meta.revision, 4);
        assert_eq!(view.get::<Thing<0>>(&key(1)).unwrap().meta.revision, 6);
    }
}

#[test]
fn a_type_nobody_watches_is_ignored() {
    let mut view = usher_operator::view::View::default();
    let outcome = view.apply(TYPES[0], Event::Applied(object(0, 1, 1).dynamic()));
    assert!(outcome.wakes.is_empty() && outcome.touched.is_empty());
    assert!(view.get::<Thing<0>>(&key(0)).is_none());
    assert!(
        !view.absent_for_good::<Thing<0>>(&key(0), &"uid-1".into(), 0),
        "nothing is known of it"
    );
}

/// For how long something has been seen is told by when this incarnation of it came, whatever happened to it since.
#[test]
fn a_record_is_dated_when_its_incarnation_is_first_seen() {
    let at = |seconds| Moment::after_start(Duration::from_secs(seconds));
    let mut view = view();
    view.tell_time(at(5));
    list(&mut view, &[object(0, 1, 1)], 1);
    view.tell_time(at(7));
    view.apply(TYPES[0], Event::Applied(object(0, 1, 2).dynamic()));
    list(&mut view, &[object(0, 1, 2), object(1, 2, 2)], 3);
    let since = |view: &View, n| view.entry::<Thing<0>>(&key(n)).unwrap().since();
    assert_eq!((since(&view, 0), since(&view, 1)), (at(5), at(7)));
    view.tell_time(at(9));
    view.tell_time(at(8));
    view.apply(TYPES[0], Event::Applied(object(0, 3, 4).dynamic()));
    assert_eq!(since(&view, 0), at(9), "another incarnation; and time does not go back");
}

#[test]
fn a_long_first_list_is_fed_at_once_and_told_slice_by_slice_each_object_once() {
    let mut view = view();
    let many = SLICE * 2 + SLICE / 2;
    view.apply(TYPES[0], Event::ListStarted);
    for n in 0..many {
        view.apply(TYPES[0], Event::Listed(listed(n)));
    }
    let mut told: Vec<ObjectKey> = Vec::new();
    let outcome = view.apply(TYPES[0], Event::ListDone { revision: 9_999 });
    assert_eq!((outcome.wakes.len(), outcome.touched.len()), (SLICE, many));
    assert!(
        view.derived::<Tally>() == Some(&Tally::recount(&view)),
        "everything derived is complete before anybody is woken"
    );
    told.extend(outcome.wakes.into_iter().map(|wake| wake.key));
    // What goes before its turn is told as gone; what comes is told as new, and once more with its slice.
    let gone = view.apply(TYPES[0], Event::Deleted(at_revision(many - 1, 10_000)));
    assert_eq!(gone.wakes.len(), 1);
    while let Some(wakes) = view.next_slice() {
        assert!(!wakes.is_empty() && wakes.len() <= SLICE, "{}", wakes.len());
        told.extend(wakes.into_iter().map(|wake| wake.key));
    }
    let all: Vec<_> = view.all::<Thing<0>>().map(|thing| thing.meta.key.clone()).collect();
    assert_eq!(told, all, "in the order of keys");
    // A list that mends a broken watch tells what is different, and no more.
    view.apply(TYPES[0], Event::ListStarted);
    for n in 1..many {
        view.apply(TYPES[0], Event::Listed(listed(n)));
    }
    let again = view.apply(TYPES[0], Event::ListDone { revision: 10_001 });
    assert_eq!(
        (again.wakes.len(), view.next_slice()),
        (2, None),
        "one is gone, one is back"
    );
}

fn listed(n: usize) -> Box<DynamicObject> {
    at_revision(n, 1)
}

fn at_revision(n: usize, revision: u64) -> Box<DynamicObject> {
    let key = ObjectKey::new("ns-a", format!("thing-{n:05}")).unwrap();
    let uid = u64::try_from(n).unwrap();
    Object {
        key,
        ..object(0, uid, revision)
    }
    .dynamic()
}
