//! Serves one client, from its first byte to its last.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::sync::{RwLock, watch};
use tokio::time::{Instant, timeout_at};
use varve_block::{BlockName, Score, to_usize};
use varve_venti::{ReceivedMessage, ServerConnection, VentiReply, VentiRequest, Version};

use super::answer::{self, PendingRead, PendingWrite};
use super::answers::ReplyQueue;
use super::byte_budget::{ByteBudget, CommonBudget, ReservedBytes, take, take_now};
use super::client_access::ClientAccess;
use super::connection_error::VentiConnectionError;
use super::outbox::{Outbox, outbox};
use super::state::VentiServerState;
use super::venti_settings::VentiSettings;

/// The minimum and maximum of bytes received at a time. The size adapts to the client's rate.
const RECEIVE_BYTES: [usize; 2] = [4 << 10, 256 << 10];
/// The writes that one thread takes at a time, and the limit of their bytes.
const WRITES_MAX: usize = 16;
const WRITE_BYTES_MAX: usize = 256 << 10;
/// The writes that are answered at a time, so that the client sends more while the others are in
/// progress.
const WRITES_ANSWERED: usize = 8;
/// Answers are sent when this many bytes have accumulated.
const ANSWER_BYTES: usize = 256 << 10;
/// The maximum length of a block, and thus the most that one answer can take.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// The parts of the server that all connections share.
pub(super) struct VentiServerShared {
    pub(super) state: Arc<VentiServerState>,
    pub(super) settings: VentiSettings,
    pub(super) room: CommonBudget,
}

/// Serves a client until either side ends the connection. Requests that have arrived are answered
/// first.
pub(super) async fn serve<R, W>(
    reader: R,
    writer: W,
    shared: Arc<VentiServerShared>,
    access: ClientAccess,
    stop: watch::Receiver<bool>,
) -> Result<(), VentiConnectionError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (outbox, remainder) = outbox(Box::new(writer));
    let own_room = ByteBudget::new(shared.settings.client_bytes);
    let taker = shared.room.enter(own_room.clone());
    let writing = tokio::spawn(remainder.send(shared.settings.send_timeout, taker));
    let (state, has_written) = (Arc::clone(&shared.state), Arc::new(AtomicBool::new(false)));
    let client = Client {
        connection: ServerConnection::new(shared.settings.block_bytes_max),
        own_room,
        writes: Arc::new(RwLock::new(())),
        has_written: Arc::clone(&has_written),
        outbox,
        access,
        shared,
        replies: ReplyQueue::default(),
        reply_tags: Vec::new(),
        reads: Vec::new(),
        pending_writes: Vec::new(),
    };
    let received = client.receive(reader, stop).await;
    // The sender ends when the client has taken the last answer, or takes no more.
    let sent = writing.await.map_err(|error| io::Error::other(error.to_string()));
    if has_written.load(Ordering::Relaxed) {
        state.unsynced.note_writer_left();
    }
    received.and(sent?)
}

struct Client {
    connection: ServerConnection,
    shared: Arc<VentiServerShared>,
    own_room: ByteBudget,
    /// Writes in progress hold it shared. A sync takes it exclusively, and thus waits for the
    /// writes before it.
    writes: Arc<RwLock<()>>,
    has_written: Arc<AtomicBool>,
    outbox: Outbox,
    access: ClientAccess,
    /// Answers that needed no thread. They are sent together.
    replies: ReplyQueue,
    reply_tags: Vec<u8>,
    reads: Vec<PendingRead>,
    pending_writes: Vec<PendingWrite>,
}

impl Client {
    async fn receive<R: AsyncRead + Unpin>(
        mut self,
        mut reader: R,
        mut stop: watch::Receiver<bool>,
    ) -> Result<(), VentiConnectionError> {
        let begun = Instant::now();
        let mut midway_since = None;
        let mut receive_bytes = RECEIVE_BYTES[0];
        loop {
            let has_heard = self.answer_what_came().await;
            self.flush().await;
            if !has_heard? {
                return Ok(());
            }
            if !self.connection.is_midway() || !self.connection.is_ready() {
                midway_since = None;
            } else if midway_since.is_none() {
                midway_since = Some(Instant::now());
            }
            let (until, is_late) = self.patience(begun, midway_since);
            let outbox = self.outbox.clone();
            let received = tokio::select! {
                biased;
                // `wait_for` also sees a stop that was requested before this wait.
                _ = stop.wait_for(|is_stopped| *is_stopped) => return Ok(()),
                () = outbox.closed() => return Ok(()),
                received = self.read(&mut reader, receive_bytes, until) => received?,
            };
            match received {
                None => return Err(is_late),
                Some(0) if self.connection.is_midway() && self.connection.is_ready() => {
                    return Err(VentiConnectionError::CutOff);
                }
                Some(0) => return Ok(()),
                Some(count) if count >= receive_bytes => {
                    receive_bytes = (2 * receive_bytes).min(RECEIVE_BYTES[1])
                }
                Some(count) if count < receive_bytes / 4 => {
                    receive_bytes = (receive_bytes / 2).max(RECEIVE_BYTES[0])
                }
                Some(_) => {}
            }
        }
    }

