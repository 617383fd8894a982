//! One connection: many requests in flight, for one caller at a time.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustls::StreamOwned;
use varve_block::BLOCK_BYTES_MAX;
use varve_venti::{
    Address, AskError, ClientConnection, ClientError, UNANSWERED_MAX, VentiReply, VentiRequest,
};

use super::VentiOptions;
use crate::edge;

/// The bytes that are received from a socket at a time.
const RECEIVE_BYTES: usize = 256 << 10;
/// Data is sent when this many bytes are waiting.
const SEND_BYTES: usize = 256 << 10;

/// The reason why a request to a Venti server failed.
#[derive(Debug, thiserror::Error)]
pub enum VentiError {
    /// There is no connection.
    #[error("cannot connect to the Venti server {address}")]
    Connect { address: String, source: io::Error },
    /// The connection broke.
    #[error("the connection to the Venti server broke")]
    Socket(#[source] io::Error),
    /// The server sent nothing, or accepted nothing, until the time-out.
    #[error("the Venti server does not answer")]
    Silent,
    /// The server violates the protocol.
    #[error("the Venti server breaks the protocol")]
    Protocol(#[from] ClientError),
    /// The request cannot be sent.
    #[error("the request cannot be sent to the Venti server")]
    Ask(#[from] AskError),
    /// The server refuses the request.
    #[error("the Venti server says: {text}")]
    Refused {
        /// The server's text.
        text: String,
    },
    /// A read returned other bytes.
    #[error("the Venti server breaks the protocol: it returned bytes that do not have the requested score")]
    Lies,
    /// The answer to a write has a score that the block does not have.
    #[error("the Venti server breaks the protocol: it acknowledged a block with a wrong score")]
    OtherScore,
    /// Venti has no type for such a block.
    #[error("Venti supports at most 7 levels of pointer blocks: choose a larger block size")]
    TooDeep,
}

impl From<io::Error> for VentiError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // A socket reports a time-out in this way.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent,
            _ => Self::Socket(error),
        }
    }
}

impl VentiError {
    /// Returns true if a retry may succeed. A violation of the protocol would happen again.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            // A certificate that either side refused is reported in this way.
            Self::Connect { source, .. } | Self::Socket(source) => {
                source.kind() != io::ErrorKind::InvalidData
            }
            Self::Silent => true,
            _ => self.is_refused_client(),
        }
    }

    /// Returns the violation of the protocol, if that is the cause.
    pub(super) fn breach(&self) -> Option<&ClientError> {
        match self {
            Self::Protocol(error) if !self.is_refused_client() => Some(error),
            _ => None,
        }
    }

    /// Returns true if the server refused the client, perhaps because it has too many clients at
    /// the moment.
    fn is_refused_client(&self) -> bool {
        matches!(self, Self::Protocol(ClientError::Refused { .. }))
    }
}

enum VentiSocket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<StreamOwned<rustls::ClientConnection, TcpStream>>),
}

pub(super) struct VentiConnection {
    socket: VentiSocket,
    protocol: ClientConnection,
    number: u64,
    depth: usize,
    scratch: Vec<u8>,
    sending: Vec<u8>,
}

impl VentiConnection {
    pub(super) fn open(address: &Address, options: &VentiOptions, number: u64) -> Result<Self, VentiError> {
        let failed = |source| VentiError::Connect { address: address.to_string(), source };
        let socket = dial(address, options).map_err(failed)?;
        let mut connection = Self {
            socket,
            protocol: ClientConnection::new(BLOCK_BYTES_MAX),
            number,
            depth: options.depth.clamp(1, UNANSWERED_MAX),
            scratch: vec![0; RECEIVE_BYTES],
            sending: Vec::new(),
        };
        connection.socket.set_timeouts(options.connect_timeout)?;
        while !connection.protocol.is_ready() {
            connection.send()?;
            connection.receive()?;
            if let Some(answer) = connection.protocol.next_answer()? {
                return Err(ClientError::NotAsked { tag: answer.tag }.into());
            }
        }
        connection.send()?;
        connection.socket.set_timeouts(options.answer_timeout)?;
        Ok(connection)
    }

