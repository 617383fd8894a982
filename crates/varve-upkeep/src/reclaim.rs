//! Reclaims space: finds how much of each arena is live, decides what is written anew, and does it.
//!
//! ```text
//! LiveBlocks    filled by the caller, which knows all roots
//! ArenaMeter    arenas ─▶ how much of each is live, by the rule of kept_frames
//! ReclaimPlan   that and a budget ─▶ the arenas to write anew, in batches
//! Reclaimer     a batch ─▶ successors with the live blocks ─▶ one commit ─▶ in place
//! ```
//!
//! It owns no state. Always true: only a complete set of live blocks decides that a block is dead,
//! and never its place or its age. Every doubt keeps a block.

mod arena_use;
mod kept_frames;
mod live_blocks;
mod live_clump;
mod merger;
mod plan;
mod prices;
mod reclaim_error;
mod reclaimer;
mod successor;

pub use arena_use::{ArenaMeter, ArenaObstacle, ArenaUse, MeasuredArena};
pub use kept_frames::{ClumpFate, FrameUse, kept_frames};
pub use live_blocks::{FILTER_BYTES_DEFAULT, LiveBlocks, WalkedAs};
pub use live_clump::IsLive;
pub use plan::{
    ReclaimBatch, ReclaimBudget, ReclaimPlan, ReclaimTotals, RewrittenArena, SparedArena, SparedReason,
};
pub use prices::{PricedTarget, ReclaimPrices, TargetPrices};
pub use reclaim_error::ReclaimError;
pub use reclaimer::{BatchLimits, ReclaimedArena, ReclaimedBatch, Reclaimer};
