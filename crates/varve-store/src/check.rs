//! Checking: everything that the log says of itself, and, if asked, every byte.

use varve_block::BlockName;
use varve_log::{ArenaId, ArenaState, DirectoryPage, GRANULE_BYTES, OpenLogError, ReadLogError, Seal, Seals};

use crate::store::Store;

/// Read ahead while whole arenas are read.
const AHEAD_BYTES: usize = 1 << 20;

/// Something in the log is not as it was written.
#[derive(Debug)]
pub struct Damage {
    /// Which arena.
    pub arena: ArenaId,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What was found.
    pub kind: DamageKind,
    /// The blocks that are lost with it, as far as their names are known.
    pub blocks: Vec<BlockName>,
}

/// What can be wrong with a part of the log.
#[derive(Debug, thiserror::Error)]
pub enum DamageKind {
    /// It does not read as what it should be.
    #[error(transparent)]
    Unreadable(#[from] ReadLogError),
    /// The arena was sealed, and its seal is gone or was taken back.
    #[error("the arena was sealed, and is not any more: it was cut, or put back as it was before")]
    SealLost,
    /// The seals of the arenas are not those that the newest page's ledger covers.
    #[error("the seals of the arenas up to this one are not those that its last page has seen")]
    Ledger,
    /// The log ends before the page with which a writer last closed the store.
    #[error("the end of the log is gone: the newest snapshots may be missing, and cannot be named")]
    EndLost,
    /// An arena's file is not there.
    #[error("the arena's file is missing")]
    Missing,
    /// Records of the open arena are damaged, and good ones follow them.
    #[error("a record is damaged; those after it can still be read")]
    Gap,
    /// After the last good page of the open arena there is something that no writer has finished.
    #[error(
        "what follows the last directory page is torn: a crash has left it, or that page's successor is damaged"
    )]
    TornEnd,
    /// A clump is whole, but it is not the one that its directory page names.
    #[error("the clump is not the one that the directory names")]
    OtherClump,
    /// A block does not hash to its name.
    #[error("a block hashes to {actual}, but is recorded as {recorded}")]
    OtherBlock {
        /// What is there.
        actual: BlockName,
        /// What should be.
        recorded: BlockName,
    },
}

/// What one arena was found to hold.
#[derive(Debug, Default)]
pub struct ArenaCheck {
    /// Bytes that were read and checked.
    pub checked_bytes: u64,
    /// Blocks that it names.
    pub block_count: u64,
    /// What is wrong with it.
    pub damage: Vec<Damage>,
}

impl Store {
    /// The arenas that there are to check, in order. Arenas can be checked at the same time, each by another thread.
    ///
    /// # Errors
    /// [`OpenLogError`] when they cannot be listed.
    pub fn arenas(&self) -> Result<Vec<ArenaId>, OpenLogError> {
        self.log.arenas()
    }

    /// Checks that no arena is missing, that seals are where they should be, and that they are those of the newest
    /// page's ledger.
    ///
    /// # Errors
    /// [`OpenLogError`] when the arenas cannot be listed.
    pub fn check_order(&self) -> Result<Vec<Damage>, OpenLogError> {
        let ids = self.log.arenas()?;
        let mut damage = Vec::new();
        let mut report = |arena, kind| damage.push(Damage { arena, offset: 0, kind, blocks: Vec::new() });
        // What cannot be read at all is reported as lost, too: its arena may be gone.
        if !self.newest_is_there().unwrap_or(false) {
            report(ids.last().copied().unwrap_or(ArenaId(0)), DamageKind::EndLost);
        }
        let mut seals = Seals::default();
        for id in &ids {
            // What cannot be opened is reported with its arena.
            let Ok(arena) = self.log.open_arena(*id) else { continue };
            if let Ok(ArenaState::Sealed { footer, .. }) = self.log.state(&arena) {
                seals.insert(*id, Seal::of(arena.header(), &footer));
            }
        }
        let Some(ledger) = self.newest_ledger(&ids) else { return Ok(damage) };
        if seals.ledger(self.log.keys(), ledger.arena_count) == ledger {
            return Ok(damage);
        }
        let newest = ids.last().copied().unwrap_or(ArenaId(0));
        for id in (0..newest.0).map(ArenaId) {
            if !ids.contains(&id) {
                report(id, DamageKind::Missing);
            } else if id.0 < ledger.arena_count && !seals.contains(id) {
                report(id, DamageKind::SealLost);
            }
        }
        report(newest, DamageKind::Ledger);
        Ok(damage)
    }

