//! Looking after a store: its keys, its index, its copies, and its health; and which
//! snapshots it keeps.

pub mod clone;
pub mod content_key;
mod copy_notes;
pub mod forget;
pub mod gc;
pub mod hold;
pub mod init;
pub mod key;
mod lost_data;
mod moved_profile;
mod paper_key;
pub mod profile;
pub mod prune;
pub mod publish;
mod published_machine;
pub mod reindex;
pub mod repair;
mod replica_shrinking;
pub mod replicate;
mod replication_run;
mod transfer_progress;
mod upload_pace;
pub mod verify_publication;
pub mod verify_replica;
pub mod verify_store;
mod verify_vac;

/// The hint for a new store whose folder is in use.
const EMPTY_FOLDER: &str = "name an empty folder, or one that does not exist yet";
