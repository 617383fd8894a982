//! Who the server is, and whom it lets in.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// No such file is larger.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A certificate with its key, and perhaps an authority that clients must have theirs from.
#[derive(Clone)]
pub struct TlsIdentity {
    config: Arc<ServerConfig>,
    checks_clients: bool,
}

/// Why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not what it should be.
    #[error("{} has no {what} in PEM form: {problem}", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
        /// What was found.
        problem: String,
    },
    /// They do not fit each other.
    #[error("the certificate and the key cannot be used")]
    Identity(#[source] rustls::Error),
    /// There is no way to check clients with it.
    #[error("clients cannot be checked with {}", path.display())]
    Authority {
        /// The file with the authority's certificates.
        path: PathBuf,
        /// Why.
        source: rustls::server::VerifierBuilderError,
    },
}

impl TlsIdentity {
    /// Reads a chain of certificates, the key of the first, and the certificates of the authorities that clients must have theirs from;
    /// without those, any client is let in.
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

    /// Whether clients have to show a certificate.
    #[must_use]
    pub fn checks_clients(&self) -> bool {
        self.checks_clients
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
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
