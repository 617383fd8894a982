//! The client's side: the handshake, and the validation of replies.

use std::collections::BTreeMap;
use std::ops::Range;

use varve_block::{BigEndian, to_usize};

use crate::export::{BlockSizes, ExportInfo, TransmissionFlags};
use crate::inbox::Inbox;
use crate::option::OptionRequest;
use crate::option_reply::{DecodeOptionReplyError, OptionReply, Refusal, RefusalKind};
use crate::reply::{NbdReply, ReplyChunk};
use crate::request::{CommandFlags, NbdCommand, NbdRequest};
use crate::wire::{
    CHUNK_BYTES, CHUNK_DONE, CHUNK_MAGIC, EXPORT_NAME_ZEROES, ErrorCode, FIXED_NEWSTYLE, INFO_BLOCK_SIZE,
    INFO_DESCRIPTION, INFO_NAME, NO_ZEROES, OPTION_MAGIC, SERVER_MAGIC, SIMPLE_REPLY_BYTES,
    SIMPLE_REPLY_MAGIC,
};
use crate::{EXTENT_COUNT_MAX, MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX, QUERY_COUNT_MAX, UNANSWERED_MAX};

/// The maximum number of replies to one option.
const REPLY_COUNT_MAX: usize = 256;

/// The export and the contexts that a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportRequest {
    pub export: String,
    /// Contexts of block status, such as [`BASE_ALLOCATION`](crate::BASE_ALLOCATION). Contexts that
    /// the server does not offer are omitted from the result.
    pub contexts: Vec<String>,
}

/// An established connection.
#[derive(Debug)]
pub struct ConnectedExport {
    pub info: ExportInfo,
    /// The granted contexts, each with the number that identifies it in [`ReplyChunk::Status`].
    pub contexts: Vec<(u32, String)>,
    /// Sends requests and decodes replies.
    pub replies: Replies,
}

