//! Limits and time-outs for clients.

use std::sync::Arc;
use std::time::Duration;

use varve_venti::BLOCK_BYTES_MAX;

use super::sessions::ClientSessions;
use crate::tls::TlsIdentity;

/// Limits and time-outs for clients.
#[derive(Clone)]
pub struct VentiSettings {
    /// The maximum number of clients. Further clients are refused.
    pub clients_max: usize,
    /// The largest block that may be written.
    pub block_bytes_max: usize,
    /// The budget of one client for requests and answers, in bytes.
    pub client_bytes: usize,
    /// The common budget of all clients, in bytes.
    pub all_clients_bytes: usize,
    /// The size of the cache of recently read blocks, in bytes.
    pub recent_bytes: u64,
    /// Failed writes and syncs may succeed later, for example when a proxied server is unreachable.
    /// The server then does not become read-only. A store that must not be written to any more
    /// returns errors itself.
    pub failures_pass: bool,
    /// Acknowledged blocks are made durable after this delay, unless a client syncs earlier.
    pub sync_after: Duration,
    /// A reason why nothing can be written, if one is known from the start.
    pub fault: Option<String>,
    /// The certificate for TLS addresses, and the clients that are admitted there.
    pub tls: Option<TlsIdentity>,
    /// The record of who wrote which blocks, if it is kept.
    pub sessions: Option<Arc<ClientSessions>>,
    /// The maximum number of requests that are executed concurrently; the others wait.
    pub workers: usize,
    /// Time limit for a client's hello.
    pub hello_timeout: Duration,
    /// Time limit for receiving the rest of a message that has begun to arrive.
    pub partial_timeout: Duration,
    /// Time limit for an idle client, if there is one.
    pub idle_timeout: Option<Duration>,
    /// Time limit for a client that takes too little of its answers.
    pub send_timeout: Duration,
    /// A server that is being drained waits this long for clients to take their answers.
    pub drain_timeout: Duration,
    /// Called once with the reason, when a fault has made the server read-only.
    pub on_read_only: fn(&str),
}

impl Default for VentiSettings {
    fn default() -> Self {
        Self {
            clients_max: 4096,
            block_bytes_max: BLOCK_BYTES_MAX,
            client_bytes: 4 << 20,
            all_clients_bytes: 256 << 20,
            recent_bytes: 64 << 20,
            failures_pass: false,
            sync_after: Duration::from_secs(10),
            fault: None,
            tls: None,
            sessions: None,
            workers: 64,
            hello_timeout: Duration::from_secs(30),
            partial_timeout: Duration::from_secs(60),
            idle_timeout: None,
            send_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(30),
            on_read_only: |_| {},
        }
    }
}
