//! Reads a replica in place: as the folder of a store, through a cache, and as a second copy of
//! lost blocks.

mod arena_reader;
mod fetched_ranges;
pub mod healing_store;
pub mod overlaid_storage;
pub mod range_cache;
mod read_ahead;
mod read_sequences;
pub mod replica;
pub mod replica_storage;
