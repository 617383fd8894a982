//! How clients are treated.

use std::sync::Arc;
use std::time::Duration;

use varve_venti::BLOCK_BYTES_MAX;

use super::sessions::Sessions;
use crate::tls::TlsIdentity;

/// How clients are treated.
#[derive(Clone)]
pub struct VentiSettings {
    /// How many clients there are at the same time; who comes when there are so many is sent away.
    pub clients_max: usize,
    /// The largest block that may be written.
    pub block_bytes_max: usize,
    /// How many bytes of requests and answers one client may have here at a time.
    pub client_bytes: usize,
    /// How many bytes all clients together may have here.
    pub all_clients_bytes: usize,
    /// How many bytes of blocks are remembered for who asks again.
    pub recent_bytes: u64,
    /// Whether a write or a sync that fails may work later, as when a server behind the store is away: then the server does not turn read-only, and a
    /// store that must not be written to any more says so itself.
    pub failures_pass: bool,
    /// What was acknowledged is made durable so long after, if no client asks for it before.
    pub sync_after: Duration,
    /// Why nothing can be written, if that is known from the beginning.
    pub fault: Option<String>,
    /// Who the server is at addresses of TLS, and whom it lets in there.
    pub tls: Option<TlsIdentity>,
    /// Where it is recorded which client wrote what, if it is.
    pub sessions: Option<Arc<Sessions>>,
    /// How many requests are worked on at the same time; the others wait.
    pub workers: usize,
    /// How long a client may take to say hello.
    pub hello_timeout: Duration,
    /// How long a client may take to end a message that it has begun.
    pub partial_timeout: Duration,
    /// How long a client may say nothing, if there is a bound to it.
    pub idle_timeout: Option<Duration>,
    /// How long a client may take nothing of what it has asked for.
    pub send_timeout: Duration,
    /// How long a server that ends waits for answers to be taken.
    pub drain_timeout: Duration,
    /// Called once, when a fault has made the server read-only, with what could not be done.
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
