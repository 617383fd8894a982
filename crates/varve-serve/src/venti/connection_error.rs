//! Errors that end a connection.

use std::io;

use varve_venti::ServerError;

/// Why a connection ended abnormally.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    #[error("the socket failed")]
    Socket(#[from] io::Error),
    #[error("no TLS with the client")]
    Tls(#[source] io::Error),
    #[error("the client did not say hello in time")]
    NoHello,
    #[error("the client does not end what it has begun to say")]
    Slow,
    #[error("the client says nothing for too long")]
    Silent,
    #[error("the client takes no answers, or too slowly")]
    TakesNothing,
    #[error("the client let its answers wait while others had no room")]
    GaveWay,
    #[error("the connection ended in the middle of a message")]
    CutOff,
    #[error(transparent)]
    Protocol(#[from] ServerError),
}
