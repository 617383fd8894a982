//! Blocks out of the files of plan9port's Venti, into a store.
//!
//! Each arena is read once, from its beginning to its end: its clumps are opened, hashed and stored, and its seal is checked on the way. How far it was
//! read, and all of that was durable, is noted in a file of the store's own: the next run opens only what came since.
//!
//! ```text
//! file ──▶ arenas ──▶ clumps ──▶ blocks with the score that they should have ──▶ store
//!                       └──▶ damage: from where to where, and why
//! ```
//!
//! What must always be true: nothing is stored under a name that is not its own, and a damaged clump hides no other.

mod import;
mod position;
mod seal;
mod source;

pub use import::{
    ArenaDamage, ArenaObserver, ArenaReport, ClumpDamage, FoundRoot, ImportArenaError, import_venti_arena,
};
pub use seal::SealCheck;
pub use source::{OpenArenasError, VentiArenas};
