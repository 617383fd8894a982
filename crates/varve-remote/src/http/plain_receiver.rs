//! Receives objects over HTTP without TLS directly into their final buffers. The HTTP library
//! returns its own buffers, and copying from them took an eighth of a clone's processor time:
//! `docs/decisions/0014-received-where-it-is-to-lie.md`. Only the successful answer to a range
//! request is parsed here. For all other answers, the library repeats the request.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use httparse::{EMPTY_HEADER, Status};
use parking_lot::Mutex;
use reqwest::header::HOST;
use reqwest::{Method, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::Position;
use varve_block::to_usize;

use crate::attempt_error::AttemptError;
use crate::edge;
use crate::http::connect::connect;
use crate::http::least_rate::LeastRate;
use crate::transfer::pace::Pace;
use crate::transfer::pieces::PieceCutter;

/// The bytes that are moved between two checks of the pace.
pub(crate) const PACED_BYTES: usize = 64 << 10;

/// The value of the `User-Agent` header.
pub(crate) const USER_AGENT: &str = concat!("varve/", env!("CARGO_PKG_VERSION"));

/// An answer with a longer head, or with more header lines, is left to the library.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;

/// The variables that name a proxy for requests without TLS, and with it. The library handles
/// proxies.
const PROXY_VARIABLES: [[&str; 4]; 2] = [
    ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"],
    ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"],
];

/// Reports whether requests go through a proxy.
pub(crate) fn has_proxy(is_encrypted: bool) -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    PROXY_VARIABLES[usize::from(is_encrypted)].into_iter().any(is_set)
}

/// A connection that was idle for longer is not used again. A router on the way may have dropped
/// its state and would drop packets silently.
const IDLE_MAX: Duration = Duration::from_secs(15);

/// Idle connections to one server.
pub(crate) struct PlainConnections {
    /// Each with the time since when it is idle; the newest is last.
    idle: Mutex<Vec<(Instant, TcpStream)>>,
    /// The address of the host that has answered last.
    answered: Mutex<Option<SocketAddr>>,
    silence_max: Duration,
    public_only: bool,
}

/// A range of an object that is being received.
pub(crate) struct PlainBody {
    home: Arc<PlainConnections>,
    /// `None` after the end of the range.
    connection: Option<TcpStream>,
    /// True if the server keeps the connection open for another request.
    stays: bool,
    /// The bytes that arrived together with the head of the answer.
    begun: Bytes,
    /// The bytes that have not arrived.
    left: u64,
}

impl PlainConnections {
    /// Makes an empty pool. `silence_max` is the time-out of the server. Returns `None` if requests
    /// go through a proxy.
    pub fn new(silence_max: Duration, public_only: bool) -> Option<Arc<Self>> {
        (!has_proxy(false)).then(|| Arc::new(Self::of(silence_max, public_only)))
    }

    fn of(silence_max: Duration, public_only: bool) -> Self {
        Self { idle: Mutex::default(), answered: Mutex::default(), silence_max, public_only }
    }

    /// Requests a range of an object. `None` says nothing about the object: the library must repeat
    /// the request.
    pub async fn ask(
        self: &Arc<Self>,
        request: &Request,
        range: &Range<u64>,
    ) -> Result<Option<PlainBody>, AttemptError> {
        let url = request.url();
        if url.scheme() != "http" || request.method() != Method::GET {
            return Ok(None);
        }
        let head = head_of(request);
        // The server may have closed an idle connection, so the next one is tried.
        while let Some(connection) = self.take_idle() {
            if let Ok(answered) = self.ask_over(connection, &head, range).await {
                return Ok(answered);
            }
        }
        let preferred = *self.answered.lock();
        let connected = self.timed(connect(url, preferred, self.public_only)).await;
        let (connection, address) = connected.map_err(AttemptError::of_io)?;
        *self.answered.lock() = Some(address);
        self.ask_over(connection, &head, range).await.map_err(AttemptError::of_io)
    }

