//! The intake: whatever is added to a store goes through here. Only the one writer of a store has it.
//!
//! It owns the writer's end of the log (the appender), the gate of sync, the parity that is due, and the lock that keeps
//! other writers away. It stands on all other parts, and none of them knows it.
//!
//! Always true:
//! - When a sync has returned, everything put before it survives power loss.
//! - A seal gets parity, and an index is saved that counts it, only once the seal is durable.
//! - While arenas are replaced no index is saved: what is known of the log is then of one that is not any more, or not yet.
//! - Locks are taken in this order, and none is held while blocks are named, packed or read: the gate of parity, the gate
//!   of sync, the appender, the drafts, the index.

mod append;
mod close;
mod parity_due;
mod put;
mod put_back;
mod put_by_value;
mod replace;
mod save_index;
mod sync;

pub use close::CloseError;
pub use parity_due::WriteParityError;
pub use put::Put;
pub use replace::ReplaceError;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use varve_log::Appender;
use varve_world::FileLock;

use crate::config::CompareMode;
use crate::drafts::{Drafts, Placement};
use crate::finder::Finder;
use crate::reader::Reader;
use crate::tail::Tail;
use crate::vault::Vault;
use parity_due::ParityDue;

/// The writer of a store.
pub struct Intake {
    vault: Arc<Vault>,
    drafts: Arc<Drafts>,
    finder: Arc<Finder>,
    reader: Arc<Reader>,
    tail: Arc<Tail>,
    appender: Mutex<Appender>,
    /// Held by the one caller that makes things durable for all that wait.
    sync_gate: Mutex<Durable>,
    parity_due: ParityDue,
    /// While arenas are replaced.
    is_replacing: AtomicBool,
    _lock: Box<dyn FileLock>,
}

/// How far the log is known to be durable, counted in clumps of this session.
#[derive(Debug, Default)]
struct Durable {
    clump_count: u64,
}

/// The parts that an intake stands on.
pub(crate) struct Below {
    pub(crate) vault: Arc<Vault>,
    pub(crate) drafts: Arc<Drafts>,
    pub(crate) finder: Arc<Finder>,
    pub(crate) reader: Arc<Reader>,
    pub(crate) tail: Arc<Tail>,
}

impl Intake {
    /// Goes on where `appender` stands.
    pub(crate) fn new(below: Below, appender: Appender, lock: Box<dyn FileLock>) -> Self {
        let Below { vault, drafts, finder, reader, tail } = below;
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
            is_replacing: AtomicBool::new(false),
            _lock: lock,
        }
    }
}
