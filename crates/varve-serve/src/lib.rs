//! Front ends: archived data served as file systems, network block devices and Venti blocks.
//!
//! ```text
//! store ─▶ days: one tree of all snapshots ─▶ fuse: a folder of this machine
//!       │                                  ├▶ nfs
//!       │                                  └▶ webdav
//!       ├▶ disks of snapshots ─▶ nbd: block devices, read, or written to beside the store
//!       └▶ venti: blocks, read and written
//! ```
//!
//! Read first: `days/files.rs` (all snapshots as one tree), `fuse/adapter.rs` (a front end for
//! files) and `venti/server.rs` (a front end for blocks).
//!
//! Invariants:
//! - Every front end only reads, except a Venti server that permits writing. A Venti client that
//!   writes adds blocks and changes none.
//! - A front end for files knows nothing of snapshots. It shows any
//!   [`ServedFileSystem`].
//! - Unreadable data fails that one request, and is named in the log. Everything else continues.
//!
//! This crate is an edge of the house: the front ends own threads and sockets. The modules behind
//! them, `days` included, have none.

pub mod days;
pub mod fuse;
pub mod metrics;
pub mod nbd;
pub mod nfs;
pub mod published;
pub mod venti;
pub mod webdav;

mod bounded;
mod client_slots;
mod collected;
mod host;
mod http_server;
mod network;
mod path;
mod tls;
mod watched_socket;

pub use bounded::BoundedFileSystem;
pub use host::names_this_machine;
pub use http_server::{HttpLimits, serve_http};
pub use network::{ListenError, TcpServer, check_address, listen, threads};
pub use tls::{TlsError, TlsIdentity};

use varve_image::{FileId, FileSystem};

/// A file system that front ends can show.
pub trait ServedFileSystem: FileSystem {
    /// Reports whether the attributes of this file, or the entries of this folder, never change.
    /// Clients may then cache them without limit.
    fn is_settled(&self, file: FileId) -> bool;

    /// The root of the file system that this file was archived from; `None` if the served tree made
    /// it up.
    fn root_of(&self, file: FileId) -> Option<FileId>;

    /// Prefetches the data that the last reader of this file is likely to request next. A front end
    /// calls it after it has sent its answer, while the client goes on. Calling it is optional: it
    /// changes the speed and not the result.
    fn read_ahead(&self, _file: FileId) {}
}
