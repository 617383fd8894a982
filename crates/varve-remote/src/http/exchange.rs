//! HTTP for S3, WebDAV and web servers: one attempt of one request. The length of the answer is
//! bounded.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{
    CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER, TRANSFER_ENCODING,
};
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Body, Client, ClientBuilder, Request, Response, StatusCode, Version};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use varve_block::to_usize;

use crate::attempt_error::{AttemptError, chain};
use crate::edge::{self, Runtime};
use crate::http::least_rate::LeastRate;
use crate::http::own_network::{PublicResolver, refuse_own_address};
use crate::http::plain_receiver::{PACED_BYTES, PlainBody, PlainConnections, USER_AGENT, has_proxy};
use crate::http::xml;
use crate::naming::leftovers;
use crate::open_options::OpenOptions;
use crate::retry::retrying_target::RetryPolicy;
use crate::target::TakePiece;
use crate::tls;
use crate::transfer::pace::Pace;
use crate::transfer::pieces::PieceCutter;
use crate::transfer::spare_buffers::SpareBuffers;

/// The longest answer other than an object. A page of a bucket's listing has half a megabyte. A
/// collection is listed in one answer; this many bytes list some hundred thousand members.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The time limit of a listing.
const LISTING_TIME_MAX: Duration = Duration::from_secs(2 * 3600);

/// The bytes that are read of an error answer.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// The redirects of one request that are followed.
const REDIRECTS_MAX: usize = 4;

/// The most memory that is reserved for an answer before its first byte.
const ROOM_BYTES_MAX: usize = 16 << 20;

/// The bytes that one answer over HTTP/2 may be ahead of its reader. The line stays full up to a
/// round trip of 300 ms at 100 Mbit/s.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;

/// The same for all answers of one connection over HTTP/2. It bounds the memory for them.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;

/// The longest headers of an answer over HTTP/2. The library refuses twice as many bytes of them.
const HEADER_LIST_BYTES_MAX: u32 = 16 << 10;

/// A request is sent again at once at most this number of times.
const UNBEGUN_MAX: u32 = 8;

/// The pieces of an answer that may wait for their consumer. Then the receiver waits.
const PIECES_AHEAD: usize = 2;

/// An HTTP client of one server.
pub(crate) struct Http {
    runtime: Runtime,
    client: Client,
    patience: RetryPolicy,
    up: Option<Arc<Pace>>,
    down: Option<Arc<Pace>>,
    requests: Option<Arc<Pace>>,
    spare: Arc<SpareBuffers>,
    /// `None` if the library must send all requests.
    plain: Option<Arc<PlainConnections>>,
    /// True once the server has sent more than the requested range.
    ignores_ranges: Arc<AtomicBool>,
    /// True once the server has answered a request for a range with a whole object. Then the
    /// requests that only expect a range are no use.
    sends_whole: Arc<AtomicBool>,
    /// True if the latest answer came over HTTP/2.
    multiplexes: Arc<AtomicBool>,
}

/// The treatment of answers that name another place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Redirects {
    Refuse,
    /// Follow up to [`REDIRECTS_MAX`], but never from HTTPS to HTTP. The login is sent to the first
    /// host only.
    Follow,
}