    /// The deadline for the next bytes, and the error if they do not arrive.
    fn patience(
        &self,
        begun: Instant,
        midway_since: Option<Instant>,
    ) -> (Option<Instant>, VentiConnectionError) {
        let settings = &self.shared.settings;
        if !self.connection.is_ready() {
            return (Some(begun + settings.hello_timeout), VentiConnectionError::NoHello);
        }
        match (midway_since, settings.idle_timeout) {
            (Some(since), _) => (Some(since + settings.partial_timeout), VentiConnectionError::Slow),
            // A client that waits for an answer is not idle.
            (None, Some(patience)) if self.connection.unanswered() == 0 => {
                (Some(Instant::now() + patience), VentiConnectionError::Silent)
            }
            (None, _) => (None, VentiConnectionError::Silent),
        }
    }

    /// Receives bytes; returns `None` on a time-out.
    async fn read<R: AsyncRead + Unpin>(
        &mut self,
        reader: &mut R,
        bytes: usize,
        until: Option<Instant>,
    ) -> Result<Option<usize>, VentiConnectionError> {
        let count = match self.connection.inbox() {
            None => {
                let mut first = [0; 1024];
                let Some(count) = within(until, reader.read(&mut first)).await? else { return Ok(None) };
                self.connection.receive(&first[..count])?;
                count
            }
            Some(inbox) => {
                // An idle client holds only the smallest buffer.
                if inbox.is_empty() && inbox.capacity() != bytes {
                    *inbox = BytesMut::with_capacity(bytes);
                }
                inbox.reserve(bytes);
                let mut limited = (&mut *reader).take(bytes as u64);
                let Some(count) = within(until, limited.read_buf(inbox)).await? else { return Ok(None) };
                count
            }
        };
        Ok(Some(count))
    }

    /// Answers all complete requests, or hands them to threads. Returns false if there will be no
    /// more.
    async fn answer_what_came(&mut self) -> Result<bool, VentiConnectionError> {
        self.outbox.take_freed(|tag| self.connection.answered(tag));
        loop {
            let received = self.connection.next_received();
            let unsent = self.connection.take_unsent();
            self.replies.put_bytes(&unsent);
            let Some(received) = received? else { return Ok(true) };
            let version = self.connection.version();
            match received {
                ReceivedMessage::Refused { tag, reason } => {
                    self.shared.state.counters.errors.add(1);
                    self.reply(tag, VentiReply::Error(reason));
                }
                ReceivedMessage::Request { tag, request: VentiRequest::Ping } => {
                    self.reply(tag, VentiReply::Ping)
                }
                ReceivedMessage::Request {
                    request: VentiRequest::Goodbye | VentiRequest::Hello(_), ..
                } => return Ok(false),
                ReceivedMessage::Request {
                    tag,
                    request: VentiRequest::Read { score, wire_type, count, .. },
                } => {
                    let read = PendingRead { tag, score, wire_type, count };
                    match self.known(&read) {
                        Some(block) => self.reply(tag, VentiReply::Read(block)),
                        None => self.reads.push(read),
                    }
                    if self.reads.len() >= self.shared.state.read_pace.at_once() {
                        self.flush_reads(version).await;
                    }
                }
                ReceivedMessage::Request { tag, request: VentiRequest::Write { wire_type, data } } => {
                    self.pending_writes.push(PendingWrite { tag, wire_type, data });
                    let byte_count: usize = self.pending_writes.iter().map(|write| write.data.len()).sum();
                    if self.pending_writes.len() == WRITES_MAX || byte_count >= WRITE_BYTES_MAX {
                        self.flush_writes(version).await;
                    }
                }
                ReceivedMessage::Request { tag, request: VentiRequest::Sync } => {
                    self.flush_writes(version).await;
                    self.sync(version, tag);
                }
            }
            if self.replies.len() >= ANSWER_BYTES {
                self.flush_replies().await;
            }
        }
    }

    /// Finds a block in memory, if its length is within the client's limit.
    fn known(&self, read: &PendingRead) -> Option<Bytes> {
        let score = Score::try_from(read.score.as_slice()).ok()?;
        let state = &self.shared.state;
        let mut names = read.wire_type.block_types().map(|block_type| BlockName { score, block_type });
        let block = names.find_map(|name| state.recent.get(&name).filter(|_| !state.refuses(&name)))?;
        let fits = u32::try_from(block.len()).is_ok_and(|size| size <= read.count);
        fits.then(|| {
            self.shared.state.count_read(block.len());
            self.shared.state.counters.reads_from_memory.add(1);
            block
        })
    }

