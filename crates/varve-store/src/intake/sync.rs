//! Makes blocks durable: one caller does it for all waiting callers.

use varve_log::{SyncLogError, WriteFailure};

use super::{DurableClumps, Intake};

impl Intake {
    /// Makes every block that was put durable.
    ///
    /// # Errors
    /// [`SyncLogError`]; it is then unknown what the disk holds, and no more blocks are accepted.
    pub fn make_durable(&self) -> Result<(), SyncLogError> {
        let made = self.make_all_durable();
        self.fail_if_unknown(&made);
        made?;
        self.write_due_parity(true);
        Ok(())
    }

    fn make_all_durable(&self) -> Result<(), SyncLogError> {
        self.append_all_drafts()?;
        let wanted = self.drafts.clump_count();
        let mut durable = self.sync_gate.lock();
        if durable.clump_count >= wanted && wanted > 0 {
            return Ok(());
        }
        self.carry_out_sync(&mut durable)
    }

    /// Makes everything durable that was written to the log, even if that holds no block that was
    /// put.
    pub(super) fn make_log_durable(&self) -> Result<(), SyncLogError> {
        let made = self.append_all_drafts().map_err(SyncLogError::from).and_then(|()| {
            let mut durable = self.sync_gate.lock();
            self.carry_out_sync(&mut durable)
        });
        self.fail_if_unknown(&made);
        made
    }

    /// After a failure it is unknown what the disk holds. Nothing may rely on it until it has been
    /// read again.
    fn fail_if_unknown(&self, made: &Result<(), SyncLogError>) {
        if let Err(error) = made {
            let reason = WriteFailure::of(error);
            self.appender.lock().fail(reason.clone());
            self.drafts.fail_with(|| reason);
        }
    }

    fn carry_out_sync(&self, durable: &mut DurableClumps) -> Result<(), SyncLogError> {
        let (plan, clump_count, run) = {
            let mut appender = self.appender.lock();
            self.write_page(&mut appender)?;
            (appender.plan_sync(), self.drafts.clump_count(), self.finder.ready_run())
        };
        plan.carry_out(self.vault.log())?;
        let mut appender = self.appender.lock();
        appender.finish_sync(&plan)?;
        self.vault.directory().note_sealed(|arena| appender.seals().contains(arena));
        durable.clump_count = clump_count;
        self.note_parity_due(appender.take_newly_sealed());
        drop(appender);
        self.finder.save_run(run);
        Ok(())
    }

    /// Makes the seals durable that the last sync has left behind it. Otherwise the next session
    /// would have to write their arenas anew.
    pub(super) fn make_seals_durable(&self) -> Result<(), SyncLogError> {
        let mut appender = self.appender.lock();
        if appender.durable_seals().count() == appender.seals().len() {
            return Ok(());
        }
        let plan = appender.plan_sync();
        plan.carry_out(self.vault.log())?;
        appender.finish_sync(&plan)?;
        Ok(())
    }
}
