//! Why a server does not start.

use std::io;

use super::inherited::InheritError;
use crate::network::ListenError;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Other machines would come, and nobody said that they may.
    #[error(transparent)]
    Listen(ListenError),
    /// Nothing can listen there.
    #[error("nothing can listen at {at}")]
    Socket {
        /// Where it was to listen.
        at: String,
        /// What the system says.
        source: io::Error,
    },
    /// TLS is wanted, and there is no certificate.
    #[error("{at}: no certificate was given for TLS")]
    NoCertificate {
        /// Where it was to listen.
        at: String,
    },
    /// The service manager has not handed over what was asked for.
    #[error("{at}: the service manager has handed over no such socket")]
    NothingInherited {
        /// What was asked for.
        at: String,
    },
    /// The service manager has handed over something strange.
    #[error(transparent)]
    Inherit(#[from] InheritError),
    /// There are no threads for it.
    #[error("no threads can be started")]
    Threads(#[source] io::Error),
    /// Venti's scores are SHA-1.
    #[error(
        "the store's scores have {bytes} bytes, and Venti's have 20: only a store made with `varve init --score sha1` can be served"
    )]
    NotSha1 {
        /// How long they are.
        bytes: usize,
    },
}
