//! `index/sessions`: the blocks that each client session of the Venti front end wrote, in frames
//! that are appended.
//!
//! | offset | bytes | field  | meaning                                                                                     |
//! |-------:|------:|--------|---------------------------------------------------------------------------------------------|
//! |      0 |     8 | magic  | `varveSE1`                                                                                  |
//! |      8 |     4 | length | of the body, little-endian                                                                  |
//! |     12 |    32 | salt   | random                                                                                      |
//! |     44 |       | body   | records; in an encrypted store AES-256-GCM, nonce 0, under `BLAKE3(a key, salt)`, and its tag |
//! |        |    32 | mac    | `BLAKE3(another key of the store's own, all before)`                                        |
//!
//! A record is a kind, one byte, a session, 8 bytes, and what the kind has:
//!
//! | kind | record    | meaning                                                                                              |
//! |-----:|-----------|------------------------------------------------------------------------------------------------------|
//! |    1 | begun     | when, 8 bytes of nanoseconds since 1970; length of the peer's address, 1 byte; the address           |
//! |    2 | wrote     | count, 4 bytes; for each block its type, 1 byte, 1 if it was new and else 0, and its score            |
//! |    3 | ended     | when                                                                                                 |
//! |    4 | set aside | when                                                                                                 |
//! |    5 | put back  | when                                                                                                 |
//!
//! Like all of `index/` it may be deleted. Then nothing is known of any session, and nothing is set
//! aside. A crash may leave a part of a frame at the end, which the next writer cuts off. The
//! scores of an encrypted store are encrypted, since they would reveal which known files it has.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;

use varve_block::{BlockName, BlockType, Score, to_usize};
use varve_log::{LockedMemory, unwrap_secret, wrap_secret};
use varve_world::{FileName, Timestamp};
use zeroize::Zeroizing;

use super::Vault;
use crate::config::Encryption;

const FILE: &str = "index/sessions";
const MAGIC: [u8; 8] = *b"varveSE1";
const SALT_BYTES: usize = 32;
const HEAD_BYTES: usize = 44;
const MAC_BYTES: usize = 32;
/// The longest body of a frame.
const BODY_BYTES_MAX: usize = 4 << 20;
/// A longer address is cut.
const PEER_BYTES_MAX: usize = 255;
/// The search for the frame after a damaged one reads this many bytes at a time.
const SEARCHED_BYTES: usize = 1 << 20;

/// A block that a session wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenBlock {
    pub name: BlockName,
    /// True if the block was not in the store before.
    pub is_new: bool,
}

/// An event of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// The session's number.
    pub session: u64,
    pub event: SessionEvent,
}

/// The kinds of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEvent {
    /// A client that was going to write has connected.
    Begun {
        at: Timestamp,
        /// The client's address.
        peer: String,
    },
    /// The session has written these blocks.
    Wrote(Vec<WrittenBlock>),
    /// The client has disconnected.
    Ended { at: Timestamp },
    /// The blocks that only this session has written are not to be served.
    SetAside { at: Timestamp },
    /// Its blocks are to be served again.
    PutBack { at: Timestamp },
}

/// The record of sessions could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SessionsError {
    #[error("cannot use {FILE}")]
    Storage(#[from] io::Error),
    #[error("{bytes} bytes are too many for one frame of {FILE}")]
    TooLarge { bytes: usize },
}

/// The findings of a reading besides the records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionsRead {
    /// The end of the last whole frame.
    pub end: u64,
    /// The damaged places before that end. Their records are not known.
    pub damaged_places: u64,
    /// True if there are bytes after the end, as a crash leaves them.
    pub has_torn_tail: bool,
}

/// A whole frame.
struct SessionsFrame {
    records: Vec<SessionRecord>,
    end: u64,
}

/// The record of sessions of one store.
pub struct SessionsFile<'a> {
    vault: &'a Vault,
}

