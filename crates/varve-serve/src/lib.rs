//! The doors: what is archived, shown as file systems and network block devices.
//!
//! ```text
//! store ─▶ days: one tree of all snapshots ─▶ fuse: a folder of this machine
//!       │                                  ├▶ nfs
//!       │                                  └▶ webdav
//!       ├▶ disks of snapshots ─▶ nbd: block devices, read, or written to beside the store
//!       └▶ venti: blocks, read and written
//! ```
//!
//! What must always be true:
//! - Every door only reads, but Venti's where it may write: and who writes there adds blocks, and changes none.
//! - A door to files knows nothing of snapshots: it shows a [`Served`] file system, whatever that is made of.
//! - What cannot be read is an error of that one request, and is named in the log. Everything else goes on.
//!
//! This crate is an edge of the house: doors have threads and sockets of their own. What is behind them, `days` too, has none.

pub mod days;
pub mod fuse;
pub mod metrics;
pub mod nbd;
pub mod nfs;
pub mod snapshots;
pub mod venti;
pub mod webdav;

mod bounded;
mod network;
mod path;
mod places;
mod tls;

pub use bounded::Bounded;
pub use network::ListenError;
pub use tls::{TlsError, TlsIdentity};

use varve_image::{FileId, FileSystem};

/// A file system that doors can show.
pub trait Served: FileSystem {
    /// Whether what is told of this file, and what a folder holds, never changes: clients may believe it for as long as they like.
    fn is_settled(&self, file: FileId) -> bool;

    /// The root of the file system that a file was archived from; `None` if it is in none, but made by what is served.
    fn root_of(&self, file: FileId) -> Option<FileId>;

    /// Reads what whoever has just read in this file is likely to ask for next. For a door that has answered, and whose client goes on
    /// meanwhile; a door that never calls it reads the same bytes, and waits for more of them.
    fn read_ahead(&self, _file: FileId) {}
}
