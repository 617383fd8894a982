//! Opens a store to read the facts that daily work depends on.

use anyhow::Result;
use varve_archive::Archive;
use varve_daily::StoreFacts;
use varve_session::CommandSession;
use varve_store::Permission;

/// Opens a store and reads the facts about it; `None` if its key must not read.
///
/// # Errors
/// When the store does not open.
pub fn open(session: &CommandSession) -> Result<Option<(Archive, StoreFacts)>> {
    let archive = session.check()?;
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
/// When the store does not open.
pub fn read(session: &CommandSession) -> Result<Option<StoreFacts>> {
    Ok(open(session)?.map(|(_, facts)| facts))
}