/// Why no connection was established.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The peer is not an NBD server.
    #[error("the server is not an NBD server: it begins with {found:#018x}")]
    Magic { found: u64 },
    /// The server only speaks the handshake that was abandoned in 2011.
    #[error("the server supports only the old handshake, which was abandoned in 2011")]
    OldStyle,
    /// The server refused the export.
    #[error("the server refuses the export {export:?}: {refusal}")]
    Refused { export: String, refusal: Refusal },
    /// A reply to an option is malformed.
    #[error("{0}")]
    Reply(#[from] DecodeOptionReplyError),
    /// The reply does not match the option that was sent.
    #[error("the server answers option {asked} with {found}")]
    Unexpected {
        /// The number of the option.
        asked: u32,
        /// The reply, for the message.
        found: String,
    },
    /// The server granted the export without sending its size.
    #[error("the server grants the export {export:?}, but does not send its size")]
    NoSize { export: String },
    #[error("more than {QUERY_COUNT_MAX} contexts were requested")]
    TooManyContexts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientNegotiationState {
    Greeting,
    StructuredReply,
    Contexts,
    Go,
    ExportName,
}

/// A connection from its beginning until requests can be sent. Pass received bytes to
/// [`receive`](Self::receive). After each [`step`](Self::step), send the bytes from
/// [`take_unsent`](Self::take_unsent).
#[derive(Debug)]
pub struct ClientNegotiation {
    wanted: ExportRequest,
    state: ClientNegotiationState,
    inbox: Inbox,
    unsent: Vec<u8>,
    reply_count: usize,
    no_zeroes: bool,
    structured: bool,
    contexts: Vec<(u32, String)>,
    size: Option<(u64, TransmissionFlags)>,
    info: ExportInfo,
}

impl ClientNegotiation {
    /// Starts a negotiation on a new connection.
    #[must_use]
    pub fn new(wanted: ExportRequest) -> Self {
        let info = ExportInfo {
            canonical_name: None,
            description: None,
            size: 0,
            flags: TransmissionFlags(0),
            block_sizes: BlockSizes::default(),
            contexts: Vec::new(),
        };
        Self {
            wanted,
            state: ClientNegotiationState::Greeting,
            inbox: Inbox::default(),
            unsent: Vec::new(),
            reply_count: 0,
            no_zeroes: false,
            structured: false,
            contexts: Vec::new(),
            size: None,
            info,
        }
    }

    /// Accepts received bytes.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.inbox.receive(bytes);
    }

    /// Takes the bytes that are to be sent now.
    pub fn take_unsent(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unsent)
    }

    /// Advances the handshake as far as possible; returns `None` until more bytes arrive.
    ///
    /// # Errors
    /// [`ConnectError`]: no connection can be established.
    pub fn step(&mut self) -> Result<Option<ConnectedExport>, ConnectError> {
        if self.wanted.contexts.len() > QUERY_COUNT_MAX {
            return Err(ConnectError::TooManyContexts);
        }
        loop {
            match self.state {
                ClientNegotiationState::Greeting => {
                    if !self.greet()? {
                        return Ok(None);
                    }
                }
                ClientNegotiationState::ExportName => {
                    return Ok(self.take_export_name().then(|| self.connected()));
                }
                ClientNegotiationState::StructuredReply
                | ClientNegotiationState::Contexts
                | ClientNegotiationState::Go => {
                    let Some((option, reply, byte_count)) = OptionReply::decode(self.inbox.waiting())? else {
                        return Ok(None);
                    };
                    self.inbox.take(byte_count);
                    if self.take_reply(option, reply)? {
                        return Ok(Some(self.connected()));
                    }
                }
            }
        }
    }

    fn greet(&mut self) -> Result<bool, ConnectError> {
        let mut greeting = BigEndian::new(self.inbox.waiting());
        let Some(magic) = greeting.u64() else { return Ok(false) };
        if magic != SERVER_MAGIC {
            return Err(ConnectError::Magic { found: magic });
        }
        let Some(style) = greeting.u64() else { return Ok(false) };
        if style != OPTION_MAGIC {
            return Err(ConnectError::OldStyle);
        }
        let Some(flags) = greeting.u16() else { return Ok(false) };
        self.inbox.take(18);
        let answer = flags & (FIXED_NEWSTYLE | NO_ZEROES);
        self.no_zeroes = answer & NO_ZEROES != 0;
        self.unsent.extend_from_slice(&u32::from(answer).to_be_bytes());
        self.ask(if answer & FIXED_NEWSTYLE == 0 {
            ClientNegotiationState::ExportName
        } else {
            ClientNegotiationState::StructuredReply
        });
        Ok(true)
    }

    /// Sends the option of a state, and waits for its reply.
    fn ask(&mut self, state: ClientNegotiationState) {
        self.state = state;
        self.reply_count = 0;
        if let Some(option) = self.question() {
            option.encode(&mut self.unsent);
        }
    }

    fn question(&self) -> Option<OptionRequest> {
        let export = self.wanted.export.clone();
        match self.state {
            ClientNegotiationState::Greeting => None,
            ClientNegotiationState::StructuredReply => Some(OptionRequest::StructuredReply),
            ClientNegotiationState::Contexts => {
                Some(OptionRequest::SetContexts(export, self.wanted.contexts.clone()))
            }
            ClientNegotiationState::Go => {
                Some(OptionRequest::Go(export, vec![INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE]))
            }
            ClientNegotiationState::ExportName => Some(OptionRequest::ExportName(export)),
        }
    }

    /// Returns true when requests can be sent.
    fn take_reply(&mut self, option: u32, reply: OptionReply) -> Result<bool, ConnectError> {
        let asked = self.question().map_or(0, |question| question.number());
        let unexpected = |found: String| Err(ConnectError::Unexpected { asked, found });
        self.reply_count = self.reply_count.saturating_add(1);
        if option != asked || self.reply_count > REPLY_COUNT_MAX {
            return unexpected(format!("answer {} to option {option}", self.reply_count));
        }
        match (self.state, reply) {
            (ClientNegotiationState::StructuredReply, OptionReply::Ack) => {
                self.structured = true;
                let next = if self.wanted.contexts.is_empty() {
                    ClientNegotiationState::Go
                } else {
                    ClientNegotiationState::Contexts
                };
                self.ask(next);
            }
            (ClientNegotiationState::Contexts, OptionReply::Context { id, name }) => {
                self.contexts.push((id, name))
            }
            (
                ClientNegotiationState::StructuredReply | ClientNegotiationState::Contexts,
                OptionReply::Refused(_),
            ) => {
                // Both are optional. If the export does not exist, the reply to the next option
                // says so.
                self.contexts.clear();
                self.ask(ClientNegotiationState::Go);
            }
            (ClientNegotiationState::Contexts, OptionReply::Ack) => self.ask(ClientNegotiationState::Go),
            (ClientNegotiationState::Go, OptionReply::Export { size, flags }) => {
                self.size = Some((size, flags))
            }
            (ClientNegotiationState::Go, OptionReply::Name(name)) => self.info.canonical_name = Some(name),
            (ClientNegotiationState::Go, OptionReply::Description(text)) => {
                self.info.description = Some(text)
            }
            (ClientNegotiationState::Go, OptionReply::BlockSize(sizes)) => self.info.block_sizes = sizes,
            (ClientNegotiationState::Go, OptionReply::OtherInfo(_)) => {}
            (ClientNegotiationState::Go, OptionReply::Ack) if self.size.is_some() => return Ok(true),
            (ClientNegotiationState::Go, OptionReply::Ack) => {
                return Err(ConnectError::NoSize { export: self.wanted.export.clone() });
            }
            (ClientNegotiationState::Go, OptionReply::Refused(refusal))
                if refusal.kind == RefusalKind::Unsupported =>
            {
                self.ask(ClientNegotiationState::ExportName);
            }
            (ClientNegotiationState::Go, OptionReply::Refused(refusal)) => {
                return Err(ConnectError::Refused { export: self.wanted.export.clone(), refusal });
            }
            (_, other) => return unexpected(format!("{other:?}")),
        }
        Ok(false)
    }

    fn take_export_name(&mut self) -> bool {
        let zeroes = if self.no_zeroes { 0 } else { EXPORT_NAME_ZEROES };
        let mut answer = BigEndian::new(self.inbox.waiting());
        let (Some(size), Some(flags), Some(_)) = (answer.u64(), answer.u16(), answer.take(zeroes)) else {
            return false;
        };
        self.inbox.take(zeroes.saturating_add(10));
        self.size = Some((size, TransmissionFlags(flags)));
        true
    }

    fn connected(&mut self) -> ConnectedExport {
        let (size, flags) = self.size.unwrap_or((0, TransmissionFlags(0)));
        let info = ExportInfo { size, flags, ..self.info.clone() };
        let contexts = std::mem::take(&mut self.contexts);
        let replies = Replies {
            inbox: std::mem::take(&mut self.inbox),
            structured: self.structured,
            contexts: contexts.iter().map(|(id, _)| *id).collect(),
            next_cookie: 1,
            unanswered: BTreeMap::new(),
        };
        ConnectedExport { info, contexts, replies }
    }
}