    fn reply(&mut self, tag: u8, reply: VentiReply) {
        self.replies.put(self.connection.version(), tag, reply);
        self.reply_tags.push(tag);
    }

    async fn flush(&mut self) {
        let version = self.connection.version();
        self.flush_replies().await;
        self.flush_reads(version).await;
        self.flush_writes(version).await;
    }

    /// Waits for room for answers of this size; `None` if the client takes no more answers.
    async fn room_for(&self, bytes: usize) -> Option<ReservedBytes> {
        // Room is nearly always available at once, so the wait with a timer is avoided.
        if let Some(taken) = take_now(&self.own_room, &self.shared.room, bytes) {
            return Some(taken);
        }
        tokio::select! {
            biased;
            taken = take(&self.own_room, &self.shared.room, bytes) => Some(taken),
            () = self.outbox.closed() => None,
        }
    }

    async fn flush_replies(&mut self) {
        if self.replies.is_empty() {
            return;
        }
        // Small answers need no room, so that they are sent even if other clients have used up the
        // budget.
        let taken = match self.replies.needs_room() {
            true => match self.room_for(self.replies.len()).await {
                Some(taken) => Some(taken),
                None => return,
            },
            false => None,
        };
        let (answers, tags) = (std::mem::take(&mut self.replies), std::mem::take(&mut self.reply_tags));
        self.outbox.send(answers, tags, taken);
    }

    async fn flush_reads(&mut self, version: Version) {
        if self.reads.is_empty() {
            return;
        }
        let reads = std::mem::take(&mut self.reads);
        let most = |read: &PendingRead| to_usize(read.count).min(BLOCK_BYTES_MAX);
        let Some(taken) = self.room_for(reads.iter().map(most).sum()).await else { return };
        // For a client that requests one block at a time, each switch of threads adds latency.
        // While reads do not wait for a disk, they are done here.
        let is_done_here =
            reads.len() == 1 && self.connection.unanswered() == 1 && self.shared.state.read_pace.is_quick();
        let (state, outbox) = (Arc::clone(&self.shared.state), self.outbox.clone());
        let work = move || {
            let mut answers = ReplyQueue::default();
            let begun = Instant::now();
            answer::read(&state, version, &reads, &mut answers);
            state.read_pace.note(begun.elapsed(), reads.len());
            outbox.send(answers, reads.iter().map(|read| read.tag).collect(), Some(taken));
        };
        if is_done_here {
            work();
        } else {
            tokio::task::spawn_blocking(work);
        }
    }

    async fn flush_writes(&mut self, version: Version) {
        if self.pending_writes.is_empty() {
            return;
        }
        self.has_written.store(true, Ordering::Relaxed);
        let writes = std::mem::take(&mut self.pending_writes);
        let byte_count = writes.iter().map(|write| write.data.len()).sum();
        let taken = take(&self.own_room, &self.shared.room, byte_count).await;
        let unfinished = Arc::clone(&self.writes).read_owned().await;
        let (shared, outbox) = (Arc::clone(&self.shared), self.outbox.clone());
        let access = self.access.clone();
        tokio::task::spawn_blocking(move || {
            let most = shared.settings.block_bytes_max;
            for part in writes.chunks(WRITES_ANSWERED) {
                let mut answers = ReplyQueue::default();
                answer::write(&shared.state, version, &access, most, part, &mut answers);
                outbox.send(answers, part.iter().map(|write| write.tag).collect(), None);
            }
            drop(taken);
            drop(unfinished);
        });
    }

    fn sync(&self, version: Version, tag: u8) {
        let (state, outbox) = (Arc::clone(&self.shared.state), self.outbox.clone());
        let writes = Arc::clone(&self.writes);
        let is_read_only = matches!(self.access, ClientAccess::ReadOnly);
        tokio::spawn(async move {
            // All requests before this one are done now.
            drop(writes.write_owned().await);
            tokio::task::spawn_blocking(move || {
                let mut answers = ReplyQueue::default();
                answer::sync(&state, version, is_read_only, tag, &mut answers);
                outbox.send(answers, vec![tag], None);
            });
        });
    }
}

async fn within<T>(
    until: Option<Instant>,
    something: impl Future<Output = io::Result<T>>,
) -> Result<Option<T>, VentiConnectionError> {
    match until {
        None => Ok(Some(something.await?)),
        Some(until) => match timeout_at(until, something).await {
            Ok(done) => Ok(Some(done?)),
            Err(_) => Ok(None),
        },
    }
}
