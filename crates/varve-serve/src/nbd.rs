//! Disks as network block devices.
//!
//! ```text
//! socket ─▶ Line (with or without TLS) ─▶ requests ─▶ workers of the connection ─▶ Answers ─▶ Disk
//! Disk:     a snapshot of an image, or an overlay over one
//! Answers ─▶ replies ─▶ Line ─▶ socket
//! ```
//!
//! Invariants:
//! - No connection can harm another: the number of connections is bounded, and so are the memory
//!   and threads of each.
//! - No wait is unbounded: clients that stall in the handshake or within a request, do not take
//!   their answers or have vanished are dropped.
//! - A read returns the bytes that were archived, or an error; never other bytes.
//! - Data that was written and flushed to a kept overlay survives power loss. A snapshot is never
//!   written to.
//!
//! The crate `varve-nbd` has the protocol itself.

mod answer;
mod connection;
mod disk;
mod disks;
mod endpoint;
mod line;
mod overlay;
mod server;
mod settings;
mod snapshots;

pub use disk::{Disk, Stretch, WritableDisk};
pub use disks::{Disks, FindDiskError, ListedDisk, Served};
pub use endpoint::{Endpoint, ParseEndpointError};
pub use overlay::{Overlay, OverlayError};
pub use server::NbdServer;
pub use settings::Settings;
pub use snapshots::{FewDisks, Moments, OneDisk, SnapshotDisks};
