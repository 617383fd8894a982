//! Opens a store to read the facts that daily work depends on.

use anyhow::Result;
use varve_archive::Archive;
use varve_block::to_hex;
use varve_daily::StoreFacts;
use varve_session::CommandSession;
use varve_store::Permission;
use varve_watch::ConfiguredStore;

use super::store_identity;

/// Opens a store and reads the facts about it; `None` if its key must not read.
///
/// # Errors
/// When the store does not open, or is another one than that of the configuration.
pub fn open(session: &CommandSession, store: &ConfiguredStore) -> Result<Option<(Archive, StoreFacts)>> {
    store_identity::check(store)?;
    let archive = session.check()?;
    store_identity::require(store, &to_hex(&archive.store().config().id))?;
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
/// As for [`open`].
pub fn read(session: &CommandSession, store: &ConfiguredStore) -> Result<Option<StoreFacts>> {
    Ok(open(session, store)?.map(|(_, facts)| facts))
}