/// Why a reply is invalid. The connection is unusable afterwards.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// The magic is wrong.
    #[error("an answer begins with {found:#010x} instead of its magic number")]
    Magic { found: u32 },
    /// There is no outstanding request with this cookie.
    #[error("an answer has the cookie {cookie}, which no unanswered request has")]
    Cookie { cookie: u64 },
    /// The reply announces more bytes than were requested.
    #[error("an answer announces {claimed} bytes, but may have {allowed}")]
    TooLong {
        /// The announced length.
        claimed: u32,
        /// The maximum length.
        allowed: u32,
    },
    /// The reply is malformed, or does not match the request.
    #[error("an answer of kind {kind} is invalid: it {problem}")]
    Wrong {
        /// The kind of reply; 0 for simple replies.
        kind: u16,
        /// A description of the defect.
        problem: &'static str,
    },
}

/// An outstanding request.
#[derive(Debug)]
struct OutstandingRequest {
    kind: RequestKind,
    offset: u64,
    length: u32,
    /// An error was received.
    failed: bool,
    /// For a read: the ranges received so far, disjoint and in order.
    come: Vec<Range<u64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    Read,
    Status,
    Other,
}

/// The requests that a client has sent, and the replies to them.
#[derive(Debug)]
pub struct Replies {
    inbox: Inbox,
    structured: bool,
    contexts: Vec<u32>,
    next_cookie: u64,
    unanswered: BTreeMap<u64, OutstandingRequest>,
}