/// A complete answer.
pub(crate) struct HttpAnswer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Http {
    /// Makes a client. `is_encrypted` selects HTTPS for all requests, or HTTP for all.
    pub fn new(options: &OpenOptions, is_encrypted: bool, redirects: Redirects) -> io::Result<Self> {
        let patience = options.patience;
        let authorities = options.authorities.as_deref();
        let mut tls = match (is_encrypted, redirects) {
            (true, _) => tls::client_config(authorities)?,
            // A redirect may lead to HTTPS.
            (false, Redirects::Follow) => tls::client_config_when_used(authorities)?,
            (false, Redirects::Refuse) => tls::believing_nobody()?,
        };
        let is_only_read = redirects == Redirects::Follow;
        // The proxy may be on the own network, and knows the addresses of the servers.
        let public_only = options.public_only && !has_proxy(is_encrypted);
        if is_only_read {
            tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        }
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .connect_timeout(patience.silence_max)
            .read_timeout(patience.silence_max)
            .redirect(match redirects {
                Redirects::Refuse => Policy::none(),
                Redirects::Follow => Policy::custom(move |attempt| follow(attempt, public_only)),
            })
            .user_agent(USER_AGENT);
        let client = if public_only { client.dns_resolver(Arc::new(PublicResolver)) } else { client };
        let client = match is_only_read {
            true => with_http2(client, patience.silence_max),
            // The other servers also receive, and are used over one connection for each request.
            false => client.http1_only().retry(reqwest::retry::never()),
        };
        let client = client.build().map_err(|error| chain(&error))?;
        let (up, down, requests) = (options.up.clone(), options.down.clone(), options.requests.clone());
        let plain =
            if is_encrypted { None } else { PlainConnections::new(patience.silence_max, public_only) };
        let (spare, ignores_ranges, sends_whole, multiplexes) = Default::default();
        let runtime = Runtime::new(options.stop.clone())?;
        Ok(Self {
            runtime,
            client,
            patience,
            up,
            down,
            requests,
            spare,
            plain,
            ignores_ranges,
            sends_whole,
            multiplexes,
        })
    }

    /// Runs a call that moves this many bytes.
    pub fn wait<T>(
        &self,
        bytes: u64,
        future: impl Future<Output = Result<T, AttemptError>>,
    ) -> Result<T, AttemptError> {
        self.runtime.wait(self.patience.time_for(bytes), future)
    }

    /// Runs a listing. Each answer has its own time-out. A listing that is still incomplete at the
    /// end of the time limit is not begun again.
    pub fn wait_for_listing<T>(
        &self,
        future: impl Future<Output = Result<T, AttemptError>>,
    ) -> Result<T, AttemptError> {
        match self.runtime.wait(LISTING_TIME_MAX, future) {
            Err(AttemptError::Passing(error, _)) if error.kind() == io::ErrorKind::TimedOut => {
                Err(AttemptError::refused(format!("the listing is endless: {error}")))
            }
            listed => listed,
        }
    }

