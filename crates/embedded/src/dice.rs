//! Chance from a seed, one stream for each purpose (E1): drawing a name does not change which uid comes next.

use std::sync::{Mutex, PoisonError};

/// What names are made of: no vowels, so that no words appear.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// The reference's length of a generated suffix.
const SUFFIX: usize = 5;

/// A stream of numbers: SplitMix64, small and good enough for names.
#[derive(Debug)]
pub(crate) struct Stream(u64);

impl Stream {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

#[derive(Debug)]
pub(crate) struct Dice {
    uids: Mutex<Stream>,
    names: Mutex<Stream>,
    watches: Mutex<Stream>,
    audits: Mutex<Stream>,
}

impl Dice {
    /// `revision`: how far the store had come. What was drawn before then is in the store by now, or never was.
    pub(crate) fn new(seed: u64, revision: u64) -> Self {
        // Each stream starts elsewhere, and elsewhere at every start: a stream of seed and revision tells where.
        let mut starts = Stream(Stream(seed).draw() ^ Stream(!revision).draw());
        let mut stream = || Mutex::new(Stream(starts.draw()));
        Self {
            uids: stream(),
            names: stream(),
            watches: stream(),
            audits: stream(),
        }
    }

    /// Where all streams are, for [`Dice::put_back`].
    pub(crate) fn positions(&self) -> [u64; 4] {
        self.streams()
            .map(|stream| stream.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Goes on from where the streams were.
    pub(crate) fn put_back(&self, positions: [u64; 4]) {
        for (stream, position) in self.streams().into_iter().zip(positions) {
            stream.lock().unwrap_or_else(PoisonError::into_inner).0 = position;
        }
    }

    fn streams(&self) -> [&Mutex<Stream>; 4] {
        [&self.uids, &self.names, &self.watches, &self.audits]
    }

    /// A version 4 uuid.
    pub(crate) fn uid(&self) -> String {
        uuid(&self.uids)
    }

    /// For the header `Audit-Id`.
    pub(crate) fn audit_id(&self) -> String {
        uuid(&self.audits)
    }

    /// What is put behind a `generateName`.
    pub(crate) fn suffix(&self) -> String {
        let mut word = draw(&self.names);
        let mut text = String::with_capacity(SUFFIX);
        for _ in 0..SUFFIX {
            let count = LETTERS.len() as u64;
            let index = usize::try_from(word % count).unwrap_or_default();
            text.push(char::from(LETTERS.get(index).copied().unwrap_or(b'x')));
            word /= count;
        }
        text
    }

    /// Seconds below `most`, for a watch that named no end (O3).
    pub(crate) fn watch_seconds(&self, most: u64) -> u64 {
        draw(&self.watches) % most.max(1)
    }
}

fn draw(stream: &Mutex<Stream>) -> u64 {
    stream.lock().unwrap_or_else(PoisonError::into_inner).draw()
}

fn uuid(stream: &Mutex<Stream>) -> String {
    let (high, low) = {
        let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
        (stream.draw(), stream.draw())
    };
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        (low >> 48) & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e1_one_seed_gives_one_sequence_and_purposes_do_not_disturb_each_other() {
        let (one, two) = (Dice::new(7, 1), Dice::new(7, 1));
        let first = one.uid();
        two.suffix();
        assert_eq!(first, two.uid());
        assert_ne!(first, Dice::new(8, 1).uid());
        assert_ne!(first, Dice::new(7, 2).uid(), "another start");
        assert_eq!(first.len(), 36);
        assert_eq!(&first[14..15], "4");
    }

    #[test]
    fn o6_a_suffix_has_five_letters_without_vowels() {
        let dice = Dice::new(1, 1);
        for _ in 0..100 {
            let suffix = dice.suffix();
            assert_eq!(suffix.len(), 5);
            assert!(suffix.bytes().all(|letter| LETTERS.contains(&letter)), "{suffix}");
        }
    }
}
