//! A replication of one store to several targets: what its steps share.

use std::sync::Arc;

use varve_content::Progress;
use varve_replica::{ReplicateError, ReplicateOptions, ReplicationSource};
use varve_session::{PUT_CONFIG, replica_hint};
use varve_store::Secret;

use crate::arguments::ReplicateArgs;
use crate::invocation::Invocation;

/// A replication of one store to several targets.
pub(super) struct ReplicationRun<'a> {
    pub(super) invocation: &'a Invocation,
    pub(super) args: &'a ReplicateArgs,
    pub(super) source: ReplicationSource<'a>,
    pub(super) secret: Option<&'a Secret>,
    pub(super) options: ReplicateOptions,
    pub(super) progress: Arc<Progress>,
}

/// Returns the hint for a target that was not updated.
pub(super) fn replication_hint(error: &ReplicateError) -> Option<&'static str> {
    match error {
        ReplicateError::Open(error) => replica_hint(error),
        ReplicateError::Emptied => {
            Some("mount the disk, or correct the address; --recreate makes a new copy")
        }
        ReplicateError::Hidden(_) => Some(
            "change the credentials of the bucket first; --recreate makes a new copy beside the hidden one",
        ),
        ReplicateError::ForeignConfig => Some(PUT_CONFIG),
        ReplicateError::Ahead { .. } => {
            Some("`varve clone TARGET FOLDER` brings the newer state into another folder")
        }
        ReplicateError::ForeignObject { .. } => {
            Some("remove it there by hand; whoever put it there can do more harm")
        }
        ReplicateError::NotReplaceable(_) => {
            Some("`varve verify --replica TARGET --data` names the damaged objects for --replace")
        }
        ReplicateError::Diverged { .. } | ReplicateError::ForeignStore { .. } => {
            Some("name another folder or prefix as the target of this store")
        }
        _ => None,
    }
}
