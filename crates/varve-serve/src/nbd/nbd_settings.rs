//! Limits and time-outs for clients.

use std::time::Duration;

use crate::tls::TlsIdentity;

/// Limits and time-outs for clients.
#[derive(Clone)]
pub struct NbdSettings {
    /// If set, TLS is mandatory.
    pub tls: Option<TlsIdentity>,
    /// The maximum number of clients. Further clients are refused.
    pub connections_max: usize,
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
            workers_per_connection: 4,
            handshake_timeout: Duration::from_secs(30),
            partial_timeout: Duration::from_secs(30),
            send_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(10),
        }
    }
}
