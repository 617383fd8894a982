//! The block store on storage in memory: put and get, keys, the indexes on disk, and crashes.

mod beside;
mod by_value;
mod deltas;
mod disk_index;
mod frames;
mod index_places;
mod keys;
mod memory_store;
mod random_reads;
mod store;
