//! Records which client wrote which blocks, so that an administrator can set them aside.
//!
//! ```text
//! write in a session ─▶ store: new or duplicate ─▶ rows in memory
//!                    ─▶ index/sessions, durable before a sync is answered
//! start of the server ─▶ blocks written only by sessions that are set aside ─▶ reads refused
//! ```
//!
//! Invariants:
//! - A block is set aside only if a session that is set aside stored it, and no other session has
//!   written it before or since. Setting aside therefore takes nothing from other clients.
//! - The record of writes is durable before the sync that covers them is answered. A crash can lose
//!   the record of writes that no sync has covered; their durability was never promised.
//! - Nothing is removed. Blocks that were set aside can be put back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use varve_block::{Block, BlockName, PutError, Score, SyncError};
use varve_store::{SessionEvent, SessionRecord, SessionsError, Store, WrittenBlock};
use varve_world::Timestamp;

/// The rows that may wait in memory before they are appended.
const ROWS_MAX: usize = 1 << 15;

/// A session in the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSession {
    pub number: u64,
    /// The client's address.
    pub peer: String,
    pub begun: Option<Timestamp>,
    /// `None` if the session is still open, or if the server ended first.
    pub ended: Option<Timestamp>,
    /// Blocks that this session stored.
    pub new_count: u64,
    /// Blocks that this session wrote, and that the store already had.
    pub known_count: u64,
    /// Set if the session is set aside.
    pub set_aside: Option<Timestamp>,
}

/// Lists all sessions of a store, the oldest first, with the number of damaged places in the
/// record.
///
/// # Errors
/// [`SessionsError`]
pub fn list_sessions(store: &Store) -> Result<(Vec<ClientSession>, u64), SessionsError> {
    let mut sessions = BTreeMap::new();
    let read = store.vault().sessions().read(&mut |record| note(&mut sessions, &record))?;
    Ok((sessions.into_values().collect(), read.damaged_places))
}

fn note(sessions: &mut BTreeMap<u64, ClientSession>, record: &SessionRecord) {
    let session = sessions.entry(record.session).or_insert_with(|| ClientSession {
        number: record.session,
        peer: String::new(),
        begun: None,
        ended: None,
        new_count: 0,
        known_count: 0,
        set_aside: None,
    });
    match &record.event {
        SessionEvent::Begun { at, peer } => {
            session.begun = Some(*at);
            session.peer.clone_from(peer);
        }
        SessionEvent::Wrote(blocks) => {
            let new_count = blocks.iter().filter(|block| block.is_new).count() as u64;
            session.new_count += new_count;
            session.known_count += blocks.len() as u64 - new_count;
        }
        SessionEvent::Ended { at } => session.ended = Some(*at),
        SessionEvent::SetAside { at } => session.set_aside = Some(*at),
        SessionEvent::PutBack { .. } => session.set_aside = None,
    }
}

/// Finds the blocks that these sessions stored and that no other session has written.
///
/// # Errors
/// [`SessionsError`]
pub fn blocks_of(store: &Store, sessions: &BTreeSet<u64>) -> Result<BTreeSet<BlockName>, SessionsError> {
    let mut blocks = BTreeSet::new();
    if sessions.is_empty() {
        return Ok(blocks);
    }
    let each = |is_wanted: &dyn Fn(u64, &WrittenBlock) -> bool, take: &mut dyn FnMut(BlockName)| {
        store.vault().sessions().read(&mut |record| {
            if let SessionEvent::Wrote(written) = &record.event {
                let wanted = written.iter().filter(|block| is_wanted(record.session, block));
                wanted.for_each(|block| take(block.name));
            }
        })
    };
    each(&|session, block| block.is_new && sessions.contains(&session), &mut |name| {
        blocks.insert(name);
    })?;
    each(&|session, _| !sessions.contains(&session), &mut |name| {
        blocks.remove(&name);
    })?;
    Ok(blocks)
}

/// Sets sessions aside, or puts them back. The change is durable on return. A server applies it
/// when it starts.
///
/// # Errors
/// [`SessionsError`]
pub fn mark_sessions(store: &Store, numbers: &[u64], is_aside: bool) -> Result<(), SessionsError> {
    let at = store.world().clock.now();
    let event = || if is_aside { SessionEvent::SetAside { at } } else { SessionEvent::PutBack { at } };
    let records: Vec<_> =
        numbers.iter().map(|session| SessionRecord { session: *session, event: event() }).collect();
    let read = store.vault().sessions().read(&mut |_| {})?;
    store.vault().sessions().begin(&read)?;
    store.vault().sessions().append(&records)?;
    store.vault().sessions().sync()
}

/// The record of sessions, while a server is running.
pub struct ClientSessions {
    store: Arc<Store>,
    state: Mutex<SessionsState>,
    has_refused: AtomicBool,
    refused: RwLock<BTreeSet<BlockName>>,
}

struct SessionsState {
    next_session: u64,
    /// Records that are not appended yet.
    waiting: Vec<SessionRecord>,
    waiting_rows: usize,
    /// Set while appended records are not durable.
    is_unsynced: bool,
}