    /// Checks one arena: header, seal, pages, and with `data` every clump and every block in it, for which the store's key
    /// must be able to read.
    ///
    /// # Errors
    /// [`ReadLogError`] when it cannot be read for a reason that is no damage.
    pub fn check_arena(&self, id: ArenaId, data: bool) -> Result<ArenaCheck, ReadLogError> {
        let mut check = ArenaCheck::default();
        let checked = self.check_opened(id, data, &mut check);
        match checked {
            Err(error) if error.is_damage() => check.report(id, 0, error.into(), Vec::new()),
            other => other?,
        }
        Ok(check)
    }

    fn check_opened(&self, id: ArenaId, mut data: bool, check: &mut ArenaCheck) -> Result<(), ReadLogError> {
        let arena = self.log.open_arena(id)?;
        let can_read = self.log.keys().can_read();
        let mut pages = Vec::new();
        match self.log.state(&arena)? {
            ArenaState::Sealed { pages: rows, .. } => {
                for row in rows {
                    match self.log.read_page(&arena, &row) {
                        Ok(page) => pages.push(page),
                        Err(error) if error.is_damage() => {
                            check.report(id, row.granule.byte_offset(), error.into(), Vec::new());
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            ArenaState::Unsealed => {
                let found = self.log.scan(&arena)?;
                if let Some(offset) = found.gap {
                    check.report(id, offset, DamageKind::Gap, Vec::new());
                    data |= can_read;
                } else if can_read && !self.log.end_is_whole(&arena, &found)? {
                    check.report(id, found.log_bytes, DamageKind::TornEnd, Vec::new());
                }
                pages.extend(found.pages.into_iter().map(|(_, page)| page));
            }
        }
        let mut window = self.log.window(&arena, AHEAD_BYTES);
        for page in &pages {
            check.block_count += page.block_count() as u64;
            if data {
                self.check_clumps(id, page, &mut window, check)?;
            }
        }
        Ok(())
    }

    fn check_clumps(
        &self,
        id: ArenaId,
        page: &DirectoryPage,
        window: &mut varve_log::Window<'_>,
        check: &mut ArenaCheck,
    ) -> Result<(), ReadLogError> {
        for row in page.clumps() {
            let offset = row.granule.byte_offset();
            let names = || page.blocks_of(row.granule).map(|block| block.name).collect();
            let (header, content) = match window.clump(row.granule) {
                Ok(read) => read,
                Err(error) if error.is_damage() => {
                    check.report(id, offset, error.into(), names());
                    continue;
                }
                Err(error) => return Err(error),
            };
            check.checked_bytes += u64::from(row.body_bytes).next_multiple_of(GRANULE_BYTES);
            if header.code != row.code || content.blocks().len() != row.block_count as usize {
                check.report(id, offset, DamageKind::OtherClump, names());
                continue;
            }
            for ((block_type, bytes), recorded) in content.blocks().zip(page.blocks_of(row.granule)) {
                let actual = BlockName { score: self.namer.score(&bytes), block_type };
                let same_digest = recorded.digest == self.namer.digest(&bytes);
                if actual != recorded.name || !same_digest || recorded.size as usize != bytes.len() {
                    let kind = DamageKind::OtherBlock { actual, recorded: recorded.name };
                    check.report(id, offset, kind, vec![recorded.name]);
                }
            }
        }
        Ok(())
    }
}

impl ArenaCheck {
    fn report(&mut self, arena: ArenaId, offset: u64, kind: DamageKind, blocks: Vec<BlockName>) {
        self.damage.push(Damage { arena, offset, kind, blocks });
    }
}
