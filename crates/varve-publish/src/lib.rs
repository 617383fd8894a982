//! Publishes archived disks at a target, and checks what is there.
//!
//! ```text
//!   trees of an archive ─▶ Publisher ─▶ stored blocks ─▶ pages ─▶ roots ─▶ head, last
//!                             ▲                │ objects that are there already are not uploaded
//!   the head and maps before ─┘                ▼
//!                        PrunePlan, check_publication
//! ```
//!
//! Read first: `publisher.rs` (the order of all uploads), `image_map.rs` (the map of one disk),
//! `packs.rs` (the blocks that a start reads lie together) and `published.rs` (reads and checks
//! objects).
//!
//! Invariants:
//!
//! - An object is uploaded before anything that leads to it, and the head last. A publication that
//!   is interrupted anywhere is the old edition.
//! - Objects are never replaced by other bytes, because their names are hashes. Only `PrunePlan`
//!   removes objects: those that no image of the head needs, and that were retired long enough ago.
//!   It removes nothing without the content keys of all encrypted images.
//! - A disk of a name that is encrypted is published in plain, or with another content key, only on
//!   request.
//! - Bytes from the target are checked before they are used. A damaged page costs time: its blocks
//!   are read from the archive again.
//! - Memory is bounded by a few blocks for each worker, one map, and the names of all objects.
//!
//! This crate does not know what a snapshot is: it gets names, times and trees. It starts no thread
//! and does not read the clock.

mod image_map;
mod packs;
mod prune;
mod publication_check;
mod publish_error;
mod published;
mod publisher;
mod uploads;

pub use packs::PublicationLayout;
pub use prune::{PruneError, PrunePlan, RetiredObject};
pub use publication_check::{CheckedPublication, PublicationFinding, check_publication};
pub use publish_error::PublishError;
pub use published::{PublishedState, ReadPublicationError, open_head};
pub use publisher::{
    ImageOutcome, ImageToPublish, MachineSource, ProfileMover, ProfileSource, PublishOptions, PublishReport,
    Publisher,
};