impl ClientSessions {
    /// Continues the record of a store that is open for writing. If the store is open for reading,
    /// the record is only used to refuse blocks that are set aside.
    ///
    /// # Errors
    /// [`SessionsError`]
    pub fn open(store: Arc<Store>) -> Result<Self, SessionsError> {
        let mut sessions = BTreeMap::new();
        let read = store.vault().sessions().read(&mut |record| note(&mut sessions, &record))?;
        if read.damaged_places > 0 {
            tracing::error!(
                places = read.damaged_places,
                "the record of sessions is damaged: some sessions and their blocks are unknown"
            );
        }
        if store.is_open_to_write() {
            store.vault().sessions().begin(&read)?;
        }
        let aside = sessions.values().filter(|session| session.set_aside.is_some());
        let refused = blocks_of(&store, &aside.map(|session| session.number).collect())?;
        if !refused.is_empty() {
            tracing::warn!(blocks = refused.len(), "blocks that were set aside are not served");
        }
        let next_session = sessions.last_key_value().map_or(1, |(last, _)| last.saturating_add(1));
        let state = SessionsState { next_session, waiting: Vec::new(), waiting_rows: 0, is_unsynced: false };
        Ok(Self {
            store,
            state: Mutex::new(state),
            has_refused: AtomicBool::new(!refused.is_empty()),
            refused: RwLock::new(refused),
        })
    }

    /// Reports whether a block is set aside.
    pub(super) fn refuses(&self, name: &BlockName) -> bool {
        self.has_refused.load(Ordering::Relaxed) && self.refused.read().contains(name)
    }

    /// Makes the noted records durable. Called before a sync is answered.
    ///
    /// # Errors
    /// [`SyncError`]
    pub fn sync(&self) -> Result<(), SyncError> {
        let failed = |error: SessionsError| SyncError { source: error.into() };
        let mut state = self.state.lock();
        state.append(&self.store).map_err(failed)?;
        if state.is_unsynced {
            self.store.vault().sessions().sync().map_err(failed)?;
            state.is_unsynced = false;
        }
        Ok(())
    }

    /// Serves these blocks again, because another session has just written them and relies on them.
    fn serve_again(&self, written: &[WrittenBlock]) {
        if self.has_refused.load(Ordering::Relaxed) {
            let mut refused = self.refused.write();
            written.iter().for_each(|block| {
                refused.remove(&block.name);
            });
        }
    }
}

impl SessionsState {
    fn note(&mut self, session: u64, event: SessionEvent) {
        self.waiting.push(SessionRecord { session, event });
    }

    fn append(&mut self, store: &Store) -> Result<(), SessionsError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        store.vault().sessions().append(&self.waiting)?;
        self.waiting.clear();
        (self.waiting_rows, self.is_unsynced) = (0, true);
        Ok(())
    }
}

/// The session of a client that may write. It gets a number with its first write.
pub(super) struct OpenSession {
    sessions: Arc<ClientSessions>,
    peer: String,
    begun: Timestamp,
    number: OnceLock<u64>,
}

impl OpenSession {
    pub(super) fn new(sessions: Arc<ClientSessions>, peer: String) -> Self {
        let begun = sessions.store.world().clock.now();
        Self { sessions, peer, begun, number: OnceLock::new() }
    }

    /// Stores blocks, and records which of them were new.
    pub(super) fn put(&self, blocks: &[Block<'_>]) -> Result<Vec<Score>, PutError> {
        let put = self.sessions.store.put_each(blocks)?;
        let written = blocks.iter().zip(&put).map(|(block, put)| WrittenBlock {
            name: BlockName { score: put.score, block_type: block.block_type },
            is_new: put.is_new,
        });
        let written: Vec<WrittenBlock> = written.collect();
        self.sessions.serve_again(&written);
        let mut state = self.sessions.state.lock();
        let number = *self.number.get_or_init(|| {
            let number = state.next_session;
            state.next_session += 1;
            state.note(number, SessionEvent::Begun { at: self.begun, peer: self.peer.clone() });
            number
        });
        state.waiting_rows += written.len();
        state.note(number, SessionEvent::Wrote(written));
        if state.waiting_rows >= ROWS_MAX {
            let appended = state.append(&self.sessions.store);
            appended.map_err(|error| PutError::Failed { source: error.into() })?;
        }
        Ok(put.into_iter().map(|put| put.score).collect())
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        if let Some(number) = self.number.get() {
            let at = self.sessions.store.world().clock.now();
            self.sessions.state.lock().note(*number, SessionEvent::Ended { at });
        }
    }
}

#[cfg(test)]
mod tests {
    use varve_block::{BlockStore as _, BlockType};
    use varve_store::{Encryption, PassphraseCost, ScoreAlgorithm, StoreAccess, StoreConfig};
    use varve_world::{MemoryStorage, World};

    use super::*;

    /// A store that is opened several times.
    struct Place(Arc<MemoryStorage>);

