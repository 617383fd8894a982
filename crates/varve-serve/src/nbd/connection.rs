//! Serves one client, from its first byte to its last.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use varve_nbd::{
    BASE_ALLOCATION, BlockSizes, ExportInfo, Exports, ListedExport, NbdCommand, NbdRequest, NegotiatedExport,
    NegotiationError, NegotiationStep, Refusal, RefusalKind, RequestDecoder, RequestError, ServerNegotiation,
    TlsPolicy,
};

use super::answer::{AnswerError, AnswerSink, NbdResponder, PIECE_BYTES, flags_of};
use super::client_socket::{ClientSocket, SendGuard};
use super::disk::ServedDisk;
use super::disks::{FindDiskError, ServedDisks};
use super::nbd_settings::NbdSettings;

/// Bytes received from a socket at a time.
const RECEIVE_BYTES: usize = 64 << 10;
/// Requests that one worker takes at a time. Their answers are sent together.
const BATCH_MAX: usize = 8;
/// The payload limit for clients of a read-only export. They have no use for larger payloads.
const READ_ONLY_PAYLOAD_BYTES_MAX: u32 = 1 << 20;

/// Why a connection ended abnormally.
#[derive(Debug, thiserror::Error)]
pub(super) enum NbdConnectionError {
    #[error("the socket failed")]
    Socket(#[source] io::Error),
    #[error("the client was silent for too long")]
    Silent,
    #[error("the connection ended within a message")]
    CutOff,
    #[error("{0}")]
    Negotiation(#[from] NegotiationError),
    #[error("TLS could not be started")]
    Tls(#[source] rustls::Error),
    #[error("{0}")]
    Request(#[from] RequestError),
    #[error("{0}")]
    Answer(#[from] AnswerError),
}

/// Serves a client until either side ends the connection.
pub(super) fn serve(
    line: &ClientSocket,
    disks: &dyn ServedDisks,
    settings: &NbdSettings,
) -> Result<(), NbdConnectionError> {
    let Some((agreed, requests)) = negotiate(line, disks, settings)? else { return Ok(()) };
    let NegotiatedExport { export: disk, info, structured, contexts } = agreed;
    tracing::info!(export = info.description, "a client has connected");
    let payload_bytes_max =
        if disk.writable().is_some() { info.block_sizes.maximum } else { READ_ONLY_PAYLOAD_BYTES_MAX };
    let transmission = Transmission {
        line,
        disk: disk.as_ref(),
        agreed: NegotiatedExport { export: (), info, structured, contexts },
        incoming: Mutex::new(IncomingRequests {
            requests: requests.with_payload_bytes_max(payload_bytes_max),
            waiting: VecDeque::new(),
            scratch: vec![0; RECEIVE_BYTES],
            received: Vec::new(),
        }),
        is_over: AtomicBool::new(false),
        worker_count: settings.workers_per_connection,
    };
    line.set_receive_timeout(settings.partial_timeout).map_err(NbdConnectionError::Socket)?;
    transmission.run()
}

/// Answers the negotiation's queries about exports.
struct OfferedExports<'a> {
    disks: &'a dyn ServedDisks,
}

impl Exports for OfferedExports<'_> {
    type Export = Arc<dyn ServedDisk>;

    fn list(&self) -> Vec<ListedExport> {
        let listed = self.disks.list().into_iter();
        listed.map(|disk| ListedExport { name: disk.name, description: disk.description }).collect()
    }

    fn find(&self, name: &str) -> Result<(ExportInfo, Arc<dyn ServedDisk>), Refusal> {
        let found = self.disks.find(name).map_err(|error| {
            let kind = match &error {
                FindDiskError::Unknown(_) => RefusalKind::UnknownExport,
                FindDiskError::Failed(_) => RefusalKind::Platform,
            };
            Refusal::new(kind, error.to_string())
        })?;
        let info = ExportInfo {
            canonical_name: Some(found.name),
            description: Some(found.description),
            size: found.disk.size(),
            flags: flags_of(found.disk.as_ref()),
            block_sizes: BlockSizes::default(),
            contexts: vec![BASE_ALLOCATION.into()],
        };
        Ok((info, found.disk))
    }
}

type Negotiated = (NegotiatedExport<Arc<dyn ServedDisk>>, RequestDecoder);

/// Negotiates with a client. One deadline covers the whole handshake, however the client spreads
/// its bytes.
#[expect(clippy::disallowed_methods, reason = "a socket's clock is the real one")]
fn negotiate(
    line: &ClientSocket,
    disks: &dyn ServedDisks,
    settings: &NbdSettings,
) -> Result<Option<Negotiated>, NbdConnectionError> {
    let policy = if settings.tls.is_some() { TlsPolicy::Required } else { TlsPolicy::Never };
    let mut negotiation = ServerNegotiation::new(policy);
    let deadline = Instant::now() + settings.handshake_timeout;
    let (mut scratch, mut received) = (vec![0; RECEIVE_BYTES], Vec::new());
    loop {
        let step = negotiation.step(&OfferedExports { disks });
        let unsent = negotiation.take_unsent();
        if !unsent.is_empty() {
            match line.sending().send(&unsent) {
                Err(error) if is_gone(&error) => return Ok(None),
                sent => sent.map_err(NbdConnectionError::Socket)?,
            }
        }
        match step? {
            Some(NegotiationStep::Ready(agreed)) => return Ok(Some((agreed, negotiation.into_requests()))),
            Some(NegotiationStep::Ended) => return Ok(None),
            Some(NegotiationStep::StartTls) => {
                let Some(tls) = &settings.tls else { return Ok(None) };
                line.start_tls(tls.config()).map_err(NbdConnectionError::Tls)?;
                negotiation.tls_started();
            }
            None => {}
        }
        let left = deadline.checked_duration_since(Instant::now()).ok_or(NbdConnectionError::Silent)?;
        line.set_receive_timeout(left).map_err(NbdConnectionError::Socket)?;
        received.clear();
        match line.receive(&mut scratch, &mut received) {
            Ok(true) => negotiation.receive(&received),
            // Many clients connect only to look, and leave without an error.
            Ok(false) => return Ok(None),
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) if is_timeout(&error) => return Err(NbdConnectionError::Silent),
            Err(error) => return Err(NbdConnectionError::Socket(error)),
        }
    }
}

struct IncomingRequests {
    requests: RequestDecoder,
    /// Requests that are decoded, and not yet started.
    waiting: VecDeque<NbdRequest>,
    scratch: Vec<u8>,
    received: Vec<u8>,
}

/// A connection after its handshake. Its workers take turns. One receives; when it has requests, it
/// takes some and lets the next worker receive. Each worker answers the requests that it took.
struct Transmission<'a> {
    line: &'a ClientSocket,
    disk: &'a dyn ServedDisk,
    agreed: NegotiatedExport<()>,
    incoming: Mutex<IncomingRequests>,
    is_over: AtomicBool,
    worker_count: usize,
}

impl Transmission<'_> {
    #[expect(clippy::disallowed_methods, reason = "a connection's requests are worked on at the same time")]
    fn run(&self) -> Result<(), NbdConnectionError> {
        let first = std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.worker_count).map(|_| scope.spawn(|| self.work())).collect();
            let own = self.work();
            let ends = others.into_iter().filter_map(|other| other.join().ok()).chain([own]);
            ends.filter_map(Result::err).next()
        });
        first.map_or(Ok(()), Err)
    }

    /// Answers requests until there are no more.
    fn work(&self) -> Result<(), NbdConnectionError> {
        let _end = EndOnPanic(self.line);
        let answers = NbdResponder::new(self.disk, &self.agreed);
        let mut buffer = Vec::new();
        let mut batch = Vec::new();
        let done = loop {
            batch.clear();
            match self.take(&mut batch) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
            if let Err(error) = self.answer(&answers, &batch, &mut buffer) {
                break Err(error.into());
            }
            self.disk.read_ahead();
            if buffer.capacity() > 2 * PIECE_BYTES {
                buffer = Vec::new();
            }
        };
        if done.is_err() {
            // The other workers on this line must not wait for more requests.
            self.is_over.store(true, Ordering::Relaxed);
            self.line.close();
        }
        done
    }

    fn answer(
        &self,
        answers: &NbdResponder<'_>,
        batch: &[NbdRequest],
        buffer: &mut Vec<u8>,
    ) -> Result<(), AnswerError> {
        for request in batch {
            let mut outlet = SocketSink { line: self.line, held: None };
            answers.answer(request, buffer, &mut outlet)?;
            if buffer.len() >= PIECE_BYTES {
                outlet.send(buffer).map_err(AnswerError::Send)?;
            }
        }
        if buffer.is_empty() {
            return Ok(());
        }
        SocketSink { line: self.line, held: None }.send(buffer).map_err(AnswerError::Send)
    }

    /// Takes requests into `batch`, and waits for them if necessary. Returns `false` if there are
    /// no more.
    fn take(&self, batch: &mut Vec<NbdRequest>) -> Result<bool, NbdConnectionError> {
        let mut incoming = self.incoming.lock();
        while incoming.waiting.is_empty() {
            if self.is_over.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if !incoming.listen(self.line)? {
                self.is_over.store(true, Ordering::Relaxed);
            }
        }
        let count = incoming.waiting.len().div_ceil(self.worker_count).min(BATCH_MAX);
        batch.extend(incoming.waiting.drain(..count));
        Ok(true)
    }
}

