//! A Venti server as a block store.
//!
//! ```text
//! put, get ─▶ connections, each used by one caller at a time, many requests in flight on each ─▶ server
//!    └─▶ the blocks written since the last sync, kept until they are durable
//! ```
//!
//! Invariants:
//! - A read block has the requested score, and a written block has the score in the server's
//!   answer. Otherwise the call fails.
//! - A successful sync covers every block whose put has returned, even if the server was killed and
//!   restarted in between. Blocks that it acknowledged and did not make durable are written again.
//!   For that, at most [`UNSYNCED_BYTES_MAX`] are kept; then a sync runs.
//! - A broken connection is made again, and unanswered requests are repeated. Every request may be
//!   sent twice.
//! - A server that violates the protocol is not asked again for [`VentiOptions::breach_pause`].
//!   Each caller gets that error at once.
//! - Every error names the server.
//! - Every wait for the server has a time-out.

mod connection;
mod load;
mod tls;
mod unsynced;

use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use varve_block::{
    BLOCK_BYTES_MAX, Block, BlockName, BlockStore, GetError, PutError, Score, SyncError, with_causes,
};
use varve_venti::{
    Address, COLLISION_TEXT, ClientError, READ_ONLY_TEXT, READ_TOO_SMALL_TEXT, VentiReply, VentiRequest,
    WireType, is_missing,
};

use crate::edge;
use connection::VentiConnection;
pub use connection::VentiError;
pub use load::{Load, LoadAction, LoadOrder, LoadResult, load};
pub use tls::VentiTls;
use unsynced::UnsyncedBlocks;

/// The most bytes that are acknowledged and not durable.
pub(crate) const UNSYNCED_BYTES_MAX: usize = 32 << 20;
/// The requested size if the size of a block is not known.
const COUNT: u32 = u16::MAX as u32;
/// The requested size if the first one was too small. No block is larger.
const LARGE_COUNT: u32 = 1 << 20;

/// The most connections, broken while idle, that are tried before that counts as an attempt.
const STALE_MAX: u32 = 256;

/// Time-outs and limits for a server.
#[derive(Debug, Clone)]
pub struct VentiOptions {
    /// The time-out for the connection and the handshake.
    pub connect_timeout: Duration,
    /// The time-out for any data of an answer.
    pub answer_timeout: Duration,
    /// The most attempts.
    pub attempts: u32,
    /// The pause before the second attempt. It doubles with each further one.
    pub pause: Duration,
    /// The requests in flight on a connection.
    pub depth: usize,
    /// The time for which a server that violated the protocol is not asked again.
    pub breach_pause: Duration,
    /// The TLS settings.
    pub tls: VentiTls,
}

impl Default for VentiOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(60),
            attempts: 6,
            pause: Duration::from_millis(200),
            depth: 64,
            breach_pause: Duration::from_secs(5),
            tls: VentiTls::default(),
        }
    }
}

/// A block store at a Venti server.
pub struct VentiStore {
    address: Address,
    options: VentiOptions,
    /// The idle connections, the oldest first.
    idle: Mutex<Vec<VentiConnection>>,
    connection_count: Mutex<u64>,
    unsynced: Mutex<UnsyncedBlocks>,
    /// The last violation of the protocol, and its time.
    breach: Mutex<Option<(Instant, ClientError)>>,
    empty: Score,
}

/// An error with the address of the server.
#[derive(Debug, thiserror::Error)]
#[error("{address}")]
struct ServerFailed {
    address: String,
    source: VentiError,
}

impl VentiStore {
    /// Connects to a server.
    ///
    /// # Errors
    /// [`VentiError`] when there is no server, or it does not speak Venti. There is no retry.
    pub fn connect(address: Address, options: VentiOptions) -> Result<Self, VentiError> {
        let store = Self::connect_later(address, options);
        let first = store.open()?;
        store.idle.lock().push(first);
        Ok(store)
    }

    /// Does the same for a server that need not run yet. The first request connects.
    #[must_use]
    pub fn connect_later(address: Address, options: VentiOptions) -> Self {
        Self {
            address,
            options,
            idle: Mutex::default(),
            connection_count: Mutex::new(0),
            unsynced: Mutex::default(),
            breach: Mutex::default(),
            empty: Score::sha1(&[]),
        }
    }

