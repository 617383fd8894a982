//! The server's side of a connection.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use bytes::BytesMut;

use crate::version::{VersionError, VersionLine};
use crate::{
    DecodeRequestError, FrameError, Hello, LUMP_TOO_LARGE_TEXT, Message, Messages, Reply, Request, Version,
    WRITE_HEAD_BYTES, request,
};

/// Every request but a write is shorter than this.
const MESSAGE_BYTES_MIN: usize = 4096;

/// What a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// An answer to this, under this tag.
    Request {
        /// Whose it is.
        tag: u8,
        /// Never a hello.
        request: Request,
    },
    /// Something that cannot be done: this is the answer.
    Refused {
        /// Whose it is.
        tag: u8,
        /// Why.
        reason: String,
    },
}

/// Why a connection cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    /// It did not begin.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// It is a flood.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It began with something else.
    #[error("the client's first message is not a hello with tag 0 and the version that its line leads to")]
    NoHello,
    /// Nobody could tell whose the answer is.
    #[error("the client uses tag {tag}, and its last request with this tag is not answered yet")]
    TagInUse {
        /// The tag.
        tag: u8,
    },
    /// Nothing can be answered.
    #[error("the client sent a message of {length} bytes, which has no tag")]
    NoTag {
        /// How long it is.
        length: u32,
    },
}

#[derive(Debug)]
enum State {
    Version(VersionLine),
    Hello(Messages),
    Requests(Messages),
}

/// A connection that somebody made to this server. Bytes go in with [`receive`](Self::receive); what is [`unsent`](Self::take_unsent) goes out,
/// and every reply as it is ready.
#[derive(Debug)]
pub struct ServerConnection {
    state: State,
    version: Version,
    message_bytes_max: usize,
    unsent: Vec<u8>,
    /// Which tags wait for an answer.
    in_use: [bool; crate::UNANSWERED_MAX],
    unanswered: usize,
}

impl ServerConnection {
    /// A connection that has just been made, by a client that may write blocks of at most so many bytes.
    #[must_use]
    pub fn new(block_bytes_max: usize) -> Self {
        Self {
            state: State::Version(VersionLine::default()),
            version: Version::V04,
            message_bytes_max: block_bytes_max.saturating_add(WRITE_HEAD_BYTES).max(MESSAGE_BYTES_MIN),
            unsent: Version::line().to_vec(),
            in_use: [false; crate::UNANSWERED_MAX],
            unanswered: 0,
        }
    }

    /// What is spoken, once [`is_ready`](Self::is_ready).
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether the client has said hello.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(self.state, State::Requests(_))
    }

    /// Whether a part of a message has come, and not all of it.
    #[must_use]
    pub fn is_midway(&self) -> bool {
        match &self.state {
            State::Version(_) => true,
            State::Hello(messages) | State::Requests(messages) => messages.is_midway(),
        }
    }

    /// How many requests wait for an answer.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// What is to be sent now.
    pub fn take_unsent(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unsent)
    }

    /// Takes bytes that have come.
    ///
    /// # Errors
    /// [`ServerError`]: the connection is to be closed, after what is unsent was sent.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), ServerError> {
        let mut rest = bytes;
        if let State::Version(line) = &mut self.state {
            let (taken, version) = line.receive(rest)?;
            let Some(version) = version else { return Ok(()) };
            rest = rest.get(taken..).unwrap_or_default();
            self.version = version;
            self.state = State::Hello(Messages::new(version, self.message_bytes_max, BytesMut::new()));
        }
        if let State::Hello(messages) | State::Requests(messages) = &mut self.state {
            messages.inbox().extend_from_slice(rest);
        }
        Ok(())
    }

    /// Where bytes that come can be appended without a copy. `None` before the client's line has come: then they are
    /// [`receive`](Self::receive)d.
    pub fn inbox(&mut self) -> Option<&mut BytesMut> {
        match &mut self.state {
            State::Version(_) => None,
            State::Hello(messages) | State::Requests(messages) => Some(messages.inbox()),
        }
    }

    /// What the client wants next; `None` until more bytes come. Whatever comes out is to be [`answered`](Self::answered).
    ///
    /// # Errors
    /// [`ServerError`]: the connection is to be closed, after what is unsent was sent.
    pub fn next_received(&mut self) -> Result<Option<Received>, ServerError> {
        if let State::Hello(messages) = &mut self.state {
            let Some(message) = messages.next_message()? else { return Ok(None) };
            check_hello(message, self.version)?;
            let hello = Reply::Hello(Hello::anonymous()).encode(self.version, 0, &mut self.unsent);
            hello.expect("it is short");
            let inbox = std::mem::take(messages.inbox());
            self.state = State::Requests(Messages::new(self.version, self.message_bytes_max, inbox));
        }
        let State::Requests(messages) = &mut self.state else { return Ok(None) };
        let Some(message) = messages.next_message()? else { return Ok(None) };
        let (tag, received) = match message {
            Message::TooShort { length } => return Err(ServerError::NoTag { length }),
            Message::TooLong { kind: request::WRITE, tag, .. } => {
                (tag, Received::Refused { tag, reason: LUMP_TOO_LARGE_TEXT.into() })
            }
            Message::TooLong { tag, .. } => {
                (tag, Received::Refused { tag, reason: "message too long".into() })
            }
            Message::Whole { kind, tag, body } => (tag, understand(kind, tag, body)),
        };
        match self.in_use.get_mut(usize::from(tag)) {
            Some(in_use) if !*in_use => *in_use = true,
            _ => return Err(ServerError::TagInUse { tag }),
        }
        self.unanswered = self.unanswered.saturating_add(1);
        Ok(Some(received))
    }

    /// The answer under this tag is about to be sent, so the client may use the tag again.
    pub fn answered(&mut self, tag: u8) {
        if let Some(in_use) = self.in_use.get_mut(usize::from(tag))
            && std::mem::take(in_use)
        {
            self.unanswered = self.unanswered.saturating_sub(1);
        }
    }
}

fn check_hello(message: Message, version: Version) -> Result<(), ServerError> {
    let Message::Whole { kind: request::HELLO, tag: 0, body } = message else {
        return Err(ServerError::NoHello);
    };
    match Request::decode(request::HELLO, body) {
        Ok(Request::Hello(hello)) if hello.version == version.name() => Ok(()),
        _ => Err(ServerError::NoHello),
    }
}

fn understand(kind: u8, tag: u8, body: bytes::Bytes) -> Received {
    match Request::decode(kind, body) {
        // The first was enough.
        Ok(Request::Hello(_)) => {
            Received::Refused { tag, reason: DecodeRequestError::Unknown { kind }.to_string() }
        }
        Ok(request) => Received::Request { tag, request },
        Err(error) => Received::Refused { tag, reason: error.to_string() },
    }
}
