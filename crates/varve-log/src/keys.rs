//! Keys and ciphers.
//!
//! Depends on nothing else in this crate. `docs/internals/format.md`, section 1, describes how each
//! key is derived from the master key.

pub mod arena_keys;
pub mod cipher;
pub mod hpke;
pub mod locked_memory;
pub mod log_keys;