    /// Sets the body of a request.
    pub fn fill(&self, request: &mut Request, contents: Bytes) {
        request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(contents.len()));
        let body = match &self.up {
            None => Body::from(contents),
            Some(pace) => paced(contents, Arc::clone(pace)),
        };
        *request.body_mut() = Some(body);
    }

    /// Sends a request and receives the whole answer, with any status.
    pub async fn send(&self, request: Request) -> Result<HttpAnswer, AttemptError> {
        self.send_within(request, ANSWER_BYTES_MAX).await
    }

    /// Does the same for a successful answer of at most `bytes_max` bytes.
    pub async fn send_within(&self, request: Request, bytes_max: usize) -> Result<HttpAnswer, AttemptError> {
        self.send_at_rate(request, bytes_max, LeastRate::new(&self.patience)).await
    }

    /// Sends a request to which the server answers while it works on this many bytes. Until the end
    /// of the work, some servers send a space now and then.
    pub async fn send_for_work(&self, request: Request, bytes: u64) -> Result<HttpAnswer, AttemptError> {
        self.send_at_rate(request, ANSWER_BYTES_MAX, LeastRate::after_work(&self.patience, bytes)).await
    }

    async fn send_at_rate(
        &self,
        request: Request,
        bytes_max: usize,
        rate: LeastRate,
    ) -> Result<HttpAnswer, AttemptError> {
        self.turn().await;
        let response = execute(&self.client, request, &self.patience).await?;
        note_version(&response, &self.multiplexes);
        let (status, headers) = (response.status(), response.headers().clone());
        let limit = if status.is_success() { bytes_max } else { ERROR_BYTES_MAX };
        let body = collect(response, limit, rate).await;
        // The body of an error answer may be missing; the status is enough.
        let body = if status.is_success() { body? } else { body.unwrap_or_default() };
        Ok(HttpAnswer { status, headers, body })
    }

    /// Waits until the next request may be sent.
    async fn turn(&self) {
        if let Some(pace) = &self.requests {
            tokio::time::sleep(pace.take(1)).await;
        }
    }

    /// Returns true once the server has sent a whole object instead of a range.
    pub fn ignores_ranges(&self) -> bool {
        self.ignores_ranges.load(Ordering::Relaxed)
    }

    /// Returns true if the server's latest answer shared its connection with others.
    pub fn multiplexes(&self) -> bool {
        self.multiplexes.load(Ordering::Relaxed)
    }

    /// Sends a request for a range, whose header is set, and returns exactly that range.
    pub async fn read(&self, request: Request, range: Range<u64>) -> Result<Bytes, AttemptError> {
        let (client, spare) = (self.client.clone(), Arc::clone(&self.spare));
        let limits = TransferLimits { patience: self.patience, down: self.down.clone() };
        let (ignores_ranges, multiplexes) = (Arc::clone(&self.ignores_ranges), Arc::clone(&self.multiplexes));
        self.turn().await;
        self.beside(async move {
            let wanted = to_usize(range.end - range.start);
            let mut arriving = IncomingAnswer::begin(&client, request, range, limits).await?;
            note_version(&arriving.response, &multiplexes);
            ignores_ranges.fetch_or(arriving.is_longer, Ordering::Relaxed);
            let mut buffer = spare.take(wanted.min(ROOM_BYTES_MAX));
            while let Some(part) = arriving.next().await? {
                buffer.bytes.extend_from_slice(&part);
            }
            Ok(buffer.freeze())
        })
        .await
    }

    /// Does the same in pieces for a file, in which the range begins at `place`. See
    /// [`Target::get_in_pieces`](crate::Target::get_in_pieces).
    pub async fn read_in_pieces(
        &self,
        request: Request,
        range: Range<u64>,
        place: u64,
        take: &mut TakePiece<'_>,
    ) -> Result<(), AttemptError> {
        let client = self.client.clone();
        let limits = TransferLimits { patience: self.patience, down: self.down.clone() };
        let plain = self.plain.clone().filter(|_| !self.sends_whole.load(Ordering::Relaxed));
        let (ignores_ranges, sends_whole) = (Arc::clone(&self.ignores_ranges), Arc::clone(&self.sends_whole));
        let multiplexes = Arc::clone(&self.multiplexes);
        let mut pieces = PieceCutter::new(Arc::clone(&self.spare), place);
        let (sender, mut receiver) = mpsc::channel(PIECES_AHEAD);
        self.turn().await;
        let coming = self.beside(async move {
            let mut coming = IncomingRange::begin(plain.as_ref(), &client, request, range, limits).await?;
            if let IncomingRange::Library(answer, _) = &coming {
                note_version(&answer.response, &multiplexes);
                ignores_ranges.fetch_or(answer.is_longer, Ordering::Relaxed);
                sends_whole.fetch_or(answer.is_whole, Ordering::Relaxed);
            }
            loop {
                let (piece, error) = match coming.next_piece(&mut pieces).await {
                    Ok(piece) => (piece, None),
                    // Bytes that have come need not come again.
                    Err(error) => (pieces.finish_pages(), Some(error)),
                };
                let is_last = piece.is_none() || error.is_some();
                if let Some(piece) = piece {
                    // The consumer has stopped. That is not an error.
                    if sender.send(piece).await.is_err() {
                        return Ok(());
                    }
                }
                if is_last {
                    return error.map_or(Ok(()), Err);
                }
            }
        });
        let taking = async move {
            while let Some(piece) = receiver.recv().await {
                if take(piece).is_break() {
                    return;
                }
            }
        };
        futures_util::future::join(coming, taking).await.0
    }

    /// Runs `taking` on a thread of the runtime, which also serves the connection. Otherwise each
    /// part of the answer would wake up the caller's thread. On a fast line that costs more than
    /// copying the part. The task ends when its caller is gone.
    async fn beside<T: Send + 'static>(
        &self,
        taking: impl Future<Output = Result<T, AttemptError>> + Send + 'static,
    ) -> Result<T, AttemptError> {
        let mut tasks = JoinSet::new();
        tasks.spawn(taking);
        match tasks.join_next().await {
            Some(Ok(taken)) => taken,
            Some(Err(error)) => Err(AttemptError::passing(error.to_string())),
            None => Err(AttemptError::passing("the answer was not received")),
        }
    }
}

