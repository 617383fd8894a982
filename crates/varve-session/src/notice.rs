//! Notices: facts that the user of a command must know while the command continues.

use std::fmt;

use varve_log::ArenaId;
use varve_replica::ObjectFault;

/// One notice. [`Display`](fmt::Display) gives its sentence, without a full stop. No notice shows a
/// password: [`target::shown`](crate::target::shown) has removed it from the names of replicas.
#[expect(missing_docs, reason = "the names explain themselves")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The disk withholds the end of the log. The data may still exist, so nothing is called lost.
    EndWithheld { store: String, arena: ArenaId, offset: u64 },
    /// The end of the log is lost. The list of the remaining snapshots looks complete and is not.
    EndLost { store: String },
    /// The command needed blocks that the store has lost. A replica supplied them.
    ReadFromReplica { block_count: usize },
    /// Lost blocks that came from a replica are in the local store again.
    StoredAgain { block_count: u64 },
    /// Lost blocks that came from a replica could not be stored locally again.
    NotStoredAgain { reason: String },
    /// A replica that the store remembers cannot supply lost blocks.
    ReplicaUnavailable { replica: String, reason: String },
    /// An object has the name of one of the replica's small files.
    ObjectInTheWay { replica: String, found: String },
    /// An object of the replica's log has lost its contents or its end.
    ObjectDamaged { replica: String, object: String, fault: ObjectFault },
    /// The replica is older than this machine has seen it before.
    OlderThanSeen { replica: String },
    /// The replica is older than another replica of the store that this machine has seen.
    OlderThanElsewhere { replica: String },
    /// Only the store names this server, so the password in the environment was not sent to it.
    PasswordWithheld { server: String },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EndWithheld { store, arena, offset } => write!(
                f,
                "{store}: the disk cannot read offset {offset} of arena {arena}: the newest snapshots may be missing here"
            ),
            Self::EndLost { store } => write!(
                f,
                "{store} has lost the end of its log: the newest snapshots may be missing, and cannot be named"
            ),
            Self::ReadFromReplica { block_count } => {
                write!(f, "lost blocks that were read from a replica: {block_count}")
            }
            Self::StoredAgain { block_count } => {
                write!(f, "lost blocks that were stored again: {block_count}")
            }
            Self::NotStoredAgain { reason } => write!(f, "the lost blocks were not stored again: {reason}"),
            Self::ReplicaUnavailable { replica, reason } => {
                write!(f, "{replica} cannot be used to fetch lost blocks: {reason}")
            }
            Self::ObjectInTheWay { replica, found } => write!(f, "{replica}: {found}"),
            Self::ObjectDamaged { replica, object, fault } => write!(f, "{replica}: {object} {fault}"),
            Self::OlderThanSeen { replica } => write!(
                f,
                "{replica} is older than when this machine last saw it: it was put back to an older state, or has lost its end"
            ),
            Self::OlderThanElsewhere { replica } => write!(
                f,
                "{replica} is older than another replica of the store that this machine has seen: it was put back to an older state, was not brought up to date, or holds another history of the store"
            ),
            Self::PasswordWithheld { server } => write!(
                f,
                "the password in VARVE_REMOTE_PASSWORD is not sent to {server}: only the store's replicas.toml names this server"
            ),
        }
    }
}

