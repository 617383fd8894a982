//! The intake: every block that is added to a store goes through here. Only the one writer of a
//! store has it.
//!
//! It owns the writer's end of the log (the appender), the gate of sync, the parity that is due,
//! and the lock that excludes other writers. It depends on all other parts, and none of them
//! depends on it.
//!
//! Always true:
//! - When a sync has returned, every block put before it survives a power loss.
//! - Parity of an arena is made, and an index that counts its seal is saved, only once the seal is
//!   durable.
//! - While arenas are replaced, no index is saved: the state of the log that this session knows
//!   then no longer exists, or does not exist yet.
//! - Locks are taken in this order, and none is held while blocks are named, packed or read: the
//!   gate of parity, the gate of sync, the appender, the drafts, the index.

mod append;
mod close;
mod data_arenas;
mod parity_due;
mod put;
mod put_back;
mod put_by_value;
mod reclaim;
mod replace;
mod reserve;
mod save_index;
mod sync;

pub use close::CloseError;
pub use parity_due::WriteParityError;
pub use put::PutResult;
pub use reclaim::ReadySuccessor;
pub use replace::ReplaceError;
pub use reserve::UsedReserve;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use varve_log::{Appender, ArenaId};

use crate::config::CompareMode;
use crate::drafts::{Drafts, Placement};
use crate::finder::Finder;
use crate::reader::Reader;
use crate::tail::Tail;
use crate::vault::{Vault, WriterLock};
use parity_due::ParityDue;

/// The writer of a store.
pub struct Intake {
    vault: Arc<Vault>,
    drafts: Arc<Drafts>,
    finder: Arc<Finder>,
    reader: Arc<Reader>,
    tail: Arc<Tail>,
    appender: Mutex<Appender>,
    /// Held by the one caller that makes blocks durable on behalf of all waiting callers.
    sync_gate: Mutex<DurableClumps>,
    parity_due: ParityDue,
    /// The arenas that hold the file contents that were put.
    data_arenas: Mutex<BTreeSet<ArenaId>>,
    /// True while arenas are replaced.
    is_replacing: AtomicBool,
    _lock: WriterLock,
}

/// The part of the log that is known to be durable, counted in clumps of this session.
#[derive(Debug, Default)]
struct DurableClumps {
    clump_count: u64,
}

/// The parts that an intake depends on.
pub(crate) struct IntakeParts {
    pub(crate) vault: Arc<Vault>,
    pub(crate) drafts: Arc<Drafts>,
    pub(crate) finder: Arc<Finder>,
    pub(crate) reader: Arc<Reader>,
    pub(crate) tail: Arc<Tail>,
}

impl Intake {
    /// Makes an intake that continues at the position of `appender`.
    pub(crate) fn new(below: IntakeParts, appender: Appender, lock: WriterLock) -> Self {
        let IntakeParts { vault, drafts, finder, reader, tail } = below;
        if vault.config().compare == CompareMode::Value {
            drafts.place_by(Placement::new(appender.session_mark(), vault.map(), appender.home()));
        }
        Self {
            vault,
            drafts,
            finder,
            reader,
            tail,
            appender: Mutex::new(appender),
            sync_gate: Mutex::default(),
            parity_due: ParityDue::default(),
            data_arenas: Mutex::default(),
            is_replacing: AtomicBool::new(false),
            _lock: lock,
        }
    }
}