impl Vault {
    /// Returns the record of sessions.
    #[must_use]
    pub fn sessions(&self) -> SessionsFile<'_> {
        SessionsFile { vault: self }
    }
}

impl SessionsFile<'_> {
    /// Returns true if sessions were ever recorded here.
    ///
    /// # Errors
    /// [`SessionsError`]
    pub fn is_there(&self) -> Result<bool, SessionsError> {
        match self.vault.world().storage.length(&file()) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads all records, one frame at a time.
    ///
    /// # Errors
    /// [`SessionsError`]
    pub fn read(&self, each: &mut dyn FnMut(SessionRecord)) -> Result<SessionsRead, SessionsError> {
        let mut read = SessionsRead::default();
        if !self.is_there()? {
            return Ok(read);
        }
        let length = self.vault.world().storage.length(&file())?;
        let (mut at, mut is_damaged) = (0, false);
        while at < length {
            match self.read_frame(at, length)? {
                Some(SessionsFrame { records, end }) => {
                    records.into_iter().for_each(&mut *each);
                    read.damaged_places = read.damaged_places.saturating_add(is_damaged.into());
                    (at, read.end, is_damaged) = (end, end, false);
                }
                None => {
                    is_damaged = true;
                    at = self.next_magic(at.saturating_add(1), length)?;
                }
            }
        }
        read.has_torn_tail = is_damaged;
        Ok(read)
    }

    /// Makes the file, if there is none, and cuts off the torn end that a crash has left. The one
    /// writer of the store must call this before the first [`append`](Self::append).
    ///
    /// # Errors
    /// [`SessionsError`]
    pub fn begin(&self, read: &SessionsRead) -> Result<(), SessionsError> {
        let storage = &self.vault.world().storage;
        if !self.is_there()? {
            storage.create(&file())?;
            storage.sync_folder("index")?;
        }
        if read.has_torn_tail {
            storage.truncate(&file(), read.end)?;
        }
        Ok(())
    }

    /// Appends records. They are durable after the next [`sync`](Self::sync).
    ///
    /// # Errors
    /// [`SessionsError`]; it is then unknown whether they were appended.
    pub fn append(&self, records: &[SessionRecord]) -> Result<(), SessionsError> {
        let mut body = Vec::new();
        records.iter().for_each(|record| encode(record, &mut body));
        if body.len() > BODY_BYTES_MAX {
            return Err(SessionsError::TooLarge { bytes: body.len() });
        }
        let mut salt = [0; SALT_BYTES];
        self.vault.world().random.fill(&mut salt)?;
        if self.vault.config().encryption != Encryption::None {
            body = wrap_secret(&self.sessions_key(&salt), &MAGIC, &body);
        }
        let length = u32::try_from(body.len()).map_err(|_| SessionsError::TooLarge { bytes: body.len() })?;
        let mut frame = [&MAGIC[..], &length.to_le_bytes(), &salt, &body].concat();
        frame.extend_from_slice(self.sessions_mac(&frame).as_bytes());
        self.vault.world().storage.append(&file(), &frame)?;
        Ok(())
    }

    /// Makes the appended records durable.
    ///
    /// # Errors
    /// [`SessionsError`]
    pub fn sync(&self) -> Result<(), SessionsError> {
        Ok(self.vault.world().storage.sync(&file())?)
    }

    /// Reads the frame at `at`; `None` if there is no whole frame.
    fn read_frame(&self, at: u64, length: u64) -> Result<Option<SessionsFrame>, SessionsError> {
        let storage = &self.vault.world().storage;
        let mut head = [0; HEAD_BYTES];
        let rest_of = |at: u64| length.saturating_sub(at);
        if rest_of(at) < HEAD_BYTES as u64 {
            return Ok(None);
        }
        storage.read_at(&file(), at, &mut head)?;
        let Some((magic, rest)) = head.split_first_chunk::<8>() else { return Ok(None) };
        let Some((body_bytes, salt)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let body_bytes = u32::from_le_bytes(*body_bytes) as usize;
        let tail_bytes = body_bytes.saturating_add(MAC_BYTES);
        let body_at = at.saturating_add(HEAD_BYTES as u64);
        // Encryption adds a tag.
        let is_possible = *magic == MAGIC && body_bytes <= BODY_BYTES_MAX.saturating_add(MAC_BYTES);
        if !is_possible || rest_of(body_at) < tail_bytes as u64 {
            return Ok(None);
        }
        let mut frame = head.to_vec();
        frame.resize(HEAD_BYTES.saturating_add(tail_bytes), 0);
        let Some(tail) = frame.get_mut(HEAD_BYTES..) else { return Ok(None) };
        storage.read_at(&file(), body_at, tail)?;
        let Some((signed, mac)) = frame.split_last_chunk::<MAC_BYTES>() else { return Ok(None) };
        if self.sessions_mac(signed) != *mac {
            return Ok(None);
        }
        let body = signed.get(HEAD_BYTES..).unwrap_or_default();
        let salt: [u8; SALT_BYTES] = salt.try_into().unwrap_or_default();
        let end = body_at.saturating_add(tail_bytes as u64);
        let records = if self.vault.config().encryption == Encryption::None {
            decode(body, self.vault.config().score_bytes())
        } else {
            let plain = unwrap_secret(&self.sessions_key(&salt), &MAGIC, body).ok();
            plain.and_then(|plain| decode(&plain, self.vault.config().score_bytes()))
        };
        Ok(records.map(|records| SessionsFrame { records, end }))
    }

    /// Returns the place where the next frame may begin; the file's end if there is none.
    fn next_magic(&self, from: u64, length: u64) -> Result<u64, SessionsError> {
        let mut at = from;
        while at < length {
            let count = length.saturating_sub(at).min(SEARCHED_BYTES as u64);
            let mut piece = vec![0; to_usize(count)];
            self.vault.world().storage.read_at(&file(), at, &mut piece)?;
            if let Some(place) = piece.windows(MAGIC.len()).position(|window| window == MAGIC) {
                return Ok(at.saturating_add(place as u64));
            }
            // A magic may cross the border of two pieces.
            let step = count.saturating_sub(MAGIC.len() as u64).max(1);
            at = if count < SEARCHED_BYTES as u64 { length } else { at.saturating_add(step) };
        }
        Ok(length)
    }

    fn sessions_key(&self, salt: &[u8; SALT_BYTES]) -> LockedMemory<[u8; 32]> {
        let key = Zeroizing::new(self.vault.log().keys().derive("varve 1 sessions, encrypted"));
        LockedMemory::filled(|into: &mut [u8; 32]| {
            into.copy_from_slice(blake3::keyed_hash(&key, salt).as_bytes())
        })
    }

    fn sessions_mac(&self, bytes: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.vault.log().keys().derive("varve 1 sessions"), bytes)
    }
}

