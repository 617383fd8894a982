//! Making durable: one caller does it for all who wait.

use std::sync::PoisonError;

use varve_log::SyncLogError;

use crate::store::{Store, Writer};

impl Store {
    pub(crate) fn make_durable(&self) -> Result<(), SyncLogError> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let made = self.make_all_durable(writer);
        if let Err(error) = &made {
            // What the disk now holds is unknown. Nothing may be built on it until it has been read again.
            let reason = error.to_string();
            writer.appender().fail(reason.clone());
            self.admission().failed.get_or_insert(reason);
        }
        made
    }

    fn make_all_durable(&self, writer: &Writer) -> Result<(), SyncLogError> {
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
        plan.carry_out(&self.log)?;
        let mut appender = writer.appender();
        appender.finish_sync(&plan)?;
        self.directory.note_sealed(|arena| appender.seals().contains_key(&arena));
        durable.clump_count = clump_count;
        Ok(())
    }

    /// Makes the seals durable that the last sync has left behind it: otherwise the next session would have to write their arenas anew.
    pub(crate) fn make_seals_durable(&self, writer: &Writer) -> Result<(), SyncLogError> {
        let mut appender = writer.appender();
        if appender.durable_seals().count() == appender.seals().len() {
            return Ok(());
        }
        let plan = appender.plan_sync();
        plan.carry_out(&self.log)?;
        appender.finish_sync(&plan)?;
        Ok(())
    }
}
