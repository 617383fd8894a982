//! Disks as network block devices.
//!
//! ```text
//! socket ─▶ Line (TLS, or not) ─▶ requests ─▶ workers of the connection ─▶ Answers ─▶ Disk
//!                                                                            │          ├─ a snapshot of an image
//!                                                             Line ◀─ replies┘          └─ an overlay over one
//! ```
//!
//! What must always be true:
//! - One connection can harm no other: how many there are is bounded, and what each takes of memory and threads.
//! - Nobody waits for ever for somebody who says nothing, takes no answer, or has vanished.
//! - A read gives the bytes that were archived, or an error with their place; never something else.
//! - What was written and flushed to an overlay that is kept survives power loss; a snapshot is never written to.
//!
//! The protocol itself is `varve-nbd`'s.

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
