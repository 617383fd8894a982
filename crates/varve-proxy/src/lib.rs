//! Proxies: block stores that are composed of other block stores.
//!
//! ```text
//! ReadAhead ─▶ Cache ─┬─▶ WriteBuffer ─▶ Shards ─┬─▶ a Venti server
//!                     │       └─ a log here       ├─▶ a Venti server
//!                     └─▶ BoundedStore            └─▶ a store in a folder
//!
//! each of them a BlockStore over others, in any order;
//! the Venti server of varve-serve serves the one in front
//! ```
//!
//! - [`Cache`] keeps blocks that were read, in memory and in a look-aside. The look-aside may be a
//!   [`BoundedStore`], which evicts the least recently used blocks.
//! - [`WriteBuffer`] acknowledges writes and syncs from a log on this machine, and sends the blocks
//!   on in the background.
//! - [`ShardedStore`] distributes blocks over several stores by their scores.
//! - [`ReadAheadStore`] prefetches the blocks that a block references when it is read.
//! - [`RecordingStore`] writes a trace of the work of the store behind it.
//!
//! Read first: `assemble.rs` (proxies are put together), `cache.rs` (the simplest of them) and
//! `buffer.rs` (the one that acknowledges writes).
//!
//! Invariants of each of them:
//! - It keeps the contract of every block store: the blocks of a put that returned can be read, and
//!   blocks that a sync has covered survive a crash.
//! - No bytes are returned that do not match the requested score.
//! - A store behind that is unreachable, slow or returns wrong data affects only the requests that
//!   need it.
//!
//! The proxies are deterministic, and get storage, clock and random bytes from their caller; only
//! `background` has threads and real time. [`Configuration`] describes the proxies and their
//! relations, and [`AssembledProxies`] runs them.

mod assemble;
mod background;
mod bounded;
mod buffer;
mod cache;
mod checked;
mod configuration;
mod read_ahead;
mod recent_blocks;
mod recording;
mod segments;
mod shards;
mod subfolder_storage;
mod watched_proxies;

pub use assemble::{AssembleError, AssembledProxies, NewTrace, OpenFailure, ProxyResources};
pub use background::Background;
pub use bounded::{BOUNDED_BYTES_MIN, BoundedStore, OpenBoundedError};
pub use buffer::{
    BUFFER_BYTES_MIN, BufferFull, BufferSettings, BufferStatus, BufferTarget, OpenBufferError, TrickleStep,
    WriteBuffer,
};
pub use cache::{Cache, CacheCounts, LookAside, OtherScores};
pub use configuration::{CONFIGURATION_BYTES_MAX, Configuration, ConfigurationError, StoreDescription};
pub use read_ahead::{ListReferences, ReadAheadCounts, ReadAheadStore};
pub use recording::{RecordingStore, StartRecordingError};
pub use segments::OpenSegmentsError;
pub use shards::{Shard, ShardFailed, ShardStatus, ShardedStore, ShardsError};
pub use watched_proxies::{ProxyMetric, ProxySample, WatchedProxies};
