//! Errors that prevent a server from starting.

use std::io;

use super::inherited::InheritError;
use crate::network::ListenError;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is reachable from other machines, and the user has not permitted that.
    #[error("{0}")]
    Listen(#[source] ListenError),
    #[error("cannot listen at {at}")]
    Socket { at: String, source: io::Error },
    /// A TLS address was requested without a certificate.
    #[error("{at}: TLS needs a certificate")]
    NoCertificate { at: String },
    #[error("{at}: the service manager has passed no such socket")]
    NothingInherited { at: String },
    #[error("{0}")]
    Inherit(#[from] InheritError),
    #[error("cannot start threads")]
    Threads(#[source] io::Error),
    /// Venti requires SHA-1 scores.
    #[error(
        "the store's scores have {bytes} bytes, but Venti's have 20: only a store made with `varve init --score sha1` can be served"
    )]
    NotSha1 { bytes: usize },
}
