//! NFS, version 3, over TCP, read-only: a file system for other machines, and for programs without FUSE.
//!
//! Whoever can connect can read everything: NFS believes its clients who they are. A handle is the number of a file, and holds as long
//! as the server knows the number: NFS does not say what is forgotten, so whoever serves much gives it [`Bounded`](crate::Bounded) files.

mod adapter;
mod guard;
mod read_only;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nfs3_server::tcp::{NFSTcp, NFSTcpListener};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::Served;
use crate::network::{ListenError, check_address, threads};
use adapter::Adapter;

/// Where the library listens, behind our guard: any port of this machine.
const INNER: &str = "127.0.0.1:0";
/// How long answers that were begun may take when the server ends.
const ENDING: Duration = Duration::from_secs(2);

/// A server that runs until it is closed.
pub struct NfsServer {
    address: SocketAddr,
    threads: Runtime,
}

impl NfsServer {
    /// Serves `files` at an address of this machine alone, or at any if it `is_exposed`.
    ///
    /// # Errors
    /// [`ListenError`]
    pub fn start(address: SocketAddr, is_exposed: bool, files: Arc<dyn Served>) -> Result<Self, ListenError> {
        check_address(address, is_exposed)?;
        let threads = threads("nfs")?;
        let failed = |source| ListenError::Listen { address, source };
        let outer = threads.block_on(TcpListener::bind(address)).map_err(failed)?;
        let listener = threads.block_on(NFSTcpListener::bind(INNER, Adapter::new(files))).map_err(failed)?;
        let inner = SocketAddr::new(listener.get_listen_ip(), listener.get_listen_port());
        let address = outer.local_addr().map_err(failed)?;
        threads.spawn(guard::stand_before(inner, outer));
        threads.spawn(async move {
            // Accepting fails where there are too many connections: others end.
            while let Err(error) = listener.handle_forever().await {
                tracing::warn!(%error, "a client of NFS could not be taken in");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        Ok(Self { address, threads })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it.
    pub fn close(self) {
        self.threads.shutdown_timeout(ENDING);
    }
}
