//! The one HTTP server of the front ends: accepts clients, bounds what each may take, and passes
//! their requests to a service.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::client_slots::{ClientSlot, ClientSlots};
use crate::network::keep_alive;
use crate::tls::TlsIdentity;
use crate::watched_socket::WatchedSocket;

/// The maximum size of a request header. A path in a snapshot has up to 4096 bytes, and each can
/// take three characters.
const HEADER_BYTES_MAX: usize = 32 << 10;
/// The maximum number of header lines.
const HEADER_LINES_MAX: usize = 64;

/// The limits of a server.
#[derive(Debug, Clone, Copy)]
pub struct HttpLimits {
    /// The name of the protocol in log messages.
    pub protocol: &'static str,
    /// The maximum number of clients. When another one connects, the client that has been idle
    /// longest is dropped.
    pub clients_max: usize,
    /// Time limit for a client to send its request header, for a TLS handshake, and for silence
    /// between requests.
    pub header_timeout: Duration,
    /// A client that takes none of its answer for this long is dropped.
    pub send_timeout: Duration,
    /// A time limit for a whole connection, which then has one request.
    pub one_request_within: Option<Duration>,
}

/// Serves clients for ever. With `tls`, connections are encrypted.
pub async fn serve_http<S, B>(
    listener: TcpListener,
    limits: HttpLimits,
    tls: Option<&TlsIdentity>,
    service: S,
) where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let tls = tls.map(|identity| TlsAcceptor::from(identity.config()));
    let serve = |socket, _, slot| {
        let (slot, service, tls) = (Arc::new(slot), service.clone(), tls.clone());
        async move {
            let served = serve_client(socket, limits, tls, service, &slot);
            // It ends early if it takes too long, or if another client needs the slot.
            let _: Option<Result<(), Elapsed>> = match limits.one_request_within {
                None => slot.hold_while(served).await.map(Ok),
                Some(time) => slot.hold_while(timeout(time, served)).await,
            };
        }
    };
    ClientSlots::serve_each(limits.clients_max, listener, limits.protocol, serve).await;
}

async fn serve_client<S, B>(
    socket: TcpStream,
    limits: HttpLimits,
    tls: Option<TlsAcceptor>,
    service: S,
    slot: &Arc<ClientSlot>,
) where
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    keep_alive(&socket).ok();
    let socket = WatchedSocket::new(socket, Arc::clone(slot), limits.send_timeout);
    let protocol = limits.protocol;
    match tls {
        None => serve_requests(socket, limits, service, slot).await,
        Some(tls) => match timeout(limits.header_timeout, tls.accept(socket)).await {
            Ok(Ok(socket)) => serve_requests(socket, limits, service, slot).await,
            Ok(Err(error)) => tracing::debug!(%error, protocol, "the TLS handshake with a client failed"),
            Err(_) => tracing::debug!(protocol, "the TLS handshake with a client took too long"),
        },
    }
}

async fn serve_requests<C, S, B>(socket: C, limits: HttpLimits, service: S, slot: &ClientSlot)
where
    C: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let noted = service_fn(|request| {
        slot.note_activity();
        service.call(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADER_LINES_MAX)
        .keep_alive(limits.one_request_within.is_none());
    if let Err(error) = http.serve_connection(TokioIo::new(socket), noted).await {
        tracing::debug!(%error, protocol = limits.protocol, "a client disconnected");
    }
}
