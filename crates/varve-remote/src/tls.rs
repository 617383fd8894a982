//! Who is believed to be who they say: the machine's certificate authorities, and those that the user adds.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;

use crate::trouble::chain;

/// The settings of encrypted connections.
pub(crate) fn client_config(authorities: Option<&Path>) -> std::io::Result<ClientConfig> {
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
    Ok(verified.with_no_client_auth())
}

/// The same for whoever will make none: nobody is believed, and no certificate is read, of which a machine has hundreds.
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
