//! Remote storage: whole objects under names, on another disk or on another machine.
//!
//! [`open`] makes a [`Target`] from a URL: a folder, an S3-compatible store, SFTP, FTP or WebDAV. A
//! plain web server is a target that can only be read, and has no listing.
//! `docs/guide/remotes.md` describes the guarantees of each kind.
//!
//! ```text
//!   open(url) ──▶ Location ──▶ AttemptTarget (S3, SFTP, FTP, WebDAV, web): one attempt of each operation
//!                                     ▲
//!   Target ◀── RetryingTarget ────────┘   retries with growing pauses, and resolves attempts with lost answers
//! ```
//!
//! [`VentiStore`] is a block store at a Venti server. It is not a target, because it stores blocks
//! and not objects.
//!
//! Invariants:
//!
//! - An object appears under its name whole or not at all. An object that arrives in pieces gets a
//!   name that no store uses, or is part of an upload that the server completes in one step.
//!   [`PutMode::Create`] never replaces or removes anything.
//! - The callers of this crate check all received bytes before they use them. A [`Target`] does not
//!   know arenas or keys.
//! - Received data is bounded: no more than the requested bytes are kept, and listings and error
//!   texts have limits.
//! - A password is never printed.
//!
//! Read first: `target.rs` (the trait), `targets/folder.rs` (the simplest kind) and
//! `retry/retrying_target.rs` (retries).

#[cfg(any(test, feature = "contract"))]
pub mod contract;

mod attempt_error;
mod edge;
mod http;
mod naming;
mod observer;
mod open;
mod open_options;
mod retry;
mod server_clock;
mod target;
mod targets;
mod tls;
mod transfer;
mod venti;

pub use http::own_network::is_on_own_network;
pub use naming::location::{
    HostLocation, Location, LocationError, S3Location, split_password, without_password,
};
pub use naming::password::Password;
pub use observer::Observer;
pub use open::{OpenTargetError, open};
pub use open_options::{OpenOptions, S3Keys, UnknownHosts};
pub use retry::retrying_target::RetryPolicy;
pub use server_clock::ClockServer;
pub use target::{
    Capabilities, Erased, HiddenObjects, NonObject, NonObjectKind, Object, ObjectLock, PutMode, Survey,
    TakePiece, Target, TargetError, WholeObject,
};
pub use targets::folder::FolderTarget;
pub use targets::memory::MemoryTarget;
pub use tls::{TlsClientIdentity, tls_config_when_used};
pub use transfer::pace::Pace;
pub use venti::{
    Load, LoadAction, LoadOrder, LoadResult, VentiError, VentiOptions, VentiStore, VentiTls, load,
};