    async fn ask_over(
        self: &Arc<Self>,
        mut connection: TcpStream,
        head: &[u8],
        range: &Range<u64>,
    ) -> io::Result<Option<PlainBody>> {
        self.timed(connection.write_all(head)).await?;
        let mut come = BytesMut::with_capacity(HEAD_BYTES_MAX);
        while come.len() < HEAD_BYTES_MAX {
            if self.timed(connection.read_buf(&mut come)).await? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed"));
            }
            match read_head(&come, range) {
                AnswerHead::Begun => {}
                AnswerHead::Other => return Ok(None),
                AnswerHead::Range { byte_count, stays } => {
                    come.advance(byte_count);
                    return Ok(Some(PlainBody {
                        home: Arc::clone(self),
                        connection: Some(connection),
                        stays,
                        begun: come.freeze(),
                        left: range.end - range.start,
                    }));
                }
            }
        }
        Ok(None)
    }

    async fn timed<T>(&self, coming: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let timed = tokio::time::timeout(self.silence_max, coming).await;
        timed.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    fn take_idle(&self) -> Option<TcpStream> {
        let now = edge::now();
        let mut idle = self.idle.lock();
        idle.retain(|(since, _)| now.saturating_duration_since(*since) < IDLE_MAX);
        idle.pop().map(|(_, connection)| connection)
    }

    fn keep(&self, connection: TcpStream) {
        self.idle.lock().push((edge::now(), connection));
    }
}

impl PlainBody {
    /// Receives until a piece is full, or the range ends; `None` after the end.
    pub async fn next_piece(
        &mut self,
        pieces: &mut PieceCutter,
        down: Option<&Pace>,
        rate: &mut LeastRate,
    ) -> Result<Option<Bytes>, AttemptError> {
        while self.left > 0 {
            let room = pieces.room();
            let most = if down.is_some() { PACED_BYTES } else { room.len() };
            let count = room.len().min(most).min(to_usize(self.left));
            let count = rate.wait(self.receive(&mut room[..count])).await?.map_err(AttemptError::of_io)?;
            rate.earn(count);
            if count == 0 {
                return Err(AttemptError::passing("the answer ended early"));
            }
            if let Some(pace) = down {
                tokio::time::sleep(pace.take(count)).await;
            }
            self.left -= count as u64;
            if let Some(piece) = pieces.advance(count) {
                return Ok(Some(piece));
            }
        }
        if let Some(connection) = self.connection.take()
            && self.stays
            && self.begun.is_empty()
        {
            self.home.keep(connection);
        }
        Ok(pieces.finish())
    }

    async fn receive(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if !self.begun.is_empty() {
            let count = room.len().min(self.begun.len());
            self.begun.copy_to_slice(&mut room[..count]);
            return Ok(count);
        }
        match &mut self.connection {
            Some(connection) => self.home.timed(connection.read(room)).await,
            None => Ok(0),
        }
    }
}