    /// Returns the address of the server.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    fn open(&self) -> Result<VentiConnection, VentiError> {
        let number = {
            let mut count = self.connection_count.lock();
            *count += 1;
            *count
        };
        VentiConnection::open(&self.address, &self.options, number)
    }

    /// Adds the server's address to an error.
    fn at_server(&self, error: VentiError) -> Box<dyn std::error::Error + Send + Sync> {
        match error {
            // It already contains the address.
            VentiError::Connect { .. } => error.into(),
            source => ServerFailed { address: self.address.to_string(), source }.into(),
        }
    }

    fn put_failed(&self, error: VentiError) -> PutError {
        PutError::Failed { source: self.at_server(error) }
    }

    /// Returns the last violation of the protocol, if it is recent.
    fn recent_breach(&self) -> Option<ClientError> {
        let breach = self.breach.lock();
        let (at, error) = breach.as_ref()?;
        (at.elapsed() < self.options.breach_pause).then(|| error.clone())
    }

    /// Sends requests on the oldest idle connection, or else on a new one, and retries on another
    /// one if that one breaks.
    fn try_again<T>(
        &self,
        ask: impl FnMut(&mut VentiConnection) -> Result<T, VentiError>,
    ) -> Result<T, VentiError> {
        if let Some(breach) = self.recent_breach() {
            return Err(breach.into());
        }
        let answer = self.ask_until_answered(ask);
        if let Some(breach) = answer.as_ref().err().and_then(VentiError::breach) {
            *self.breach.lock() = Some((edge::now(), breach.clone()));
        }
        answer
    }

    fn ask_until_answered<T>(
        &self,
        mut ask: impl FnMut(&mut VentiConnection) -> Result<T, VentiError>,
    ) -> Result<T, VentiError> {
        let mut pause = self.options.pause;
        let mut attempt = 1;
        let mut stale = 0;
        loop {
            let idle = {
                let mut idle = self.idle.lock();
                // A sync on a newer one would have to write again what was written before it.
                (!idle.is_empty()).then(|| idle.remove(0))
            };
            let was_idle = idle.is_some();
            let asked = idle.map_or_else(|| self.open(), Ok).and_then(|mut connection| {
                let answer = ask(&mut connection)?;
                // The oldest stays first. It proves that the server was not restarted since.
                let mut idle = self.idle.lock();
                let place = idle.partition_point(|other| other.number() < connection.number());
                idle.insert(place, connection);
                Ok(answer)
            });
            match asked {
                // The connection broke while it was idle, as all do when the server restarts. That
                // says nothing about the server now.
                Err(VentiError::Socket(error)) if was_idle && stale < STALE_MAX && has_hung_up(&error) => {
                    stale += 1;
                }
                Err(error) if error.is_passing() && attempt < self.options.attempts => {
                    tracing::info!(%error, attempt, "a request to a Venti server is tried again");
                    // The other connections are equally broken, or will turn out to be good.
                    edge::sleep(pause);
                    pause = pause.saturating_mul(2);
                    attempt += 1;
                }
                other => return other,
            }
        }
    }

    /// Sends many requests at once. Answers are in the order of the requests. After a broken
    /// connection, answered requests are not repeated.
    fn ask_all(&self, requests: &[VentiRequest]) -> Result<Vec<Result<VentiReply, String>>, VentiError> {
        let mut answers: Vec<Option<Result<VentiReply, String>>> = vec![None; requests.len()];
        self.try_again(|connection| connection.ask_all(requests, &mut answers))?;
        Ok(answers.into_iter().flatten().collect())
    }

    fn write_all(&self, blocks: &[(WireType, Bytes)]) -> Result<Vec<Result<VentiReply, String>>, VentiError> {
        let request = |(wire_type, data): &(WireType, Bytes)| VentiRequest::Write {
            wire_type: *wire_type,
            data: data.clone(),
        };
        self.ask_all(&blocks.iter().map(request).collect::<Vec<_>>())
    }

    fn make_durable(&self) -> Result<(), VentiError> {
        let taken = std::mem::take(&mut *self.unsynced.lock());
        let synced = self.try_again(|connection| {
            // A restarted server may have lost blocks that were only acknowledged.
            if connection.number() > taken.first_connection() {
                let writes: Vec<VentiRequest> = taken
                    .blocks()
                    .iter()
                    .map(|(wire_type, data)| VentiRequest::Write {
                        wire_type: *wire_type,
                        data: data.clone(),
                    })
                    .collect();
                let mut answers = vec![None; writes.len()];
                connection.ask_all(&writes, &mut answers)?;
                let scores = Score::sha1_of_each(taken.blocks().iter().map(|(_, data)| &**data));
                for (score, answer) in scores.into_iter().zip(answers) {
                    check_written(score, answer.unwrap_or_else(|| Err("no answer".into())))?;
                }
            }
            let mut answer = [None];
            connection.ask_all(&[VentiRequest::Sync], &mut answer)?;
            match answer {
                [Some(Ok(_))] => Ok(()),
                [Some(Err(text))] => Err(VentiError::Refused { text }),
                [None] => Err(VentiError::Refused { text: "no answer".into() }),
            }
        });
        if synced.is_err() {
            self.unsynced.lock().put_back(taken);
        }
        synced
    }

    /// Reads blocks with types that Venti has.
    fn read(
        &self,
        names: &[(BlockName, WireType)],
        count: u32,
    ) -> Result<Vec<Result<Bytes, GetError>>, VentiError> {
        let request = |(name, wire_type): &(BlockName, WireType)| {
            let score = name.score.as_bytes().try_into().unwrap_or_default();
            VentiRequest::read(score, *wire_type, count)
        };
        let answers = self.ask_all(&names.iter().map(request).collect::<Vec<_>>())?;
        let mut found = Vec::with_capacity(names.len());
        for ((name, wire_type), answer) in names.iter().zip(answers) {
            found.push(match answer {
                Ok(VentiReply::Read(block)) if Score::sha1(&block) == name.score => Ok(block),
                Ok(_) => Err(GetError::Damaged { name: *name, source: self.at_server(VentiError::Lies) }),
                Err(text) if is_missing(&text) => Err(GetError::NotFound { name: *name }),
                Err(text) if text.starts_with(READ_TOO_SMALL_TEXT) && count < LARGE_COUNT => self
                    .read(&[(*name, *wire_type)], LARGE_COUNT)?
                    .pop()
                    .unwrap_or(Err(GetError::NotFound { name: *name })),
                // The server neither returns the block nor says that it is missing.
                Err(text) => {
                    let source = self.at_server(VentiError::Refused { text });
                    Err(GetError::Damaged { name: *name, source })
                }
            });
        }
        Ok(found)
    }
}

