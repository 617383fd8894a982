//! Mends whole arenas: the first part of a plan, which loses nothing.

use std::collections::BTreeMap;
use std::error::Error;

use varve_log::ArenaId;
use varve_store::{Permission, Store};

use super::Mender;
use super::plan::{MendPlan, MendWay};
use super::rewrite::RepairError;
use crate::check::Checker;
use crate::damage::{Damage, DamageKind};

impl Mender<'_> {
    /// Mends whole arenas in the ways that the plan lists for them: first from parity, then from
    /// copies. Returns the mended arenas, each with the way that succeeded.
    ///
    /// A mended arena is checked as a whole, so its damage is removed from `damage`. It may name
    /// further arenas. The order of the arenas is therefore checked again, and `plan` becomes the
    /// plan for everything that is left.
    ///
    /// # Errors
    /// [`RepairError`]: the arenas before the failed one are mended, the others are as they were.
    pub fn mend(
        &self,
        plan: &mut MendPlan,
        damage: &mut Vec<Damage>,
        copies: &[&Store],
    ) -> Result<BTreeMap<ArenaId, MendWay>, RepairError> {
        self.store.role().require(Permission::Destroy)?;
        let mut all = BTreeMap::new();
        for is_from_parity in [true, false] {
            let mut mended = BTreeMap::new();
            for (id, arena) in &plan.arenas {
                let ways = arena.ways.iter();
                for way in ways.filter(|way| matches!(way, MendWay::FromParity) == is_from_parity) {
                    if self.mend_in_way(*id, *way, copies)? {
                        mended.insert(*id, *way);
                        break;
                    }
                }
            }
            if mended.is_empty() {
                continue;
            }
            damage.retain(|damage| match damage.kind {
                DamageKind::Parity(_) => true,
                DamageKind::SealLost | DamageKind::Missing | DamageKind::Ledger | DamageKind::EndLost => {
                    false
                }
                _ => !mended.contains_key(&damage.arena),
            });
            damage.extend(Checker::of(self.store).check_order()?);
            let rest = MendPlan::with_ways(self.store, damage, copies);
            *plan = rest.map_err(RepairError::ListParity)?;
            all.append(&mut mended);
        }
        self.note_repaired(all.keys());
        Ok(all)
    }

    /// Mends an arena if possible. Otherwise it is written anew, which discards everything that its
    /// parity or a copy still has. Temporary faults must not lead to that, nor a disk that refuses
    /// the mended bytes: they are retried or returned as errors. A copy that is remote has retried
    /// its reads already.
    fn mend_in_way(&self, id: ArenaId, way: MendWay, copies: &[&Store]) -> Result<bool, RepairError> {
        let mut try_count = 0;
        loop {
            let (mended, reads_again) = match way {
                MendWay::FromParity => (self.mend_arena_from_parity(id).map(drop), true),
                MendWay::FromCopy(number) => match copies.get(number) {
                    Some(copy) => (self.mend_arena_from_copy(id, copy).map(drop), false),
                    None => return Ok(false),
                },
                MendWay::Rewrite => return Ok(false),
            };
            let Err(error) = mended else { return Ok(true) };
            if try_count < error.tries_left() && (reads_again || error.is_refusal()) {
                try_count += 1;
            } else if error.is_refusal() {
                return Err(RepairError::Mend(error));
            } else {
                tracing::info!(error = &error as &dyn Error, "an arena is not mended");
                return Ok(false);
            }
        }
    }

    /// Removes repaired arenas from the record of damaged ones.
    pub(super) fn note_repaired<'i>(&self, arenas: impl Iterator<Item = &'i ArenaId>) {
        let mut damaged = Checker::of(self.store).damaged_arenas();
        for id in arenas {
            damaged.remove(id);
        }
        Checker::of(self.store).note_damaged(&damaged);
    }
}
