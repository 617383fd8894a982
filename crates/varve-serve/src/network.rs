//! Shared by the front ends that listen on sockets: the addresses that are permitted, and the
//! threads that answer.
//!
//! NFS and WebDAV serve data in plain text, without asking for a key, even from an encrypted store.
//! They therefore listen only on loopback addresses, unless the user has explicitly exposed them to
//! the network.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketType, sockopt};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// The minimum number of threads that answer requests. Most of them wait for a disk.
const THREADS_MIN: usize = 4;
/// TCP keep-alive: the first probe after this much silence, then the interval and the number of
/// probes.
const KEEPALIVE: Duration = Duration::from_secs(60);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(15);
const KEEPALIVE_COUNT: u32 = 4;

/// When a server ends, unfinished answers get this long.
const ENDING: Duration = Duration::from_secs(2);

/// A front end on a TCP address, which serves until it is dropped.
pub struct TcpServer {
    address: SocketAddr,
    threads: Option<Runtime>,
}

impl TcpServer {
    /// A server whose clients are served by `threads`.
    #[must_use]
    pub fn new(address: SocketAddr, threads: Runtime) -> Self {
        Self { address, threads: Some(threads) }
    }

    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for TcpServer {
    fn drop(&mut self) {
        // Finish the answers before the objects that they are made of are dropped.
        if let Some(threads) = self.threads.take() {
            threads.shutdown_timeout(ENDING);
        }
    }
}

/// Why a front end cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is reachable from other machines, and the user has not permitted that.
    #[error(
        "{address} can be reached from other machines, and every client can read the whole archive without encryption: add --expose to allow that"
    )]
    Exposed { address: SocketAddr },
    /// The same for metrics, which reveal numbers and no data.
    #[error(
        "{address} can be reached from other machines, and every client can read the metrics: add --expose to allow that"
    )]
    ExposedNumbers { address: SocketAddr },
    #[error("cannot listen at {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot start threads")]
    Threads(#[source] io::Error),
}

/// Refuses an address that is reachable from other machines, unless that is permitted.
///
/// # Errors
/// [`ListenError::Exposed`]
pub fn check_address(address: SocketAddr, is_exposed: bool) -> Result<(), ListenError> {
    if is_exposed || address.ip().is_loopback() { Ok(()) } else { Err(ListenError::Exposed { address }) }
}

/// Listens on a Unix socket. A client that connects can read everything, so only the socket's owner
/// may connect. The mode is set before the socket starts to listen.
pub(crate) fn listen_privately(path: &Path) -> io::Result<UnixListener> {
    // A socket on which nobody listens was left behind by a killed process.
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let is_dead =
        || UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_socket && is_dead() {
        fs::remove_file(path)?;
    }
    let socket = net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    net::listen(&socket, 128)?;
    Ok(socket.into())
}

/// Listens on an address, and returns it with the assigned port.
///
/// # Errors
/// [`ListenError::Listen`]
pub fn listen(threads: &Runtime, address: SocketAddr) -> Result<(TcpListener, SocketAddr), ListenError> {
    let failed = |source| ListenError::Listen { address, source };
    let listener = threads.block_on(TcpListener::bind(address)).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Enables TCP keep-alive, to detect that a client's machine has vanished.
///
/// # Errors
/// The system refuses an option of the socket.
pub fn keep_alive(tcp: &impl AsFd) -> io::Result<()> {
    sockopt::set_socket_keepalive(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(tcp, KEEPALIVE_EVERY)?;
    sockopt::set_tcp_keepcnt(tcp, KEEPALIVE_COUNT)?;
    Ok(())
}

/// The thread pool of a front end.
///
/// # Errors
/// [`ListenError::Threads`]
pub fn threads(name: &str) -> Result<Runtime, ListenError> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads((2 * cores).max(THREADS_MIN)).thread_name(name).enable_all();
    builder.build().map_err(ListenError::Threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_comes_only_if_it_may() {
        for local in ["127.0.0.1:0", "127.3.2.1:80", "[::1]:80"] {
            assert!(check_address(local.parse().unwrap(), false).is_ok(), "{local}");
        }
        for open in ["0.0.0.0:80", "192.0.2.1:80", "[::]:80"] {
            let refused = check_address(open.parse().unwrap(), false).unwrap_err().to_string();
            assert!(refused.contains("--expose"), "{refused}");
            assert!(check_address(open.parse().unwrap(), true).is_ok(), "{open}");
        }
    }
}
