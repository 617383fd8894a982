//! Block stores made of block stores.
//!
//! ```text
//! ReadAhead ─▶ Cache ─┬─▶ WriteBuffer ─▶ Shards ─┬─▶ a Venti server          each of them a BlockStore over others,
//!                     │       └─ a log here       ├─▶ a Venti server          in any order; the Venti door of
//!                     └─▶ BoundedStore            └─▶ a store in a folder     varve-serve serves whichever is in front
//! ```
//!
//! - [`Cache`] keeps what was read in memory and in a look-aside, which may be a [`BoundedStore`]: one that lets go what was not used for longest.
//! - [`WriteBuffer`] acknowledges writes and syncs from a log on this machine, and sends them on in the background.
//! - [`Shards`] spreads blocks over several stores by their scores.
//! - [`ReadAhead`] fetches what a block names that was just read.
//!
//! What must always be true of each of them:
//! - It keeps the contract of every block store: what a put has returned can be got, what a sync has covered survives.
//! - No byte leaves that does not have the score that was asked for.
//! - A store behind that is away, slow, or lies costs what is asked of it, and nothing else.
//!
//! They are deterministic, and know the world only as it is given to them; `background` alone has threads and time. [`Configuration`] says which
//! there are and how they stand behind each other, and [`Assembled`] is that, running.

mod assemble;
mod background;
mod bounded;
mod buffer;
mod cache;
mod checked;
mod configuration;
mod place;
mod read_ahead;
mod recent;
mod segments;
mod shards;
mod watched;

pub use assemble::{AssembleError, Assembled, OpenFailure, Outside};
pub use background::Background;
pub use bounded::{BOUNDED_BYTES_MIN, BoundedStore, OpenBoundedError};
pub use buffer::{
    BUFFER_BYTES_MIN, BufferSettings, BufferStatus, BufferTarget, Full, OpenBufferError, Step, WriteBuffer,
};
pub use cache::{Cache, CacheCounts, LookAside, OtherScores};
pub use configuration::{CONFIGURATION_BYTES_MAX, Configuration, ConfigurationError, Described};
pub use read_ahead::{Leads, ReadAhead, ReadAheadCounts};
pub use segments::OpenSegmentsError;
pub use shards::{SHARDS_MAX, Shard, ShardFailed, ShardStatus, Shards, ShardsError};
pub use watched::{ProxyMetric, ProxySample, Watched};
