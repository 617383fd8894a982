//! The plan of a repair: the arenas to be written anew, with reasons.

use std::collections::{BTreeMap, BTreeSet};

use varve_log::ArenaId;

use crate::damage::{Damage, DamageKind};

/// The steps of a repair, arena by arena.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairPlan {
    /// The arenas to be written anew, with the damage of each.
    pub arenas: BTreeMap<ArenaId, Vec<String>>,
    /// The arenas whose parity is to be made again.
    pub parity: BTreeSet<ArenaId>,
}

impl RepairPlan {
    /// Plans to write anew the arenas that this damage demands. Omits damage that a writer mends by
    /// itself: a torn end, or a ledger that is behind.
    #[must_use]
    pub fn new(damage: &[Damage]) -> Self {
        let mut plan = Self::default();
        // Only a newer program knows the contents of these arenas. If this program wrote them anew,
        // they would be empty.
        let newer: BTreeSet<_> =
            damage.iter().filter(|damage| damage.kind.is_newer()).map(|damage| damage.arena).collect();
        for damage in damage.iter().filter(|damage| !newer.contains(&damage.arena)) {
            let demands_it = match damage.kind {
                DamageKind::Unreadable(_)
                | DamageKind::SealLost
                | DamageKind::Missing
                | DamageKind::Withheld
                | DamageKind::Gap
                | DamageKind::OtherClump
                | DamageKind::OtherBlock { .. } => true,
                DamageKind::Parity(_) => {
                    plan.parity.insert(damage.arena);
                    false
                }
                DamageKind::Ledger | DamageKind::EndLost | DamageKind::TornEnd => false,
            };
            if demands_it {
                plan.arenas.entry(damage.arena).or_default().push(damage.kind.to_string());
            }
        }
        plan
    }

    /// Returns true if there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.arenas.is_empty() && self.parity.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use varve_log::{ArenaHeaderError, ReadLogError};

    use super::*;

    #[test]
    fn what_a_newer_program_wrote_is_left_as_it_is() {
        let damage = |arena, kind| Damage { arena, offset: 0, kind, blocks: Vec::new() };
        let newer =
            ReadLogError::Header { arena: ArenaId(1), source: ArenaHeaderError::NewerVersion { version: 3 } };
        let found = [
            damage(ArenaId(1), DamageKind::SealLost),
            damage(ArenaId(1), newer.into()),
            damage(ArenaId(2), DamageKind::Missing),
        ];
        assert_eq!(RepairPlan::new(&found).arenas.into_keys().collect::<Vec<_>>(), [ArenaId(2)]);
    }
}
