//! Abilities that some file systems lack. A file system shows that it lacks one when it is used:
//! neither its name nor a trial that the kernel answers by itself tells.

use std::fs::File;
use std::io;

/// Reports whether an error means that the file system or the kernel does not support what was
/// asked: "invalid argument", "function not implemented" or "operation not supported".
#[must_use]
pub fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

/// Makes the names in an open folder durable. Some mounted file systems have no sync of folders.
/// There is no alternative, so that is no error.
///
/// # Errors
/// The sync fails.
pub fn sync_open_folder(folder: &File) -> io::Result<()> {
    match folder.sync_all() {
        Err(error) if is_unsupported(&error) => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_missing_ability_is_told_from_a_failure() {
        for lacking in [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP] {
            assert!(is_unsupported(&lacking.into()), "{lacking}");
        }
        for failing in [Errno::IO, Errno::NOSPC, Errno::ACCESS, Errno::PERM, Errno::ROFS, Errno::EXIST] {
            assert!(!is_unsupported(&failing.into()), "{failing}");
        }
    }
}
