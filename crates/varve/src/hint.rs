//! Hints after a failure: one function for each type of error that has a hint, and one list of
//! these types.

use std::error::Error;
use std::io;

use varve_archive::{NameTaken, RestoreFolderError, RestoreImageError};
use varve_block::causes;
use varve_replica::{CloneError, OpenReplicaError, ReplicateError};
use varve_session::{OpenToOthers, typed_causes};
use varve_store::{ConfigError, CreateError, KeyError, NotPermitted, OpenStoreError, Permission};

use crate::command::WouldChange;

type Hint = Option<&'static str>;

/// Returns the hint for an error: that of the first of its causes that has one.
pub fn of(error: &(dyn Error + 'static)) -> Hint {
    typed_causes(error).into_iter().find_map(of_cause)
}

fn of_cause(cause: &(dyn Error + 'static)) -> Hint {
    macro_rules! hints {
        ($($kind:ty => $hint:expr),* $(,)?) => {
            $(
                if let Some(error) = cause.downcast_ref::<$kind>() {
                    return $hint(error);
                }
            )*
        };
    }
    hints! {
        NameTaken => |_| Some(NAME_TAKEN),
        OpenStoreError => open,
        OpenReplicaError => open_replica,
        ConfigError => config,
        OpenToOthers => |_| Some("protect it with `chmod 600 FILE`; if others may have read it, make another key"),
        NotPermitted => not_permitted,
        WouldChange => |_| Some(EXISTS),
        RestoreFolderError => restore_folder,
        RestoreImageError => restore_image,
        CreateError => create,
        CloneError => clone,
        ReplicateError => replicate,
        KeyError => key,
    }
    None
}

const NAME_TAKEN: &str = "--name NAME with the same name continues that series, for example after a move or a change of the host name; --name with another name begins a new series";
const PUT_BACK: &str =
    "every copy and replica of the store has the same file: `varve repair --from COPY` restores it";
/// The hint for an existing destination, beginning with the option that changes least.
const EXISTS: &str = "--dry-run shows the changes; --overwrite if-changed replaces files that differ, and removes nothing; a / at the end of the destination restores into that folder, under its own name";
const EMPTY_FOLDER: &str = "name an empty folder, or one that does not exist yet";
const PUT_CONFIG: &str = "`varve replicate TARGET --replace config.toml` uploads the store's file; a copy of the file does as well";

fn open(error: &OpenStoreError) -> Hint {
    match error {
        OpenStoreError::NotAStore => Some(
            "`varve -s PATH init` makes a store there; if there was one, check the path, and whether its disk is mounted",
        ),
        OpenStoreError::ConfigLost | OpenStoreError::Downgraded { .. } => Some(PUT_BACK),
        OpenStoreError::Locked { .. } => {
            Some("--wait 10m waits for it; the store can be read meanwhile: only writers exclude each other")
        }
        _ => None,
    }
}

fn open_replica(error: &OpenReplicaError) -> Hint {
    match error {
        OpenReplicaError::Config(_) => Some(PUT_CONFIG),
        OpenReplicaError::Mark => Some("`varve replicate TARGET --replace replica.toml` uploads it again"),
        _ => None,
    }
}

fn config(error: &ConfigError) -> Hint {
    matches!(error, ConfigError::Parse(_) | ConfigError::Value { .. }).then_some(PUT_BACK)
}

fn not_permitted(error: &NotPermitted) -> Hint {
    match error.permission {
        Permission::Read => Some("give a key that `varve key list` shows as full or append-only"),
        Permission::Destroy => Some("give a key that `varve key list` shows as full"),
        _ => None,
    }
}

fn restore_folder(error: &RestoreFolderError) -> Hint {
    match error {
        RestoreFolderError::Exists { .. } => Some(EXISTS),
        // Folders that are to be replaced are closed to this user. If the folder above the
        // destination is closed, the error here is the system's own, of another kind.
        RestoreFolderError::Destination { source, .. } if source.kind() == io::ErrorKind::Other => {
            let is_closed = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
            causes(source).any(|cause| cause.downcast_ref().is_some_and(is_closed)).then_some(
                "the entries to be replaced have folders that you cannot change: `chmod -R u+rwX` allows it for your own; or restore elsewhere",
            )
        }
        _ => None,
    }
}

fn restore_image(error: &RestoreImageError) -> Hint {
    matches!(error, RestoreImageError::Exists { .. }).then_some(EXISTS)
}

fn create(error: &CreateError) -> Hint {
    matches!(error, CreateError::NotEmpty { .. }).then_some(EMPTY_FOLDER)
}

fn clone(error: &CloneError) -> Hint {
    matches!(error, CloneError::Exists | CloneError::NotEmpty { .. }).then_some(EMPTY_FOLDER)
}

fn replicate(error: &ReplicateError) -> Hint {
    match error {
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

fn key(error: &KeyError) -> Hint {
    match error {
        KeyError::Missing => Some("set VARVE_PASSPHRASE, or name a key file with --key-file"),
        KeyError::NoSuchKind { what: "passphrase" } => Some("name its key file with --key-file"),
        KeyError::NoSuchKind { .. } => Some("leave out --key-file, and give its passphrase"),
        KeyError::Malformed { .. } | KeyError::NoKeys => Some(
            "`varve repair --from COPY` restores it from a copy or a replica of the store; otherwise use another key, or the paper key: `varve key import`",
        ),
        KeyError::Last { .. } => Some("add another key first: `varve key add`"),
        KeyError::NotPermitted(_) => Some("use a key that `varve key list` shows as full"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_that_knows_something_gives_the_hint() {
        let context = |error: OpenStoreError| anyhow::Error::new(error).context("cannot open the store x");
        assert!(of(context(OpenStoreError::NotAStore).as_ref()).unwrap().contains("init"));
        // [`typed_causes`] reaches the error below a transparent one, which the chain of causes
        // hides.
        assert_eq!(of(context(OpenStoreError::Keys(KeyError::NoKeys)).as_ref()), key(&KeyError::NoKeys));
        let hidden = ReplicateError::Open(OpenReplicaError::Mark);
        assert_eq!(of(&hidden), open_replica(&OpenReplicaError::Mark));
        assert_eq!(of(&io::Error::other("no")), None);
    }
}
