//! A Venti server over blocks in memory, and clients of it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use sha1::{Digest as _, Sha1};
use varve_block::{Block, BlockName, BlockStore, GetError, PutError, Score, SyncError};
use varve_serve::venti::{InheritedSockets, ListenAccess, ListenAddress, VentiServer, VentiSettings};
use varve_venti::{Address, ClientConnection, VentiReply, VentiRequest, WireType};

/// Blocks in memory that can fail, wait, and report a collision.
#[derive(Default)]
pub struct Blocks {
    pub blocks: Mutex<BTreeMap<BlockName, Bytes>>,
    pub cannot_write: AtomicBool,
    /// A block with this beginning collides with another.
    pub colliding: Option<&'static [u8]>,
    /// Reads of this block wait until it is `None`.
    pub held: Mutex<Option<BlockName>>,
    pub let_go: Condvar,
}

pub fn score(bytes: &[u8]) -> Score {
    Score::try_from(Sha1::digest(bytes).as_slice()).unwrap()
}

impl BlockStore for Blocks {
    fn score_bytes(&self) -> usize {
        20
    }

    fn empty_score(&self) -> Score {
        score(&[])
    }

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        let name = BlockName { score: score(block.bytes), block_type: block.block_type };
        if self.cannot_write.load(Ordering::Relaxed) {
            return Err(PutError::Failed { source: "the disk is gone".into() });
        }
        if self.colliding.is_some_and(|colliding| block.bytes.starts_with(colliding)) {
            return Err(PutError::Collision { name });
        }
        self.blocks.lock().insert(name, Bytes::copy_from_slice(block.bytes));
        Ok(name.score)
    }

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        let mut held = self.held.lock();
        self.let_go.wait_while(&mut held, |held| *held == Some(*name));
        drop(held);
        self.blocks.lock().get(name).cloned().ok_or(GetError::NotFound { name: *name })
    }

    fn sync(&self) -> Result<(), SyncError> {
        if self.cannot_write.load(Ordering::Relaxed) {
            return Err(SyncError { source: "the disk is gone".into() });
        }
        Ok(())
    }
}

pub fn serve(blocks: &Arc<Blocks>, access: ListenAccess, settings: VentiSettings) -> VentiServer {
    let at = "tcp!127.0.0.1!0".parse().unwrap();
    let wanted = [ListenAddress { at, access }];
    VentiServer::start(&wanted, false, &mut InheritedSockets::none(), Arc::clone(blocks) as _, settings)
        .unwrap()
}

pub fn connect(server: &VentiServer) -> TcpStream {
    let Address::Tcp(host, port) = &server.addresses()[0].0 else { panic!("no TCP") };
    let socket = TcpStream::connect((host.as_str(), *port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

pub struct Client {
    pub socket: TcpStream,
    pub connection: ClientConnection,
}

impl Client {
    pub fn new(server: &VentiServer) -> Self {
        let mut client = Self { socket: connect(server), connection: ClientConnection::new(1 << 20) };
        while !client.connection.is_ready() {
            client.turn();
            assert_eq!(client.connection.next_answer().unwrap(), None);
        }
        client
    }

    /// Sends the unsent bytes, and receives the next ones.
    pub fn turn(&mut self) {
        self.socket.write_all(&self.connection.take_unsent()).unwrap();
        let mut bytes = [0; 65_536];
        let count = self.socket.read(&mut bytes).unwrap();
        assert!(count > 0, "the server has hung up");
        self.connection.receive(&bytes[..count]).unwrap();
        self.socket.write_all(&self.connection.take_unsent()).unwrap();
    }

    pub fn next(&mut self) -> (u8, Result<VentiReply, String>) {
        loop {
            if let Some(answer) = self.connection.next_answer().unwrap() {
                return (answer.tag, answer.reply);
            }
            self.turn();
        }
    }

    pub fn ask(&mut self, request: &VentiRequest) -> Result<VentiReply, String> {
        let tag = self.connection.ask(request).unwrap();
        let (answered, reply) = self.next();
        assert_eq!(answered, tag);
        reply
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<VentiReply, String> {
        self.ask(&VentiRequest::Write { wire_type: WireType::DATA, data: Bytes::copy_from_slice(bytes) })
    }
}

pub fn read(bytes: &[u8]) -> VentiRequest {
    VentiRequest::read(score(bytes).as_bytes().try_into().unwrap(), WireType::DATA, 8192)
}