/// Encodes the head of a request.
fn head_of(request: &Request) -> Vec<u8> {
    let url = request.url();
    let path = &url[Position::BeforePath..Position::AfterQuery];
    let host = &url[Position::BeforeHost..Position::AfterPort];
    let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\naccept: */*\r\nuser-agent: {USER_AGENT}\r\n");
    let mut head = head.into_bytes();
    for (name, value) in request.headers().iter().filter(|(name, _)| **name != HOST) {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// The state of the head of an answer.
#[derive(Debug, PartialEq, Eq)]
enum AnswerHead {
    /// The head is incomplete.
    Begun,
    /// The answer is not the requested range.
    Other,
    /// The requested range follows after `byte_count` bytes.
    Range { byte_count: usize, stays: bool },
}

fn read_head(come: &[u8], range: &Range<u64>) -> AnswerHead {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut headers);
    let byte_count = match answer.parse(come) {
        Ok(Status::Complete(byte_count)) => byte_count,
        Ok(Status::Partial) => return AnswerHead::Begun,
        Err(_) => return AnswerHead::Other,
    };
    let values = |name: &'static str| {
        answer
            .headers
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(name))
            .map(|header| header.value)
    };
    let is_only = |name, is_right: &dyn Fn(&[u8]) -> bool| {
        let mut values = values(name);
        values.next().is_some_and(is_right) && values.next().is_none()
    };
    let length = (range.end - range.start).to_string();
    let part = format!("bytes {}-{}/", range.start, range.end.saturating_sub(1));
    let is_range = answer.version == Some(1)
        && answer.code == Some(206)
        && is_only("content-length", &|value| value == length.as_bytes())
        && is_only("content-range", &|value| value.starts_with(part.as_bytes()))
        && values("transfer-encoding").chain(values("content-encoding")).next().is_none();
    if !is_range {
        return AnswerHead::Other;
    }
    let stays = values("connection").all(|value| value.eq_ignore_ascii_case(b"keep-alive"));
    AnswerHead::Range { byte_count, stays }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::net::TcpListener;
    use url::Url;

    use super::*;
    use crate::RetryPolicy;

    fn head(lines: &str) -> String {
        format!("HTTP/1.1 206 Partial Content\r\n{lines}\r\n\r\n")
    }

    const RIGHT: &str = "Content-Length: 5\r\ncontent-range: bytes 3-7/100";

    #[test]
    fn only_the_range_that_was_asked_for_is_taken() {
        let read = |text: &str| read_head(text.as_bytes(), &(3..8));
        let right = head(RIGHT);
        let byte_count = right.len();
        assert_eq!(read(&format!("{right}01234")), AnswerHead::Range { byte_count, stays: true });
        for length in 0..byte_count {
            assert_eq!(read(&right[..length]), AnswerHead::Begun, "{length} bytes");
        }
        let closing = head(&format!("{RIGHT}\r\nConnection: close"));
        assert!(matches!(read(&closing), AnswerHead::Range { stays: false, .. }));
        for other in [
            "Content-Length: 5\r\ncontent-range: bytes 4-8/100",
            "Content-Length: 4\r\ncontent-range: bytes 3-6/7",
            "Content-Length: 05\r\ncontent-range: bytes 3-7/100",
            "content-range: bytes 3-7/100",
            "Content-Length: 5",
            &format!("{RIGHT}\r\ncontent-length: 5"),
            &format!("{RIGHT}\r\nTransfer-Encoding: chunked"),
            &format!("{RIGHT}\r\ncontent-encoding: gzip"),
            "no header",
        ] {
            assert_eq!(read(&head(other)), AnswerHead::Other, "{other}");
        }
        for start in [
            "HTTP/1.1 200 OK",
            "HTTP/1.0 206 Partial Content",
            "HTTP/1.1 503 Slow Down",
            "HTTP/1.1 100 Continue",
        ] {
            assert_eq!(read(&format!("{start}\r\n{RIGHT}\r\n\r\n")), AnswerHead::Other, "{start}");
        }
        assert_eq!(read("SSH-2.0-OpenSSH_9.2\r\n"), AnswerHead::Other);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_no_longer_than_it_is(
            begun in 0_usize..100,
            place in 0_usize..100,
            other in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut come = head(RIGHT).into_bytes();
            come.truncate(begun);
            come.splice(place.min(begun).min(come.len()).., other);
            if let AnswerHead::Range { byte_count, .. } = read_head(&come, &(3..8)) {
                prop_assert!(byte_count <= come.len());
            }
        }
    }

    #[test]
    fn a_request_goes_as_it_was_made() {
        let url = Url::parse("http://[::1]:90/a%20b?versionId=7#part").unwrap();
        let mut request = Request::new(Method::GET, url);
        request.headers_mut().insert("range", "bytes=3-7".parse().unwrap());
        request.headers_mut().insert(HOST, "other".parse().unwrap());
        let head = String::from_utf8(head_of(&request)).unwrap();
        assert!(head.starts_with("GET /a%20b?versionId=7 HTTP/1.1\r\nhost: [::1]:90\r\n"), "{head}");
        assert!(head.ends_with("\r\nrange: bytes=3-7\r\n\r\n"), "{head}");
        assert!(!head.contains("other"), "{head}");
    }

    /// Answers requests. `script` has a list of answers for each connection.
    async fn serve(listener: TcpListener, script: Vec<Vec<String>>) {
        for answers in script {
            let (mut connection, _) = listener.accept().await.unwrap();
            for answer in answers {
                let mut asked = BytesMut::new();
                while !asked.ends_with(b"\r\n\r\n") {
                    if connection.read_buf(&mut asked).await.unwrap() == 0 {
                        break;
                    }
                }
                connection.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    }

    /// Returns the results of requests for bytes 3 to 8, one request for each answer. The server's
    /// script has a list of answers for each connection.
    fn received(script: &[&[&str]]) -> Vec<Result<Option<Vec<u8>>, AttemptError>> {
        let script: Vec<Vec<String>> =
            script.iter().map(|answers| answers.iter().map(|&answer| answer.to_owned()).collect()).collect();
        let count: usize = script.iter().map(Vec::len).sum();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/object", listener.local_addr().unwrap());
            let request = Request::new(Method::GET, Url::parse(&url).unwrap());
            let server = tokio::spawn(serve(listener, script));
            let silence_max = Duration::from_secs(20);
            let connections = Arc::new(PlainConnections::of(silence_max, false));
            let mut received = Vec::new();
            for _ in 0..count {
                received.push(receive(&connections, &request).await);
            }
            server.await.unwrap();
            received
        })
    }

    async fn receive(
        connections: &Arc<PlainConnections>,
        request: &Request,
    ) -> Result<Option<Vec<u8>>, AttemptError> {
        let Some(mut body) = connections.ask(request, &(3..8)).await? else { return Ok(None) };
        let mut pieces = PieceCutter::new(Arc::default(), 4096 + 3);
        let mut rate = LeastRate::new(&RetryPolicy::default());
        let mut come = Vec::new();
        while let Some(piece) = body.next_piece(&mut pieces, None, &mut rate).await? {
            come.extend_from_slice(&piece);
        }
        Ok(Some(come))
    }

    fn is_range(received: &Result<Option<Vec<u8>>, AttemptError>) -> bool {
        matches!(received, Ok(Some(bytes)) if bytes == b"range")
    }

    #[test]
    fn a_connection_is_used_again_if_it_stays() {
        let whole = format!("{}range", head(RIGHT));
        let closing = format!("{}range", head(&format!("{RIGHT}\r\nconnection: close")));
        let longer = format!("{whole}r");
        // Each list of answers needs exactly one connection. A second one would make the server
        // wait for a request for ever.
        assert!(received(&[&[&whole, &whole, &closing], &[&longer], &[&whole]]).iter().all(is_range));
    }

    #[test]
    fn what_is_no_range_is_left_to_the_library() {
        let whole = format!("{}range", head(RIGHT));
        let missing = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        let endless = format!("HTTP/1.1 206 OK\r\nx: {}", "x".repeat(HEAD_BYTES_MAX));
        let received = received(&[&[&whole, missing], &[&endless], &[&whole]]);
        assert!(is_range(&received[0]) && is_range(&received[3]), "{received:?}");
        assert!(matches!(received[1..3], [Ok(None), Ok(None)]), "{received:?}");
    }

    #[test]
    fn an_answer_that_breaks_off_may_come_whole_the_next_time() {
        let whole = format!("{}range", head(RIGHT));
        let (in_head, in_body) = (&whole[..20], &whole[..whole.len() - 1]);
        let received = received(&[&[in_head], &[in_body], &[&whole]]);
        assert!(
            matches!(received[..2], [Err(AttemptError::Passing(..)), Err(AttemptError::Passing(..))]),
            "{received:?}"
        );
        assert!(is_range(&received[2]), "{received:?}");
    }

    #[test]
    fn a_connection_that_was_closed_meanwhile_is_no_trouble() {
        let whole = format!("{}range", head(RIGHT));
        // The server closes the first connection without notice.
        assert!(received(&[&[&whole], &[&whole, &whole]]).iter().all(is_range));
    }
}
