//! Making durable: one caller does it for all who wait.

use std::sync::PoisonError;

use varve_index::DiskIndex;
use varve_log::{AppendError, Appender, SyncLogError, WriteFailure};

use crate::store::{Durable, Store, Writer};

impl Store {
    /// Hands everything put so far to the log, named by a page, and does not wait until it is durable. Afterwards the log is as
    /// long as all of that makes it.
    ///
    /// # Errors
    /// [`AppendError`].
    pub fn write_out(&self) -> Result<(), AppendError> {
        let Some(writer) = &self.writer else { return Ok(()) };
        self.append_all_drafts(writer)?;
        self.write_page(writer, &mut writer.appender())
    }

    fn write_page(&self, writer: &Writer, appender: &mut Appender) -> Result<(), AppendError> {
        match appender.finish_page()? {
            Some(page) => {
                self.note_end(appender);
                self.index_page(&page)?;
                self.begin_index_pass(writer, appender);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Makes durable what was put.
    pub(crate) fn make_durable(&self) -> Result<(), SyncLogError> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let made = self.make_all_durable(writer);
        self.fail_if_unknown(writer, &made);
        made?;
        self.write_due_parity(writer, true);
        Ok(())
    }

    fn make_all_durable(&self, writer: &Writer) -> Result<(), SyncLogError> {
        self.append_all_drafts(writer)?;
        let wanted = self.admission().clump_count;
        let mut durable = writer.sync_gate.lock().unwrap_or_else(PoisonError::into_inner);
        if durable.clump_count >= wanted && wanted > 0 {
            return Ok(());
        }
        self.carry_out_sync(writer, &mut durable)
    }

    /// Makes durable whatever was written to the log, even if it holds no block that was put.
    pub(crate) fn make_log_durable(&self, writer: &Writer) -> Result<(), SyncLogError> {
        let made = self.append_all_drafts(writer).map_err(SyncLogError::from).and_then(|()| {
            let mut durable = writer.sync_gate.lock().unwrap_or_else(PoisonError::into_inner);
            self.carry_out_sync(writer, &mut durable)
        });
        self.fail_if_unknown(writer, &made);
        made
    }

    /// After a failure it is unknown what the disk holds. Nothing may be built on it until it has been read again.
    fn fail_if_unknown(&self, writer: &Writer, made: &Result<(), SyncLogError>) {
        if let Err(error) = made {
            let reason = WriteFailure::of(error);
            writer.appender().fail(reason.clone());
            self.admission().failed.get_or_insert(reason);
        }
    }

    fn carry_out_sync(&self, writer: &Writer, durable: &mut Durable) -> Result<(), SyncLogError> {
        let (plan, clump_count, run) = {
            let mut appender = writer.appender();
            self.write_page(writer, &mut appender)?;
            (appender.plan_sync(), self.admission().clump_count, self.index.disk().and_then(DiskIndex::ready))
        };
        plan.carry_out(&self.log)?;
        let mut appender = writer.appender();
        appender.finish_sync(&plan)?;
        self.directory.note_sealed(|arena| appender.seals().contains(arena));
        durable.clump_count = clump_count;
        self.note_parity_due(writer, appender.take_newly_sealed());
        drop(appender);
        self.save_index_run(run);
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
