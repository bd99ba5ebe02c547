//! The few sequences worth reading one by one.

use usher_operator::view::Event;
use usher_operator::written::Expect;

use super::world::{Content, Object, TYPES};
use super::{Lab, key, reader};

fn object(uid: u64, revision: u64) -> Object {
    Object {
        of: 0,
        key: key(0),
        uid,
        revision,
        owner: None,
        content: Content {
            value: revision,
            groups: Vec::new(),
            readable: true,
        },
    }
}

impl Lab {
    fn list(&mut self, objects: &[Object], revision: u64) {
        self.view.apply(TYPES[0], Event::ListStarted);
        for object in objects {
            self.view.apply(TYPES[0], Event::Listed(object.dynamic()));
        }
        self.view.apply(TYPES[0], Event::ListDone { revision });
    }

    fn note(&mut self, expect: Expect) {
        self.written.note(&reader(0), TYPES[0], &key(0), expect, &self.view);
    }

    fn waits(&mut self) -> bool {
        self.written.unseen(&reader(0), &self.view).is_some()
    }
}

#[test]
fn a_write_is_waited_for_until_its_echo_and_by_its_writer_only() {
    let mut lab = Lab::new();
    lab.list(&[object(1, 5)], 5);
    lab.note(Expect::Revision(8));
    assert_eq!(lab.written.unseen(&reader(0), &lab.view), Some((TYPES[0], key(0))));
    assert_eq!(lab.written.unseen(&reader(1), &lab.view), None);
    assert!(lab.written.waiting_for(TYPES[0], &key(0)).eq([&reader(0)]));
    assert_eq!(lab.written.waiting_for(TYPES[1], &key(0)).count(), 0);
    lab.view.apply(TYPES[0], Event::Applied(object(1, 7).dynamic()));
    assert!(lab.waits(), "somebody else's change before ours");
    lab.view.apply(TYPES[0], Event::Applied(object(1, 8).dynamic()));
    assert!(!lab.waits());
    assert_eq!(lab.written.outstanding(), 0);
}

#[test]
fn a_list_that_began_before_the_answer_proves_nothing_by_having_begun() {
    let mut lab = Lab::new();
    lab.list(&[object(1, 5)], 5);
    lab.view.apply(TYPES[0], Event::ListStarted);
    lab.note(Expect::Revision(8));
    lab.view.apply(TYPES[0], Event::Listed(object(1, 5).dynamic()));
    lab.view.apply(TYPES[0], Event::ListDone { revision: 7 });
    assert!(lab.waits());
    lab.view.apply(TYPES[0], Event::Bookmark { revision: 9 });
    assert!(!lab.waits());
}

#[test]
fn a_conflict_is_waited_out_until_the_newer_version_shows() {
    let mut lab = Lab::new();
    lab.list(&[object(1, 5)], 5);
    lab.note(Expect::Newer(5));
    lab.view.apply(TYPES[0], Event::Bookmark { revision: 6 });
    assert!(lab.waits(), "the object itself has not moved");
    lab.view.apply(TYPES[0], Event::Applied(object(1, 7).dynamic()));
    assert!(!lab.waits());
}

#[test]
fn a_newer_version_that_cannot_be_read_ends_the_wait_too() {
    let mut lab = Lab::new();
    lab.list(&[object(1, 5)], 5);
    lab.note(Expect::Newer(5));
    let mut nonsense = object(1, 7);
    nonsense.content.readable = false;
    lab.view.apply(TYPES[0], Event::Applied(nonsense.dynamic()));
    assert!(!lab.waits());
}

/// Created while the view still showed the object's predecessor; then changed, as that predecessor.
#[test]
fn a_refused_write_does_not_stand_for_the_one_before_it() {
    let mut lab = Lab::new();
    lab.list(&[object(1, 5)], 5);
    lab.note(Expect::Revision(8));
    lab.note(Expect::Newer(5));
    assert_eq!(lab.written.outstanding(), 2);
    lab.view.apply(TYPES[0], Event::Deleted(object(1, 7).dynamic()));
    assert!(lab.waits(), "the predecessor is gone, ours has not come");
    lab.view.apply(TYPES[0], Event::Applied(object(2, 8).dynamic()));
    assert!(!lab.waits());
}

#[test]
fn a_deletion_is_waited_for_until_that_incarnation_is_gone() {
    let mut lab = Lab::new();
    lab.list(&[object(1, 5)], 5);
    lab.note(Expect::Gone("uid-1".into()));
    lab.view.apply(TYPES[0], Event::Applied(object(1, 6).dynamic()));
    assert!(lab.waits());
    lab.view.apply(TYPES[0], Event::Applied(object(2, 9).dynamic()));
    assert!(!lab.waits(), "a successor of the same name is another object");
}

/// etcd comes back without our last write, our deletion, and the change that made ours fail.
#[test]
fn a_restored_server_sets_everybody_free() {
    for expect in [Expect::Revision(8), Expect::Newer(5), Expect::Gone("uid-1".into())] {
        let mut lab = Lab::new();
        lab.list(&[object(1, 5)], 5);
        lab.note(expect.clone());
        assert!(lab.waits());
        lab.list(&[object(1, 5)], 5);
        assert!(!lab.waits(), "{expect:?}");
    }
}
