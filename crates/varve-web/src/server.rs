//! The server: sockets, their limits, and the threads behind them.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use varve_serve::{
    ClientSlot, ClientSlots, ListenError, TcpServer, WatchedSocket, check_address, keep_alive, listen,
    threads,
};

use crate::gate::Gate;
use crate::gate::host_names::HostNames;
use crate::gate::logins::LoginLinks;
use crate::gate::password::PasswordLogin;
use crate::routes;
use crate::settings::WebSettings;
use crate::site::Site;

/// The maximum number of connections. When another client connects, the one that has been idle
/// longest is dropped.
const CLIENTS_MAX: usize = 256;
/// Time limit for a client to send its request header, and for silence between requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(20);
/// A client that takes none of its answer for this long is dropped.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum size of a request header. A path in a snapshot has up to 4096 bytes, and each can
/// take three characters.
const HEADER_BYTES_MAX: usize = 32 << 10;
/// The maximum number of header lines.
const HEADER_LINES_MAX: usize = 64;

/// The page, served until it is dropped.
pub struct WebServer {
    server: TcpServer,
    scheme: &'static str,
    links: Arc<LoginLinks>,
}

impl WebServer {
    /// The address for browsers.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}/", self.scheme, self.server.address())
    }

    /// The links that log in a browser.
    #[must_use]
    pub fn links(&self) -> &Arc<LoginLinks> {
        &self.links
    }
}

/// Serves the page. Without `is_exposed`, the address must be a loopback address.
///
/// # Errors
/// [`ListenError`]
pub fn serve(settings: WebSettings) -> Result<WebServer, ListenError> {
    check_address(settings.address, settings.is_exposed)?;
    let threads = threads("web")?;
    let (listener, address) = listen(&threads, settings.address)?;
    let hosts = HostNames::new(address, settings.is_exposed, &settings.host_names);
    let links = Arc::new(LoginLinks::new(Arc::clone(&settings.random)));
    let password = settings.password.clone().map(PasswordLogin::new);
    let gate = Gate::new(
        hosts,
        Arc::clone(&links),
        password,
        address.port(),
        settings.tls.is_some(),
        Arc::clone(&settings.random),
    );
    let gate = gate.map_err(ListenError::Threads)?;
    let tls = settings.tls.as_ref().map(|identity| TlsAcceptor::from(identity.config()));
    let scheme = if tls.is_some() { "https" } else { "http" };
    let router = routes::router(Site::new(gate, settings));
    threads.spawn(ClientSlots::serve_each(CLIENTS_MAX, listener, "HTTP", move |socket, _, place| {
        let (place, router, tls) = (Arc::new(place), router.clone(), tls.clone());
        async move {
            place.hold_while(serve_client(socket, tls, router, &place)).await;
        }
    }));
    Ok(WebServer { server: TcpServer::new(address, threads), scheme, links })
}

async fn serve_client(socket: TcpStream, tls: Option<TlsAcceptor>, router: Router, place: &Arc<ClientSlot>) {
    keep_alive(&socket).ok();
    let socket = WatchedSocket::new(socket, Arc::clone(place), SEND_TIMEOUT);
    match tls {
        None => serve_http(socket, router, place).await,
        Some(tls) => match timeout(HEADER_TIMEOUT, tls.accept(socket)).await {
            Ok(Ok(socket)) => serve_http(socket, router, place).await,
            Ok(Err(error)) => tracing::debug!(%error, "the TLS handshake with a client failed"),
            Err(_) => tracing::debug!("the TLS handshake with a client took too long"),
        },
    }
}

async fn serve_http<S>(socket: S, router: Router, place: &Arc<ClientSlot>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (own, router) = (Arc::clone(place), TowerToHyperService::new(router));
    let service = service_fn(move |request: Request<Incoming>| {
        own.note_activity();
        router.call(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADER_LINES_MAX);
    if let Err(error) = http.serve_connection(TokioIo::new(socket), service).await {
        tracing::debug!(%error, "a client of the page disconnected");
    }
}
