//! Checking and mending a store: what is wrong with it, what is lost with that, and how it becomes whole again.
//!
//! ```text
//! Checker   arenas, their order, their parity ─▶ damage ─▶ what would be lost
//! Mender    parity or a copy ─▶ the arena as it was sealed;  else a plan ─▶ the arena written anew without what is lost
//! ```
//!
//! What must always be true:
//! - Checking changes nothing but hints.
//! - Nothing is made worse by mending. The old file stays, or lies in `quarantine/`, until the new one is whole, checked and
//!   durable.
//! - A repair does what its plan says, and nothing else.
//!
//! To be read first: `damage.rs` (what a check finds), `check/arena.rs` and `mend/rewrite.rs`.
//!
//! The crate knows arenas, pages, clumps and blocks. It does not know what a snapshot is: which snapshots are harmed, and
//! where else blocks may be, its callers know.

mod check;
mod damage;
mod mend;
mod salvaged;

pub use check::{ArenaLoss, Audit, AuditShare, BegunCheck, Checker, LostEnd, LostRange, Stretch, Witness};
pub use damage::{
    ArenaCheck, CheckArenaError, CheckParityError, Damage, DamageKind, ParityDamage, Unfinished,
};
pub use mend::{MendError, Mended, Mender, RepairError, RepairPlan, Repaired};
