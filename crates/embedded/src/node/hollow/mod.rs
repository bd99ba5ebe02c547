//! Hollow nodes: they run nothing, and say of their pods what [`stages`] tell (11.1).

pub mod stages;

/// A number that depends on nothing but these words (FNV-1a): the same at every start, on every machine.
pub(crate) fn hash(words: &[&str]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in words.iter().flat_map(|word| word.bytes().chain([0xff])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}