/// Makes the header of a request for a range, which must not be empty.
pub(crate) fn range_header(range: &Range<u64>) -> Result<HeaderValue, AttemptError> {
    let text = format!("bytes={}-{}", range.start, range.end - 1);
    HeaderValue::from_str(&text).map_err(|error| AttemptError::Refused(chain(&error)))
}

/// The limits of a transfer.
struct TransferLimits {
    patience: RetryPolicy,
    down: Option<Arc<Pace>>,
}

/// Sends a request, and waits for the head of the answer: as long as the server may need to take
/// the request, and once more for its silence.
async fn execute(
    client: &Client,
    request: Request,
    patience: &RetryPolicy,
) -> Result<Response, AttemptError> {
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let time = patience.time_for(length.and_then(|length| length.parse().ok()).unwrap_or(0));
    let answered =
        tokio::time::timeout(time.saturating_add(patience.silence_max), client.execute(request)).await;
    let late = |_| AttemptError::passing("the server does not answer the request");
    answered.map_err(late)?.map_err(of_client)
}

/// A range of an object that is being received in pieces.
enum IncomingRange {
    /// Received directly from the socket.
    Plain(PlainBody, Option<Arc<Pace>>, LeastRate),
    /// Received through the library, with the rest of its last part.
    Library(IncomingAnswer, Bytes),
}

impl IncomingRange {
    async fn begin(
        plain: Option<&Arc<PlainConnections>>,
        client: &Client,
        request: Request,
        range: Range<u64>,
        limits: TransferLimits,
    ) -> Result<Self, AttemptError> {
        if let Some(plain) = plain {
            // An idle connection may be silent before a new one is made.
            let time = limits.patience.silence_max.saturating_mul(2);
            let asked = tokio::time::timeout(time, plain.ask(&request, &range)).await;
            let late = |_| AttemptError::passing("the server does not answer the request");
            if let Some(body) = asked.map_err(late)?? {
                return Ok(Self::Plain(body, limits.down, LeastRate::new(&limits.patience)));
            }
        }
        Ok(Self::Library(IncomingAnswer::begin(client, request, range, limits).await?, Bytes::new()))
    }

    /// Returns the next full piece, and at the end the incomplete last one; `None` after the end.
    async fn next_piece(&mut self, pieces: &mut PieceCutter) -> Result<Option<Bytes>, AttemptError> {
        let (arriving, part) = match self {
            Self::Plain(body, down, rate) => return body.next_piece(pieces, down.as_deref(), rate).await,
            Self::Library(arriving, part) => (arriving, part),
        };
        loop {
            while !part.is_empty() {
                if let Some(piece) = pieces.add(part) {
                    return Ok(Some(piece));
                }
            }
            match arriving.next().await? {
                Some(next) => *part = next,
                None => return Ok(pieces.finish()),
            }
        }
    }
}

