//! Why a replication refuses, or stops.

use std::io;

use varve_log::{ArenaId, OpenLogError, ReadLogError, RecoverError};
use varve_remote::TargetError;
use varve_world::{FileName, LockError};

use crate::objects::listing::InTheWay;
use crate::reading::replica::OpenReplicaError;
use crate::replication::replaced_objects::NotReplaceable;

/// Why nothing, or not everything, was replicated. What was uploaded before is good, and is not uploaded again.
#[derive(Debug, thiserror::Error)]
pub enum ReplicateError {
    /// The target failed.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// What is at the target cannot be read as a replica.
    #[error(transparent)]
    Open(#[from] OpenReplicaError),
    /// What is no object lies where one has to be.
    #[error(transparent)]
    InTheWay(#[from] InTheWay),
    /// What was to be put again cannot be.
    #[error(transparent)]
    NotReplaceable(#[from] NotReplaceable),
    /// Another store replicates there.
    #[error("the target holds a replica of another store, {theirs}; this one is {ours}")]
    ForeignStore {
        /// The identity of that store.
        theirs: String,
        /// The identity of this one.
        ours: String,
    },
    /// It has this store's identity and other unchangeable settings.
    #[error("the target's config.toml names this store, but not as it was made: it is damaged, or forged")]
    ForeignConfig,
    /// There is something else.
    #[error("the target is not empty, and holds no replica: there is {object}")]
    Occupied {
        /// Something that is there.
        object: FileName,
    },
    /// Somebody has put an object of another store's replica among this one's.
    #[error(
        "{object} belongs to store {theirs}: it does not belong here, and hides what this store has there. Nothing was changed"
    )]
    ForeignObject {
        /// Which.
        object: FileName,
        /// The identity that it claims.
        theirs: String,
    },
    /// Another copy of the store has written its own continuation there.
    #[error(
        "the replica holds another history of this store: arena {arena} goes on differently there ({object}). \
         Two copies of the store have been written, and each needs a target of its own"
    )]
    Diverged {
        /// The first arena that differs.
        arena: ArenaId,
        /// An object that this store does not have.
        object: FileName,
    },
    /// The store is older than its replica.
    #[error(
        "the replica has more than this store: arena {arena} goes on there ({object}). This store was put back \
         to an older state, or lost its end: nothing was changed"
    )]
    Ahead {
        /// The first arena of which the replica has more.
        arena: ArenaId,
        /// An object that this store does not have.
        object: FileName,
    },
    /// Objects that were uploaded are not there.
    #[error("{object} was uploaded, and is not there as it was sent: something else changes the target")]
    Vanished {
        /// Which.
        object: FileName,
    },
    /// The local arenas could not be listed.
    #[error(transparent)]
    List(#[from] OpenLogError),
    /// The local log could not be read, for a reason that may pass.
    #[error("the log cannot be read")]
    Read(#[from] ReadLogError),
    /// It could not be told what a crash has left of the local log.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// A file of the store could not be read, or not be made durable.
    #[error("{file}")]
    Storage {
        /// Which.
        file: FileName,
        /// What went wrong below.
        source: io::Error,
    },
    /// Another process replicates this store.
    #[error("this store is being replicated: {0}")]
    Busy(#[source] LockError),
    /// It was asked to stop.
    #[error("interrupted; the same command goes on where it stopped")]
    Cancelled,
}
