//! Names that always fit and never collide by being cut.
//!
//! A name that is too long is cut and gets a hash of the whole name, so two long names that share their beginning stay
//! two names, and the same long name gives the same short one after every restart.

use sha1::{Digest, Sha1};

/// Longest name Usher gives to anything: what a label value can carry.
pub const MAX_NAME_LENGTH: usize = 63;

/// `long` as it is if it fits 63 characters; else the first `keep` characters of `base` without trailing
/// non-alphanumerics, `-`, and 16 hex digits of the SHA-1 of `long`.
///
/// SHA-1 because deployed names were made with it; collisions by accident are what matters here, not by attack: a name
/// that is taken by somebody else is detected by its owner, not trusted.
pub fn bounded(long: &str, base: &str, keep: usize) -> String {
    if long.len() <= MAX_NAME_LENGTH {
        return long.to_owned();
    }
    hashed(long, base, keep)
}

/// The hash form, whatever the length: for when the plain name is taken by an unrelated object.
pub fn hashed(long: &str, base: &str, keep: usize) -> String {
    let head: String = base.chars().take(keep.min(MAX_NAME_LENGTH - 17)).collect();
    let head = head.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    let digest = Sha1::digest(long.as_bytes());
    let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    if head.is_empty() { hex } else { format!("{head}-{hex}") }
}

/// Characters of a suffix: none that makes words, none that looks like another.
const SUFFIX: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Length of a suffix, as Kubernetes' generateName has it.
const SUFFIX_LENGTH: usize = 5;

/// `base-xxxxx`, with a suffix made from `seed`: looks like a generated name, and is the same after every restart.
pub fn suffixed(base: &str, seed: &str) -> String {
    let kept: String = base.chars().take(MAX_NAME_LENGTH - 1 - SUFFIX_LENGTH).collect();
    let digest = sha2::Sha256::digest(seed.as_bytes());
    let suffix: String = digest
        .iter()
        .take(SUFFIX_LENGTH)
        .filter_map(|byte| SUFFIX.get(usize::from(*byte) % SUFFIX.len()))
        .map(|byte| char::from(*byte))
        .collect();
    format!("{kept}-{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_short_name_is_kept() {
        assert_eq!(
            bounded("test-pool-10-0-0-0-24", "test-pool", 40),
            "test-pool-10-0-0-0-24"
        );
    }

    #[test]
    fn a_long_name_is_cut_before_its_separator_and_hashed() {
        let base = format!("{}--rest-of-the-pool-name", "p".repeat(39));
        let long = format!("{base}-2001-db8-0-0-0-0-0-0-64");
        let name = bounded(&long, &base, 40);
        assert!(name.starts_with(&format!("{}-", "p".repeat(39))), "{name}");
        assert_eq!(name.len(), 39 + 1 + 16);
    }

    #[test]
    fn a_suffix_depends_on_its_seed_alone() {
        let name = suffixed("tenant", "0b8c5a3e-1f0e-4b57-9d0a-0d3b6f1c2e4f");
        assert_eq!(name, suffixed("tenant", "0b8c5a3e-1f0e-4b57-9d0a-0d3b6f1c2e4f"));
        assert_ne!(name, suffixed("tenant", "another"));
        assert_eq!(name.len(), "tenant".len() + 6);
        assert_eq!(suffixed(&"p".repeat(200), "x").len(), MAX_NAME_LENGTH);
    }

    proptest! {
        #[test]
        fn names_fit_and_are_valid(base in "[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?", tail in "[a-z0-9-]{0,60}[a-z0-9]") {
            let long = format!("{base}-{tail}");
            let name = bounded(&long, &base, 40);
            prop_assert!(name.len() <= MAX_NAME_LENGTH);
            prop_assert!(name.starts_with(|c: char| c.is_ascii_alphanumeric()), "{}", name);
            prop_assert!(name.ends_with(|c: char| c.is_ascii_alphanumeric()), "{}", name);
        }

        #[test]
        fn different_long_names_stay_different(base in "[a-z]{60,80}", a in "[a-z0-9]{1,20}", b in "[a-z0-9]{1,20}") {
            prop_assume!(a != b);
            prop_assert_ne!(bounded(&format!("{base}-{a}"), &base, 40), bounded(&format!("{base}-{b}"), &base, 40));
        }
    }
}