/// Closes the line if a worker panics: otherwise the client would wait for an answer for ever.
struct EndOnPanic<'a>(&'a ClientSocket);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
        }
    }
}

impl IncomingRequests {
    /// Waits for bytes, and decodes them. Returns `false` if there will be no more.
    fn listen(&mut self, line: &ClientSocket) -> Result<bool, NbdConnectionError> {
        self.received.clear();
        let is_open = match line.receive(&mut self.scratch, &mut self.received) {
            Ok(is_open) => is_open,
            // A client must finish a request that it has started. A silent client between requests
            // may be a guest that sleeps.
            Err(error) if is_timeout(&error) && self.requests.is_partial() => {
                return Err(NbdConnectionError::Silent);
            }
            Err(error) if is_timeout(&error) => return Ok(true),
            Err(error) => return Err(NbdConnectionError::Socket(error)),
        };
        self.requests.receive(&self.received);
        if self.received.capacity() > 2 * RECEIVE_BYTES {
            self.received = Vec::new();
        }
        while let Some(request) = self.requests.next_request()? {
            if request.command == NbdCommand::Disconnect {
                return Ok(false);
            }
            line.note_request();
            self.waiting.push_back(request);
        }
        if !is_open && self.requests.is_partial() {
            return Err(NbdConnectionError::CutOff);
        }
        Ok(is_open)
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

struct SocketSink<'a> {
    line: &'a ClientSocket,
    held: Option<SendGuard<'a>>,
}

impl AnswerSink for SocketSink<'_> {
    fn send(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        match &self.held {
            Some(sending) => sending.send(buffer)?,
            None => self.line.sending().send(buffer)?,
        }
        buffer.clear();
        Ok(())
    }

    fn hold(&mut self) {
        self.held.get_or_insert_with(|| self.line.sending());
    }
}
