//! Listens, and accepts clients.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use varve_block::{BlockStore, with_causes};
use varve_venti::{Address, SCORE_BYTES};

use super::byte_budget::CommonBudget;
use super::client_access::ClientAccess;
use super::connection::{VentiServerShared, serve};
use super::connection_error::VentiConnectionError;
use super::flush::keep_durable;
use super::inherited::InheritedSockets;
use super::listen::{BoundListener, ListenAccess, ListenAddress, VentiListener, bind};
use super::sessions::OpenSession;
use super::start_error::StartError;
use super::state::{VentiCounts, VentiServerState};
use super::venti_settings::VentiSettings;
use crate::network::keep_alive;

/// A server that runs until it is drained or dropped.
pub struct VentiServer {
    addresses: Vec<(Address, ListenAccess)>,
    socket_files: Vec<PathBuf>,
    shared: Arc<VentiServerShared>,
    clients: Arc<Semaphore>,
    stop: watch::Sender<bool>,
    threads: Option<Runtime>,
}

impl VentiServer {
    /// Listens on the given addresses, and serves their clients.
    ///
    /// # Errors
    /// [`StartError`]
    pub fn start(
        wanted: &[ListenAddress],
        is_exposed: bool,
        inherited: &mut InheritedSockets,
        blocks: Arc<dyn BlockStore>,
        settings: VentiSettings,
    ) -> Result<Self, StartError> {
        if blocks.score_bytes() != SCORE_BYTES {
            return Err(StartError::NotSha1 { bytes: blocks.score_bytes() });
        }
        let bound = bind(wanted, is_exposed, inherited, settings.tls.as_ref())?;
        let mut builder = Builder::new_multi_thread();
        builder.thread_name("venti").enable_all().max_blocking_threads(settings.workers.max(1));
        let threads = builder.build().map_err(StartError::Threads)?;
        let state = Arc::new(VentiServerState::new(blocks, &settings));
        let clients = Arc::new(Semaphore::new(settings.clients_max));
        let room = CommonBudget::new(settings.all_clients_bytes);
        let shared = Arc::new(VentiServerShared { state, settings, room });
        let (stop, stopped) = watch::channel(false);
        let mut server = Self {
            addresses: bound.iter().map(|bound| (bound.address.clone(), bound.access)).collect(),
            socket_files: bound.iter().filter_map(|bound| bound.socket_file.clone()).collect(),
            shared: Arc::clone(&shared),
            clients: Arc::clone(&clients),
            stop,
            threads: None,
        };
        let entered = threads.enter();
        if wanted.iter().any(|listening| listening.access == ListenAccess::ReadWrite) {
            let (state, delay) = (Arc::clone(&shared.state), shared.settings.sync_after);
            threads.spawn(keep_durable(state, delay, stopped.clone()));
        }
        for BoundListener { listener, access, tls, address, .. } in bound {
            let at = address.to_string();
            let failed = |source| StartError::Socket { at, source };
            let accept_loop = AcceptLoop {
                listener: open(listener).map_err(failed)?,
                is_read_only: access == ListenAccess::ReadOnly,
                tls: tls.map(|identity| TlsAcceptor::from(identity.config())),
                shared: Arc::clone(&shared),
                clients: Arc::clone(&clients),
                stop: stopped.clone(),
            };
            threads.spawn(accept_loop.accept());
        }
        drop(entered);
        server.threads = Some(threads);
        Ok(server)
    }

    /// The addresses on which it listens, with the assigned ports, and the access that each
    /// permits.
    #[must_use]
    pub fn addresses(&self) -> &[(Address, ListenAccess)] {
        &self.addresses
    }

    /// The counters since the start.
    #[must_use]
    pub fn counts(&self) -> VentiCounts {
        self.shared.state.counts()
    }

    /// Ends the server gracefully: accepts no new clients and no new requests, and answers the
    /// requests that have arrived. Clients that do not take their answers in time are dropped. It
    /// does not sync the store: that is left to the owner.
    pub fn drain(mut self) {
        self.stop.send_replace(true);
        let Some(threads) = self.threads.take() else { return };
        let settings = &self.shared.settings;
        let all = u32::try_from(settings.clients_max).unwrap_or(u32::MAX);
        let all_gone =
            async { tokio::time::timeout(settings.drain_timeout, self.clients.acquire_many(all)).await };
        if threads.block_on(all_gone).is_err() {
            tracing::warn!("clients that read no answers were disconnected");
        }
        threads.shutdown_timeout(settings.drain_timeout);
    }
}

impl Drop for VentiServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        for path in self.socket_files.drain(..) {
            drop(fs::remove_file(path));
        }
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

enum OpenListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