impl BlockStore for VentiStore {
    fn score_bytes(&self) -> usize {
        varve_venti::SCORE_BYTES
    }

    fn empty_score(&self) -> Score {
        self.empty
    }

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        let scores = self.put_batch(&[block])?;
        scores.first().copied().ok_or_else(|| self.put_failed(VentiError::Lies))
    }

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        self.get_batch(std::slice::from_ref(name)).pop().unwrap_or(Err(GetError::NotFound { name: *name }))
    }

    fn sync(&self) -> Result<(), SyncError> {
        self.make_durable().map_err(|error| SyncError { source: self.at_server(error) })
    }

    fn put_batch(&self, blocks: &[Block<'_>]) -> Result<Vec<Score>, PutError> {
        let mut writes = Vec::with_capacity(blocks.len());
        for block in blocks.iter().filter(|block| !block.bytes.is_empty()) {
            if block.bytes.len() > BLOCK_BYTES_MAX {
                return Err(PutError::TooLarge { bytes: block.bytes.len() });
            }
            let wire_type =
                WireType::of(block.block_type).ok_or_else(|| self.put_failed(VentiError::TooDeep))?;
            writes.push((wire_type, Bytes::copy_from_slice(block.bytes)));
        }
        // Read before anything is acknowledged, so that a later restart of the server is detected.
        // The first connection cannot be newer than the data that it writes.
        let connection_count = (*self.connection_count.lock()).max(1);
        let answers = self.write_all(&writes).map_err(|error| self.put_failed(error))?;
        let own = Score::sha1_of_each(writes.iter().map(|(_, data)| &**data));
        let mut scores = own.into_iter().zip(answers).map(|(own, answer)| check_written(own, answer));
        let mut named = Vec::with_capacity(blocks.len());
        for block in blocks {
            if block.bytes.is_empty() {
                named.push(self.empty);
                continue;
            }
            let score =
                scores.next().unwrap_or_else(|| Err(VentiError::Refused { text: "no answer".into() }));
            named.push(score.map_err(|error| self.refused(block, error))?);
        }
        let is_much = {
            let mut unsynced = self.unsynced.lock();
            unsynced.add(writes, connection_count);
            unsynced.byte_count() > UNSYNCED_BYTES_MAX
        };
        if is_much {
            self.make_durable().map_err(|error| self.put_failed(error))?;
        }
        Ok(named)
    }

    fn get_batch(&self, names: &[BlockName]) -> Vec<Result<Bytes, GetError>> {
        let asked: Vec<(BlockName, WireType)> =
            names.iter().filter_map(|name| Some((*name, self.wire_type(name)?))).collect();
        let mut found = match self.read(&asked, COUNT) {
            Ok(found) => found.into_iter(),
            Err(error) => {
                let text = with_causes(&*self.at_server(error));
                let fail = |name: &BlockName| GetError::Failed { name: *name, source: text.clone().into() };
                return names
                    .iter()
                    .map(|name| self.local(name).unwrap_or_else(|| Err(fail(name))))
                    .collect();
            }
        };
        let missing = |name: &BlockName| Err(GetError::NotFound { name: *name });
        names
            .iter()
            .map(|name| match self.local(name) {
                Some(known) => known,
                None => found.next().unwrap_or_else(|| missing(name)),
            })
            .collect()
    }

    fn has_batch(&self, names: &[BlockName]) -> Result<Vec<bool>, GetError> {
        // Requests zero bytes, so the server never sends a block.
        let asked: Vec<(BlockName, WireType)> =
            names.iter().filter_map(|name| Some((*name, self.wire_type(name)?))).collect();
        let request = |(name, wire_type): &(BlockName, WireType)| {
            VentiRequest::read(name.score.as_bytes().try_into().unwrap_or_default(), *wire_type, 0)
        };
        let answers = self.ask_all(&asked.iter().map(request).collect::<Vec<_>>());
        let first = names.first().copied();
        let mut answers = match (answers, first) {
            (Ok(answers), _) => answers.into_iter(),
            (Err(error), Some(name)) => {
                return Err(GetError::Failed { name, source: self.at_server(error) });
            }
            (Err(_), None) => return Ok(Vec::new()),
        };
        // The answer says neither that the block is there nor that it is missing.
        let unclear =
            |error: VentiError, name: BlockName| GetError::Damaged { name, source: self.at_server(error) };
        let mut present = Vec::with_capacity(names.len());
        for name in names {
            present.push(match self.local(name) {
                Some(known) => known.is_ok(),
                None => match answers.next() {
                    Some(Err(text)) if text.starts_with(READ_TOO_SMALL_TEXT) => true,
                    Some(Err(text)) if is_missing(&text) => false,
                    Some(Err(text)) => return Err(unclear(VentiError::Refused { text }, *name)),
                    _ => return Err(unclear(VentiError::Lies, *name)),
                },
            });
        }
        Ok(present)
    }
}

