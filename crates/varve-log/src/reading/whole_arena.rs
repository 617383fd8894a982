//! Checks every code of a sealed arena. Decompresses nothing.

use crate::arenas::address::ArenaId;
use crate::arenas::footer::{Footer, FooterError, PageRow};
use crate::reading::log::{ArenaState, Log, OpenedArena, ReadLogError};
use crate::reading::window::ArenaWindow;
use crate::records::directory_page::DirectoryPage;

/// The read-ahead while a whole arena is read.
const AHEAD_BYTES: usize = 1 << 20;

/// A sealed arena whose codes were all good when it was checked.
pub struct WholeArena {
    pub arena: OpenedArena,
    pub footer: Footer,
    pub pages: Vec<PageRow>,
}

impl Log {
    /// Checks every code of a sealed arena: header, seal, pages, clumps. With a write-only key,
    /// only the headers of clumps are checked.
    ///
    /// # Errors
    /// [`ReadLogError`]: it is not sealed, not whole, or cannot be read.
    pub fn check_whole(&self, id: ArenaId) -> Result<WholeArena, ReadLogError> {
        let arena = self.open_arena(id)?;
        let ArenaState::Sealed { footer, pages } = self.state(&arena)? else {
            return Err(ReadLogError::Seal { arena: id, source: FooterError::NotSealed });
        };
        let mut window = self.window(&arena, AHEAD_BYTES);
        for row in &pages {
            let page = self.read_page(&arena, row)?;
            self.check_clumps_of(&arena, &page, &mut window)?;
        }
        drop(window);
        Ok(WholeArena { arena, footer, pages })
    }

    fn check_clumps_of(
        &self,
        arena: &OpenedArena,
        page: &DirectoryPage,
        window: &mut ArenaWindow<'_>,
    ) -> Result<(), ReadLogError> {
        for clump in page.clumps() {
            let header = match window.authenticate(clump.granule) {
                Err(ReadLogError::NoReadKey { .. }) => window.record(clump.granule)?,
                other => other?,
            };
            if header.code != clump.code {
                return Err(self.forged(arena, clump.granule, "clump"));
            }
        }
        Ok(())
    }
}
