//! Disks as network block devices.
//!
//! ```text
//! ClientSocket ─▶ requests ─▶ workers of the connection ─▶ NbdResponder ─▶ ServedDisk
//! ClientSocket ◀─ replies ◀───────────────────────────────┘
//!
//! ClientSocket: with or without TLS
//! ServedDisk:   a snapshot of an image, or an overlay over one
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
mod client_socket;
mod connection;
mod disk;
mod disks;
mod endpoint;
mod nbd_settings;
mod overlay;
mod recorded;
mod server;
mod snapshots;

pub use disk::{DiskExtent, ServedDisk, WritableDisk};
pub use disks::{FindDiskError, FoundDisk, ListedDisk, ServedDisks};
pub use endpoint::{Endpoint, ParseEndpointError};
pub use nbd_settings::NbdSettings;
pub use overlay::{Overlay, OverlayError};
pub use recorded::{RecordedDisk, RecordedRead};
pub use server::NbdServer;
pub use snapshots::{FewDisks, OneDisk, SnapshotDisks, TimeText};