    impl Place {
        fn new() -> Self {
            let place = Self(Arc::new(MemoryStorage::new()));
            let mut config = StoreConfig::new([7; 16]);
            (config.score, config.encryption) = (ScoreAlgorithm::Sha1, Encryption::None);
            Store::create(&place.world(), &config, None, PassphraseCost::default()).unwrap();
            place
        }

        fn world(&self) -> World {
            World::deterministic(Arc::clone(&self.0) as _, 7)
        }

        fn open(&self) -> Arc<ClientSessions> {
            let access = StoreAccess::Write { holder: "a test" };
            let store = Store::open(self.world(), None, access, &mut |_| {}).unwrap();
            Arc::new(ClientSessions::open(Arc::new(store)).unwrap())
        }

        /// Runs the sessions one after the other. Each writes its blocks and ends.
        fn write(&self, sessions: &[&[&[u8]]]) {
            let open = self.open();
            for blocks in sessions {
                let session = OpenSession::new(Arc::clone(&open), "a test".into());
                for block in *blocks {
                    session.put(&[Block { block_type: BlockType::DATA, bytes: block }]).unwrap();
                }
            }
            open.sync().unwrap();
            open.store.sync().unwrap();
        }

        fn mark(&self, numbers: &[u64], is_aside: bool) {
            mark_sessions(&self.open().store, numbers, is_aside).unwrap();
        }

        fn refused(&self, blocks: &[&[u8]]) -> Vec<bool> {
            let open = self.open();
            blocks.iter().map(|block| open.refuses(&name(block))).collect()
        }
    }

    fn name(bytes: &[u8]) -> BlockName {
        BlockName { score: Score::sha1(bytes), block_type: BlockType::DATA }
    }

    #[test]
    fn only_what_nobody_else_wrote_is_set_aside_and_it_can_be_put_back() {
        let place = Place::new();
        let blocks: [&[u8]; 4] = [b"before", b"own", b"after", b"other"];
        // The second session wrote a block that existed, a block of its own, and a block that the
        // third one wrote, too.
        place.write(&[&[b"before"], &[b"before", b"own", b"after"], &[b"after", b"other"]]);
        assert_eq!(place.refused(&blocks), [false; 4]);
        place.mark(&[2], true);
        assert_eq!(place.refused(&blocks), [false, true, false, false]);
        // A block that two sessions wrote is refused if both are set aside.
        place.mark(&[3], true);
        assert_eq!(place.refused(&blocks), [false, true, true, true]);
        place.mark(&[2, 3], false);
        assert_eq!(place.refused(&blocks), [false; 4]);
        let (sessions, damaged) = list_sessions(&place.open().store).unwrap();
        let counts: Vec<_> =
            sessions.iter().map(|session| (session.number, session.new_count, session.known_count)).collect();
        assert_eq!((counts, damaged), (vec![(1, 1, 0), (2, 2, 1), (3, 1, 1)], 0));
        assert!(sessions.iter().all(|session| session.ended.is_some() && session.peer == "a test"));
    }

    #[test]
    fn what_somebody_else_writes_is_served_again_at_once_and_later() {
        let place = Place::new();
        place.write(&[&[b"one", b"two"]]);
        place.mark(&[1], true);
        let open = place.open();
        assert!(open.refuses(&name(b"one")) && open.refuses(&name(b"two")));
        let session = OpenSession::new(Arc::clone(&open), "somebody else".into());
        session.put(&[Block { block_type: BlockType::DATA, bytes: b"one" }]).unwrap();
        assert!(!open.refuses(&name(b"one")) && open.refuses(&name(b"two")));
        drop(session);
        open.sync().unwrap();
        drop(open);
        assert_eq!(place.refused(&[b"one", b"two"]), [false, true]);
    }

    #[test]
    fn what_no_session_wrote_is_never_set_aside() {
        let place = Place::new();
        let open = place.open();
        open.store.put(Block { block_type: BlockType::DATA, bytes: b"from elsewhere" }).unwrap();
        open.store.sync().unwrap();
        drop(open);
        place.write(&[&[b"from elsewhere"]]);
        place.mark(&[1], true);
        assert_eq!(place.refused(&[b"from elsewhere"]), [false]);
    }

    #[test]
    fn what_is_written_is_recorded_before_it_is_durable() {
        let place = Place::new();
        let open = place.open();
        let session = OpenSession::new(Arc::clone(&open), "a test".into());
        let many: Vec<Vec<u8>> = (0..ROWS_MAX + 10).map(|number| number.to_le_bytes().to_vec()).collect();
        for some in many.chunks(1000) {
            let blocks: Vec<_> =
                some.iter().map(|bytes| Block { block_type: BlockType::DATA, bytes }).collect();
            session.put(&blocks).unwrap();
        }
        assert!(open.state.lock().waiting_rows < ROWS_MAX, "memory is bounded");
        open.sync().unwrap();
        let known = blocks_of(&open.store, &[1].into()).unwrap();
        assert!(known.len() == many.len() && many.iter().all(|block| known.contains(&name(block))));
        // The session is recorded, and its end is unknown.
        assert_eq!(list_sessions(&open.store).unwrap().0[0].ended, None);
    }
}
