//! From a word to a place for a replica.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::Bytes;
use varve_remote::{Capabilities, Object, PutMode, Target, TargetError};
use varve_world::FileName;

/// Whether a word names a place by a scheme, as `s3://bucket` does.
pub fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    })
}

/// Whether a folder holds a replica, and not a store.
pub fn is_replica_folder(path: &Path) -> bool {
    path.join("replica.toml").is_file()
}

/// Opens the place that `text` names; `bytes_per_second` bounds what is sent there.
pub fn open(text: &str, bytes_per_second: Option<u64>) -> Result<Arc<dyn Target>> {
    if is_url(text) {
        bail!("{text}: this program does not know places of this kind; it knows folders");
    }
    let folder = FolderTarget { root: std::path::absolute(text)?, pace: bytes_per_second.map(Pace::new) };
    Ok(Arc::new(folder))
}

/// Objects as files of a folder.
struct FolderTarget {
    root: PathBuf,
    pace: Option<Pace>,
}

static UNFINISHED: AtomicU64 = AtomicU64::new(0);

impl fmt::Display for FolderTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root.display().fmt(f)
    }
}

impl FolderTarget {
    fn path(&self, name: &FileName) -> PathBuf {
        self.root.join(name.as_str())
    }

    fn error(&self, name: &FileName, end: u64, source: io::Error) -> TargetError {
        let (name, what) = (name.clone(), self.path(name).display().to_string());
        match source.kind() {
            io::ErrorKind::NotFound => TargetError::NotFound { name },
            io::ErrorKind::AlreadyExists => TargetError::Exists { name },
            io::ErrorKind::UnexpectedEof => TargetError::Short { name, end },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                TargetError::Refused { what, source }
            }
            _ => TargetError::Failed { what, source },
        }
    }

    fn write(&self, name: &FileName, contents: &[u8], mode: PutMode) -> io::Result<()> {
        let path = self.path(name);
        let folder = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(folder)?;
        if mode == PutMode::Create && path.try_exists()? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        // A name with a dot before it is no object's.
        let number = UNFINISHED.fetch_add(1, Ordering::Relaxed);
        let unfinished = folder.join(format!(".unfinished-{}-{number}", std::process::id()));
        let written =
            OpenOptions::new().write(true).create_new(true).open(&unfinished).and_then(|mut file| {
                file.write_all(contents)?;
                file.sync_all()
            });
        let placed = written.and_then(|()| match mode {
            PutMode::Create => fs::hard_link(&unfinished, &path).and_then(|()| fs::remove_file(&unfinished)),
            PutMode::Replace => fs::rename(&unfinished, &path),
        });
        if placed.is_err() {
            drop(fs::remove_file(&unfinished));
        }
        placed.and_then(|()| File::open(folder)?.sync_all())
    }

    fn read(&self, name: &FileName, range: &Range<u64>) -> io::Result<Bytes> {
        let mut file = File::open(self.path(name))?;
        let length = usize::try_from(range.end.saturating_sub(range.start)).map_err(io::Error::other)?;
        if file.metadata()?.len() < range.end {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.seek(SeekFrom::Start(range.start))?;
        let mut bytes = vec![0; length];
        file.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }

    fn list_into(&self, folder: &str, objects: &mut Vec<Object>) -> io::Result<()> {
        let entries = match fs::read_dir(self.root.join(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let Some(own) = entry.file_name().to_str().map(String::from) else { continue };
            let whole = if folder.is_empty() { own } else { format!("{folder}/{own}") };
            let Ok(name) = FileName::new(&whole) else { continue };
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.list_into(&whole, objects)?;
            } else if kind.is_file() {
                objects.push(Object { name, bytes: entry.metadata()?.len() });
            }
        }
        Ok(())
    }
}

impl Target for FolderTarget {
    fn capabilities(&self) -> Capabilities {
        Capabilities { create_is_exclusive: true, ranges: true }
    }

    fn put(&self, name: &FileName, contents: Bytes, mode: PutMode) -> Result<(), TargetError> {
        if let Some(pace) = &self.pace {
            pace.wait_for(contents.len() as u64);
        }
        self.write(name, &contents, mode).map_err(|error| self.error(name, 0, error))
    }

    fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, TargetError> {
        self.read(name, &range).map_err(|error| self.error(name, range.end, error))
    }

    fn list(&self, folder: &str) -> Result<Vec<Object>, TargetError> {
        let mut objects = Vec::new();
        let failed = |source| TargetError::Failed { what: self.root.display().to_string(), source };
        self.list_into(folder, &mut objects).map_err(failed)?;
        objects.sort();
        Ok(objects)
    }

    fn remove(&self, name: &FileName) -> Result<(), TargetError> {
        fs::remove_file(self.path(name)).map_err(|error| self.error(name, 0, error))
    }
}

/// So many bytes a second, all hands together.
struct Pace {
    bytes_per_second: u64,
    /// When the line is free again.
    free: Mutex<Option<Instant>>,
}

impl Pace {
    fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), free: Mutex::new(None) }
    }

    #[expect(clippy::disallowed_methods, reason = "the line is an edge")]
    fn wait_for(&self, bytes: u64) {
        #[expect(clippy::cast_precision_loss, reason = "a pace need not be exact")]
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let now = Instant::now();
        let until = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let until = free.unwrap_or(now).max(now) + takes;
            *free = Some(until);
            until
        };
        std::thread::sleep(until - now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_the_contract() {
        let mut folders = Vec::new();
        varve_remote::contract::check(&mut || {
            folders.push(tempfile::tempdir().unwrap());
            let root = folders.last().unwrap().path().to_owned();
            FolderTarget { root, pace: None }
        });
    }

    #[test]
    fn urls_are_told_from_paths() {
        for url in ["s3://bucket/x", "sftp://me@host/x"] {
            assert!(is_url(url), "{url}");
        }
        for path in ["/a/b", "relative", "://x", "a b://c", "C:/x"] {
            assert!(!is_url(path), "{path}");
        }
    }
}
