//! Times as Kubernetes keeps them: whole seconds.

use std::fmt;
use std::num::NonZeroU64;

use jiff::Timestamp;

/// A point in time, to the second. A view keeps several per object: this takes eight bytes, also where there may be none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Second(NonZeroU64);

/// Puts the seconds in order as unsigned numbers. None of a `Timestamp`'s comes out as zero.
const SHIFT: u64 = 1 << 63;

impl From<Timestamp> for Second {
    fn from(time: Timestamp) -> Self {
        let shifted = time.as_second().cast_unsigned() ^ SHIFT;
        Self(NonZeroU64::new(shifted).unwrap_or(NonZeroU64::MIN))
    }
}

impl From<Second> for Timestamp {
    fn from(Second(shifted): Second) -> Self {
        let seconds = (shifted.get() ^ SHIFT).cast_signed();
        // It came from one.
        Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

impl fmt::Display for Second {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Timestamp::from(*self).fmt(f)
    }
}

impl fmt::Debug for Second {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_that_may_be_missing_is_as_small() {
        assert_eq!((size_of::<Second>(), size_of::<Option<Second>>()), (8, 8));
    }

    #[test]
    fn the_first_and_the_last_time_are_kept() {
        for time in [Timestamp::MIN, Timestamp::MAX, Timestamp::UNIX_EPOCH] {
            assert_eq!(Timestamp::from(Second::from(time)).as_second(), time.as_second());
        }
    }

    proptest! {
        #[test]
        fn a_second_is_in_every_way_the_time_it_was_made_of(a in -99_999_999_999i64..99_999_999_999, b in -9i64..9) {
            let time = |seconds| Timestamp::from_second(seconds).unwrap();
            let (one, two) = (Second::from(time(a)), Second::from(time(b)));
            prop_assert_eq!(Timestamp::from(one), time(a));
            prop_assert_eq!(one.cmp(&two), a.cmp(&b));
            prop_assert_eq!(one.to_string(), time(a).to_string());
        }
    }
}
