//! The server's certificate and the authority that signed it.
//!
//! Both are made together and last equally long; the authority's key signs once and is forgotten, so there is no key on
//! disk with which somebody could make another server believed. Near the end both are made anew, at a start: then the
//! kubeconfig is written anew too. Whether what is kept still does is asked of the verifier that clients use, not read
//! from the certificate's fields.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};

use super::folder::{Folder, FolderError};

const AUTHORITY: &str = "ca.crt";
const SERVER: &str = "server.crt";
const KEY: &str = "server.key";

const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);
/// How long both are good for. Nobody renews a cluster on a laptop in between, and clients set no limit of their own.
const LIFETIME: Duration = Duration::from_secs(10 * YEAR.as_secs());
/// They are made anew when less than this is left: no process runs that long.
const LEAST_LEFT: Duration = YEAR;
/// They are good from a little before now: clocks in containers and virtual machines may lag.
const BACKDATE: Duration = Duration::from_secs(3_600);

/// By which the server may be called besides the address it listens on.
const NAMES: [&str; 8] = [
    "127.0.0.1",
    "::1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster",
    "kubernetes.default.svc.cluster.local",
];

/// No certificate could be had.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("no certificate could be made for the API: {0}")]
    Refused(String),
}

/// What the listener shows, and what its clients trust.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) config: Arc<ServerConfig>,
    /// PEM.
    pub(crate) authority: String,
}

/// Whom clients are to believe, whether anybody listens or not: pods are told before the first of them could ask.
///
/// It is the listener's. Before there is one it is made when it is first asked for, and the listener takes it over; but
/// not in a manual cluster, in which nothing comes from the operating system: there it is empty.
#[derive(Debug)]
pub(crate) struct Authority {
    told: RwLock<Option<Arc<str>>>,
    spare: OnceLock<Option<Pair>>,
    is_made: bool,
}

impl Authority {
    pub(crate) fn new(is_made: bool) -> Self {
        Self {
            told: RwLock::default(),
            spare: OnceLock::new(),
            is_made,
        }
    }

    /// The one that the folder had when the cluster last listened, if it did.
    pub(crate) fn read(&self, folder: &Folder) -> Result<(), FolderError> {
        if let Some(pem) = folder.read(AUTHORITY)? {
            self.set(&pem);
        }
        Ok(())
    }

    pub(crate) fn set(&self, pem: &str) {
        *self.told.write().unwrap_or_else(PoisonError::into_inner) = Some(pem.into());
    }

    /// In PEM.
    pub(crate) fn pem(&self) -> Arc<str> {
        let told = self.told.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(told) = told {
            return told;
        }
        if !self.is_made {
            return "".into();
        }
        let spare = self.spare.get_or_init(|| {
            let made = Pair::new(&names(IpAddr::from([127, 0, 0, 1])), Timestamp::now());
            made.inspect_err(|why| tracing::warn!(%why, "pods are not told whom to believe"))
                .ok()
        });
        spare
            .as_ref()
            .map_or_else(|| "".into(), |pair| pair.authority.as_str().into())
    }

    /// Before the listener looks into its folder: what pods were told is there.
    pub(crate) fn keep(&self, folder: &Folder) -> Result<(), FolderError> {
        match self.spare.get().and_then(Option::as_ref) {
            Some(pair) if folder.read(AUTHORITY)?.is_none() => pair.write(folder),
            _ => Ok(()),
        }
    }
}

impl Identity {
    /// From the folder, made there if there is none, or if what is there will not do for long.
    pub(super) fn kept(folder: &Folder, address: IpAddr, now: Timestamp) -> Result<Self, CertificateError> {
        let names = names(address);
        let (authority, server, key) = (folder.read(AUTHORITY)?, folder.read(SERVER)?, folder.read(KEY)?);
        if let (Some(authority), Some(server), Some(key)) = (authority, server, key) {
            let pair = Pair { authority, server, key };
            match pair.check(&names, now) {
                Ok(config) => return Ok(pair.identity(config)),
                Err(why) => tracing::info!(folder = %folder.path().display(), %why, "the API gets a new certificate"),
            }
        }
        let pair = Pair::new(&names, now)?;
        let config = pair.check(&names, now).map_err(CertificateError::Refused)?;
        pair.write(folder)?;
        Ok(pair.identity(config))
    }
}

fn names(address: IpAddr) -> Vec<String> {
    let mut names: Vec<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
    let address = address.to_string();
    if !names.contains(&address) {
        names.push(address);
    }
    names
}

/// All in PEM.
struct Pair {
    authority: String,
    server: String,
    key: String,
}

impl fmt::Debug for Pair {
    /// Without the key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Pair")
    }
}

impl Pair {
    /// The key last: a start that finds all three finds a pair, or sees that it is none.
    fn write(&self, folder: &Folder) -> Result<(), FolderError> {
        folder.write(AUTHORITY, &self.authority)?;
        folder.write(SERVER, &self.server)?;
        folder.write(KEY, &self.key)
    }

