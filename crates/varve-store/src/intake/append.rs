//! Appends: drafts become clumps of the log, and pages name them.

use varve_log::{AppendError, AppendedPage, Appender};

use super::Intake;
use crate::drafts::FullDraft;

impl Intake {
    /// Packs a draft and appends it.
    pub(super) fn append_draft(&self, full: &FullDraft) -> Result<(), AppendError> {
        let _others_hear = self.drafts.fail_on_panic();
        let packed = self.drafts.pack(full, self.vault.config().compression_level);
        if let Some(arena) = full.arena() {
            self.drafts.wait_for_drafts_before(arena);
        }
        let mut appender = self.appender.lock();
        let appended = match full.arena() {
            None => appender.append(packed),
            Some(arena) => appender.append_in(arena, packed),
        };
        self.drafts.note_end(appender.home());
        match appended {
            Ok((address, pages)) => {
                // First the arena, because other threads rely on a block as soon as it has a place.
                self.note_stored_data(full.names(), address);
                self.drafts.note_clump(full, address);
                self.take_in_pages(&pages, &mut appender)?;
                drop(appender);
                self.drafts.wake();
                self.write_due_parity(false);
                Ok(())
            }
            Err(error) => {
                // The draft stays in memory, so that its blocks can still be read. No more blocks
                // are accepted.
                self.drafts.fail(&error);
                Err(error)
            }
        }
    }

    /// Takes in the pages that an append has written on the way.
    pub(super) fn take_in_pages(
        &self,
        pages: &[AppendedPage],
        appender: &mut Appender,
    ) -> Result<(), AppendError> {
        for page in pages {
            self.index_page(page)?;
        }
        // A page was due, or the arena was full. Then other work may be due as well.
        if !pages.is_empty() {
            self.begin_index_pass(appender);
            self.vault.directory().note_sealed(|arena| appender.seals().contains(arena));
            self.note_parity_due(appender.take_newly_sealed());
        }
        Ok(())
    }

    /// Moves the names in a page from the drafts to the index.
    pub(super) fn index_page(&self, appended: &AppendedPage) -> Result<(), AppendError> {
        self.finder.insert_appended(appended)?;
        self.reader.lost().remove(appended.page.blocks().map(|block| block.name));
        self.drafts.note_page(appended.page.blocks().map(|block| block.name));
        Ok(())
    }

    /// Closes the drafts, full or not, and appends them. Then waits for every other draft that was
    /// closed before.
    pub(super) fn append_all_drafts(&self) -> Result<(), AppendError> {
        let (closed, number) = self.drafts.close_all();
        for full in closed {
            self.append_draft(&full)?;
        }
        self.drafts.wait_for_drafts_below(number)
    }

    /// Writes every block put so far to the log, named by a page, and does not wait until it is
    /// durable. Afterwards the log has its full length.
    pub(crate) fn write_out(&self) -> Result<(), AppendError> {
        self.append_all_drafts()?;
        self.write_page(&mut self.appender.lock())
    }

    pub(super) fn write_page(&self, appender: &mut Appender) -> Result<(), AppendError> {
        match appender.finish_page()? {
            Some(page) => {
                self.drafts.note_end(appender.home());
                self.index_page(&page)?;
                self.begin_index_pass(appender);
                Ok(())
            }
            None => Ok(()),
        }
    }
}
