//! The client's side of a connection.

use bytes::{Bytes, BytesMut};

use crate::frames::{FrameError, MessageDecoder, VentiMessage};
use crate::reply::{DecodeReplyError, VentiReply};
use crate::request::{ClientHello, EncodeRequestError, VentiRequest, encode_write};
use crate::version::{Version, VersionError, VersionLine};
use crate::wire_type::WireType;

/// Every reply except for a block is shorter than this.
const MESSAGE_BYTES_MIN: usize = 4096;

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VentiAnswer {
    /// The tag of the request. It may be reused now.
    pub tag: u8,
    /// A reply of the requested kind, or the text of an error.
    pub reply: Result<VentiReply, String>,
}

/// Why a request cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The server has not completed the handshake yet.
    #[error("the server has not completed the handshake yet")]
    NotReady,
    /// All tags wait for answers.
    #[error("all tags are in use")]
    NoTag,
    /// The request cannot be encoded.
    #[error("{0}")]
    Encode(#[from] EncodeRequestError),
}

/// Why a connection has failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The version negotiation failed.
    #[error("{0}")]
    Version(#[from] VersionError),
    /// A message exceeds all limits.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// A reply is malformed.
    #[error("{0}")]
    Reply(#[from] DecodeReplyError),
    /// The server refused the client's hello.
    #[error("the server refuses this client: {reason}")]
    Refused { reason: String },
    /// The server answers a tag without an outstanding request.
    #[error("the server answers tag {tag}, which has no request")]
    NotAsked { tag: u8 },
    /// The reply is of another kind than the request.
    #[error("the server answers a request for {asked} with tag {tag} with another kind of answer")]
    WrongKind { tag: u8, asked: &'static str },
    /// A block is longer than requested.
    #[error("the server answers a read of at most {asked} bytes with tag {tag} with {bytes} bytes")]
    TooMuch {
        tag: u8,
        asked: u32,
        /// The number of bytes that arrived or were announced.
        bytes: usize,
    },
    /// The message cannot be a reply, and cannot be assigned to a request.
    #[error("the server sent a message of {length} bytes that cannot be a reply")]
    NotAReply { length: u32 },
}

/// The kind of answer that a request expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedReply {
    Ping,
    Read { count: u32 },
    Write,
    Sync,
}

#[derive(Debug)]
enum ClientConnectionState {
    Version(VersionLine),
    Hello(MessageDecoder),
    Ready(MessageDecoder),
}

/// A connection to a server. Pass received bytes to [`receive`](Self::receive), and send the bytes
/// from [`take_unsent`](Self::take_unsent).
#[derive(Debug)]
pub struct ClientConnection {
    state: ClientConnectionState,
    version: Version,
    message_bytes_max: usize,
    unsent: Vec<u8>,
    asked: [Option<ExpectedReply>; crate::UNANSWERED_MAX],
    /// Tags are used in turn, so that an answered tag is reused as late as possible. A second
    /// answer to a request is then recognised as such, and not mistaken for the answer to another
    /// request.
    next_tag: u8,
    unanswered: usize,
}

impl ClientConnection {
    /// A new connection, for a client that reads blocks of at most `block_bytes_max` bytes.
    #[must_use]
    pub fn new(block_bytes_max: usize) -> Self {
        Self {
            state: ClientConnectionState::Version(VersionLine::default()),
            version: Version::V04,
            message_bytes_max: block_bytes_max.saturating_add(2).max(MESSAGE_BYTES_MIN),
            unsent: Version::line().to_vec(),
            asked: [None; crate::UNANSWERED_MAX],
            next_tag: 0,
            unanswered: 0,
        }
    }

    /// Reports whether the handshake is complete, so that requests can be sent.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(self.state, ClientConnectionState::Ready(_))
    }

    /// The negotiated version, once [`is_ready`](Self::is_ready).
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The number of outstanding requests.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// Takes the bytes that are to be sent now.
    pub fn take_unsent(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unsent)
    }

    /// Like [`take_unsent`](Self::take_unsent), but reuses the memory of `sent`.
    pub fn exchange_unsent(&mut self, sent: &mut Vec<u8>) {
        sent.clear();
        std::mem::swap(&mut self.unsent, sent);
    }

    /// Accepts received bytes.
    ///
    /// # Errors
    /// [`ClientError`]: the connection is to be closed.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let mut rest = bytes;
        if let ClientConnectionState::Version(line) = &mut self.state {
            let (taken, version) = line.receive(rest)?;
            let Some(version) = version else { return Ok(()) };
            rest = rest.get(taken..).unwrap_or_default();
            self.version = version;
            let hello = VentiRequest::Hello(ClientHello::anonymous(version));
            hello.encode(version, 0, &mut self.unsent).expect("a hello is short");
            self.state = ClientConnectionState::Hello(MessageDecoder::new(
                version,
                self.message_bytes_max,
                BytesMut::new(),
            ));
        }
        if let ClientConnectionState::Hello(messages) | ClientConnectionState::Ready(messages) =
            &mut self.state
        {
            messages.inbox().extend_from_slice(rest);
        }
        Ok(())
    }

    /// Sends a request other than a hello, under the next free tag.
    ///
    /// # Errors
    /// [`AskError`]
    pub fn ask(&mut self, request: &VentiRequest) -> Result<u8, AskError> {
        let asked = match request {
            VentiRequest::Ping => ExpectedReply::Ping,
            VentiRequest::Read { count, .. } => ExpectedReply::Read { count: *count },
            VentiRequest::Write { wire_type, data } => return self.ask_write(*wire_type, data),
            VentiRequest::Sync => ExpectedReply::Sync,
            VentiRequest::Goodbye => {
                request.encode(self.version, 0, &mut self.unsent)?;
                return Ok(0);
            }
            VentiRequest::Hello(_) => return Err(AskError::NotReady),
        };
        let tag = self.free_tag()?;
        request.encode(self.version, tag, &mut self.unsent)?;
        self.remember(tag, asked);
        Ok(tag)
    }

    /// Sends a write, copying the block only once.
    ///
    /// # Errors
    /// [`AskError`]
    pub fn ask_write(&mut self, wire_type: WireType, data: &[u8]) -> Result<u8, AskError> {
        let tag = self.free_tag()?;
        encode_write(&mut self.unsent, self.version, tag, wire_type, data)?;
        self.remember(tag, ExpectedReply::Write);
        Ok(tag)
    }

    /// The next answer; `None` until more bytes arrive.
    ///
    /// # Errors
    /// [`ClientError`]: the connection is to be closed.
    pub fn next_answer(&mut self) -> Result<Option<VentiAnswer>, ClientError> {
        if let ClientConnectionState::Hello(messages) = &mut self.state {
            let Some(message) = messages.next_message()? else { return Ok(None) };
            let (tag, reply) = decode(message)?;
            match reply {
                VentiReply::Hello(_) if tag == 0 => {}
                VentiReply::Error(reason) => return Err(ClientError::Refused { reason }),
                _ => return Err(ClientError::WrongKind { tag, asked: "hello" }),
            }
            let inbox = std::mem::take(messages.inbox());
            self.state = ClientConnectionState::Ready(MessageDecoder::new(
                self.version,
                self.message_bytes_max,
                inbox,
            ));
        }
        let ClientConnectionState::Ready(messages) = &mut self.state else { return Ok(None) };
        let Some(message) = messages.next_message()? else { return Ok(None) };
        let (tag, reply) = decode(message)?;
        let asked = self.asked.get_mut(usize::from(tag)).and_then(Option::take);
        let asked = asked.ok_or(ClientError::NotAsked { tag })?;
        self.unanswered = self.unanswered.saturating_sub(1);
        let reply = match (asked, reply) {
            (_, VentiReply::Error(text)) => Err(text),
            (ExpectedReply::Read { count }, VentiReply::Read(block)) if !fits(&block, count) => {
                return Err(ClientError::TooMuch { tag, asked: count, bytes: block.len() });
            }
            (ExpectedReply::Ping, reply @ VentiReply::Ping)
            | (ExpectedReply::Read { .. }, reply @ VentiReply::Read(_))
            | (ExpectedReply::Write, reply @ VentiReply::Write(_))
            | (ExpectedReply::Sync, reply @ VentiReply::Sync) => Ok(reply),
            (ExpectedReply::Ping, _) => return Err(ClientError::WrongKind { tag, asked: "a ping" }),
            (ExpectedReply::Read { .. }, _) => return Err(ClientError::WrongKind { tag, asked: "a read" }),
            (ExpectedReply::Write, _) => return Err(ClientError::WrongKind { tag, asked: "a write" }),
            (ExpectedReply::Sync, _) => return Err(ClientError::WrongKind { tag, asked: "a sync" }),
        };
        Ok(Some(VentiAnswer { tag, reply }))
    }

    fn free_tag(&self) -> Result<u8, AskError> {
        if !self.is_ready() {
            return Err(AskError::NotReady);
        }
        let is_free = |tag: &u8| matches!(self.asked.get(usize::from(*tag)), Some(None));
        (0..=u8::MAX).map(|more| self.next_tag.wrapping_add(more)).find(is_free).ok_or(AskError::NoTag)
    }

    fn remember(&mut self, tag: u8, asked: ExpectedReply) {
        if let Some(place) = self.asked.get_mut(usize::from(tag)) {
            *place = Some(asked);
            self.next_tag = tag.wrapping_add(1);
            self.unanswered = self.unanswered.saturating_add(1);
        }
    }
}

fn fits(block: &Bytes, count: u32) -> bool {
    u32::try_from(block.len()).is_ok_and(|bytes| bytes <= count)
}

fn decode(message: VentiMessage) -> Result<(u8, VentiReply), ClientError> {
    match message {
        VentiMessage::Whole { kind, tag, body } => Ok((tag, VentiReply::decode(kind, body)?)),
        VentiMessage::TooLong { length, .. } | VentiMessage::TooShort { length } => {
            Err(ClientError::NotAReply { length })
        }
    }
}
