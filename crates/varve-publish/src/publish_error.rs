//! The reasons why there is no new edition.

use varve_edition::{HeadError, MapPageError, ObjectName};
use varve_remote::TargetError;
use varve_tree::{ReadPointerError, ReadTreeError};

use crate::published::ReadPublicationError;

/// The reason why there is no new edition. The old one is still there.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    #[error("{0}")]
    Read(#[from] ReadPublicationError),
    #[error("{0}")]
    Target(#[from] TargetError),
    #[error("a disk cannot be read from the archive")]
    Archive(#[from] ReadTreeError),
    #[error("the tree of a disk cannot be read from the archive")]
    Tree(#[from] ReadPointerError),
    #[error("{0}")]
    Page(#[from] MapPageError),
    #[error("a page of the present edition cannot be read")]
    Part { source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the new head is invalid")]
    Head(#[from] HeadError),
    #[error("{missing_count} of the uploaded objects are not listed by the target, among them {first}")]
    Missing { missing_count: usize, first: ObjectName },
    #[error("somebody else has published here in the meantime")]
    Raced,
    #[error("{name} was published encrypted, and would now be published without encryption")]
    Unencrypted { name: String },
    #[error("{name} was published encrypted with another content key")]
    OtherContentKey { name: String },
    #[error("the profile or the machine that {name} has is encrypted, and no given content key opens it")]
    EarlierProfile { name: String },
    #[error("interrupted")]
    Cancelled,
}
