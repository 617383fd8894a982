//! The reasons why nothing more is removed from a replica.

use std::io;

use varve_block::{has_kind, with_causes};
use varve_log::{ArenaId, OpenLogError, ReadLogError};
use varve_remote::TargetError;
use varve_store::{NotPermitted, OpenStoreError};
use varve_upkeep::DamageKind;

use crate::audit::{AuditError, AuditFinding};
use crate::objects::record_ends::RecordsDamage;
use crate::reading::replica::OpenReplicaError;
use crate::replication::error::ReplicateError;

/// The reason why earlier generations stay at a target. Those that were removed before are listed
/// in [`Dropped`](crate::Dropped).
#[derive(Debug, thiserror::Error)]
pub enum DropError {
    #[error("{0}")]
    NotPermitted(#[from] NotPermitted),
    /// The lock of the replication.
    #[error("{0}")]
    Replicate(#[from] ReplicateError),
    #[error("the store cannot be opened")]
    OpenStore(#[source] OpenStoreError),
    #[error("{0}")]
    OpenReplica(#[from] OpenReplicaError),
    /// The store in the replica does not open with the store's key.
    #[error("the replica cannot be opened")]
    OpenStoreThere(#[source] OpenStoreError),
    /// An arena of the store is damaged. The earlier generations at the target may be the last good
    /// copy.
    #[error("nothing is removed, because this store is damaged: {reason}")]
    StoreDamaged { arena: ArenaId, reason: RecordsDamage },
    #[error("nothing is removed, because this store is damaged: arena {arena}: {reason}")]
    OrderDamaged { arena: ArenaId, reason: DamageKind },
    /// The replica is damaged, or incomplete.
    #[error("nothing is removed, because the replica is damaged in {count} places; the first: {}", described(.first))]
    ReplicaDamaged { count: usize, first: Box<AuditFinding> },
    #[error("{0}")]
    Audit(#[from] AuditError),
    #[error("the arenas cannot be listed")]
    List(#[from] OpenLogError),
    /// A read of the local log failed for a reason that may pass.
    #[error("the log cannot be read")]
    Read(#[from] ReadLogError),
    #[error("{0}")]
    Target(#[from] TargetError),
    /// The record of the earlier generations could not be written.
    #[error("the record of the removed generations cannot be written")]
    Record(#[source] io::Error),
}

fn described(finding: &AuditFinding) -> String {
    let reason = with_causes(&finding.kind);
    match (&finding.object, finding.arena) {
        (Some(object), _) => format!("{object}: {reason}"),
        (None, Some(arena)) => format!("arena {arena}, offset {}: {reason}", finding.offset),
        (None, None) => reason,
    }
}

has_kind!(DropError:
    Self::NotPermitted(_) => NeedsFullKey,
    Self::StoreDamaged { .. } | Self::OrderDamaged { .. } | Self::ReplicaDamaged { .. } => Damage,
);
