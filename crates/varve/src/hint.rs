//! The hint after a failure: it says what the user can do next.
//!
//! A place that handles an error adds the hint as [`Hinted`]. Errors of some kinds come from almost
//! every command; their hints are here.

use std::error::Error;

use varve_block::{FailureKind, causes};
use varve_session::{Hinted, kind_of};

/// Returns the hint for an error: that of the first of its causes that has one.
pub fn of(error: &(dyn Error + 'static)) -> Option<&'static str> {
    causes(error).find_map(|cause| match cause.downcast_ref::<Hinted>() {
        Some(hinted) => Some(hinted.hint()),
        None => kind_of(cause).and_then(of_kind),
    })
}

fn of_kind(kind: FailureKind) -> Option<&'static str> {
    match kind {
        FailureKind::NoStore => Some(
            "check the path, and whether its disk is mounted; only for a new store, `varve -s PATH init` makes one there",
        ),
        FailureKind::NoSecret => Some("set VARVE_PASSPHRASE, or name a key file with --key-file"),
        FailureKind::NeedsKeyFile => Some("name its key file with --key-file"),
        FailureKind::NeedsPassphrase => Some("leave out --key-file, and give its passphrase"),
        FailureKind::CannotRead => Some("give a key that `varve key list` shows as full or append-only"),
        FailureKind::NeedsFullKey => Some("give a key that `varve key list` shows as full"),
        FailureKind::NewerVersion => Some(
            "use the newest version of Varve on every machine that uses this store; nothing was changed, and nothing is damaged",
        ),
        FailureKind::SettingsLost => Some(
            "every copy and replica of the store has the same file: `varve repair --from COPY` restores it",
        ),
        FailureKind::KeysLost => Some(
            "`varve repair --from COPY` restores it from a copy or a replica of the store; otherwise use another key, or the paper key: `varve key import`",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use varve_store::{KeyError, OpenStoreError};

    use super::*;

    #[test]
    fn the_first_cause_that_knows_something_gives_the_hint() {
        let opened = |error: OpenStoreError| anyhow::Error::new(error).context("cannot open the store x");
        assert_eq!(of(opened(OpenStoreError::NotAStore).as_ref()), of_kind(FailureKind::NoStore));
        assert_eq!(
            of(opened(OpenStoreError::Keys(KeyError::NoKeys)).as_ref()),
            of_kind(FailureKind::KeysLost)
        );
        let handled = Hinted::new(OpenStoreError::NotAStore, "look elsewhere");
        assert_eq!(of(anyhow::Error::new(handled).context("not restored").as_ref()), Some("look elsewhere"));
        assert_eq!(of(&std::io::Error::other("no")), None);
    }
}
