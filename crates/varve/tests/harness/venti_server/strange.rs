//! A Venti server in the test's own memory that may answer some requests in an unusual way.
#![allow(dead_code, reason = "each test uses its own part of this")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use varve_block::Score;
use varve_venti::{
    Hello, MessageDecoder, VentiMessage, VentiReply, VentiRequest, Version, VersionLine, missing,
    read_too_small,
};

/// Decides the answer to a request about a block that the server may have: the difference between
/// the answer's tag and the request's, and the answer. `None` means the answer of any other server.
type Oddity = dyn Fn(&VentiRequest, Option<&Bytes>) -> Option<(u8, VentiReply)> + Send + Sync;

pub struct Strange {
    pub address: String,
    state: Arc<State>,
}

struct State {
    blocks: Mutex<BTreeMap<([u8; 20], u8), Bytes>>,
    asked: AtomicUsize,
    connections: AtomicUsize,
    oddity: Box<Oddity>,
}

impl Strange {
    pub fn start(
        oddity: impl Fn(&VentiRequest, Option<&Bytes>) -> Option<(u8, VentiReply)> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp!127.0.0.1!{}", listener.local_addr().unwrap().port());
        let state = Arc::new(State {
            blocks: Mutex::default(),
            asked: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            oddity: Box::new(oddity),
        });
        let shared = Arc::clone(&state);
        let accept = move || {
            for socket in listener.incoming() {
                let shared = Arc::clone(&shared);
                shared.connections.fetch_add(1, Ordering::SeqCst);
                std::thread::Builder::new().spawn(move || shared.talk(socket.unwrap())).unwrap();
            }
        };
        std::thread::Builder::new().spawn(accept).unwrap();
        Self { address, state }
    }

    /// Returns the number of requests so far.
    pub fn asked(&self) -> usize {
        self.state.asked.load(Ordering::SeqCst)
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Returns the number of stored blocks.
    pub fn block_count(&self) -> usize {
        self.state.blocks.lock().len()
    }
}

impl State {
    fn talk(&self, mut socket: TcpStream) {
        let _ = socket.set_nodelay(true);
        socket.write_all(Version::line()).unwrap();
        let (mut line, mut byte) = (VersionLine::default(), [0]);
        while socket.read(&mut byte).unwrap_or(0) > 0 {
            if !matches!(line.receive(&byte), Ok((_, None))) {
                break;
            }
        }
        let mut messages = MessageDecoder::new(Version::V04, 1 << 21, BytesMut::new());
        let mut bytes = vec![0; 65_536];
        loop {
            while let Ok(Some(VentiMessage::Whole { kind, tag, body })) = messages.next_message() {
                let (more, reply) = self.answer(&VentiRequest::decode(kind, body).unwrap());
                let mut out = Vec::new();
                reply.encode(Version::V04, tag.wrapping_add(more), &mut out).unwrap();
                if socket.write_all(&out).is_err() {
                    return;
                }
            }
            match socket.read(&mut bytes) {
                Ok(count @ 1..) => messages.inbox().extend_from_slice(&bytes[..count]),
                _ => return,
            }
        }
    }

    fn answer(&self, request: &VentiRequest) -> (u8, VentiReply) {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut blocks = self.blocks.lock();
        let found = match request {
            VentiRequest::Read { score, wire_type, .. } => {
                blocks.get(&(*score, wire_type.to_byte())).cloned()
            }
            _ => None,
        };
        if let Some(odd) = (self.oddity)(request, found.as_ref()) {
            return odd;
        }
        let reply = match (request, found) {
            (VentiRequest::Hello(_), _) => VentiReply::Hello(Hello::anonymous()),
            (VentiRequest::Read { count, .. }, Some(block)) if block.len() > *count as usize => {
                VentiReply::Error(read_too_small(*count, block.len()))
            }
            (VentiRequest::Read { .. }, Some(block)) => VentiReply::Read(block),
            (VentiRequest::Read { score, wire_type, .. }, None) => {
                VentiReply::Error(missing(score, *wire_type))
            }
            (VentiRequest::Write { wire_type, data }, _) => {
                let score: [u8; 20] = Score::sha1(data).as_bytes().try_into().unwrap();
                blocks.insert((score, wire_type.to_byte()), data.clone());
                VentiReply::Write(score)
            }
            _ => VentiReply::Sync,
        };
        (0, reply)
    }
}
