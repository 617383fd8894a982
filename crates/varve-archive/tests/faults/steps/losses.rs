//! Losses stay known: `verify` reports a lost block that was acknowledged each time, until it is
//! stored again or somebody has accepted the loss.

use std::collections::BTreeSet;

use varve_archive::{Archive, Losses, accept_losses, plan_to_accept, verify};
use varve_block::{BlockName, with_causes};
use varve_content::Progress;
use varve_store::StoreAccess;
use varve_upkeep::{AuditShare, Checker};

use crate::case::{Case, Checked, broken, lost};
use crate::session::{self, WRITER, world};
use crate::steps::rot::Missing;

impl Case {
    /// After a repair the log shows no damage. `verify` still reports every loss, without reading
    /// the data.
    pub fn must_be_known(&self, archive: &Archive, missing: &Missing) -> Checked {
        let verified =
            verify(archive, None, &Progress::new()).map_err(|error| broken(with_causes(&error)))?;
        self.tell(|| format!("known to be lost: {:?}", session::lost(&verified.losses)));
        self.must_name(archive, missing, &verified.losses)
    }

    fn must_name(&self, archive: &Archive, missing: &Missing, losses: &Losses) -> Checked {
        // If only the catalog leads to blocks, an unnamed block in a lost place is reported by the
        // snapshots that need it.
        let is_named = losses.places().next().is_some() || losses.is_incomplete();
        if is_named || !Checker::of(archive.store()).may_have_foreign_roots() {
            return Ok(());
        }
        let named: BTreeSet<_> = losses.blocks().map(|block| block.name).collect();
        if let Some(name) = missing.blocks.iter().find(|name| !named.contains(name)) {
            return Err(lost(format!("{name} is lost, and nobody says so")));
        }
        if missing.files > 0 && named.is_empty() {
            return Err(lost("a file is lost, and nobody says so"));
        }
        Ok(())
    }

    /// After a repair that was cut off, damage either still shows in the log, or is noted.
    pub fn must_be_known_between(&mut self) -> Checked {
        let seed = self.next_session();
        let secret = session::secret(&self.config);
        let store = session::open_store(world(&self.disk, seed), secret.as_ref(), StoreAccess::Read)
            .map_err(|text| lost(format!("does not open after a repair was cut off: {text}")))?;
        let Ok(archive) = Archive::open(store) else { return Ok(()) };
        let missing = self.never_wrong(&archive, &self.model.durable)?;
        let verified = verify(&archive, Some(AuditShare::ALL), &Progress::new())
            .map_err(|error| broken(format!("damage cannot be told: {}", with_causes(&error))))?;
        let shows = verified.damage.iter().any(|damage| damage.blocks.is_empty());
        if shows || missing.is_empty() {
            Ok(())
        } else {
            self.must_name(&archive, &missing, &verified.losses)
        }
    }

    /// No acknowledged block is lost any more. The remaining losses were never acknowledged, or
    /// have no name; they are accepted here.
    pub fn accept_the_rest(&mut self) -> Checked {
        let archive = self.open(WRITER).map_err(|text| lost(format!("does not open: {text}")))?;
        let failed = |text: String| broken(format!("what is lost cannot be accepted: {text}"));
        let plan = plan_to_accept(archive.store()).map_err(|error| failed(with_causes(&error)))?;
        let promised = |name: &BlockName| self.model.durable.blocks.contains_key(name);
        if let Some(block) = plan.losses.blocks().find(|block| promised(&block.name)) {
            return Err(broken(format!("{} is there, and said to be lost", block.name)));
        }
        if !plan.losses.is_empty() {
            self.count_cure("the rest was accepted as lost");
            accept_losses(archive.store(), &plan.name).map_err(|error| failed(with_causes(&error)))?;
        }
        archive.close().map_err(|error| failed(with_causes(&error)))
    }
}