impl VentiStore {
    /// Converts the server's refusal of a block.
    fn refused(&self, block: &Block<'_>, error: VentiError) -> PutError {
        match error {
            VentiError::Refused { text } if text.starts_with(COLLISION_TEXT) => PutError::Collision {
                name: BlockName { score: Score::sha1(block.bytes), block_type: block.block_type },
            },
            VentiError::Refused { text } if text.starts_with(READ_ONLY_TEXT) => {
                PutError::ReadOnly { reason: format!("the Venti server {} says: {text}", self.address) }
            }
            error => self.put_failed(error),
        }
    }

    /// Returns the type of a block on the wire; `None` if no request is needed.
    fn wire_type(&self, name: &BlockName) -> Option<WireType> {
        if self.local(name).is_some() { None } else { WireType::of(name.block_type) }
    }

    /// Returns the answer that needs no request: the empty block always exists, and a block that
    /// Venti cannot name never does.
    fn local(&self, name: &BlockName) -> Option<Result<Bytes, GetError>> {
        if name.score == self.empty {
            return Some(Ok(Bytes::new()));
        }
        let is_nameless = WireType::of(name.block_type).is_none()
            || name.score.as_bytes().len() != varve_venti::SCORE_BYTES;
        is_nameless.then_some(Err(GetError::NotFound { name: *name }))
    }
}

/// Returns true if the peer has closed the connection, and is not only slow.
fn has_hung_up(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// Returns the score of a written block if the server's answer has the same one.
fn check_written(own: Score, answer: Result<VentiReply, String>) -> Result<Score, VentiError> {
    match answer {
        Ok(VentiReply::Write(score)) if own.as_bytes() == score => Ok(own),
        Ok(_) => Err(VentiError::OtherScore),
        Err(text) => Err(VentiError::Refused { text }),
    }
}
