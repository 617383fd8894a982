//! Files that are believed: configurations, the programs that they name, and secrets. Someone who
//! may write to one of them decides what this process does.
//!
//! The rules are those of ssh for its own files:
//!
//! | use        | belongs to                       | may be read by        | may be written by |
//! |------------|----------------------------------|-----------------------|-------------------|
//! | `Settings` | this user, or root               | everybody             | its owner         |
//! | `Secret`   | this user                        | its owner             | its owner         |
//! |            | another, such as root            | is for that owner     | its owner         |
//!
//! A folder with settings may be a sticky one, as `/tmp` is: only the owner of a file replaces it
//! there.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The permission bits for all access by group and others, and for writing.
const ACCESS_OF_OTHERS: u32 = 0o077;
const WRITING_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;
const MODE_BITS: u32 = 0o7777;
/// The number of user ids, if a process sees all of them.
const ALL_USERS: u64 = 4_294_967_295;
/// The user id that stands for users who have none here, if the system names no other.
const USUAL_OVERFLOW: u32 = 65_534;

/// The reason why a file is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileUse {
    /// It decides what is done: a configuration, a program, or the folder of a configuration.
    Settings,
    /// It opens something.
    Secret,
}

/// Why a file is not believed, with the command that changes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the names explain themselves")]
pub enum DistrustError {
    /// Others may read a secret.
    #[error(
        "{path} can be read by other users (its permissions are {mode:04o}): it cannot hold a secret; `chmod 600 {path}` protects it"
    )]
    Readable { path: String, mode: u32 },
    /// Others may write the file.
    #[error(
        "{path} can be written by other users (its permissions are {mode:04o}), so it is not believed; `chmod go-w {path}` protects it"
    )]
    Writable { path: String, mode: u32 },
    /// It belongs to another user, who may write it.
    #[error(
        "{path} belongs to another user (its user id is {owner}), so it is not believed; `chown {user} {path}` makes it yours, if its contents are right"
    )]
    Foreign { path: String, owner: u32, user: u32 },
}

/// Requires that nobody but root, this user, or the owner of a secret has written the file, and
/// that nobody else may read a secret. Terminals and other devices are believed.
///
/// # Errors
/// [`DistrustError`], with the remedy.
pub fn require_trusted(path: &Path, found: &Metadata, file_use: FileUse) -> Result<(), DistrustError> {
    let kind = found.file_type();
    if kind.is_char_device() || (file_use == FileUse::Secret && !kind.is_file()) {
        return Ok(());
    }
    let user = rustix::process::geteuid().as_raw();
    let facts = FileFacts { owner: found.uid(), mode: found.mode() & MODE_BITS, is_folder: kind.is_dir() };
    judge(path, facts, file_use, user, is_unknown_user)
}

/// Opens a file, and requires that it is to be believed.
///
/// # Errors
/// An [`io::Error`]; a [`DistrustError`] is inside of it.
pub fn open_trusted(path: &Path, file_use: FileUse) -> io::Result<File> {
    let file = File::open(path)?;
    require_trusted(path, &file.metadata()?, file_use).map_err(io::Error::other)?;
    Ok(file)
}

/// Requires that a program is to be believed, at the place where the system finds it. A program
/// that does not exist is left to its start.
///
/// # Errors
/// [`DistrustError`], with the remedy.
pub fn require_trusted_program(program: &str) -> Result<(), DistrustError> {
    let Some((path, found)) = found_program(Path::new(program)) else { return Ok(()) };
    require_trusted(&path, &found, FileUse::Settings)
}

