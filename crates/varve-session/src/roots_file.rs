//! The newest catalog root of a Venti server. It is kept in a file of this machine, because the
//! server has no place for it.
//!
//! Each snapshot adds one line, `catalog:SCORE` and the time; the last line counts. No line is ever
//! removed, so the file also records the earlier roots.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use varve_block::Score;
use varve_venti::{Address, SCORE_BYTES};
use varve_world::{Clock, LockedFile, RealClock, Timestamp, sync_open_folder};

use crate::failure::InUse;
use crate::user_folders;

/// The beginning of each line.
const LABEL: &str = "catalog:";
/// Upper bound on the length of the file.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The roots file of one server.
pub struct RootsFile {
    path: PathBuf,
    /// The open file under an exclusive lock, if this process may add roots.
    locked: Option<LockedFile>,
}

impl RootsFile {
    /// Returns the named file, or else this machine's file for the server.
    pub(crate) fn of(named: Option<PathBuf>, address: &Address) -> Result<Self> {
        if let Some(path) = named {
            return Ok(Self::at(path));
        }
        let folder = Self::folder().context(
            "the file for the catalog's roots is unknown: name it with --roots, or in VARVE_ROOTS",
        )?;
        let name = address.to_string().replace('/', "%");
        Ok(Self::at(folder.join(name)))
    }

    /// Returns the file at `path`.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path, locked: None }
    }

    /// Returns the folder in which this machine keeps one file for each server.
    pub fn folder() -> Option<PathBuf> {
        user_folders::state().map(|folder| folder.join("roots"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the newest root, if there is one.
    pub(crate) fn newest(&self) -> Result<Option<Score>> {
        let context = || format!("cannot read {}", self.path.display());
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened.with_context(context)?,
        };
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).with_context(context)?;
        Ok(last_root(&text))
    }

    /// Locks the file. Of two writers without a lock, the later root would hide the snapshots of
    /// the earlier one.
    pub(crate) fn lock(self) -> Result<Self> {
        let context = || format!("cannot write {}", self.path.display());
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).with_context(context)?;
        }
        let file =
            File::options().read(true).append(true).create(true).open(&self.path).with_context(context)?;
        let Some(file) = LockedFile::try_lock(file).with_context(context)? else {
            bail!(InUse(format!("{} is in use: another snapshot is being taken there", self.path.display())));
        };
        Ok(Self { locked: Some(file), ..self })
    }

    /// Adds a root to a locked file. It is durable when this returns.
    pub(crate) fn add(&self, root: Score) -> Result<()> {
        // The leading line break ends a torn line that a crash may have left.
        let line = format!("\n{LABEL}{root} {}\n", rfc3339(RealClock.now()));
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let noted = self.locked.as_deref().ok_or_else(|| io::ErrorKind::PermissionDenied.into());
        let noted = noted.and_then(|mut file| file.write_all(line.as_bytes()).and_then(|()| file.sync_all()));
        let noted =
            noted.and_then(|()| folder.map_or(Ok(()), |folder| sync_open_folder(&File::open(folder)?)));
        noted.with_context(|| {
            format!("cannot write {}: write down this root yourself: {LABEL}{root}", self.path.display())
        })
    }
}

/// Formats a time for programs: RFC 3339, UTC.
fn rfc3339(time: Timestamp) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(time.0))
        .map_or_else(|_| time.0.to_string(), |time| time.to_string())
}

/// Returns the root of the last complete line.
fn last_root(text: &str) -> Option<Score> {
    let score = |line: &str| {
        let word = line.strip_prefix(LABEL)?.split(' ').next()?;
        Score::from_hex(word).ok().filter(|score| score.as_bytes().len() == SCORE_BYTES)
    };
    text.lines().rev().find_map(score)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_line_counts() {
        let line = |digit: &str| format!("\n{LABEL}{} 2026-05-01T00:00:00Z\n", digit.repeat(40));
        let score = |digit: &str| Some(Score::from_hex(&digit.repeat(40)).unwrap());
        assert_eq!(last_root(""), None);
        assert_eq!(last_root(&line("1")), score("1"));
        assert_eq!(last_root(&[line("1"), line("2")].concat()), score("2"));
        let torn = format!("{}\n{LABEL}3333", line("1"));
        assert_eq!(last_root(&torn), score("1"));
        assert_eq!(last_root(&[torn, line("4")].concat()), score("4"));
    }
}
