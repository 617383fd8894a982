//! TLS trust: the machine's certificate authorities, those that the user adds, and the client's own
//! certificate.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_platform_verifier::Verifier;

use crate::attempt_error::chain;

/// The error of a machine without certificate authorities. No server can prove its name to it.
pub(crate) const NO_AUTHORITIES: &str = "no certificate authorities are installed on this machine, so no server can be trusted: install ca-certificates";

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
    let verifier = verifier(added, &provider).map_err(|error| chain(&error))?;
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

/// Makes a configuration for a client that may never use TLS. The certificate authorities are read
/// when the first server shows a certificate, so plain HTTP works on a machine that has none.
///
/// # Errors
/// When the cryptography offers no version of TLS.
pub fn tls_config_when_used() -> std::io::Result<ClientConfig> {
    client_config_when_used(None)
}

/// Does the same with the certificate authorities of a file.
pub(crate) fn client_config_when_used(authorities: Option<&Path>) -> std::io::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let added = match authorities {
        None => Vec::new(),
        Some(path) => certificates(path)?,
    };
    let verifier = LateVerifier { added, provider: Arc::clone(&provider), made: OnceLock::new() };
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| chain(&error))?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

/// Trusts the machine's certificate authorities, and those in `added`.
fn verifier(added: Vec<CertificateDer<'static>>, provider: &Arc<CryptoProvider>) -> Result<Verifier, Error> {
    Verifier::new_with_extra_roots(added, Arc::clone(provider)).map_err(|error| match error {
        // The verifier makes a general error only if it has found no authority.
        Error::General(_) => Error::General(NO_AUTHORITIES.to_owned()),
        error => error,
    })
}

/// Verifies servers with certificate authorities that are read when they are first needed.
#[derive(Debug)]
struct LateVerifier {
    added: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
    made: OnceLock<Result<Verifier, Error>>,
}

impl ServerCertVerifier for LateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let made = self.made.get_or_init(|| verifier(self.added.clone(), &self.provider));
        let made = made.as_ref().map_err(Error::clone)?;
        made.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
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