/// Finds a program as the system does: in the folders of `PATH`, unless its name has a slash.
fn found_program(program: &Path) -> Option<(PathBuf, Metadata)> {
    let is_program = |path: PathBuf| {
        let found = fs::metadata(&path).ok()?;
        (found.is_file() && found.mode() & 0o111 != 0).then_some((path, found))
    };
    if program.components().count() > 1 || program.is_absolute() {
        return is_program(program.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).find_map(|folder| is_program(folder.join(program)))
}

#[derive(Debug, Clone, Copy)]
struct FileFacts {
    owner: u32,
    mode: u32,
    is_folder: bool,
}

fn judge(
    path: &Path,
    facts: FileFacts,
    file_use: FileUse,
    user: u32,
    is_unknown: impl Fn(u32) -> bool,
) -> Result<(), DistrustError> {
    let path = path.display().to_string();
    let FileFacts { owner, mode, is_folder } = facts;
    if file_use == FileUse::Secret && owner == user && mode & ACCESS_OF_OTHERS != 0 {
        return Err(DistrustError::Readable { path, mode });
    }
    if file_use == FileUse::Settings && owner != user && owner != 0 && !is_unknown(owner) {
        return Err(DistrustError::Foreign { path, owner, user });
    }
    let is_sticky_folder = is_folder && mode & STICKY != 0;
    if mode & WRITING_BY_OTHERS != 0 && !is_sticky_folder {
        return Err(DistrustError::Writable { path, mode });
    }
    Ok(())
}

/// Reports whether a user id stands for users that this process cannot name. In a container with a
/// part of the user ids, the files of the machine's root have this owner.
fn is_unknown_user(user: u32) -> bool {
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid");
    let overflow = overflow.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL_OVERFLOW);
    user == overflow && !fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| has_all_users(&map))
}

fn has_all_users(map: &str) -> bool {
    let counts = map.lines().filter_map(|line| line.split_ascii_whitespace().nth(2)?.parse::<u64>().ok());
    counts.sum::<u64>() >= ALL_USERS
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ME: u32 = 1000;

    fn verdict(file_use: FileUse, owner: u32, mode: u32, is_folder: bool) -> &'static str {
        let facts = FileFacts { owner, mode, is_folder };
        match judge(Path::new("x"), facts, file_use, ME, |user| user == 7) {
            Ok(()) => "good",
            Err(DistrustError::Readable { .. }) => "readable",
            Err(DistrustError::Writable { .. }) => "writable",
            Err(DistrustError::Foreign { .. }) => "foreign",
        }
    }

    #[test]
    fn settings_are_those_of_the_user_or_of_root() {
        for (owner, mode, expected) in [
            (0, 0o644, "good"),
            (0, 0o600, "good"),
            (ME, 0o644, "good"),
            (ME, 0o755, "good"),
            (ME, 0o664, "writable"),
            (ME, 0o646, "writable"),
            (0, 0o666, "writable"),
            (1001, 0o600, "foreign"),
            // The owner 7 may be the root of the machine around a container.
            (7, 0o644, "good"),
            (7, 0o666, "writable"),
        ] {
            assert_eq!(verdict(FileUse::Settings, owner, mode, false), expected, "{owner} {mode:o}");
        }
        assert_eq!(verdict(FileUse::Settings, 0, 0o1777, true), "good", "/tmp");
        assert_eq!(verdict(FileUse::Settings, 0, 0o777, true), "writable");
        assert_eq!(verdict(FileUse::Settings, ME, 0o1666, false), "writable", "a sticky bit of a file");
    }

    #[test]
    fn secrets_are_for_their_owner() {
        for (owner, mode, expected) in [
            (ME, 0o600, "good"),
            (ME, 0o400, "good"),
            (ME, 0o640, "readable"),
            (ME, 0o604, "readable"),
            (ME, 0o620, "readable"),
            // A service manager provides such files.
            (0, 0o444, "good"),
            (0, 0o440, "good"),
            (1001, 0o600, "good"),
            (0, 0o660, "writable"),
            (1001, 0o666, "writable"),
        ] {
            assert_eq!(verdict(FileUse::Secret, owner, mode, false), expected, "{owner} {mode:o}");
        }
    }

    #[test]
    fn only_a_part_of_the_users_leaves_unknown_ones() {
        assert!(has_all_users("         0          0 4294967295\n"));
        assert!(!has_all_users("0 1000 1\n"));
        assert!(!has_all_users("0 100000 65536\n"));
        assert!(!has_all_users(""));
        assert!(!is_unknown_user(1));
    }

    #[test]
    fn a_program_is_looked_at_where_it_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("hook");
        assert_eq!(require_trusted_program(program.to_str().unwrap()), Ok(()), "it does not exist");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        let set = |mode| fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        set(0o755);
        assert_eq!(require_trusted_program(program.to_str().unwrap()), Ok(()));
        set(0o775);
        let error = require_trusted_program(program.to_str().unwrap()).unwrap_err().to_string();
        assert!(error.ends_with(&format!("`chmod go-w {}` protects it", program.display())), "{error}");
        assert_eq!(require_trusted_program("sh"), Ok(()));
        assert!(found_program(Path::new("sh")).unwrap().0.is_absolute());
    }
}
