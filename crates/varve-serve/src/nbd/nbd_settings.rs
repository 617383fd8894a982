//! Limits and time-outs for clients.

use std::time::Duration;

use crate::tls::TlsIdentity;

/// Limits and time-outs for clients.
#[derive(Clone)]
pub struct NbdSettings {
    /// If set, TLS is mandatory.
    pub tls: Option<TlsIdentity>,
    /// The maximum number of clients. A further one takes the place of a silent one, and is refused
    /// if there is none.
    pub connections_max: usize,
    /// A client is silent if it has sent no request for this long, or none at all. A guest that
    /// sleeps is silent, too.
    pub silence_max: Duration,
    /// The requests of one client that are executed concurrently.
    pub workers_per_connection: usize,
    /// Time limit for the negotiation.
    pub handshake_timeout: Duration,
    /// Time limit for receiving the rest of a request that has begun to arrive.
    pub partial_timeout: Duration,
    /// A client that takes none of its answer for this long is dropped.
    pub send_timeout: Duration,
    /// A server that is being drained waits this long for clients to take their answers.
    pub drain_timeout: Duration,
}

impl Default for NbdSettings {
    fn default() -> Self {
        Self {
            tls: None,
            connections_max: 64,
            silence_max: Duration::from_secs(3600),
            workers_per_connection: 4,
            handshake_timeout: Duration::from_secs(30),
            partial_timeout: Duration::from_secs(30),
            send_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(10),
        }
    }
}
