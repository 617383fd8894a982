//! One connection's socket, with TLS around it or not, used by many threads: one of them listens, any of them sends.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustls::ServerConnection;

use crate::network::keep_alive;

/// A socket of either kind.
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

macro_rules! either {
    ($socket:expr, $inner:ident => $call:expr) => {
        match $socket {
            Socket::Tcp($inner) => $call,
            Socket::Unix($inner) => $call,
        }
    };
}

impl Socket {
    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        either!(self, socket => (&*socket).read(into))
    }

    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        either!(self, socket => (&*socket).write_all(bytes))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        either!(self, socket => socket.as_fd())
    }
}

/// See the module.
pub(super) struct Line {
    socket: Socket,
    /// Held while something is sent that nothing may come between. Taken before `tls`.
    sending: Mutex<()>,
    tls: OnceLock<Mutex<ServerConnection>>,
}

/// The right to send; nobody else sends while it is held.
pub(super) struct Sending<'a> {
    line: &'a Line,
    _guard: MutexGuard<'a, ()>,
}

impl Line {
    /// Takes a socket over: sends at once what is sent, notices that the other side has vanished, and waits for it no longer than
    /// `send_timeout` when it takes nothing.
    pub(super) fn new(socket: Socket, send_timeout: Duration) -> io::Result<Self> {
        if let Socket::Tcp(tcp) = &socket {
            tcp.set_nodelay(true)?;
            keep_alive(tcp)?;
        }
        either!(&socket, inner => {
            inner.set_nonblocking(false)?;
            inner.set_write_timeout(Some(send_timeout))?;
        });
        Ok(Self { socket, sending: Mutex::new(()), tls: OnceLock::new() })
    }

    /// How long one wait for bytes may take.
    pub(super) fn set_receive_timeout(&self, timeout: Duration) -> io::Result<()> {
        either!(&self.socket, inner => inner.set_read_timeout(Some(timeout.max(Duration::from_millis(1)))))
    }

    /// From here on, everything goes through TLS. What is received next completes its handshake.
    pub(super) fn start_tls(&self, config: Arc<rustls::ServerConfig>) -> Result<(), rustls::Error> {
        let mut connection = ServerConnection::new(config)?;
        // What is sent is bounded by whoever sends it.
        connection.set_buffer_limit(None);
        self.tls.get_or_init(|| Mutex::new(connection));
        Ok(())
    }

    /// Waits for bytes, through `scratch`, and appends them to `into`. `false`: there will be no more. One thread at a time.
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

    /// The right to send.
    pub(super) fn sending(&self) -> Sending<'_> {
        let sending = Sending { line: self, _guard: self.sending.lock() };
        // What TLS itself has to say must not wait for us to say something.
        drop(sending.send(&[]));
        sending
    }

    /// No more bytes will be received: whoever waits for them is told that there are none.
    pub(super) fn stop_receiving(&self) {
        drop(either!(&self.socket, inner => inner.shutdown(Shutdown::Read)));
    }

    /// The end, for both directions and whoever waits.
    pub(super) fn close(&self) {
        drop(either!(&self.socket, inner => inner.shutdown(Shutdown::Both)));
    }

    /// Says goodbye, as TLS wants it, so that the other side knows that nothing was cut off.
    pub(super) fn say_goodbye(&self) {
        if let Some(tls) = self.tls.get() {
            tls.lock().send_close_notify();
            drop(self.sending());
        }
    }
}

impl Sending<'_> {
    /// Sends all of it.
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

/// Decrypts what has come. `false`: the other side has said goodbye.
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
