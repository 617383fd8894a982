//! TLS trust: the machine's certificate authorities, those that the user adds, and the client's own
//! certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;

use crate::retry::attempt_error::chain;

/// A client certificate and its key, in PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsClientIdentity {
    /// A chain of certificates, the client's own first.
    pub certificate: PathBuf,
    /// The key of the first certificate.
    pub key: PathBuf,
}

/// Makes the TLS configuration of a client.
pub(crate) fn client_config(authorities: Option<&Path>) -> std::io::Result<ClientConfig> {
    client_config_as(authorities, None)
}

/// Does the same with an optional client certificate.
pub(crate) fn client_config_as(
    authorities: Option<&Path>,
    identity: Option<&TlsClientIdentity>,
) -> std::io::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let added = match authorities {
        None => Vec::new(),
        Some(path) => certificates(path)?,
    };
    let verifier =
        Verifier::new_with_extra_roots(added, Arc::clone(&provider)).map_err(|error| chain(&error))?;
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let verified = builder
        .map_err(|error| chain(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let Some(identity) = identity else { return Ok(verified.with_no_client_auth()) };
    let key = PrivateKeyDer::from_pem_file(&identity.key)
        .map_err(|error| std::io::Error::other(format!("{}: {error}", identity.key.display())))?;
    let own = certificates(&identity.certificate)?;
    verified.with_client_auth_cert(own, key).map_err(|error| chain(&error))
}

/// Makes a configuration for a client that will not use TLS. It trusts no server, and reads none of
/// the hundreds of certificates of the machine.
pub(crate) fn believing_nobody() -> std::io::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| chain(&error))?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

fn certificates(path: &Path) -> std::io::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(std::io::Error::other(format!("{} has no certificate", path.display()))),
        Err(error) => Err(std::io::Error::other(format!("{}: {error}", path.display()))),
    }
}
