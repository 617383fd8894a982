//! Traces: the work of a block store, in a form that can be kept, shown to others and repeated.
//!
//! A trace is one file, `*.vtrace`: a [`TraceHeader`], then one [`TraceRecord`] after the other,
//! for puts, gets and syncs, the beginnings of snapshots, and pauses. It holds no content and no
//! name. A block is a number, its *id*: blocks get the next id when they are used first
//! ([`BlockIds`]), so a trace shows which blocks are equal, and nothing else about them but their
//! sizes and how well they compress. A range of blocks is one record.
//!
//! ```text
//! calls of a block store ─▶ BlockIds ─▶ TraceWriter ─▶ *.vtrace ─▶ TraceReader ─▶ replay, profile
//! ```
//!
//! [`TraceProfiler`] makes histograms of a trace, from which generators make traces like it.
//!
//! Read first: `record.rs` (the records and their bytes), `header.rs`, `block_ids.rs`.
//!
//! Invariants:
//! - The records that a reader returns are those that were written, or an error names the offset.
//! - A trace that a crash has cut is readable up to its last whole record.
//! - The reader needs a fixed amount of memory for any input.

mod block_ids;
mod header;
mod reader;
mod record;
mod size_meter;
mod varint;
mod workload_profile;
mod writer;

pub use block_ids::{BlockIds, BlockUse};
pub use header::{TRACE_NAME_BYTES_MAX, TraceHeader, TraceMaker};
pub use reader::{ReadTraceError, TraceEnding, TraceReader};
pub use record::{
    RUN_BLOCKS_MAX, SizeClass, SnapshotBegin, SourceKind, TRACE_IDS_MAX, TraceRecord, TraceRun, WaitingRun,
};
pub use size_meter::SizeMeter;
pub use workload_profile::{ClassHistogram, HistogramBucket, SnapshotShape, TraceProfile, TraceProfiler};
pub use writer::{TraceWriter, WriteTraceError};
