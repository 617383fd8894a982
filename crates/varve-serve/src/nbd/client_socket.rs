//! The socket of one connection, with or without TLS, shared by several threads: one receives, and
//! any of them sends.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustls::ServerConnection;

use crate::network::keep_alive;

/// A TCP or a Unix socket.
pub(super) enum PlainSocket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

macro_rules! either {
    ($socket:expr, $inner:ident => $call:expr) => {
        match $socket {
            PlainSocket::Tcp($inner) => $call,
            PlainSocket::Unix($inner) => $call,
        }
    };
}

impl PlainSocket {
    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        either!(self, socket => (&*socket).read(into))
    }

    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        either!(self, socket => (&*socket).write_all(bytes))
    }
}

impl AsFd for PlainSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        either!(self, socket => socket.as_fd())
    }
}

/// A connection's socket; see the module.
pub(super) struct ClientSocket {
    socket: PlainSocket,
    /// Serialises sending. Taken before `tls`.
    sending: Mutex<()>,
    tls: OnceLock<Mutex<ServerConnection>>,
    activity: Mutex<ClientActivity>,
}

/// The latest activity of a client.
#[derive(Debug, Clone, Copy)]
struct ClientActivity {
    /// False until the first request.
    has_asked: bool,
    /// The time of the latest request, or of the connection.
    at: Instant,
}

/// The silence of a client. The greatest gives way first: clients without any request before all
/// others, and the longer silence before the shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Silence {
    is_without_request: bool,
    pub(super) time: Duration,
}

#[expect(clippy::disallowed_methods, reason = "a socket's clock is the real one")]
fn now() -> Instant {
    Instant::now()
}

/// Exclusive access for sending.
pub(super) struct SendGuard<'a> {
    line: &'a ClientSocket,
    _guard: MutexGuard<'a, ()>,
}

impl ClientSocket {
    /// Takes over a socket: sends without delay, detects a vanished peer, and gives up if the peer
    /// accepts no data for `send_timeout`.
    pub(super) fn new(socket: PlainSocket, send_timeout: Duration) -> io::Result<Self> {
        if let PlainSocket::Tcp(tcp) = &socket {
            tcp.set_nodelay(true)?;
            keep_alive(tcp)?;
        }
        either!(&socket, inner => {
            inner.set_nonblocking(false)?;
            inner.set_write_timeout(Some(send_timeout))?;
        });
        let activity = Mutex::new(ClientActivity { has_asked: false, at: now() });
        Ok(Self { socket, sending: Mutex::new(()), tls: OnceLock::new(), activity })
    }

    /// Notes that the client has sent a request.
    pub(super) fn note_request(&self) {
        *self.activity.lock() = ClientActivity { has_asked: true, at: now() };
    }

    /// Returns the silence of a client that gives way to a new one: at once until its first
    /// request, and later after a silence of `silence_max`.
    pub(super) fn silence(&self, silence_max: Duration) -> Option<Silence> {
        let ClientActivity { has_asked, at } = *self.activity.lock();
        let time = now().saturating_duration_since(at);
        (!has_asked || time >= silence_max).then_some(Silence { is_without_request: !has_asked, time })
    }

    /// Sets the time limit of a single wait for bytes.
    pub(super) fn set_receive_timeout(&self, timeout: Duration) -> io::Result<()> {
        either!(&self.socket, inner => inner.set_read_timeout(Some(timeout.max(Duration::from_millis(1)))))
    }

    /// Switches to TLS from here on. The bytes that are received next complete its handshake.
    pub(super) fn start_tls(&self, config: Arc<rustls::ServerConfig>) -> Result<(), rustls::Error> {
        let mut connection = ServerConnection::new(config)?;
        // The senders bound their data themselves.
        connection.set_buffer_limit(None);
        self.tls.get_or_init(|| Mutex::new(connection));
        Ok(())
    }

    /// Waits for bytes, using `scratch`, and appends them to `into`. Returns `false` if there will
    /// be no more. Only one thread may receive at a time.
    pub(super) fn receive(&self, scratch: &mut [u8], into: &mut Vec<u8>) -> io::Result<bool> {
        let count = self.socket.read(scratch)?;
        let raw = scratch.get(..count).unwrap_or_default();
        let Some(tls) = self.tls.get() else {
            into.extend_from_slice(raw);
            return Ok(count > 0);
        };
        let (is_open, wants_write) = {
            let mut tls = tls.lock();
            let is_open = take_encrypted(&mut tls, raw, into)?;
            (is_open, tls.wants_write())
        };
        if wants_write {
            drop(self.sending());
        }
        Ok(count > 0 && is_open)
    }

    /// Waits for exclusive access for sending.
    pub(super) fn sending(&self) -> SendGuard<'_> {
        let sending = SendGuard { line: self, _guard: self.sending.lock() };
        // Send pending TLS messages now, as there may be no data to send for a long time.
        drop(sending.send(&[]));
        sending
    }

    /// Stops receiving: waiting receivers see the end of the stream.
    pub(super) fn stop_receiving(&self) {
        drop(either!(&self.socket, inner => inner.shutdown(Shutdown::Read)));
    }

    /// Closes both directions, and wakes all waiting threads.
    pub(super) fn close(&self) {
        drop(either!(&self.socket, inner => inner.shutdown(Shutdown::Both)));
    }

    /// Sends TLS's closing message, so that the peer can tell a proper end from a cut connection.
    pub(super) fn say_goodbye(&self) {
        if let Some(tls) = self.tls.get() {
            tls.lock().send_close_notify();
            drop(self.sending());
        }
    }
}

impl SendGuard<'_> {
    /// Sends all of the bytes.
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = self.line.tls.get() else {
            return if bytes.is_empty() { Ok(()) } else { self.line.socket.write_all(bytes) };
        };
        let mut encrypted = Vec::with_capacity(bytes.len() + bytes.len() / 100 + 64);
        {
            let mut tls = tls.lock();
            tls.writer().write_all(bytes)?;
            while tls.wants_write() {
                tls.write_tls(&mut encrypted)?;
            }
        }
        self.line.socket.write_all(&encrypted)
    }
}

/// Decrypts received bytes. Returns `false` if the peer has sent the closing message.
fn take_encrypted(tls: &mut ServerConnection, mut raw: &[u8], into: &mut Vec<u8>) -> io::Result<bool> {
    let broken = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    while !raw.is_empty() {
        if tls.read_tls(&mut raw)? == 0 {
            break;
        }
        let state = tls.process_new_packets().map_err(broken)?;
        let start = into.len();
        into.resize(start + state.plaintext_bytes_to_read(), 0);
        tls.reader().read_exact(&mut into[start..])?;
        if state.peer_has_closed() {
            return Ok(false);
        }
    }
    Ok(true)
}