    fn new(names: &[String], now: Timestamp) -> Result<Self, CertificateError> {
        Self::made(names, now).map_err(|error| CertificateError::Refused(error.to_string()))
    }

    fn made(names: &[String], now: Timestamp) -> Result<Self, rcgen::Error> {
        let mut authority = CertificateParams::default();
        // Each has a name of its own, so that clients who know an older one are not confused by it.
        authority.distinguished_name = called(&format!("usher {now}"));
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        set_span(&mut authority, now);
        let authority_key = KeyPair::generate()?;
        let authority_certificate = authority.self_signed(&authority_key)?;
        let issuer = Issuer::new(authority, authority_key);

        let mut server = CertificateParams::new(names.to_vec())?;
        server.distinguished_name = called("usher");
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        server.use_authority_key_identifier_extension = true;
        set_span(&mut server, now);
        let key = KeyPair::generate()?;
        let certificate = server.signed_by(&key, &issuer)?;
        Ok(Self {
            authority: authority_certificate.pem(),
            server: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    /// The listener's configuration, if clients will believe it under all names, now and for long enough.
    fn check(&self, names: &[String], now: Timestamp) -> Result<Arc<ServerConfig>, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let authority = CertificateDer::from_pem_slice(self.authority.as_bytes()).map_err(|e| text(&e))?;
        let server = CertificateDer::from_pem_slice(self.server.as_bytes()).map_err(|e| text(&e))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|_| "the key is broken".to_owned())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certified = CertifiedKey::from_der(vec![server.clone()], key, &provider).map_err(|e| text(&e))?;
        certified.keys_match().map_err(|e| text(&e))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority).map_err(|e| text(&e))?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .map_err(|e| text(&e))?;
        let seconds = u64::try_from(now.as_second()).map_err(|_| "the clock is before 1970".to_owned())?;
        for moment in [seconds, seconds + LEAST_LEFT.as_secs()] {
            let moment = UnixTime::since_unix_epoch(Duration::from_secs(moment));
            for name in names {
                let name = ServerName::try_from(name.clone()).map_err(|e| text(&e))?;
                let verified = verifier.verify_server_cert(&server, &[], &name, &[], moment);
                verified.map_err(|e| text(&e))?;
            }
        }
        server_config(certified, provider).map_err(|e| text(&e))
    }

    fn identity(self, config: Arc<ServerConfig>) -> Identity {
        Identity {
            config,
            authority: self.authority,
        }
    }
}

/// A1: HTTP/1.1 and h2, chosen by the client.
fn server_config(certified: CertifiedKey, provider: Arc<CryptoProvider>) -> Result<Arc<ServerConfig>, rustls::Error> {
    let resolver = rustls::sign::SingleCertAndKey::from(certified);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn called(name: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    called.push(DnType::CommonName, name);
    called
}

fn set_span(params: &mut CertificateParams, now: Timestamp) {
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let date = |seconds: u64| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
    params.not_before = date(seconds.saturating_sub(BACKDATE.as_secs()));
    params.not_after = date(seconds + LIFETIME.as_secs());
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn at(days: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + days * 24 * 3_600).unwrap()
    }

    fn shown(folder: &Folder, address: IpAddr, days: i64) -> String {
        Identity::kept(folder, address, at(days)).unwrap();
        folder.read(SERVER).unwrap().unwrap()
    }

    #[test]
    fn a_certificate_is_kept_until_a_year_before_its_end() {
        let folder = Folder::temporary().unwrap();
        let first = shown(&folder, HOME, 0);
        assert_eq!(shown(&folder, HOME, 9 * 365 - 1), first);
        let second = shown(&folder, HOME, 9 * 365 + 1);
        assert_ne!(second, first);
        // And also when the clock was wrong when it was made.
        assert_ne!(shown(&folder, HOME, 0), second);
    }

    #[test]
    fn a_new_address_and_a_broken_file_get_a_new_one() {
        let folder = Folder::temporary().unwrap();
        let first = shown(&folder, HOME, 0);
        let elsewhere = shown(&folder, IpAddr::from([10, 0, 0, 7]), 0);
        assert_ne!(elsewhere, first);
        assert_eq!(shown(&folder, HOME, 0), elsewhere, "it has the usual names too");
        for name in [AUTHORITY, SERVER, KEY] {
            let before = shown(&folder, HOME, 0);
            folder.write(name, "no PEM").unwrap();
            assert_ne!(shown(&folder, HOME, 0), before, "{name}");
        }
        // Of two starts that were killed half-way.
        let other = Folder::temporary().unwrap();
        shown(&other, HOME, 0);
        let before = shown(&folder, HOME, 0);
        folder.write(KEY, &other.read(KEY).unwrap().unwrap()).unwrap();
        assert_ne!(shown(&folder, HOME, 0), before);
    }
}