    /// Returns the number of the connection. A store numbers its connections from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Sends all requests that have no answer yet, and receives the answers.
    pub(super) fn ask_all(
        &mut self,
        requests: &[VentiRequest],
        answers: &mut [Option<Result<VentiReply, String>>],
    ) -> Result<(), VentiError> {
        let mut whose = [0; UNANSWERED_MAX];
        let mut open: Vec<usize> = (0..requests.len()).filter(|number| answers[*number].is_none()).collect();
        open.reverse();
        let mut waiting_bytes = 0;
        while !open.is_empty() || self.protocol.unanswered() > 0 {
            while self.protocol.unanswered() < self.depth
                && waiting_bytes < SEND_BYTES
                && let Some(number) = open.pop()
            {
                let tag = self.protocol.ask(&requests[number])?;
                whose[usize::from(tag)] = number;
                waiting_bytes += match &requests[number] {
                    VentiRequest::Write { data, .. } => data.len(),
                    _ => 0,
                };
            }
            self.send()?;
            waiting_bytes = 0;
            self.receive()?;
            while let Some(answer) = self.protocol.next_answer()? {
                answers[whose[usize::from(answer.tag)]] = Some(answer.reply);
            }
        }
        Ok(())
    }

    /// Sends the requests that `next` returns, with up to the agreed number in flight. Calls `done`
    /// for each answer, with the number of its request, from 0, and the time when it was sent.
    /// `done` returns false to stop.
    pub(super) fn drive(
        &mut self,
        next: &mut dyn FnMut() -> Option<VentiRequest>,
        done: &mut dyn FnMut(usize, Instant, Result<VentiReply, String>) -> bool,
    ) -> Result<(), VentiError> {
        let mut whose = [(0, edge::now()); UNANSWERED_MAX];
        let mut number = 0;
        let mut is_over = false;
        while !is_over || self.protocol.unanswered() > 0 {
            while !is_over && self.protocol.unanswered() < self.depth {
                let Some(request) = next() else {
                    is_over = true;
                    break;
                };
                let tag = self.protocol.ask(&request)?;
                whose[usize::from(tag)] = (number, edge::now());
                number += 1;
            }
            if self.protocol.unanswered() == 0 {
                return Ok(());
            }
            self.send()?;
            self.receive()?;
            while let Some(answer) = self.protocol.next_answer()? {
                let (number, sent) = whose[usize::from(answer.tag)];
                is_over |= !done(number, sent, answer.reply);
            }
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        self.protocol.exchange_unsent(&mut self.sending);
        match &mut self.socket {
            VentiSocket::Tcp(socket) => socket.write_all(&self.sending),
            VentiSocket::Unix(socket) => socket.write_all(&self.sending),
            VentiSocket::Tls(socket) => socket.write_all(&self.sending).and_then(|()| socket.flush()),
        }
    }

    fn receive(&mut self) -> Result<(), VentiError> {
        let received = match &mut self.socket {
            VentiSocket::Tcp(socket) => socket.read(&mut self.scratch),
            VentiSocket::Unix(socket) => socket.read(&mut self.scratch),
            VentiSocket::Tls(socket) => socket.read(&mut self.scratch),
        };
        let count = received?;
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.protocol.receive(&self.scratch[..count])?;
        Ok(())
    }
}

impl VentiSocket {
    fn set_timeouts(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => set_tcp_timeouts(socket, timeout),
            Self::Tls(stream) => set_tcp_timeouts(&stream.sock, timeout),
            Self::Unix(socket) => {
                socket.set_read_timeout(Some(timeout))?;
                socket.set_write_timeout(Some(timeout))
            }
        }
    }
}

fn set_tcp_timeouts(socket: &TcpStream, timeout: Duration) -> io::Result<()> {
    socket.set_read_timeout(Some(timeout))?;
    socket.set_write_timeout(Some(timeout))
}

fn dial(to: &Address, options: &VentiOptions) -> io::Result<VentiSocket> {
    let (host, port) = match to {
        Address::Unix(path) => return UnixStream::connect(path).map(VentiSocket::Unix),
        Address::Tcp(host, port) | Address::Tls(host, port) => (host.as_str(), *port),
    };
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, options.connect_timeout) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                if !matches!(to, Address::Tls(..)) {
                    return Ok(VentiSocket::Tcp(socket));
                }
                set_tcp_timeouts(&socket, options.connect_timeout)?;
                return Ok(VentiSocket::Tls(options.tls.wrap(host, socket)?));
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}
