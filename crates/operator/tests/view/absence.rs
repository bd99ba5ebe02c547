//! When absence is proof: `absent_for_good` against the true history, with streams that overtake one another.

use std::cell::RefCell;

use proptest::prelude::*;

use super::shadow::view;
use super::world::{TYPES, Thing, World};
use super::{Op, Telling, config, ops};

/// For every child in view that names an owner: what the view says of that owner.
fn judge(view: &usher_operator::view::View, world: &World, settled: bool) -> Result<(), TestCaseError> {
    for child in view.all::<Thing<0>>() {
        let Some(owner) = child.meta.owners.first() else {
            continue;
        };
        let parent = child.meta.key.sibling(&owner.name).unwrap();
        let since = view.entry::<Thing<0>>(&child.meta.key).unwrap().first_seen;
        let gone = view.absent_for_good::<Thing<1>>(&parent, &owner.uid, since);
        let lives = world.lives(owner.uid.to_string().trim_start_matches("uid-").parse().unwrap());
        prop_assert!(
            !(gone && lives),
            "{} of {} lives, and is said to be gone",
            parent,
            child.meta.key
        );
        if settled {
            prop_assert_eq!(gone, !lives, "after a fresh list the view knows: {}", parent);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(2_000))]

    /// Never said of an object that lives: not while its watch lags behind that of its children, not while lists break
    /// and begin again, not when it cannot be read. And said in the end, when it is so.
    #[test]
    fn what_is_absent_for_good_is_gone_in_truth(ops in ops(false)) {
        let view = RefCell::new(view());
        let mut telling = Telling::new(|world, _, of, told| {
            view.borrow_mut().apply(TYPES[of], told.event());
            judge(&view.borrow(), world, false)
        });
        telling.run(&ops)?;
        telling.happen(&Op::Relist(1))?;
        telling.settle()?;
        judge(&view.borrow(), &telling.world, true)?;
    }
}