fn file() -> FileName {
    FileName::new(FILE).expect("a plain name")
}

fn encode(record: &SessionRecord, into: &mut Vec<u8>) {
    let mut begin = |kind: u8| {
        into.push(kind);
        into.extend_from_slice(&record.session.to_le_bytes());
    };
    match &record.event {
        SessionEvent::Begun { at, peer } => {
            begin(1);
            into.extend_from_slice(&at.0.to_le_bytes());
            let mut bytes = peer.len().min(PEER_BYTES_MAX);
            while !peer.is_char_boundary(bytes) {
                bytes = bytes.saturating_sub(1);
            }
            let peer = peer.as_bytes().get(..bytes).unwrap_or_default();
            into.push(u8::try_from(peer.len()).unwrap_or(0));
            into.extend_from_slice(peer);
        }
        SessionEvent::Wrote(blocks) => {
            begin(2);
            into.extend_from_slice(&u32::try_from(blocks.len()).unwrap_or(u32::MAX).to_le_bytes());
            for block in blocks {
                into.push(block.name.block_type.to_byte());
                into.push(block.is_new.into());
                into.extend_from_slice(block.name.score.as_bytes());
            }
        }
        SessionEvent::Ended { at } | SessionEvent::SetAside { at } | SessionEvent::PutBack { at } => {
            begin(match &record.event {
                SessionEvent::Ended { .. } => 3,
                SessionEvent::SetAside { .. } => 4,
                _ => 5,
            });
            into.extend_from_slice(&at.0.to_le_bytes());
        }
    }
}

