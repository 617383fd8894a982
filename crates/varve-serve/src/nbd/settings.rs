//! How clients are treated.

use std::time::Duration;

use crate::tls::TlsIdentity;

/// How clients are treated.
#[derive(Clone)]
pub struct Settings {
    /// If set, nobody is served without TLS.
    pub tls: Option<TlsIdentity>,
    /// How many clients there are at the same time; who comes when there are so many is sent away.
    pub connections_max: usize,
    /// How many requests of one client are worked on at the same time.
    pub workers_per_connection: usize,
    /// How long a client may take to say what it wants.
    pub handshake_timeout: Duration,
    /// How long a client may take to go on with what it has begun to say.
    pub partial_timeout: Duration,
    /// How long a client may take nothing of what it has asked for.
    pub send_timeout: Duration,
    /// How long a server that ends waits for answers to be taken.
    pub drain_timeout: Duration,
}

impl Default for Settings {
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