impl Replies {
    /// Reports whether another request may be sent now; see [`UNANSWERED_MAX`].
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.unanswered.len() < UNANSWERED_MAX
    }

    /// The number of requests without a complete answer.
    #[must_use]
    pub fn unanswered_count(&self) -> usize {
        self.unanswered.len()
    }

    /// Appends a request to the bytes to be sent, and returns its cookie. The caller must respect
    /// the limits of the export, and call this only if there [is room](Self::has_room).
    pub fn ask(&mut self, command: NbdCommand, flags: CommandFlags, into: &mut Vec<u8>) -> u64 {
        let cookie = self.next_cookie;
        self.next_cookie = self.next_cookie.wrapping_add(1);
        let (kind, offset, length) = match &command {
            NbdCommand::Read { offset, length } => (RequestKind::Read, *offset, *length),
            NbdCommand::BlockStatus { offset, length } => (RequestKind::Status, *offset, *length),
            _ => (RequestKind::Other, 0, 0),
        };
        if command != NbdCommand::Disconnect {
            let unanswered = OutstandingRequest { kind, offset, length, failed: false, come: Vec::new() };
            self.unanswered.insert(cookie, unanswered);
        }
        NbdRequest { cookie, flags, command }.encode(into);
        cookie
    }

    /// Accepts received bytes.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.inbox.receive(bytes);
    }

    /// The next reply; `None` until more bytes arrive. When a read is done without an error, its
    /// data and holes cover exactly the requested range.
    ///
    /// # Errors
    /// [`ReplyError`]: all later bytes are unusable.
    pub fn next_reply(&mut self) -> Result<Option<NbdReply>, ReplyError> {
        match BigEndian::new(self.inbox.waiting()).u32() {
            None => Ok(None),
            Some(SIMPLE_REPLY_MAGIC) => self.simple_reply(),
            Some(CHUNK_MAGIC) => self.chunk(),
            Some(found) => Err(ReplyError::Magic { found }),
        }
    }

    fn simple_reply(&mut self) -> Result<Option<NbdReply>, ReplyError> {
        let mut fields = BigEndian::new(self.inbox.waiting());
        let (Some(_), Some(error), Some(cookie)) = (fields.u32(), fields.u32(), fields.u64()) else {
            return Ok(None);
        };
        let asked = self.unanswered.get(&cookie).ok_or(ReplyError::Cookie { cookie })?;
        let wrong = |problem| Err(ReplyError::Wrong { kind: 0, problem });
        let mut byte_count = SIMPLE_REPLY_BYTES;
        let chunk = match asked.kind {
            _ if !asked.come.is_empty() => return wrong("comes after chunks"),
            RequestKind::Read if self.structured => {
                return wrong("is simple, but structured replies were agreed on");
            }
            RequestKind::Status if error == 0 => return wrong("has no block status"),
            _ if error != 0 => {
                ReplyChunk::Error { code: ErrorCode(error), message: String::new(), offset: None }
            }
            RequestKind::Read => {
                let length = to_usize(asked.length);
                let Some(bytes) = fields.take(length) else { return Ok(None) };
                byte_count = byte_count.saturating_add(length);
                ReplyChunk::Data { offset: asked.offset, bytes: bytes.to_vec() }
            }
            RequestKind::Status | RequestKind::Other => ReplyChunk::None,
        };
        self.inbox.take(byte_count);
        self.unanswered.remove(&cookie);
        Ok(Some(NbdReply { cookie, done: true, chunk }))
    }

    fn chunk(&mut self) -> Result<Option<NbdReply>, ReplyError> {
        let mut fields = BigEndian::new(self.inbox.waiting());
        let (Some(_), Some(flags), Some(kind)) = (fields.u32(), fields.u16(), fields.u16()) else {
            return Ok(None);
        };
        let (Some(cookie), Some(claimed)) = (fields.u64(), fields.u32()) else { return Ok(None) };
        let wrong = |problem| Err(ReplyError::Wrong { kind, problem });
        if !self.structured {
            return wrong("was never agreed on");
        }
        let asked = self.unanswered.get_mut(&cookie).ok_or(ReplyError::Cookie { cookie })?;
        let allowed = asked.bytes_allowed();
        if claimed > allowed {
            return Err(ReplyError::TooLong { claimed, allowed });
        }
        let length = to_usize(claimed);
        let Some(data) = fields.take(length) else { return Ok(None) };
        let Some(chunk) = ReplyChunk::from_data(kind, data) else { return wrong("is malformed or unknown") };
        let done = flags & CHUNK_DONE != 0;
        if let Err(problem) = asked.take(&chunk, done, &self.contexts) {
            return wrong(problem);
        }
        self.inbox.take(CHUNK_BYTES.saturating_add(length));
        if done {
            self.unanswered.remove(&cookie);
        }
        Ok(Some(NbdReply { cookie, done, chunk }))
    }
}

