//! The server's TLS identity, and the clients that it admits.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// The size limit of certificate and key files.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A certificate with its key, and optionally the authorities that must have signed the
/// certificates of clients.
#[derive(Clone)]
pub struct TlsIdentity {
    config: Arc<ServerConfig>,
    checks_clients: bool,
}

/// Why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} has no {what} in PEM form: {problem}", path.display())]
    Malformed {
        path: PathBuf,
        /// The kind of item that was expected.
        what: &'static str,
        problem: String,
    },
    /// The certificate and its key do not match, or are not usable.
    #[error("the certificate and the key cannot be used")]
    Identity(#[source] rustls::Error),
    #[error("the authority in {} cannot be used to check clients", path.display())]
    Authority {
        /// The file with the authority's certificates.
        path: PathBuf,
        source: rustls::server::VerifierBuilderError,
    },
}

impl TlsIdentity {
    /// Reads a certificate chain, the key of its first certificate, and the authorities that must
    /// have signed the certificates of clients. Without authorities, every client is admitted.
    ///
    /// # Errors
    /// [`TlsError`]
    pub fn read(certificate: &Path, key: &Path, authority: Option<&Path>) -> Result<Self, TlsError> {
        let chain = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| TlsError::Malformed {
            path: key.into(),
            what: "private key",
            problem: error.to_string(),
        })?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Identity)?;
        let builder = match authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(certificates(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|source| TlsError::Authority { path: path.into(), source })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config = builder.with_single_cert(chain, key).map_err(TlsError::Identity)?;
        Ok(Self { config: Arc::new(config), checks_clients: authority.is_some() })
    }

    /// Reports whether clients must present a certificate.
    pub(crate) fn checks_clients(&self) -> bool {
        self.checks_clients
    }

    /// The settings for the server's end of a connection.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let malformed = |problem: String| TlsError::Malformed { path: path.into(), what: "certificate", problem };
    let bytes = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| malformed(error.to_string()))?;
    if found.is_empty() { Err(malformed("there is none".into())) } else { Ok(found) }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    use io::Read;
    let mut bytes = Vec::new();
    let whole = fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    whole.map_err(|source| TlsError::Read { path: path.into(), source })?;
    Ok(bytes)
}
