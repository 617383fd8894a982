//! WebDAV, read-only: the same tree for browsers, file managers and whatever speaks HTTP.
//!
//! WebDAV knows files and folders. A symbolic link is shown as what it leads to, if that lies in the same tree; devices, sockets, fifos and
//! links that lead nowhere are left out. Whoever can connect can read everything; but no page that a browser shows, neither one from elsewhere nor
//! one out of the archive.

mod adapter;
mod host;
mod socket;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dav_server::body::Body;
use dav_server::{DavHandler, DavMethodSet};
use hyper::body::Incoming;
use hyper::header::{ACCEPT_RANGES, CONTENT_SECURITY_POLICY, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::Served;
use crate::network::{ListenError, check_address, keep_alive, threads};
use crate::places::{Place, Places};
use adapter::Adapter;
use socket::Watched;

/// How many clients there are at the same time; when another comes, who is idle longest makes room.
const CLIENTS_MAX: usize = 256;
/// How long a client may take to say what it wants.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it may take nothing of what it has asked for.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// How much of a file is read at a time.
const READ_BYTES: usize = 256 << 10;
/// How long answers that were begun may take when the server ends.
const ENDING: Duration = Duration::from_secs(2);

/// A server that runs until it is closed.
pub struct WebDavServer {
    address: SocketAddr,
    threads: Runtime,
}

impl WebDavServer {
    /// Serves `files` at an address of this machine alone, or at any if it `is_exposed`.
    ///
    /// # Errors
    /// [`ListenError`]
    pub fn start(address: SocketAddr, is_exposed: bool, files: Arc<dyn Served>) -> Result<Self, ListenError> {
        check_address(address, is_exposed)?;
        let threads = threads("webdav")?;
        let failed = |source| ListenError::Listen { address, source };
        let listener = threads.block_on(TcpListener::bind(address)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let files = DavHandler::builder()
            .filesystem(Box::new(Adapter::new(files)))
            .methods(DavMethodSet::WEBDAV_RO)
            .autoindex(true)
            .read_buf_size(READ_BYTES)
            .build_handler();
        let door = Door { files, only: (!is_exposed).then_some(address) };
        threads.spawn(accept(listener, door));
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

/// What is behind a connection.
#[derive(Clone)]
struct Door {
    files: DavHandler,
    /// The address by which it is called, if it is there for this machine alone.
    only: Option<SocketAddr>,
}

impl Door {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if self.only.is_some_and(|address| !host::is_meant(&request, address)) {
            let mut refused =
                Response::new(Body::from("This server answers only to the names of its own machine.\n"));
            *refused.status_mut() = StatusCode::MISDIRECTED_REQUEST;
            return refused;
        }
        let mut answer = self.files.handle(request).await;
        let is_file = answer.headers().contains_key(ACCEPT_RANGES);
        let headers = answer.headers_mut();
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if is_file {
            // A page that was archived is shown, and does nothing: else it would read all that is beside it.
            headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
        }
        answer
    }
}

async fn accept(listener: TcpListener, door: Door) {
    let places = Places::new(CLIENTS_MAX);
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                let (place, door) = (Arc::new(places.take().await), door.clone());
                tokio::spawn(async move {
                    place.hold_while(serve(socket, door, &place)).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a client of WebDAV could not be taken in");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(socket: TcpStream, door: Door, place: &Arc<Place>) {
    keep_alive(&socket).ok();
    let service = service_fn(move |request| {
        place.note_activity();
        let door = door.clone();
        async move { Ok::<_, Infallible>(door.answer(request).await) }
    });
    let socket = Watched::new(socket, Arc::clone(place), SEND_TIMEOUT);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    if let Err(error) = http.serve_connection(TokioIo::new(socket), service).await {
        tracing::debug!(%error, "a client of WebDAV went away");
    }
}