impl OutstandingRequest {
    /// The maximum length of the data of a chunk.
    fn bytes_allowed(&self) -> u32 {
        let error = u32::try_from(MESSAGE_BYTES_MAX).unwrap_or(u32::MAX).saturating_add(64);
        let answer = match self.kind {
            RequestKind::Read => self.length.min(PAYLOAD_BYTES_MAX).saturating_add(8),
            RequestKind::Status => {
                u32::try_from(EXTENT_COUNT_MAX).unwrap_or(u32::MAX).saturating_mul(8).saturating_add(4)
            }
            RequestKind::Other => 0,
        };
        answer.max(error)
    }

    fn take(&mut self, chunk: &ReplyChunk, done: bool, contexts: &[u32]) -> Result<(), &'static str> {
        match (self.kind, chunk) {
            (_, ReplyChunk::Error { .. }) => self.failed = true,
            (_, ReplyChunk::None) if !done => return Err("is empty, but announces more"),
            (_, ReplyChunk::None) => {}
            (RequestKind::Read, ReplyChunk::Data { offset, bytes }) => {
                self.cover(*offset, bytes.len() as u64)?
            }
            (RequestKind::Read, ReplyChunk::Hole { offset, length }) => {
                self.cover(*offset, u64::from(*length))?
            }
            (RequestKind::Status, ReplyChunk::Status { context, extents }) => {
                if !contexts.contains(context) {
                    return Err("names a context that was not agreed on");
                }
                if extents.iter().any(|extent| extent.length == 0) {
                    return Err("has an empty extent");
                }
                // The last extent may extend beyond the requested range.
                let (_, before) = extents.split_last().ok_or("has no extent")?;
                let reported: u64 = before.iter().map(|extent| u64::from(extent.length)).sum();
                if reported >= u64::from(self.length) {
                    return Err("exceeds the requested range");
                }
            }
            _ => return Err("does not match the request"),
        }
        let wanted = self.offset..self.offset.saturating_add(u64::from(self.length));
        let is_whole = wanted.is_empty() || self.come == [wanted];
        if done && self.kind == RequestKind::Read && !self.failed && !is_whole {
            return Err("ends a read that lacks bytes");
        }
        Ok(())
    }

    /// Records received bytes of a read. Each byte must have been requested, and must come only
    /// once.
    fn cover(&mut self, offset: u64, length: u64) -> Result<(), &'static str> {
        let end = offset.checked_add(length).ok_or("has an impossible offset")?;
        let asked_end = self.offset.saturating_add(u64::from(self.length));
        if length == 0 || offset < self.offset || end > asked_end {
            return Err("has bytes that were not requested");
        }
        let place = self.come.partition_point(|range| range.start < offset);
        let before = place.checked_sub(1).and_then(|before| self.come.get(before)).map(|range| range.end);
        let after = self.come.get(place).map(|range| range.start);
        if before.is_some_and(|before| before > offset) || after.is_some_and(|after| after < end) {
            return Err("repeats bytes");
        }
        let joins_before = before == Some(offset);
        let joins_after = after == Some(end);
        let new_start = if joins_before { place.saturating_sub(1) } else { place };
        let new_end = if joins_after { place.saturating_add(1) } else { place };
        let start = self.come.get(new_start).map_or(offset, |range| range.start.min(offset));
        let stop = if joins_after { self.come.get(place).map_or(end, |range| range.end) } else { end };
        drop(self.come.splice(new_start..new_end, std::iter::once(start..stop)));
        if self.come.len() > EXTENT_COUNT_MAX {
            return Err("is one of too many parts");
        }
        Ok(())
    }
}
