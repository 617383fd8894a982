//! Serves one page of metrics over HTTP, in the text format of Prometheus. The caller supplies the
//! page.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use tokio::runtime::Builder;

use crate::http_server::{HttpLimits, serve_http};
use crate::network::{ListenError, TcpServer, listen};

/// Time limit for the whole connection: the request and the answer.
const PATIENCE: Duration = Duration::from_secs(10);
const LIMITS: HttpLimits = HttpLimits {
    protocol: "metrics",
    clients_max: 64,
    header_timeout: Duration::from_secs(3),
    send_timeout: PATIENCE,
    one_request_within: Some(PATIENCE),
};
/// The content type of the Prometheus text format.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
/// The conventional path.
const PATH: &str = "/metrics";

/// Writes the page with the current values.
pub type MetricsPage = Arc<dyn Fn() -> String + Send + Sync>;

/// Serves a page until the server is dropped. Without `is_exposed`, `address` must be a loopback
/// address.
///
/// # Errors
/// [`ListenError`]
pub fn serve(address: SocketAddr, is_exposed: bool, page: MetricsPage) -> Result<TcpServer, ListenError> {
    if !is_exposed && !address.ip().is_loopback() {
        return Err(ListenError::ExposedNumbers { address });
    }
    let mut builder = Builder::new_multi_thread();
    let threads = builder.worker_threads(1).thread_name("metrics").enable_all().build();
    let threads = threads.map_err(ListenError::Threads)?;
    let (listener, address) = listen(&threads, address)?;
    let service = service_fn(move |request: Request<Incoming>| {
        let page = Arc::clone(&page);
        async move { Ok::<_, Infallible>(reply(&request, &page)) }
    });
    threads.spawn(serve_http(listener, LIMITS, None, service));
    Ok(TcpServer::new(address, threads))
}

fn reply(request: &Request<Incoming>, page: &MetricsPage) -> Response<String> {
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    let (status, body) = match request.uri().path() {
        _ if !is_read => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
        PATH | "/" => (StatusCode::OK, page()),
        _ => (StatusCode::NOT_FOUND, format!("the metrics are at {PATH}\n")),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    if !is_read {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn asked(server: &TcpServer, line: &str) -> String {
        let mut socket = std::net::TcpStream::connect(server.address()).unwrap();
        socket.write_all(format!("{line} HTTP/1.1\r\nHost: here\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn the_page_is_as_things_are_now() {
        let count = std::sync::atomic::AtomicU64::new(0);
        let page =
            move || format!("varve_looks {}\n", count.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let server = serve("127.0.0.1:0".parse().unwrap(), false, Arc::new(page)).unwrap();
        for number in 0..2 {
            let answer = asked(&server, "GET /metrics");
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
            assert!(answer.ends_with(&format!("\r\n\r\nvarve_looks {number}\n")), "{answer}");
        }
        assert!(asked(&server, "GET /elsewhere").starts_with("HTTP/1.1 404 "));
        assert!(asked(&server, "POST /metrics").starts_with("HTTP/1.1 405 "));
        assert!(!asked(&server, "HEAD /metrics").contains("varve_looks"));
    }

    #[test]
    fn who_says_nothing_keeps_nobody_away() {
        let server = serve("127.0.0.1:0".parse().unwrap(), false, Arc::new(String::new)).unwrap();
        let silent: Vec<_> = (0..LIMITS.clients_max + 20)
            .map(|_| {
                let mut socket = std::net::TcpStream::connect(server.address()).unwrap();
                socket.write_all(b"GET /").unwrap();
                socket
            })
            .collect();
        let begun = tokio::time::Instant::now();
        assert!(asked(&server, "GET /metrics").starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
        drop(silent);
    }

    #[test]
    fn other_machines_look_only_if_they_may() {
        let start = |is_exposed| serve("0.0.0.0:0".parse().unwrap(), is_exposed, Arc::new(String::new));
        let refused = start(false).map(drop).unwrap_err().to_string();
        assert!(refused.contains("--expose"), "{refused}");
        assert_ne!(start(true).unwrap().address().port(), 0);
    }
}
