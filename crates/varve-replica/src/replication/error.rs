//! The errors of a replication.

use std::io;

use varve_log::{ArenaId, OpenLogError, ReadLogError, RecoverError};
use varve_remote::{HiddenObjects, TargetError};
use varve_world::{FileName, LockError};

use crate::objects::listing::ObstructingEntry;
use crate::reading::replica::OpenReplicaError;
use crate::replication::replaced_objects::NotReplaceable;

/// The reason why a replication failed or is incomplete. Earlier uploads are good, and are not
/// repeated.
#[derive(Debug, thiserror::Error)]
pub enum ReplicateError {
    /// The target failed.
    #[error("{0}")]
    Target(#[from] TargetError),
    /// The target does not contain a readable replica.
    #[error("{0}")]
    Open(#[from] OpenReplicaError),
    /// Something other than an object has the name of one.
    #[error("{0}")]
    InTheWay(#[from] ObstructingEntry),
    /// An object that the user named cannot be put again.
    #[error("{0}")]
    NotReplaceable(#[from] NotReplaceable),
    /// The target holds another store's replica.
    #[error("the target holds a replica of another store: {theirs} instead of {ours}")]
    ForeignStore {
        /// The identity of that store.
        theirs: String,
        /// The identity of this one.
        ours: String,
    },
    /// The replica has this store's identity, but other unchangeable settings.
    #[error("the target's config.toml has other settings than this store: it is damaged, or forged")]
    ForeignConfig,
    /// This store was replicated to the target before, and there is nothing of it now.
    #[error(
        "this store was replicated here before, and no copy is left: its disk is not mounted, or the copy was removed. Nothing was written"
    )]
    Emptied,
    /// The same, but the target keeps the objects.
    #[error("this store was replicated here before, and {0}. Nothing was written")]
    Hidden(HiddenObjects),
    /// The target contains something else.
    #[error("the target is not empty, and holds no replica: it has {object}")]
    Occupied {
        /// An object at the target.
        object: FileName,
    },
    /// An object of another store's replica is among those of this store.
    #[error("{object} belongs to store {theirs}, and hides an object of this store. Nothing was changed")]
    ForeignObject {
        object: FileName,
        /// The store's identity in the object.
        theirs: String,
    },
    /// Another copy of the store has written a different history there.
    #[error(
        "the replica holds another history of this store: arena {arena} continues differently there ({object}). Two copies of the store have been written, and each needs a target of its own"
    )]
    Diverged {
        /// The first arena that differs.
        arena: ArenaId,
        /// An object that this store does not have.
        object: FileName,
    },
    /// The store is older than its replica.
    #[error(
        "the replica has more than this store: arena {arena} is longer there ({object}). This store was put back to an older state, or lost its end: nothing was changed"
    )]
    Ahead {
        /// The first arena that is longer in the replica.
        arena: ArenaId,
        /// An object that this store does not have.
        object: FileName,
    },
    /// Uploaded objects are missing.
    #[error("{object} was uploaded, but is missing or changed: another program changes the target")]
    Vanished { object: FileName },
    /// The local arenas could not be listed.
    #[error("{0}")]
    List(#[from] OpenLogError),
    /// The local log could not be read, for a reason that may pass.
    #[error("the log cannot be read")]
    Read(#[from] ReadLogError),
    /// The tail of the local log after a crash could not be judged.
    #[error("{0}")]
    Recover(#[from] RecoverError),
    /// A file of the store could not be read or made durable.
    #[error("{file}")]
    Storage { file: FileName, source: io::Error },
    /// Another process replicates this store.
    #[error("this store is being replicated: {0}")]
    Busy(#[source] LockError),
    /// The caller cancelled it.
    #[error("interrupted; the same command continues where it stopped")]
    Cancelled,
}
