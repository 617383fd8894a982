//! Opens a store to read the facts that daily work depends on.

use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use varve_archive::Archive;
use varve_block::to_hex;
use varve_session::CommandSession;
use varve_store::Permission;

use super::store_identity::{check_identity, require_identity};
use crate::config::ConfiguredStore;
use crate::judging::StoreFacts;

/// The time after which a store that has not opened is given up. A process that judges promises
/// beside a job has a minute more.
const PATIENCE: Duration = Duration::from_secs(240);

/// Opens a store and reads the facts about it; `None` if its key must not read.
///
/// # Errors
/// When the store does not open, or is another one than that of the configuration. Also when it
/// has not opened within four minutes: the server of its mount may be gone.
#[expect(clippy::disallowed_methods, reason = "a mount is awaited in real time")]
pub fn open_store(
    session: &CommandSession,
    store: &ConfiguredStore,
) -> Result<Option<(Archive, StoreFacts)>> {
    let (sender, receiver) = mpsc::channel();
    let (session, store) = (session.clone(), store.clone());
    // A thread that waits for a dead server is left to the end of the process.
    std::thread::spawn(move || drop(sender.send(open_at_last(&session, &store))));
    let late = |_| Err(anyhow!("it has not opened within {} s", PATIENCE.as_secs()));
    receiver.recv_timeout(PATIENCE).unwrap_or_else(late)
}

fn open_at_last(session: &CommandSession, store: &ConfiguredStore) -> Result<Option<(Archive, StoreFacts)>> {
    check_identity(store)?;
    let archive = session.check()?;
    require_identity(store, &to_hex(&archive.store().config().id))?;
    if !archive.store().role().allows(Permission::Read) {
        return Ok(None);
    }
    let folder = session.store_folder().ok();
    let facts = StoreFacts::read(&archive, folder.as_deref())?;
    Ok(Some((archive, facts)))
}

/// Reads the facts about a store; `None` if its key must not read.
///
/// # Errors
/// As for [`open_store`].
pub fn read_facts(session: &CommandSession, store: &ConfiguredStore) -> Result<Option<StoreFacts>> {
    Ok(open_store(session, store)?.map(|(_, facts)| facts))
}
