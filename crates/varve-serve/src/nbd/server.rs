//! Accepts clients, and starts a thread for each.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, poll};
use varve_block::with_causes;

use super::client_socket::{ClientSocket, PlainSocket};
use super::connection;
use super::disks::ServedDisks;
use super::endpoint::Endpoint;
use super::nbd_settings::NbdSettings;
use crate::network::listen_privately;

enum NbdListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl NbdListener {
    fn accept(&self) -> io::Result<PlainSocket> {
        match self {
            Self::Tcp(listener) => listener.accept().map(|(socket, _)| PlainSocket::Tcp(socket)),
            Self::Unix(listener) => listener.accept().map(|(socket, _)| PlainSocket::Unix(socket)),
        }
    }
}

impl AsFd for NbdListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

/// A running server. Dropping it ends it without waiting for its clients; [`drain`](Self::drain)
/// waits.
pub struct NbdServer {
    endpoint: Endpoint,
    shared: Arc<NbdServerShared>,
    waker: UnixStream,
    accepting: Option<JoinHandle<()>>,
    /// The file of the Unix socket, which this server created and removes.
    socket_file: Option<PathBuf>,
}

struct NbdServerShared {
    disks: Arc<dyn ServedDisks>,
    settings: NbdSettings,
    lines: Mutex<OpenSockets>,
    one_ended: Condvar,
}

#[derive(Default)]
struct OpenSockets {
    open: BTreeMap<u64, Arc<ClientSocket>>,
    next: u64,
}

impl OpenSockets {
    /// Ends a silent client. Returns false if none is silent.
    fn end_silent(&mut self, settings: &NbdSettings) -> bool {
        let silences = self.open.iter();
        let silences =
            silences.filter_map(|(number, line)| Some((line.silence(settings.silence_max)?, *number)));
        let Some((silence, number)) = silences.max() else { return false };
        if let Some(line) = self.open.remove(&number) {
            let silent_s = silence.time.as_secs();
            tracing::warn!(number, silent_s, "a silent client was disconnected, because another one came");
            line.close();
        }
        true
    }
}

impl NbdServer {
    /// Listens, and serves clients until it is dropped or drained.
    ///
    /// # Errors
    /// The server cannot listen on this address.
    pub fn start(
        endpoint: &Endpoint,
        disks: Arc<dyn ServedDisks>,
        settings: NbdSettings,
    ) -> io::Result<Self> {
        let (listener, endpoint, socket_file) = listen(endpoint)?;
        match &listener {
            NbdListener::Tcp(listener) => listener.set_nonblocking(true)?,
            NbdListener::Unix(listener) => listener.set_nonblocking(true)?,
        }
        let (waker, woken) = UnixStream::pair()?;
        let shared =
            Arc::new(NbdServerShared { disks, settings, lines: Mutex::default(), one_ended: Condvar::new() });
        let accepting = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("nbd".into())
                .spawn(move || accept_until_woken(&listener, &woken, &shared))?
        };
        Ok(Self { endpoint, shared, waker, accepting: Some(accepting), socket_file })
    }

    /// The address on which it listens. If port 0 was requested, it has the assigned port.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Ends the server gracefully: accepts no new clients and no new requests, and answers the
    /// requests that have arrived. Clients that do not take their answers in time are dropped.
    pub fn drain(mut self) {
        self.stop_accepting();
        let mut lines = self.shared.lines.lock();
        lines.open.values().for_each(|line| line.stop_receiving());
        let is_served = |lines: &mut OpenSockets| !lines.open.is_empty();
        let timeout = self.shared.settings.drain_timeout;
        let outcome = self.shared.one_ended.wait_while_for(&mut lines, is_served, timeout);
        if outcome.timed_out() {
            tracing::warn!(count = lines.open.len(), "clients that read no answers were disconnected");
        }
    }

    fn stop_accepting(&mut self) {
        use io::Write;
        // The accepting thread ends at the first byte, or when this end is closed.
        drop(self.waker.write_all(&[0]));
        if let Some(accepting) = self.accepting.take() {
            drop(accepting.join());
        }
        if let Some(path) = self.socket_file.take() {
            drop(fs::remove_file(path));
        }
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.stop_accepting();
        self.shared.lines.lock().open.values().for_each(|line| line.close());
    }
}

fn listen(endpoint: &Endpoint) -> io::Result<(NbdListener, Endpoint, Option<PathBuf>)> {
    match endpoint {
        Endpoint::Tcp(host, port) => {
            let addresses: Vec<SocketAddr> = (host.as_str(), *port).to_socket_addrs()?.collect();
            let listener = TcpListener::bind(addresses.as_slice())?;
            let port = listener.local_addr()?.port();
            Ok((NbdListener::Tcp(listener), Endpoint::Tcp(host.clone(), port), None))
        }
        Endpoint::Unix(path) => {
            Ok((NbdListener::Unix(listen_privately(path)?), endpoint.clone(), Some(path.clone())))
        }
    }
}

fn accept_until_woken(listener: &NbdListener, woken: &UnixStream, shared: &Arc<NbdServerShared>) {
    loop {
        let mut waited = [PollFd::new(listener, PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
        match poll(&mut waited, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "no more clients can be accepted");
                return;
            }
        }
        if !waited[1].revents().is_empty() {
            return;
        }
        match listener.accept() {
            Ok(socket) => welcome(socket, shared),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                tracing::warn!(%error, "a client could not be accepted");
                // Perhaps the process has no file descriptors left: give the present clients time
                // to end.
                pause();
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a socket's clock is the real one")]
fn pause() {
    std::thread::sleep(Duration::from_millis(100));
}

fn welcome(socket: PlainSocket, shared: &Arc<NbdServerShared>) {
    let line = match ClientSocket::new(socket, shared.settings.send_timeout) {
        Ok(line) => Arc::new(line),
        Err(error) => return tracing::warn!(%error, "a client could not be accepted"),
    };
    let number = {
        let mut lines = shared.lines.lock();
        if lines.open.len() >= shared.settings.connections_max && !lines.end_silent(&shared.settings) {
            return tracing::warn!("a client was refused: {} are connected already", lines.open.len());
        }
        lines.next += 1;
        let number = lines.next;
        lines.open.insert(number, Arc::clone(&line));
        number
    };
    let served = Arc::clone(shared);
    let thread = std::thread::Builder::new().name(format!("nbd {number}")).spawn(move || {
        match connection::serve(&line, served.disks.as_ref(), &served.settings) {
            Ok(()) => tracing::debug!(number, "a client has disconnected"),
            Err(error) => tracing::warn!(number, error = with_causes(&error), "a connection was ended"),
        }
        line.say_goodbye();
        line.close();
        served.lines.lock().open.remove(&number);
        served.one_ended.notify_all();
    });
    if let Err(error) = thread {
        tracing::warn!(%error, "a client could not be accepted");
        shared.lines.lock().open.remove(&number);
    }
}
