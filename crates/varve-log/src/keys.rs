//! Keys, and the ciphers that they are for.
//!
//! Depends on nothing else in this crate. `docs/internals/format.md`, section 1, has how each key comes from the master key.

pub mod arena_keys;
pub mod cipher;
pub mod hpke;
pub mod locked_memory;
pub mod log_keys;
