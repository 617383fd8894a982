//! Storage elsewhere: what keeps whole objects under names, on another disk or on somebody else's machine.
//!
//! [`open`] turns a URL into a [`Target`]: a folder, an S3-compatible store, SFTP, FTP or WebDAV; `docs/guide/remotes.md` tells what
//! each of them promises.
//!
//! ```text
//!   open(url) ──▶ Location ──▶ Home (folder, S3, SFTP, FTP, WebDAV): one try of each operation
//!                                ▲
//!   Target ◀── Persistent ───────┘   tries again with growing pauses, and settles what an earlier try may have done
//! ```
//!
//! [`VentiStore`] is a block store at a Venti server: no target, as it keeps blocks and not objects.
//!
//! What must always be true:
//!
//! - An object appears under its name whole or not at all: what arrives in pieces arrives under a name that no store uses, or in an
//!   upload that its server completes in one step. [`PutMode::Create`] never replaces or removes anything.
//! - Nothing that comes back is believed by this crate's callers before they have checked it. A [`Target`] knows nothing of
//!   arenas or keys.
//! - However much a server sends, no more is kept than was asked for, and listings and error texts have their limits.
//! - A password is never printed.
//!
//! Read first: `target.rs` (the seam), `targets/folder.rs` (the simplest kind) and `retry/persistent.rs` (trying again).

#[cfg(any(test, feature = "contract"))]
pub mod contract;

mod edge;
mod http;
mod naming;
mod open;
mod retry;
mod target;
mod targets;
mod tls;
mod transfer;
mod venti;

pub use naming::location::{HostLocation, Location, LocationError, S3Location, without_password};
pub use naming::secret::Secret;
pub use open::{OpenError, OpenOptions, S3Keys, UnknownHosts, open};
pub use retry::persistent::Patience;
pub use target::{Capabilities, Object, Other, OtherKind, PutMode, Survey, TakePiece, Target, TargetError};
pub use targets::folder::FolderTarget;
pub use targets::memory::MemoryTarget;
pub use tls::TlsClientIdentity;
pub use transfer::limited::Limited;
pub use transfer::pace::Pace;
pub use venti::{
    Load, LoadAction, LoadOrder, LoadResult, UNSYNCED_BYTES_MAX, VentiError, VentiOptions, VentiStore,
    VentiTls, load,
};
