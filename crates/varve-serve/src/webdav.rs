//! A read-only WebDAV server, for browsers, file managers and other HTTP clients.
//!
//! WebDAV knows only files and folders. A symbolic link is shown as its target, if that is in the
//! same tree. Devices, sockets, FIFOs and dangling links are left out. Any client that can connect
//! can read everything, with one exception: pages shown by a browser, whether they come from
//! elsewhere or from the archive.

mod adapter;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dav_server::body::Body;
use dav_server::{DavHandler, DavMethodSet};
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT_RANGES, CONTENT_SECURITY_POLICY, HeaderMap, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};

use crate::ServedFileSystem;
use crate::host;
use crate::http_server::{HttpLimits, serve_http};
use crate::network::{ListenError, TcpServer, check_address, listen, threads};
use adapter::WebDavAdapter;

const LIMITS: HttpLimits = HttpLimits {
    protocol: "WebDAV",
    clients_max: 256,
    header_timeout: Duration::from_secs(30),
    send_timeout: Duration::from_secs(60),
    one_request_within: None,
};
/// The bytes of a file that are read at a time.
const READ_BYTES: usize = 256 << 10;

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
    let threads = threads("webdav")?;
    let (listener, address) = listen(&threads, address)?;
    let files = DavHandler::builder()
        .filesystem(Box::new(WebDavAdapter::new(files)))
        .methods(DavMethodSet::WEBDAV_RO)
        .autoindex(true)
        .read_buf_size(READ_BYTES)
        .build_handler();
    let handler = WebDavHandler { files, only: (!is_exposed).then_some(address) };
    let service = service_fn(move |request| {
        let handler = handler.clone();
        async move { Ok::<_, Infallible>(handler.answer(request).await) }
    });
    threads.spawn(serve_http(listener, LIMITS, None, service));
    Ok(TcpServer::new(address, threads))
}

/// The handler behind each connection.
#[derive(Clone)]
struct WebDavHandler {
    files: DavHandler,
    /// Set if the server is for this machine only: requests must name this machine.
    only: Option<SocketAddr>,
}

impl WebDavHandler {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if self.only.is_some_and(|address| !host::is_meant(&request, address)) {
            let mut refused =
                Response::new(Body::from("This server answers only requests that name this machine.\n"));
            *refused.status_mut() = StatusCode::MISDIRECTED_REQUEST;
            return refused;
        }
        let is_options = request.method() == Method::OPTIONS;
        let mut answer = self.files.handle(request).await;
        if is_options {
            restrict_promises(answer.headers_mut());
        }
        let is_file = answer.headers().contains_key(ACCEPT_RANGES);
        let headers = answer.headers_mut();
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if is_file {
            // Run archived pages in a sandbox: their scripts could otherwise read the rest of the
            // archive.
            headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
        }
        answer
    }
}

/// Corrects the answer to a question about the server's abilities. The library always announces
/// locks and partial updates, which a server that is only read does not have.
fn restrict_promises(headers: &mut HeaderMap) {
    headers.insert(HeaderName::from_static("dav"), HeaderValue::from_static("1"));
}