fn open(listener: VentiListener) -> io::Result<OpenListener> {
    Ok(match listener {
        VentiListener::Tcp(listener) => {
            listener.set_nonblocking(true)?;
            OpenListener::Tcp(TcpListener::from_std(listener)?)
        }
        VentiListener::Unix(listener) => {
            listener.set_nonblocking(true)?;
            OpenListener::Unix(UnixListener::from_std(listener)?)
        }
    })
}

struct AcceptLoop {
    listener: OpenListener,
    is_read_only: bool,
    tls: Option<TlsAcceptor>,
    shared: Arc<VentiServerShared>,
    clients: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
}

impl AcceptLoop {
    async fn accept(mut self) {
        let mut stop = self.stop.clone();
        loop {
            let accepted = tokio::select! {
                biased;
                _ = stop.wait_for(|is_stopped| *is_stopped) => return,
                accepted = self.accept_one() => accepted,
            };
            if let Err(error) = accepted {
                tracing::warn!(%error, "a Venti client could not be accepted");
                // Perhaps the process has no file descriptors left: give the present clients time
                // to end.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }

    async fn accept_one(&mut self) -> io::Result<()> {
        match &self.listener {
            OpenListener::Tcp(listener) => {
                let (socket, peer) = listener.accept().await?;
                if let Some(place) = self.place() {
                    prepare(&socket)?;
                    let (host, port) = (peer.ip().to_string(), peer.port());
                    match &self.tls {
                        None => {
                            let (reader, writer) = socket.into_split();
                            self.welcome(place, Address::Tcp(host, port), plain(reader, writer));
                        }
                        Some(tls) => {
                            let shaking = tls.accept(socket);
                            let patience = self.shared.settings.hello_timeout;
                            let halves = async move {
                                let silent = |_| io::Error::from(io::ErrorKind::TimedOut);
                                let shaken = timeout(patience, shaking).await.map_err(silent).flatten();
                                shaken.map(tokio::io::split).map_err(VentiConnectionError::Tls)
                            };
                            self.welcome(place, Address::Tls(host, port), halves);
                        }
                    }
                }
            }
            OpenListener::Unix(listener) => {
                let (socket, _) = listener.accept().await?;
                if let Some(place) = self.place() {
                    let user =
                        socket.peer_cred().map_or_else(|_| "?".to_owned(), |peer| peer.uid().to_string());
                    let (reader, writer) = socket.into_split();
                    self.welcome(place, format!("unix socket, user {user}"), plain(reader, writer));
                }
            }
        }
        Ok(())
    }

    /// Takes a slot for one more client, if there is a free one.
    fn place(&self) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.clients).try_acquire_owned().ok();
        let counters = &self.shared.state.counters;
        if place.is_none() {
            // A flood of clients must not flood the log.
            if counters.clients_refused.get().is_power_of_two() || counters.clients_refused.get() == 0 {
                tracing::warn!(
                    clients = self.shared.settings.clients_max,
                    "Venti clients are refused: too many are connected"
                );
            }
            counters.clients_refused.add(1);
        }
        place
    }

    /// Serves a client once the two halves of its connection are ready.
    fn welcome<R, W>(
        &self,
        place: OwnedSemaphorePermit,
        peer: impl ToString,
        halves: impl Future<Output = Result<(R, W), VentiConnectionError>> + Send + 'static,
    ) where
        R: tokio::io::AsyncRead + Unpin + Send + 'static,
        W: tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let (shared, stop) = (Arc::clone(&self.shared), self.stop.clone());
        let access = match (self.is_read_only, &shared.state.sessions) {
            (true, _) => ClientAccess::ReadOnly,
            (false, None) => ClientAccess::ReadWrite(None),
            (false, Some(sessions)) => ClientAccess::ReadWrite(Some(Arc::new(OpenSession::new(
                Arc::clone(sessions),
                peer.to_string(),
            )))),
        };
        tokio::spawn(async move {
            let counters = &shared.state.counters;
            counters.clients.add(1);
            counters.clients_taken.add(1);
            let served = async {
                let (reader, writer) = halves.await?;
                serve(reader, writer, Arc::clone(&shared), access, stop).await
            };
            match served.await {
                Ok(()) => tracing::debug!("a Venti client has disconnected"),
                Err(VentiConnectionError::Socket(error)) => {
                    tracing::debug!(%error, "the connection of a Venti client broke")
                }
                Err(error) => {
                    tracing::warn!(error = with_causes(&error), "the connection of a Venti client was closed")
                }
            }
            counters.clients.subtract(1);
            drop(place);
        });
    }
}

/// The halves of a connection that needs no handshake.
async fn plain<R, W>(reader: R, writer: W) -> Result<(R, W), VentiConnectionError> {
    Ok((reader, writer))
}

fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    keep_alive(socket)
}