impl Notice {
    /// Returns one line of advice for the user, if there is any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::EndWithheld { .. } => "check the disk; `varve verify` shows what else is unreadable".into(),
            Self::EndLost { .. } => {
                "`varve repair --from COPY` brings back all that a copy or a replica of the store still has"
                    .into()
            }
            Self::StoredAgain { .. } | Self::NotStoredAgain { .. } => {
                "`varve verify --data` shows what else is lost".into()
            }
            Self::ObjectDamaged { replica, .. } | Self::OlderThanElsewhere { replica } => {
                format!("`varve -s STORE verify --replica {replica}` compares it with the store itself")
            }
            Self::PasswordWithheld { .. } => {
                "if that server is yours, name it once: `varve -s STORE replicate TARGET`, as the same user \
                 (with HOME or XDG_STATE_HOME set)"
                    .into()
            }
            Self::ReadFromReplica { .. }
            | Self::ReplicaUnavailable { .. }
            | Self::ObjectInTheWay { .. }
            | Self::OlderThanSeen { .. } => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// People read these sentences, and programs search mail from cron for them.
    #[test]
    fn the_sentence_and_the_hint_of_each_notice() {
        let (store, replica) = ("/backup/store".to_owned(), "sftp://me@host/replica".to_owned());
        for (notice, sentence, hint) in [
            (
                Notice::EndWithheld { store: store.clone(), arena: ArenaId(3), offset: 700 },
                "/backup/store: the disk cannot read offset 700 of arena 3: the newest snapshots may be missing here",
                Some("check the disk; `varve verify` shows what else is unreadable"),
            ),
            (
                Notice::EndLost { store },
                "/backup/store has lost the end of its log: the newest snapshots may be missing, and cannot be named",
                Some(
                    "`varve repair --from COPY` brings back all that a copy or a replica of the store still has",
                ),
            ),
            (
                Notice::ReadFromReplica { block_count: 2 },
                "lost blocks that were read from a replica: 2",
                None,
            ),
            (
                Notice::StoredAgain { block_count: 2 },
                "lost blocks that were stored again: 2",
                Some("`varve verify --data` shows what else is lost"),
            ),
            (
                Notice::NotStoredAgain { reason: "no room".into() },
                "the lost blocks were not stored again: no room",
                Some("`varve verify --data` shows what else is lost"),
            ),
            (
                Notice::ReplicaUnavailable { replica: replica.clone(), reason: "refused".into() },
                "sftp://me@host/replica cannot be used to fetch lost blocks: refused",
                None,
            ),
            (
                Notice::ObjectInTheWay { replica: replica.clone(), found: "keys/1 is a folder".into() },
                "sftp://me@host/replica: keys/1 is a folder",
                None,
            ),
            (
                Notice::ObjectDamaged {
                    replica: replica.clone(),
                    object: "arenas/0000000000.0/x".into(),
                    fault: ObjectFault::CutShort,
                },
                "sftp://me@host/replica: arenas/0000000000.0/x has lost its end: it is damaged, and snapshots may be missing",
                Some(
                    "`varve -s STORE verify --replica sftp://me@host/replica` compares it with the store itself",
                ),
            ),
            (
                Notice::ObjectDamaged {
                    replica: replica.clone(),
                    object: "arenas/0000000000.0/x".into(),
                    fault: ObjectFault::Empty,
                },
                "sftp://me@host/replica: arenas/0000000000.0/x is empty, which no object of the log is: it is damaged, \
                 and snapshots may be missing",
                Some(
                    "`varve -s STORE verify --replica sftp://me@host/replica` compares it with the store itself",
                ),
            ),
            (
                Notice::OlderThanSeen { replica: replica.clone() },
                "sftp://me@host/replica is older than when this machine last saw it: it was put back to an older \
                 state, or has lost its end",
                None,
            ),
            (
                Notice::OlderThanElsewhere { replica },
                "sftp://me@host/replica is older than another replica of the store that this machine has seen: it \
                 was put back to an older state, was not brought up to date, or holds another history of the store",
                Some(
                    "`varve -s STORE verify --replica sftp://me@host/replica` compares it with the store itself",
                ),
            ),
            (
                Notice::PasswordWithheld { server: "sftp://me@host/".into() },
                "the password in VARVE_REMOTE_PASSWORD is not sent to sftp://me@host/: only the store's replicas.toml names this server",
                Some(
                    "if that server is yours, name it once: `varve -s STORE replicate TARGET`, as the same user (with HOME or \
                     XDG_STATE_HOME set)",
                ),
            ),
        ] {
            assert_eq!(notice.to_string(), sentence);
            assert_eq!(notice.hint().as_deref(), hint, "{notice}");
        }
    }
}