/// An answer with a range of an object, as it arrives.
struct IncomingAnswer {
    response: Response,
    rate: LeastRate,
    down: Option<Arc<Pace>>,
    /// The bytes before the requested range.
    left_to_skip: u64,
    /// The bytes of the requested range that have not arrived.
    left: u64,
    /// The length of the whole object, if the answer contains it.
    whole: Option<u64>,
    /// True if nothing but the end of the connection marks the end of the answer. Then a broken
    /// connection looks the same.
    ends_with_connection: bool,
    /// True if the whole object comes instead of the range.
    is_whole: bool,
    /// True if it has more bytes than the range.
    is_longer: bool,
}

impl IncomingAnswer {
    async fn begin(
        client: &Client,
        request: Request,
        range: Range<u64>,
        TransferLimits { patience, down }: TransferLimits,
    ) -> Result<Self, AttemptError> {
        let response = execute(client, request, &patience).await?;
        let rate = LeastRate::new(&patience);
        let is_whole = response.status() == StatusCode::OK;
        let (left_to_skip, whole, is_longer) = match response.status() {
            StatusCode::PARTIAL_CONTENT => (0, whole_length(&response, &range)?, false),
            // The server ignores the range and sends the whole object.
            StatusCode::OK => {
                let whole = response.content_length();
                (range.start, whole, range.start > 0 || whole.is_some_and(|whole| whole > range.end))
            }
            StatusCode::RANGE_NOT_SATISFIABLE => return Err(AttemptError::Short),
            status => {
                let headers = response.headers().clone();
                let body = collect(response, ERROR_BYTES_MAX, rate).await.unwrap_or_default();
                return Err(HttpAnswer { status, headers, body }.attempt_error());
            }
        };
        if whole.is_some_and(|whole| whole < range.end) {
            return Err(AttemptError::Short);
        }
        let left = range.end - range.start;
        let ends_with_connection = response.version() < Version::HTTP_2
            && [CONTENT_LENGTH, TRANSFER_ENCODING].iter().all(|name| !response.headers().contains_key(name));
        Ok(Self {
            response,
            rate,
            down,
            left_to_skip,
            left,
            whole,
            ends_with_connection,
            is_whole,
            is_longer,
        })
    }

    /// Returns the next bytes of the requested range; `None` at the end of the range.
    async fn next(&mut self) -> Result<Option<Bytes>, AttemptError> {
        while self.left > 0 {
            let part = self.rate.wait(self.response.chunk()).await?;
            let Some(mut part) = part.map_err(of_client)? else {
                // The answer ended properly but too early. If it contained no length, the object
                // ends here.
                return Err(match self.whole {
                    None if !self.ends_with_connection => AttemptError::Short,
                    _ => AttemptError::passing("the answer ended early"),
                });
            };
            self.rate.earn(part.len());
            if let Some(pace) = &self.down {
                tokio::time::sleep(pace.take(part.len())).await;
            }
            let skip = to_usize(self.left_to_skip).min(part.len());
            self.left_to_skip -= skip as u64;
            drop(part.split_to(skip));
            part.truncate(to_usize(self.left));
            self.left -= part.len() as u64;
            if !part.is_empty() {
                return Ok(Some(part));
            }
        }
        Ok(None)
    }
}

/// Returns the length of the whole object, if the answer contains it. Fails if the answer is not
/// for the requested range.
fn whole_length(response: &Response, range: &Range<u64>) -> Result<Option<u64>, AttemptError> {
    let header =
        response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let parsed = header.strip_prefix("bytes ").and_then(|header| {
        let (part, whole) = header.split_once('/')?;
        let (first, last) = part.split_once('-')?;
        Some((first.parse::<u64>().ok()?, last.parse::<u64>().ok()?, whole.parse::<u64>().ok()))
    });
    match parsed {
        Some((first, last, whole)) if first == range.start && last >= first && last < range.end => {
            Ok(whole.or_else(|| (last + 1 < range.end).then_some(last + 1)))
        }
        _ => Err(AttemptError::passing(format!(
            "the server sends {header:?} instead of the requested bytes {range:?}"
        ))),
    }
}

