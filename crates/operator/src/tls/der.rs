//! Just enough DER to ask a certificate how long it lives, who it is, and whose key it carries.
//!
//! A full X.509 parser would be a dependency of five crates for three fields. What is read here is compared or turned
//! into times; whether a certificate can be *trusted* is never decided here but by rustls' verifier.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use super::decide::Span;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// `[0] EXPLICIT`, where the version is.
const VERSION: u8 = 0xa0;

/// What is read of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outline<'a> {
    pub(super) validity: Span,
    /// The subject's distinguished name, encoded.
    pub(super) subject: &'a [u8],
    /// SubjectPublicKeyInfo, whole.
    pub(super) public_key: &'a [u8],
}

/// Reads a certificate; `None` if it is none.
pub(super) fn outline(certificate: &[u8]) -> Option<Outline<'_>> {
    let mut outer = Reader(certificate);
    let mut signed = Reader(Reader(outer.value(SEQUENCE)?).value(SEQUENCE)?);
    if signed.next_is(VERSION) {
        signed.value(VERSION)?;
    }
    signed.value(INTEGER)?; // serial number
    signed.value(SEQUENCE)?; // signature algorithm
    signed.value(SEQUENCE)?; // issuer
    let mut validity = Reader(signed.value(SEQUENCE)?);
    let validity = Span {
        from: validity.time()?,
        until: validity.time()?,
    };
    let subject = signed.value(SEQUENCE)?;
    let before = signed.0;
    signed.value(SEQUENCE)?;
    let public_key = before.get(..before.len().checked_sub(signed.0.len())?)?;
    Some(Outline {
        validity,
        subject,
        public_key,
    })
}

/// What is left to read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn next_is(&self, tag: u8) -> bool {
        self.0.first() == Some(&tag)
    }

    /// The value of the next element, which must have this tag.
    fn value(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            // Long form: the low bits say how many bytes of length follow. Four are 4 GiB, more than a Secret can hold.
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (
                    bytes
                        .iter()
                        .fold(0usize, |length, byte| (length << 8) | usize::from(*byte)),
                    rest,
                )
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        (*found == tag).then_some(value)
    }

    fn time(&mut self) -> Option<Timestamp> {
        if self.next_is(UTC_TIME) {
            let text = std::str::from_utf8(self.value(UTC_TIME)?).ok()?;
            // RFC 5280: two-digit years are 1950 to 2049.
            let century = if text.get(..2)?.parse::<u8>().ok()? >= 50 {
                "19"
            } else {
                "20"
            };
            return time(&format!("{century}{text}"));
        }
        time(std::str::from_utf8(self.value(GENERALIZED_TIME)?).ok()?)
    }
}

/// `YYYYMMDDHHMMSSZ`, the only form RFC 5280 allows.
fn time(text: &str) -> Option<Timestamp> {
    let digits = text
        .strip_suffix('Z')
        .filter(|d| d.len() == 14 && d.bytes().all(|b| b.is_ascii_digit()))?;
    let two = |at: usize| digits.get(at..at + 2)?.parse::<i8>().ok();
    let year = digits.get(..4)?.parse::<i16>().ok()?;
    let civil = DateTime::new(year, two(4)?, two(6)?, two(8)?, two(10)?, two(12)?, 0).ok()?;
    Offset::UTC.to_timestamp(civil).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_read_in_both_forms() {
        let at = |text: &str| Some(text.parse::<Timestamp>().unwrap());
        assert_eq!(time("20501231235959Z"), at("2050-12-31T23:59:59Z"));
        assert_eq!(Reader(b"\x17\x0d491231235959Z").time(), at("2049-12-31T23:59:59Z"));
        assert_eq!(Reader(b"\x17\x0d500101000000Z").time(), at("1950-01-01T00:00:00Z"));
        for wrong in [
            "",
            "Z",
            "20501331235959Z",
            "20501231235959",
            "20501231235959+0100",
            "2050123123595éZ",
        ] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn anything_may_stand_in_a_secret(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = outline(&bytes);
        }

        #[test]
        fn a_certificate_cut_or_changed_anywhere_does_no_harm(cut in 0usize..600, at in 0usize..600, byte: u8) {
            let key = rcgen::KeyPair::generate().unwrap();
            let certificate = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap().self_signed(&key).unwrap();
            let mut der = certificate.der().to_vec();
            let whole = outline(&der).unwrap();
            prop_assert_eq!(whole.public_key, rcgen::PublicKeyData::subject_public_key_info(&key));
            prop_assert_eq!(whole.validity.from.to_string(), "1975-01-01T00:00:00Z");
            prop_assert_eq!(whole.validity.until.to_string(), "4096-01-01T00:00:00Z");
            if let Some(place) = der.get_mut(at) { *place = byte; }
            der.truncate(cut);
            let _ = outline(&der);
        }
    }
}
