//! Imports blocks from the arena files of plan9port's Venti into a store.
//!
//! Each arena is read once, from beginning to end. Its clumps are opened, hashed and stored, and
//! its seal is checked on the way. A file of the store records how far the arena was read, as far
//! as all of that is durable. The next run opens only later clumps.
//!
//! ```text
//! file ──▶ arenas ──▶ clumps ──▶ blocks whose score matches ──▶ store
//!                       └──▶ damage: its range and its reason
//! ```
//!
//! Invariants: no block is stored under a score that is not its own, and a damaged clump hides no
//! other clump.

mod import;
mod position;
mod seal;
mod source;

pub use import::{
    ArenaDamage, ArenaObserver, ArenaReport, ClumpDamage, FoundRoot, ImportArenaError, import_venti_arena,
};
pub use seal::SealCheck;
pub use source::{OpenArenasError, VentiArenas};
