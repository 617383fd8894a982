//! The session of one command: the store, the key and the replicas that its command line names.
//!
//! ```text
//! command line ─▶ Settings ─▶ Session ─▶ home: a folder, a replica or a Venti server
//!                                │           └─▶ an open store, its snapshots, its blocks
//!                                └─▶ Frontend: notices, progress, passphrases, signals
//! ```
//!
//! Read [`Session`] first, then `home` (how a path is interpreted) and `healing` (lost blocks come
//! from replicas).
//!
//! This crate prints nothing. A [`Frontend`] receives everything that the user must know while the
//! command works; everything else is a return value. The crate makes no decision that changes the
//! archive: it opens stores and emits notices.

mod failure;
mod frontend;
mod healing;
mod hinted;
mod home;
mod host;
mod known_servers;
mod notice;
mod reading;
#[cfg(test)]
mod recorded;
mod replica_home;
mod roots;
mod secret;
mod session;
pub mod target;
mod user_folders;
mod waiting;

pub use failure::{InUse, Interrupted, UsageError, WrongKey, failure_kinds, kind_of};
pub use frontend::Frontend;
pub use hinted::{Hinted, WithHint};
pub use home::{Home, home_at, leads_into, venti_tls};
pub use host::{host_name, owner_names};
pub use notice::Notice;
pub use reading::{Reading, VentiSnapshots};
pub use replica_home::{History, PUT_CONFIG, ReplicaHome, ReplicaReads, replica_hint};
pub use roots::{LockedRoots, Roots};
pub use secret::{KeyOptions, PASSPHRASE_VARIABLE, cost};
pub use session::{Session, Settings, Writable};
pub use target::NamedBy;
pub use waiting::is_lock_free;
