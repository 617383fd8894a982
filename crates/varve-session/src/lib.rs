//! The session of one command: the store, the key and the replicas that its command line names.
//!
//! ```text
//! SessionSettings ─▶ CommandSession ─▶ StoreLocation: a folder, a replica or a Venti server
//!                      │                 └─▶ an open store, its snapshots, its blocks
//!                      └─▶ UserInterface: notices, progress, passphrases, signals
//! ```
//!
//! Read first: `session.rs` (the stores and keys of one command), `store_location.rs` (how a path
//! is interpreted) and `healing.rs` (lost blocks come from replicas).
//!
//! This crate prints nothing. A [`UserInterface`] receives everything that the user must know while
//! the command works; everything else is a return value. The crate makes no decision that changes
//! the archive: it opens stores and emits notices.

mod failure;
mod healing;
mod hinted;
mod host;
mod known_servers;
mod leased_snapshots;
pub mod moment;
mod notice;
mod object_lock;
mod open_archive;
#[cfg(test)]
mod recorded;
mod replica_home;
mod roots_file;
mod secret;
mod session;
mod store_location;
pub mod target;
mod user_folders;
mod user_interface;
mod venti_home;
mod waiting;

pub use failure::{InUse, Interrupted, UsageError, WrongKey, failure_kinds, kind_of};
pub use hinted::{Hinted, WithHint};
pub use host::{HOST_VARIABLE, host_name, owner_names, snapshot_host};
pub use leased_snapshots::{LeaseScope, LeasedSnapshotList};
pub use notice::Notice;
pub use object_lock::{lock_has_ended, lock_sentence};
pub use open_archive::OpenArchive;
pub use replica_home::{History, PUT_CONFIG, ReplicaHome, ReplicaReads, replica_hint};
pub use roots_file::RootsFile;
pub use secret::{KeyOptions, PASSPHRASE_VARIABLE, cost, open_secret_file};
pub use session::{CommandSession, ReadReplica, SessionSettings, WritableStore};
pub use store_location::{StoreLocation, home_at, leads_into, venti_tls};
pub use target::NamedBy;
pub use user_interface::UserInterface;
pub use venti_home::VentiHome;
pub use waiting::{is_lock_free, is_store_free};
