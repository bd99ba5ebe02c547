//! What the Secret holds: the presented certificate and its key, the bundle of authorities, the key of the newest.
//!
//! Keys are [`PrivateKey`]s, which no `Debug`, log line, event or error can show.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use rcgen::PublicKeyData;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;

use super::decide::{Facts, Serving, Signer};
use super::der::{self, Outline};
use super::issue::authority_name;
use super::names::Names;

const SERVING: &str = "tls.crt";
const SERVING_KEY: &str = "tls.key";
pub(super) const AUTHORITIES: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const END_OF_CERTIFICATE: &str = "-----END CERTIFICATE-----";

/// A private key as PEM. Shows itself to nobody.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PrivateKey(String);

impl PrivateKey {
    pub(super) fn new(pem: String) -> Self {
        Self(pem)
    }

    /// For signing and for the Secret; nowhere else.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[private key]")
    }
}

/// All of it, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Material {
    pub(super) serving: String,
    pub(super) serving_key: PrivateKey,
    /// The newest first: the one whose key we have.
    pub(super) authorities: Vec<String>,
    pub(super) authority_key: PrivateKey,
}

impl Material {
    /// What a Secret's data says; `None` when a part is missing. Whether the parts are any good is for [`Material::facts`].
    pub(super) fn from_data(data: &BTreeMap<String, ByteString>) -> Option<Self> {
        let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
        Some(Self {
            serving: text(SERVING)?,
            serving_key: PrivateKey(text(SERVING_KEY)?),
            authorities: certificates(&text(AUTHORITIES)?),
            authority_key: PrivateKey(text(AUTHORITY_KEY)?),
        })
    }

    /// Puts it into a Secret's data, beside whatever else is there.
    pub(super) fn put_into(&self, data: &mut BTreeMap<String, ByteString>) {
        for (key, text) in [
            (SERVING, self.serving.as_str()),
            (SERVING_KEY, self.serving_key.reveal()),
            (AUTHORITIES, self.bundle().as_str()),
            (AUTHORITY_KEY, self.authority_key.reveal()),
        ] {
            data.insert(key.to_owned(), ByteString(text.as_bytes().to_vec()));
        }
    }

    /// What API servers are to trust.
    pub(super) fn bundle(&self) -> String {
        self.authorities.concat()
    }

    /// What the decision depends on.
    pub(super) fn facts(&self, names: &Names, published: Option<Timestamp>) -> Facts {
        let authority = self.authorities.first().and_then(|pem| {
            let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
            let outline = der::outline(&certificate)?;
            is_ours(&outline, &self.authority_key).then_some(outline.validity)
        });
        Facts {
            authority,
            serving: self.serving(names),
            published,
        }
    }

    /// The certificate and key as the TLS server presents them; `None` when they are unreadable or do not belong
    /// together.
    pub(super) fn presented(&self) -> Option<CertifiedKey> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(self.serving.as_bytes())
            .collect::<Result<_, _>>()
            .ok()?;
        let key = PrivateKeyDer::from_pem_slice(self.serving_key.reveal().as_bytes()).ok()?;
        CertifiedKey::from_der(chain, key, &provider()).ok()
    }

    /// Those of the authorities that still count, as PEM.
    pub(super) fn living_authorities(&self, now: Timestamp) -> Vec<String> {
        let lives = |pem: &&String| {
            let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok();
            certificate
                .as_deref()
                .and_then(der::outline)
                .is_some_and(|outline| outline.validity.until >= now)
        };
        self.authorities.iter().filter(lives).cloned().collect()
    }

    fn serving(&self, names: &Names) -> Option<Serving> {
        let presented = self.presented()?;
        let certificate = presented.end_entity_cert().ok()?;
        let span = der::outline(certificate)?.validity;
        // Who signed it does not depend on today: asked for a moment at which it counts.
        let then = UnixTime::since_unix_epoch(std::time::Duration::from_secs(
            u64::try_from(span.from.as_second()).ok()?,
        ));
        let trusts = |authority: &CertificateDer<'static>, name: &ServerName<'static>| {
            let mut roots = RootCertStore::empty();
            roots.add(authority.clone()).ok()?;
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
                .build()
                .ok()?;
            Some(verifier.verify_server_cert(certificate, &[], name, &[], then))
        };
        let names = names.as_server_names();
        let mut serving = Serving {
            span,
            signer: Signer::Nobody,
            names: false,
        };
        for (age, pem) in self.authorities.iter().enumerate() {
            let Ok(authority) = CertificateDer::from_pem_slice(pem.as_bytes()) else {
                continue;
            };
            let Some(validity) = der::outline(&authority).map(|outline| outline.validity) else {
                continue;
            };
            let answers: Vec<_> = names.iter().filter_map(|name| trusts(&authority, name)).collect();
            let signed = answers
                .iter()
                .any(|answer| answer.is_ok() || only_the_name_is_wrong(answer));
            if signed && !answers.is_empty() {
                serving.names = answers.len() == names.len() && answers.iter().all(Result::is_ok);
                serving.signer = if age == 0 {
                    Signer::Newest
                } else {
                    Signer::Older(validity)
                };
                return Some(serving);
            }
        }
        Some(serving)
    }
}

fn only_the_name_is_wrong<T>(answer: &Result<T, rustls::Error>) -> bool {
    use rustls::CertificateError::{NotValidForName, NotValidForNameContext};
    matches!(
        answer,
        Err(rustls::Error::InvalidCertificate(
            NotValidForName | NotValidForNameContext { .. }
        ))
    )
}

/// Whether the authority carries this key and the name we give to authorities: then we can sign in its name.
fn is_ours(outline: &Outline<'_>, key: &PrivateKey) -> bool {
    let Ok(key) = rcgen::KeyPair::from_pem(key.reveal()) else {
        return false;
    };
    let name = authority_name(outline.validity.from);
    key.subject_public_key_info() == outline.public_key && outline.subject.ends_with(name.as_bytes())
}

/// A text of certificates, one by one.
fn certificates(text: &str) -> Vec<String> {
    text.split_inclusive(END_OF_CERTIFICATE)
        .filter(|part| part.contains(END_OF_CERTIFICATE))
        .map(|part| format!("{}\n", part.trim_start()))
        .collect()
}

/// The cryptography in use. Named, not the process' default: nobody else's choice changes ours.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