/// Decodes the records of a body; `None` if it is malformed.
fn decode(mut body: &[u8], score_bytes: usize) -> Option<Vec<SessionRecord>> {
    let mut records = Vec::new();
    while !body.is_empty() {
        let (kind, session);
        (kind, body) = take::<1>(body)?;
        (session, body) = take::<8>(body)?;
        let event = match kind {
            [2] => {
                let count;
                (count, body) = take::<4>(body)?;
                let row_bytes = score_bytes.checked_add(2)?;
                let bytes = row_bytes.checked_mul(u32::from_le_bytes(count) as usize)?;
                let (rows, rest) = body.split_at_checked(bytes)?;
                body = rest;
                SessionEvent::Wrote(rows.chunks_exact(row_bytes).map(row).collect::<Option<_>>()?)
            }
            [kind] => {
                let at;
                (at, body) = take::<8>(body)?;
                let at = Timestamp(i64::from_le_bytes(at));
                match kind {
                    1 => {
                        let length;
                        (length, body) = take::<1>(body)?;
                        let (peer, rest) = body.split_at_checked(u8::from_le_bytes(length).into())?;
                        body = rest;
                        SessionEvent::Begun { at, peer: String::from_utf8_lossy(peer).into_owned() }
                    }
                    3 => SessionEvent::Ended { at },
                    4 => SessionEvent::SetAside { at },
                    5 => SessionEvent::PutBack { at },
                    _ => return None,
                }
            }
        };
        records.push(SessionRecord { session: u64::from_le_bytes(session), event });
    }
    Some(records)
}

fn take<const COUNT: usize>(bytes: &[u8]) -> Option<([u8; COUNT], &[u8])> {
    bytes.split_first_chunk::<COUNT>().map(|(first, rest)| (*first, rest))
}

