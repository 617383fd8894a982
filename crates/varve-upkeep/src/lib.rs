//! Checks and mends a store: finds damage, computes the loss, and makes the store whole again. And
//! reclaims space: finds dead blocks, and plans which arenas to write anew without them.
//!
//! ```text
//! Checker   arenas, their order, their parity ─▶ damage ─▶ a plan, and what would be lost
//! Mender    the plan ─▶ the arena as it was sealed, from parity or from a copy
//!           otherwise ─▶ the arena written anew without the lost parts
//! ```
//!
//! Always true:
//! - A check changes nothing but hints.
//! - Mending makes nothing worse. The old file stays in place, or in `quarantine/`, until the new
//!   one is whole, checked and durable.
//! - A repair changes only the arenas that its plan lists, in the ways that it lists.
//!
//! Read first: `damage.rs` (the findings of a check), `mend/plan.rs` and `mend/rewrite.rs`.
//!
//! The crate knows arenas, pages, clumps and blocks. It does not know snapshots: its callers know
//! which snapshots are harmed, and where else blocks may be.

mod check;
mod damage;
mod generation;
mod key_table;
mod mend;
mod reclaim;
mod salvaged;

pub use check::{
    ArenaLoss, AuditRecord, AuditShare, Checker, ClumpGroup, LostEnd, LostRange, StartedCheck, Witness,
};
pub use damage::{
    ArenaCheck, CheckArenaError, CheckParityError, Damage, DamageKind, ParityDamage, UnfinishedEnd,
};
pub use key_table::{KEY_BYTES_MAX, Key, KeySalt, KeyTable};
pub use mend::{ArenaMend, MendError, MendPlan, MendWay, MendedArena, Mender, RepairError, Repaired};
pub use reclaim::{
    ArenaMeter, ArenaObstacle, ArenaUse, BatchLimits, ClumpFate, FILTER_BYTES_DEFAULT, FrameUse, IsLive,
    LiveBlocks, MeasuredArena, PricedTarget, ReclaimBatch, ReclaimBudget, ReclaimError, ReclaimPlan,
    ReclaimPrices, ReclaimTotals, ReclaimedArena, ReclaimedBatch, Reclaimer, RewrittenArena, SparedArena,
    SparedReason, TargetPrices, WalkedAs, kept_frames,
};