/// Offers HTTP/2 to servers with TLS. A request that the server has not begun is sent again at
/// once.
fn with_http2(client: ClientBuilder, silence_max: Duration) -> ClientBuilder {
    // Requests share the connection, so a silent one must end before the next request begins.
    let ping_time = silence_max / 4;
    let retry = reqwest::retry::for_host(AnyHost).no_budget().max_retries_per_request(UNBEGUN_MAX);
    let retry = retry.classify_fn(|reply| match reply.error().is_some_and(is_unbegun) {
        true => reply.retryable(),
        false => reply.success(),
    });
    client
        .retry(retry)
        .http2_initial_stream_window_size(STREAM_WINDOW_BYTES)
        .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_max_header_list_size(HEADER_LIST_BYTES_MAX)
        .http2_keep_alive_interval(ping_time)
        .http2_keep_alive_timeout(ping_time)
}

/// Every server.
struct AnyHost;

impl PartialEq<&str> for AnyHost {
    fn eq(&self, _: &&str) -> bool {
        true
    }
}

/// Returns true if the server has told that it did not begin with a request: it ends the connection
/// after earlier ones, or refuses one more.
fn is_unbegun(error: &(dyn std::error::Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.filter_map(|cause| cause.downcast_ref::<h2::Error>()).any(|error| {
        let is_ending = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
        let is_refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
        error.is_remote() && (is_ending || is_refused)
    })
}

fn note_version(response: &Response, multiplexes: &AtomicBool) {
    multiplexes.store(response.version() == Version::HTTP_2, Ordering::Relaxed);
}

/// Decides if a redirect is followed.
fn follow(attempt: Attempt<'_>, public_only: bool) -> Action {
    let was_encrypted = attempt.previous().iter().any(|url| url.scheme() == "https");
    if attempt.previous().len() > REDIRECTS_MAX {
        attempt.error(io::Error::other("the server redirects too often"))
    } else if was_encrypted && attempt.url().scheme() != "https" {
        attempt.error(io::Error::other("the server redirects from HTTPS to HTTP, which is not followed"))
    } else if public_only && let Err(error) = refuse_own_address(attempt.url()) {
        attempt.error(error)
    } else {
        attempt.follow()
    }
}

/// Makes a body that is sent at a pace.
fn paced(contents: Bytes, pace: Arc<Pace>) -> Body {
    Body::wrap_stream(futures_util::stream::unfold((contents, pace), |(mut left, pace)| async move {
        if left.is_empty() {
            return None;
        }
        let piece = left.split_to(left.len().min(PACED_BYTES));
        tokio::time::sleep(pace.take(piece.len())).await;
        Some((Ok::<_, io::Error>(piece), (left, pace)))
    }))
}

async fn collect(mut response: Response, limit: usize, mut rate: LeastRate) -> Result<Bytes, AttemptError> {
    let mut body = Vec::new();
    while let Some(piece) = rate.wait(response.chunk()).await?.map_err(of_client)? {
        rate.earn(piece.len());
        if body.len() + piece.len() > limit {
            return Err(AttemptError::refused(format!("the server's answer is longer than {limit} bytes")));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.into())
}

/// Converts an error of the client, from before or during the answer.
fn of_client(error: reqwest::Error) -> AttemptError {
    // A redirect that is not followed will not be followed the next time.
    let is_final = error.is_builder() || error.is_redirect();
    // The caller adds the place; the text has no URL.
    let text = chain(&error.without_url());
    // A wrong certificate stays wrong, so there is no retry.
    let has_no_trust =
        ["invalid peer certificate", tls::NO_AUTHORITIES].iter().any(|sign| text.to_string().contains(sign));
    if is_final || has_no_trust { AttemptError::Refused(text) } else { AttemptError::Passing(text, None) }
}

impl HttpAnswer {
    /// Fails unless the status is a success.
    pub fn success(self) -> Result<Self, AttemptError> {
        if self.status.is_success() { Ok(self) } else { Err(self.attempt_error()) }
    }

    /// Returns the content length in the headers, also for a body that was not requested.
    pub fn content_length(&self) -> Result<u64, AttemptError> {
        let length = self.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let length = length.and_then(|length| length.parse().ok());
        length.ok_or_else(|| AttemptError::refused("the server reports no length"))
    }

    /// Returns S3's code of the error, if there is one.
    pub fn code(&self) -> String {
        xml::first_text(&self.body, "Code")
    }

    /// Classifies an answer without success.
    pub fn attempt_error(&self) -> AttemptError {
        let code = self.code();
        let said = [code.clone(), xml::first_text(&self.body, "Message")].join(" ");
        let moved = self.headers.get(LOCATION).and_then(|place| place.to_str().ok());
        let moved = moved.map(|place| format!("it has moved to {place}"));
        let said = moved.unwrap_or_else(|| said.trim().to_owned());
        let text = if said.is_empty() { self.status.to_string() } else { format!("{}: {said}", self.status) };
        match (self.status.as_u16(), code.as_str()) {
            (404, "NoSuchBucket") => AttemptError::refused(text),
            (404 | 410, _) => AttemptError::NotFound,
            (412, _) => AttemptError::Exists,
            // The received data differ from the sent data, or the request took too long.
            (400, "BadDigest" | "IncompleteBody" | "RequestTimeout" | "XAmzContentSHA256Mismatch") => {
                AttemptError::passing(text)
            }
            (501 | 505 | 507, _) => AttemptError::refused(text),
            (408 | 425 | 429 | 500..=599, _) => match self.asked_pause() {
                Some(pause) => AttemptError::with_asked_pause(text, pause),
                None if matches!(self.status.as_u16(), 429 | 503) => AttemptError::busy(text),
                None => AttemptError::passing(text),
            },
            _ => AttemptError::refused(text),
        }
    }

    /// Returns the pause that the server asks for.
    fn asked_pause(&self) -> Option<Duration> {
        let seconds = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
        Some(Duration::from_secs(seconds))
    }
}

/// Makes a name that no store uses and no other writer has.
pub(crate) fn unfinished_name() -> Result<String, AttemptError> {
    Ok(leftovers::unfinished_name(edge::draw().map_err(AttemptError::Refused)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(status: u16, body: &'static str, retry_after: Option<&'static str>) -> AttemptError {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
        }
        let status = StatusCode::from_u16(status).unwrap();
        HttpAnswer { status, headers, body: Bytes::from_static(body.as_bytes()) }.attempt_error()
    }

    #[test]
    fn statuses_are_told_apart() {
        for status in [400, 401, 403, 405, 409, 301, 307, 501, 507] {
            assert!(matches!(trouble(status, "", None), AttemptError::Refused(_)), "{status}");
        }
        for status in [408, 500, 502, 504] {
            assert!(matches!(trouble(status, "", None), AttemptError::Passing(_, None)), "{status}");
        }
        let is_busy = |trouble| matches!(trouble, AttemptError::Passing(_, Some(Duration::ZERO)));
        assert!(is_busy(trouble(429, "", None)) && is_busy(trouble(503, "", None)));
        assert!(matches!(trouble(404, "", None), AttemptError::NotFound));
        assert!(matches!(
            trouble(404, "<Error><Code>NoSuchBucket</Code></Error>", None),
            AttemptError::Refused(_)
        ));
        assert!(matches!(trouble(412, "", None), AttemptError::Exists));
        assert!(matches!(
            trouble(400, "<Error><Code>BadDigest</Code></Error>", None),
            AttemptError::Passing(..)
        ));
        let asked = trouble(503, "", Some("17"));
        assert!(matches!(asked, AttemptError::Passing(_, Some(pause)) if pause == Duration::from_secs(17)));
        assert!(is_busy(trouble(429, "", Some("Fri, 31 Dec 1999 23:59:59 GMT"))));
    }
}