fn row(row: &[u8]) -> Option<WrittenBlock> {
    let (head, score) = row.split_first_chunk::<2>()?;
    let [block_type, is_new] = *head;
    let name =
        BlockName { score: Score::try_from(score).ok()?, block_type: BlockType::from_byte(block_type)? };
    Some(WrittenBlock { name, is_new: is_new == 1 })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use varve_world::{FixedClock, InlineWorkers, MemoryStorage, SeededRandom, Storage, World};

    use super::*;
    use crate::config::{ScoreAlgorithm, StoreConfig};
    use crate::{PassphraseCost, Secret, Store, StoreAccess};

    fn opened(storage: &Arc<MemoryStorage>, encryption: Encryption, seed: u64) -> Store {
        let world = World {
            storage: storage.clone(),
            clock: Arc::new(FixedClock(Timestamp(0))),
            random: Arc::new(SeededRandom::new(seed)),
            workers: Arc::new(InlineWorkers),
        };
        let secret = Secret::KeyFile(Zeroizing::new(vec![7; 32]));
        let secret = (encryption != Encryption::None).then_some(&secret);
        let mut config = StoreConfig::new([5; 16]);
        (config.encryption, config.score) = (encryption, ScoreAlgorithm::Sha1);
        let _ = Store::create(&world, &config, secret, PassphraseCost::default());
        Store::open(world, secret, StoreAccess::Read, &mut |_| {}).unwrap()
    }

    fn whole_file(storage: &Arc<MemoryStorage>) -> Vec<u8> {
        let storage: Arc<dyn Storage> = storage.clone();
        storage.read_whole(&file(), 1 << 20).unwrap()
    }

    fn records() -> Vec<SessionRecord> {
        let block = |number: u8| WrittenBlock {
            name: BlockName {
                score: Score::try_from([number; 20].as_slice()).unwrap(),
                block_type: if number.is_multiple_of(2) { BlockType::DATA } else { BlockType::DIRECTORY },
            },
            is_new: number > 3,
        };
        let at = Timestamp(1_700_000_000_123_456_789);
        [
            SessionEvent::Begun { at, peer: "tcp!192.0.2.7!4711".into() },
            SessionEvent::Wrote((1..9).map(block).collect()),
            SessionEvent::Wrote(Vec::new()),
            SessionEvent::Ended { at },
            SessionEvent::SetAside { at: Timestamp(-5) },
            SessionEvent::PutBack { at },
        ]
        .into_iter()
        .zip(3..)
        .map(|(event, session)| SessionRecord { session, event })
        .collect()
    }

    fn all(store: &Store) -> (Vec<SessionRecord>, SessionsRead) {
        let mut records = Vec::new();
        let read = store.vault().sessions().read(&mut |record| records.push(record)).unwrap();
        (records, read)
    }

    #[test]
    fn what_was_recorded_comes_back_and_tells_nobody_without_a_key() {
        for encryption in [Encryption::None, Encryption::Aes256Gcm] {
            let storage = Arc::new(MemoryStorage::new());
            let store = opened(&storage, encryption, 1);
            assert_eq!(all(&store), (Vec::new(), SessionsRead::default()));
            store.vault().sessions().begin(&SessionsRead::default()).unwrap();
            for record in records() {
                store.vault().sessions().append(&[record]).unwrap();
            }
            store.vault().sessions().append(&records()).unwrap();
            store.vault().sessions().sync().unwrap();
            let (found, read) = all(&opened(&storage, encryption, 2));
            assert_eq!(found, [records(), records()].concat());
            assert_eq!((read.damaged_places, read.has_torn_tail), (0, false));
            let bytes = whole_file(&storage);
            let tells = bytes.windows(20).any(|window| window == [7; 20]);
            assert_eq!(tells, encryption == Encryption::None);
        }
    }

    #[test]
    fn a_crash_or_damage_anywhere_costs_no_other_frame() {
        let storage = Arc::new(MemoryStorage::new());
        let store = opened(&storage, Encryption::Aes256Gcm, 1);
        store.vault().sessions().begin(&SessionsRead::default()).unwrap();
        for record in &records()[..3] {
            store.vault().sessions().append(std::slice::from_ref(record)).unwrap();
        }
        let whole = whole_file(&storage);
        let put = |bytes: &[u8]| {
            storage.truncate(&file(), 0).unwrap();
            storage.append(&file(), bytes).unwrap();
        };
        // Cut anywhere: the whole frames before the cut stay, and the next writer continues behind
        // them.
        for length in 0..whole.len() {
            put(&whole[..length]);
            let (found, read) = all(&store);
            assert!(records().starts_with(&found) && found.len() < 3, "{length}");
            assert_eq!((read.damaged_places, read.has_torn_tail), (0, read.end < length as u64), "{length}");
            store.vault().sessions().begin(&read).unwrap();
            store.vault().sessions().append(&records()[3..4]).unwrap();
            let (again, read) = all(&store);
            assert_eq!(again, [&found[..], &records()[3..4]].concat(), "{length}");
            assert!(!read.has_torn_tail);
        }
        // Damaged anywhere: the other two frames are found, and the place is counted, unless it is
        // the end.
        for place in 0..whole.len() {
            let mut harmed = whole.clone();
            harmed[place] ^= 0x40;
            put(&harmed);
            let (found, read) = all(&store);
            assert_eq!(found.len(), 2, "{place}");
            assert_eq!(read.damaged_places + u64::from(read.has_torn_tail), 1, "{place}");
        }
    }
}
