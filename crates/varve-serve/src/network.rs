//! What the doors to files that listen on sockets share: where they may listen, and the threads that answer.
//!
//! NFS and WebDAV send what they serve as it is, to whoever asks: out of an encrypted store, without its encryption, and without asking for
//! a key. So they listen where only this machine comes, unless whoever starts them says that the network may come, too.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketType, sockopt};
use tokio::runtime::{Builder, Runtime};

/// How many requests are answered at the same time, at least: most of them wait for a disk.
const THREADS_MIN: usize = 4;
/// A client of which nothing was heard for this long is asked whether it is still there, and then so often, and so many times.
const KEEPALIVE: Duration = Duration::from_secs(60);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(15);
const KEEPALIVE_COUNT: u32 = 4;

/// Why a door does not open.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Other machines would come, and nobody said that they may.
    #[error(
        "{address} can be reached from other machines, and whoever comes there reads the whole archive, in plain: say --expose if that is meant"
    )]
    Exposed {
        /// Where it was to listen.
        address: SocketAddr,
    },
    /// The same, where what they learn is numbers.
    #[error(
        "{address} can be reached from other machines, and whoever comes there learns how much is stored and asked for: say --expose if that is meant"
    )]
    ExposedNumbers {
        /// Where it was to listen.
        address: SocketAddr,
    },
    /// Nothing can listen there.
    #[error("nothing can listen at {address}")]
    Listen {
        /// Where it was to listen.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// There are no threads for it.
    #[error("no threads can be started")]
    Threads(#[source] io::Error),
}

/// Refuses an address at which other machines come, unless they may.
pub(crate) fn check_address(address: SocketAddr, is_exposed: bool) -> Result<(), ListenError> {
    if is_exposed || address.ip().is_loopback() { Ok(()) } else { Err(ListenError::Exposed { address }) }
}

/// Listens at a socket in the file system. Whoever can connect can read everything: nobody but the socket's owner may, and may not even
/// before its mode is set.
pub(crate) fn listen_privately(path: &Path) -> io::Result<UnixListener> {
    // A socket that nobody listens at any more was left by somebody who was killed.
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

/// Has the system notice that a client's machine has vanished.
pub(crate) fn keep_alive(tcp: &impl AsFd) -> io::Result<()> {
    sockopt::set_socket_keepalive(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(tcp, KEEPALIVE_EVERY)?;
    sockopt::set_tcp_keepcnt(tcp, KEEPALIVE_COUNT)?;
    Ok(())
}

/// The threads of a door.
pub(crate) fn threads(name: &str) -> Result<Runtime, ListenError> {
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
