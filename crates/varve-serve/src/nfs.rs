//! NFS version 3 over TCP, read-only: for other machines, and for programs without FUSE.
//!
//! A client that can connect can read everything, because NFS does not authenticate users. A handle
//! is the number of a file, and is valid as long as the server knows that number. NFS clients never
//! report which files they have forgotten, so a server for large trees wraps its files in
//! [`BoundedFileSystem`](crate::BoundedFileSystem).

mod adapter;
mod guard;
mod read_only;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nfs3_server::tcp::{NFSTcp, NFSTcpListener};

use crate::ServedFileSystem;
use crate::network::{ListenError, TcpServer, check_address, listen, threads};
use adapter::NfsAdapter;

/// The NFS library listens here, behind our guard: any loopback port.
const INNER: &str = "127.0.0.1:0";

/// Serves `files` until the server is dropped. Without `is_exposed`, `address` must be a loopback
/// address.
///
/// # Errors
/// [`ListenError`]
pub fn serve(
    address: SocketAddr,
    is_exposed: bool,
    files: Arc<dyn ServedFileSystem>,
) -> Result<TcpServer, ListenError> {
    check_address(address, is_exposed)?;
    let threads = threads("nfs")?;
    let (outer, address) = listen(&threads, address)?;
    let failed = |source| ListenError::Listen { address, source };
    let listener = threads.block_on(NFSTcpListener::bind(INNER, NfsAdapter::new(files))).map_err(failed)?;
    let inner = SocketAddr::new(listener.get_listen_ip(), listener.get_listen_port());
    threads.spawn(guard::stand_before(inner, outer));
    threads.spawn(async move {
        // Accepting fails when too many connections are open. Wait until some have ended.
        while let Err(error) = listener.handle_forever().await {
            tracing::warn!(%error, "an NFS client could not be accepted");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    Ok(TcpServer::new(address, threads))
}
