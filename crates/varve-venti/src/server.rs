//! The server's side of a connection.

use bytes::BytesMut;

use crate::error_text::LUMP_TOO_LARGE_TEXT;
use crate::frames::{FrameError, MessageDecoder, VentiMessage};
use crate::reply::{Hello, VentiReply};
use crate::request::{DecodeRequestError, VentiRequest};
use crate::version::{Version, VersionError, VersionLine};
use crate::{WRITE_HEAD_BYTES, request};

/// Every request except for a write is shorter than this.
const MESSAGE_BYTES_MIN: usize = 4096;

/// A message from a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceivedMessage {
    /// A request to be answered under its tag.
    Request {
        tag: u8,
        /// Never a hello.
        request: VentiRequest,
    },
    /// A request that cannot be executed. The caller answers with this error.
    Refused { tag: u8, reason: String },
}

/// Why a connection has failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    /// The version negotiation failed.
    #[error("{0}")]
    Version(#[from] VersionError),
    /// A message exceeds all limits.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// The connection did not begin with a valid hello.
    #[error("the client's first message is not a hello with tag 0 and the agreed version")]
    NoHello,
    /// The client reused a tag too early, so that its answers could not be told apart.
    #[error("the client uses tag {tag} again before its last request with this tag is answered")]
    TagInUse { tag: u8 },
    /// The message cannot be answered.
    #[error("the client sent a message of {length} bytes, which has no tag")]
    NoTag { length: u32 },
}

#[derive(Debug)]
enum ServerConnectionState {
    Version(VersionLine),
    Hello(MessageDecoder),
    Requests(MessageDecoder),
}

/// A client's connection to this server. Pass received bytes to [`receive`](Self::receive), and
/// send the bytes from [`take_unsent`](Self::take_unsent) and every reply.
#[derive(Debug)]
pub struct ServerConnection {
    state: ServerConnectionState,
    version: Version,
    message_bytes_max: usize,
    unsent: Vec<u8>,
    /// The tags of outstanding requests.
    in_use: [bool; crate::UNANSWERED_MAX],
    unanswered: usize,
}

impl ServerConnection {
    /// A new connection, of a client that may write blocks of at most `block_bytes_max` bytes.
    #[must_use]
    pub fn new(block_bytes_max: usize) -> Self {
        Self {
            state: ServerConnectionState::Version(VersionLine::default()),
            version: Version::V04,
            message_bytes_max: block_bytes_max.saturating_add(WRITE_HEAD_BYTES).max(MESSAGE_BYTES_MIN),
            unsent: Version::line().to_vec(),
            in_use: [false; crate::UNANSWERED_MAX],
            unanswered: 0,
        }
    }

    /// The negotiated version, once [`is_ready`](Self::is_ready).
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Reports whether the handshake is complete.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(self.state, ServerConnectionState::Requests(_))
    }

    /// Reports whether a part of a message has arrived, but not all of it.
    #[must_use]
    pub fn is_midway(&self) -> bool {
        match &self.state {
            ServerConnectionState::Version(_) => true,
            ServerConnectionState::Hello(messages) | ServerConnectionState::Requests(messages) => {
                messages.is_midway()
            }
        }
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

    /// Accepts received bytes.
    ///
    /// # Errors
    /// [`ServerError`]: close the connection after sending the unsent bytes.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), ServerError> {
        let mut rest = bytes;
        if let ServerConnectionState::Version(line) = &mut self.state {
            let (taken, version) = line.receive(rest)?;
            let Some(version) = version else { return Ok(()) };
            rest = rest.get(taken..).unwrap_or_default();
            self.version = version;
            self.state = ServerConnectionState::Hello(MessageDecoder::new(
                version,
                self.message_bytes_max,
                BytesMut::new(),
            ));
        }
        if let ServerConnectionState::Hello(messages) | ServerConnectionState::Requests(messages) =
            &mut self.state
        {
            messages.inbox().extend_from_slice(rest);
        }
        Ok(())
    }

    /// The buffer to which received bytes can be appended without a copy. `None` before the
    /// client's version line is complete; use [`receive`](Self::receive) until then.
    pub fn inbox(&mut self) -> Option<&mut BytesMut> {
        match &mut self.state {
            ServerConnectionState::Version(_) => None,
            ServerConnectionState::Hello(messages) | ServerConnectionState::Requests(messages) => {
                Some(messages.inbox())
            }
        }
    }

    /// The next message; `None` until more bytes arrive. The caller calls
    /// [`answered`](Self::answered) for each.
    ///
    /// # Errors
    /// [`ServerError`]: close the connection after sending the unsent bytes.
    pub fn next_received(&mut self) -> Result<Option<ReceivedMessage>, ServerError> {
        if let ServerConnectionState::Hello(messages) = &mut self.state {
            let Some(message) = messages.next_message()? else { return Ok(None) };
            check_hello(message, self.version)?;
            let hello = VentiReply::Hello(Hello::anonymous()).encode(self.version, 0, &mut self.unsent);
            hello.expect("it is short");
            let inbox = std::mem::take(messages.inbox());
            self.state = ServerConnectionState::Requests(MessageDecoder::new(
                self.version,
                self.message_bytes_max,
                inbox,
            ));
        }
        let ServerConnectionState::Requests(messages) = &mut self.state else { return Ok(None) };
        let Some(message) = messages.next_message()? else { return Ok(None) };
        let (tag, received) = match message {
            VentiMessage::TooShort { length } => return Err(ServerError::NoTag { length }),
            VentiMessage::TooLong { kind: request::WRITE, tag, .. } => {
                (tag, ReceivedMessage::Refused { tag, reason: LUMP_TOO_LARGE_TEXT.into() })
            }
            VentiMessage::TooLong { tag, .. } => {
                (tag, ReceivedMessage::Refused { tag, reason: "message too long".into() })
            }
            VentiMessage::Whole { kind, tag, body } => (tag, understand(kind, tag, body)),
        };
        match self.in_use.get_mut(usize::from(tag)) {
            Some(in_use) if !*in_use => *in_use = true,
            _ => return Err(ServerError::TagInUse { tag }),
        }
        self.unanswered = self.unanswered.saturating_add(1);
        Ok(Some(received))
    }

    /// Releases a tag. Called before its answer is sent, because the client may reuse the tag at
    /// once.
    pub fn answered(&mut self, tag: u8) {
        if let Some(in_use) = self.in_use.get_mut(usize::from(tag))
            && std::mem::take(in_use)
        {
            self.unanswered = self.unanswered.saturating_sub(1);
        }
    }
}

fn check_hello(message: VentiMessage, version: Version) -> Result<(), ServerError> {
    let VentiMessage::Whole { kind: request::HELLO, tag: 0, body } = message else {
        return Err(ServerError::NoHello);
    };
    match VentiRequest::decode(request::HELLO, body) {
        Ok(VentiRequest::Hello(hello)) if hello.version == version.name() => Ok(()),
        _ => Err(ServerError::NoHello),
    }
}

fn understand(kind: u8, tag: u8, body: bytes::Bytes) -> ReceivedMessage {
    match VentiRequest::decode(kind, body) {
        // A second hello is refused.
        Ok(VentiRequest::Hello(_)) => {
            ReceivedMessage::Refused { tag, reason: DecodeRequestError::Unknown { kind }.to_string() }
        }
        Ok(request) => ReceivedMessage::Request { tag, request },
        Err(error) => ReceivedMessage::Refused { tag, reason: error.to_string() },
    }
}
