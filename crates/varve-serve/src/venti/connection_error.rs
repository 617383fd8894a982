//! Errors that end a connection.

use std::io;

use varve_venti::ServerError;

/// Why a connection ended abnormally.
#[derive(Debug, thiserror::Error)]
pub(super) enum VentiConnectionError {
    #[error("the socket failed")]
    Socket(#[from] io::Error),
    #[error("the TLS handshake with the client failed")]
    Tls(#[source] io::Error),
    #[error("the client did not complete the handshake in time")]
    NoHello,
    #[error("the client did not finish a message in time")]
    Slow,
    #[error("the client was silent for too long")]
    Silent,
    #[error("the client reads no answers, or too slowly")]
    TakesNothing,
    #[error("the client did not read its answers while memory was needed for others")]
    GaveWay,
    #[error("the connection ended within a message")]
    CutOff,
    #[error("{0}")]
    Protocol(#[from] ServerError),
}
