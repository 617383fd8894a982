//! The plan of a repair of the log: per arena its damage, and the ways to repair it in order.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use varve_log::ArenaId;
use varve_store::Store;

use crate::damage::{Damage, DamageKind};

/// The repair of the log, arena by arena. A plan changes nothing, and nothing is changed that no
/// plan lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MendPlan {
    /// The damaged arenas.
    pub arenas: BTreeMap<ArenaId, ArenaMend>,
    /// The arenas whose parity is to be made again.
    pub parity: BTreeSet<ArenaId>,
    /// True if the ledger differs from the seals. Sealed arenas that somebody has put in place are
    /// taken in first, and then a new plan is made.
    pub takes_in_replaced: bool,
    /// True if the end of the log is gone. The log as it is then counts as complete, before the
    /// first arena is written anew.
    pub accepts_end: bool,
    /// True if an arena's file is missing. Once it is there again, it is clear which others have
    /// lost their seals.
    pub misses_arena: bool,
}

/// The repair of one arena.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArenaMend {
    /// The damage, in words.
    pub reasons: Vec<String>,
    /// The ways to repair it. The first one that succeeds ends the attempts.
    pub ways: Vec<MendWay>,
}

/// A way to repair an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MendWay {
    /// Compute the damaged parts from its parity.
    FromParity,
    /// Take it as a whole from the copy with this number.
    FromCopy(usize),
    /// Write it anew without the lost parts.
    Rewrite,
}

impl MendPlan {
    /// Plans to write anew the arenas that this damage demands. Omits damage that a writer mends by
    /// itself: a torn end, or a ledger that is behind.
    #[must_use]
    pub fn new(damage: &[Damage]) -> Self {
        let misses_arena = damage.iter().any(|damage| matches!(damage.kind, DamageKind::Missing));
        let mut plan = Self { misses_arena, ..Self::default() };
        for damage in damage {
            match damage.kind {
                DamageKind::Ledger => plan.takes_in_replaced = true,
                DamageKind::EndLost => plan.accepts_end = true,
                DamageKind::TornEnd => {}
                DamageKind::Parity(_) => drop(plan.parity.insert(damage.arena)),
                DamageKind::Unreadable(_)
                | DamageKind::SealLost
                | DamageKind::Missing
                | DamageKind::Withheld
                | DamageKind::Gap
                | DamageKind::OtherClump
                | DamageKind::OtherBlock { .. } => {
                    let arena = plan.arenas.entry(damage.arena).or_default();
                    arena.reasons.push(damage.kind.to_string());
                    arena.ways = vec![MendWay::Rewrite];
                }
            }
        }
        plan
    }

    /// Plans the repair of this damage, with all ways that may be open. An arena is taken from one
    /// of `copies` only if nobody can tell which blocks its damaged places held; otherwise just
    /// these blocks are fetched.
    ///
    /// # Errors
    /// When the parity files cannot be listed.
    pub fn with_ways(store: &Store, damage: &[Damage], copies: &[&Store]) -> io::Result<Self> {
        let mut plan = Self::new(damage);
        plan.accepts_end |= store.end_is_lost();
        if plan.arenas.is_empty() {
            return Ok(plan);
        }
        let with_parity = store.vault().parity().list()?;
        let unnamed: BTreeSet<_> =
            damage.iter().filter(|damage| damage.blocks.is_empty()).map(|damage| damage.arena).collect();
        let listed: Vec<_> = copies.iter().map(|copy| arenas_of_copy(store, copy, &unnamed)).collect();
        for (id, arena) in &mut plan.arenas {
            let parity = with_parity.iter().any(|(of, _)| of == id).then_some(MendWay::FromParity);
            let holders = listed.iter().enumerate().filter(|(_, listed)| listed.contains(id));
            let ways = parity.into_iter().chain(holders.map(|(number, _)| MendWay::FromCopy(number)));
            arena.ways.splice(0..0, ways.collect::<Vec<_>>());
        }
        Ok(plan)
    }

    /// Returns true if further arenas may be found damaged when this plan is carried out. A mended
    /// arena names others. After a lost end, only the next writer counts the seals that are
    /// missing. As long as an arena is missing, nobody knows whose seal a missing one was.
    #[must_use]
    pub fn may_name_more(&self) -> bool {
        let mends = |arena: &ArenaMend| arena.ways.iter().any(|way| *way != MendWay::Rewrite);
        self.takes_in_replaced || self.accepts_end || self.misses_arena || self.arenas.values().any(mends)
    }

    /// Returns true if no file of an arena or of its parity is to be changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.arenas.is_empty() && self.parity.is_empty()
    }
}

/// Returns the arenas among `wanted` that a copy of this store may have. If it cannot list its
/// arenas now, it may have all of them.
fn arenas_of_copy(store: &Store, copy: &Store, wanted: &BTreeSet<ArenaId>) -> BTreeSet<ArenaId> {
    if wanted.is_empty() || copy.config().id != store.config().id {
        return BTreeSet::new();
    }
    match copy.arenas() {
        Ok(there) => there.into_iter().filter(|id| wanted.contains(id)).collect(),
        Err(_) => wanted.clone(),
    }
}
