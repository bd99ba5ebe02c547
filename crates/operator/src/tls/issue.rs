//! Making keys and certificates. Random by nature; everything else about the result follows from the arguments.

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::decide::{BACKDATE, Lifetimes, Signer, Span, later};
use super::material::{Material, PrivateKey};
use super::names::Names;

/// Why no certificate could be made. Says nothing of keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    /// The library, or the names, or the clock.
    #[error("no certificate could be made for the TLS port ({problem}); check its names and this machine's clock")]
    Refused {
        /// What went wrong.
        problem: String,
    },
    /// What was made does not hold: never stored, never presented.
    #[error("a certificate made for the TLS port does not verify; this is a bug in Usher, please report it")]
    Unsound,
}

impl From<rcgen::Error> for IssueError {
    fn from(error: rcgen::Error) -> Self {
        IssueError::Refused {
            problem: error.to_string(),
        }
    }
}

/// What the authority that counts from then is called. Each has a name of its own, so that a certificate's issuer
/// names one authority of the bundle; and it can be told from the certificate, so that it needs no place in the Secret.
pub(super) fn authority_name(from: Timestamp) -> String {
    format!("Usher authority {from}")
}

/// Everything new.
pub(super) fn create(names: &Names, lifetimes: &Lifetimes, now: Timestamp) -> Result<Material, IssueError> {
    let (certificate, key, span) = authority(lifetimes, now)?;
    let (serving, serving_key) = serving(&key, span, names, lifetimes, now)?;
    checked(
        Material {
            serving,
            serving_key,
            authorities: vec![certificate],
            authority_key: key,
        },
        names,
    )
}

/// A new serving certificate, signed by the newest authority, which counts for `span`.
pub(super) fn rotate_serving(
    old: &Material,
    span: Span,
    names: &Names,
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Result<Material, IssueError> {
    let (serving, serving_key) = serving(&old.authority_key, span, names, lifetimes, now)?;
    let mut authorities = old.living_authorities(now);
    authorities.truncate(MAX_AUTHORITIES);
    checked(
        Material {
            serving,
            serving_key,
            authorities,
            authority_key: old.authority_key.clone(),
        },
        names,
    )
}

/// A new authority before the old ones. The serving certificate stays for now.
pub(super) fn rotate_authority(old: &Material, lifetimes: &Lifetimes, now: Timestamp) -> Result<Material, IssueError> {
    let (certificate, key, _) = authority(lifetimes, now)?;
    let mut authorities = vec![certificate];
    authorities.extend(old.living_authorities(now));
    authorities.truncate(MAX_AUTHORITIES);
    Ok(Material {
        authorities,
        authority_key: key,
        ..old.clone()
    })
}

/// Authorities in a bundle. In the usual course there are two; more come only from Secrets deleted again and again,
/// and the oldest of those sign nothing any more. Eight are 5 kB of a bundle that may have a megabyte.
const MAX_AUTHORITIES: usize = 8;

fn checked(material: Material, names: &Names) -> Result<Material, IssueError> {
    let facts = material.facts(names, None);
    let sound = facts
        .serving
        .is_some_and(|serving| serving.names && serving.signer == Signer::Newest);
    if sound && facts.authority.is_some() {
        Ok(material)
    } else {
        Err(IssueError::Unsound)
    }
}

fn authority(lifetimes: &Lifetimes, now: Timestamp) -> Result<(String, PrivateKey, Span), IssueError> {
    let key = KeyPair::generate()?;
    let span = dated(now, later(now, lifetimes.authority));
    let certificate = authority_params(span)?.self_signed(&key)?;
    Ok((certificate.pem(), PrivateKey::new(key.serialize_pem()), span))
}

fn authority_params(span: Span) -> Result<CertificateParams, IssueError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = called(&authority_name(span.from));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    set_span(&mut params, span)?;
    Ok(params)
}

fn serving(
    authority_key: &PrivateKey,
    authority_span: Span,
    names: &Names,
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Result<(String, PrivateKey), IssueError> {
    let issuer = Issuer::new(
        authority_params(authority_span)?,
        KeyPair::from_pem(authority_key.reveal())?,
    );
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names.as_text())?;
    params.distinguished_name = called("usher-operator");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let until = later(now, lifetimes.serving).min(authority_span.until);
    set_span(&mut params, dated(now, until))?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok((certificate.pem(), PrivateKey::new(key.serialize_pem())))
}

fn called(name: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    called.push(DnType::CommonName, name);
    called
}

/// From a little before `now`, in whole seconds: certificates know no smaller ones.
fn dated(now: Timestamp, until: Timestamp) -> Span {
    let whole = |at: Timestamp| Timestamp::from_second(at.as_second()).unwrap_or(at);
    let back = SignedDuration::try_from(BACKDATE).unwrap_or_default();
    Span {
        from: whole(now.checked_sub(back).unwrap_or(now)),
        until: whole(until),
    }
}

fn set_span(params: &mut CertificateParams, span: Span) -> Result<(), IssueError> {
    let date = |at: Timestamp| {
        // Up to the year 9000, which keeps a century's sum inside the library's calendar.
        let seconds = u64::try_from(at.as_second())
            .ok()
            .filter(|seconds| *seconds < 221_845_392_000);
        let seconds = seconds.ok_or_else(|| IssueError::Refused {
            problem: format!("no certificate can be dated {at}"),
        })?;
        Ok::<_, IssueError>(rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds))
    };
    params.not_before = date(span.from)?;
    params.not_after = date(span.until)?;
    Ok(())
}

#[cfg(test)]
#[path = "issue_tests.rs"]
mod tests;
