//! Making durable: one caller does it for all who wait.

use std::sync::PoisonError;

use varve_log::SyncLogError;

use crate::store::Store;

impl Store {
    pub(crate) fn make_durable(&self) -> Result<(), SyncLogError> {
        let Some(writer) = &self.writer else { return Ok(()) };
        self.append_all_drafts(writer)?;
        let wanted = self.admission().clump_count;
        let mut durable = writer.sync_gate.lock().unwrap_or_else(PoisonError::into_inner);
        if durable.clump_count >= wanted && wanted > 0 {
            return Ok(());
        }
        let (plan, clump_count) = {
            let mut appender = writer.appender();
            if let Some(page) = appender.finish_page()? {
                self.index_page(&page)?;
            }
            (appender.plan_sync(), self.admission().clump_count)
        };
        if let Err(error) = plan.carry_out(&self.log) {
            // What the disk now holds is unknown. Nothing may be built on it until it has been read again.
            let reason = error.to_string();
            writer.appender().fail(reason.clone());
            self.admission().failed.get_or_insert(reason);
            return Err(error);
        }
        let mut appender = writer.appender();
        appender.finish_sync(&plan)?;
        self.directory.note_sealed(|arena| appender.seals().contains(arena));
        durable.clump_count = clump_count;
        Ok(())
    }
}
