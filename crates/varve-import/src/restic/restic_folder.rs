//! An open repository in a folder: its keys, its index, and the reading of blobs.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use varve_block::to_usize;

use super::crypto::{OVERHEAD_BYTES, SealKey};
use super::index::{BLOB_BYTES_MAX, PackedKind, PackedPlace, parse_index};
use super::key_file::{KeyFile, KeyFileError};
use super::pack::parse_pack_header;
use super::restic_id::ResticId;

/// The longest key file, and the longest config.
const SMALL_FILE_BYTES_MAX: u64 = 1 << 20;
/// The longest file of an index or of a snapshot, encrypted and plain.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// The longest header of a pack.
const HEADER_BYTES_MAX: u32 = 64 << 20;
/// Upper bound on the packs that are open at a time.
const OPEN_PACK_COUNT_MAX: usize = 32;
/// Upper bound on the keys that are tried.
const KEY_COUNT_MAX: usize = 100;

/// Why a repository was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenResticError {
    #[error("{} cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is not a repository of restic or rustic: it has no file config, or no folder keys", path.display())]
    NotARepository { path: PathBuf },
    #[error("the password opens none of the {count} keys of the repository")]
    Password { count: usize },
    #[error("no key of the repository can be used; the first is {}", path.display())]
    Key { path: PathBuf, source: KeyFileError },
    #[error("the repository has version {version}: versions 1 and 2 can be read")]
    Version { version: u32 },
    #[error("{} is damaged: {reason}", path.display())]
    Damaged { path: PathBuf, reason: String },
}

/// A problem with one file of the repository, which does not prevent reading the others.
#[derive(Debug, Clone)]
pub struct ResticProblem {
    pub path: PathBuf,
    pub reason: String,
}

/// Why a blob is unreadable.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadPackedError {
    #[error("the blob {id} is in no pack")]
    Unknown { id: ResticId },
    #[error("the blob {id} cannot be read from {}", path.display())]
    Read { id: ResticId, path: PathBuf, source: io::Error },
    #[error("the blob {id} in {} is damaged: {reason}", path.display())]
    Damaged { id: ResticId, path: PathBuf, reason: String },
}

/// An open repository.
pub struct ResticFolder {
    folder: PathBuf,
    key: SealKey,
    packs: Vec<ResticId>,
    /// Sorted by id. A blob may be in several packs.
    blobs: Vec<(PackedPlace, u32)>,
    open: Mutex<OpenPacks>,
    problems: Vec<ResticProblem>,
}

/// The packs that were read last, the newest at the end.
#[derive(Default)]
struct OpenPacks(Vec<(u32, Arc<File>)>);

#[derive(Deserialize)]
struct ConfigJson {
    version: u32,
}

impl ResticFolder {
    /// Returns an error if the folder is no repository. Needs no password.
    ///
    /// # Errors
    /// [`OpenResticError::NotARepository`].
    pub fn probe(folder: &Path) -> Result<(), OpenResticError> {
        if folder.join("config").is_file() && folder.join("keys").is_dir() {
            return Ok(());
        }
        Err(OpenResticError::NotARepository { path: folder.into() })
    }

    /// Opens the repository in a folder. Nothing is written there, not even a lock.
    ///
    /// # Errors
    /// [`OpenResticError`]. A damaged index is no error: its blobs are found in their packs.
    pub fn open(folder: &Path, password: &[u8]) -> Result<Self, OpenResticError> {
        let config = folder.join("config");
        Self::probe(folder)?;
        let key = master_key(folder, password)?;
        let damaged = |reason: String| OpenResticError::Damaged { path: config.clone(), reason };
        let sealed = read_file(&config, SMALL_FILE_BYTES_MAX)
            .map_err(|source| OpenResticError::Read { path: config.clone(), source })?;
        let plain = open_file(&key, sealed).map_err(damaged)?;
        let ConfigJson { version } =
            serde_json::from_slice(&plain).map_err(|error| damaged(error.to_string()))?;
        if !matches!(version, 1 | 2) {
            return Err(OpenResticError::Version { version });
        }
        let mut repository = Self {
            folder: folder.into(),
            key,
            packs: Vec::new(),
            blobs: Vec::new(),
            open: Mutex::default(),
            problems: Vec::new(),
        };
        repository.load_index()?;
        Ok(repository)
    }

    /// The files that cannot be read, and that were not needed to open the repository.
    #[must_use]
    pub fn problems(&self) -> &[ResticProblem] {
        &self.problems
    }

    /// The plain bytes of a file of `index/` or `snapshots/`, which has the name of its hash.
    pub(super) fn file(&self, path: &Path) -> Result<Vec<u8>, String> {
        let sealed = read_file(path, FILE_BYTES_MAX).map_err(|error| error.to_string())?;
        let name = path.file_name().and_then(|name| name.to_str()).and_then(ResticId::parse);
        if name != Some(ResticId::of(&sealed)) {
            return Err("its bytes do not match its name".into());
        }
        open_file(&self.key, sealed)
    }

    /// The paths of the files in a folder of the repository whose names are hashes, sorted.
    pub(super) fn files_in(&self, folder: &str) -> io::Result<Vec<PathBuf>> {
        hashed_files(&self.folder.join(folder))
    }

    fn load_index(&mut self) -> Result<(), OpenResticError> {
        let folder = self.folder.join("index");
        let files =
            hashed_files(&folder).map_err(|source| OpenResticError::Read { path: folder.clone(), source })?;
        for path in files {
            let parsed =
                self.file(&path).and_then(|plain| parse_index(&plain).map_err(|error| with_source(&error)));
            match parsed {
                Ok(packs) => packs.into_iter().for_each(|(pack, blobs)| self.add_pack(pack, blobs)),
                Err(reason) => self.problems.push(ResticProblem { path, reason }),
            }
        }
        if !self.problems.is_empty() {
            self.read_headers();
        }
        self.blobs.sort_unstable();
        self.blobs.dedup();
        Ok(())
    }

    fn add_pack(&mut self, pack: ResticId, blobs: Vec<PackedPlace>) {
        let Ok(number) = u32::try_from(self.packs.len()) else { return };
        self.packs.push(pack);
        self.blobs.extend(blobs.into_iter().map(|blob| (blob, number)));
    }

    /// Finds the blobs of the packs that no index lists, from their own headers.
    fn read_headers(&mut self) {
        let listed: std::collections::BTreeSet<ResticId> = self.packs.iter().copied().collect();
        let data = self.folder.join("data");
        let mut folders = vec![data.clone()];
        let below = fs::read_dir(&data).into_iter().flatten().flatten().map(|entry| entry.path());
        folders.extend(below.filter(|path| path.is_dir()));
        folders.sort();
        for path in folders.iter().flat_map(|folder| hashed_files(folder).unwrap_or_default()) {
            let name = path.file_name().and_then(|name| name.to_str()).and_then(ResticId::parse);
            let Some(pack) = name.filter(|name| !listed.contains(name)) else { continue };
            match self.pack_header(&path) {
                Ok(blobs) => self.add_pack(pack, blobs),
                Err(reason) => self.problems.push(ResticProblem { path, reason }),
            }
        }
    }

    fn pack_header(&self, path: &Path) -> Result<Vec<PackedPlace>, String> {
        let text = |error: io::Error| error.to_string();
        let file = File::open(path).map_err(text)?;
        let bytes = file.metadata().map_err(text)?.len();
        let mut length = [0; 4];
        let end = bytes.checked_sub(4).ok_or("it is too short for a pack")?;
        file.read_exact_at(&mut length, end).map_err(text)?;
        let length = u32::from_le_bytes(length);
        let start = end.checked_sub(length.into()).filter(|_| length <= HEADER_BYTES_MAX);
        let start = start.ok_or("the length of its header is impossible")?;
        let mut sealed = vec![0; to_usize(length)];
        file.read_exact_at(&mut sealed, start).map_err(text)?;
        let header = self.key.open(&mut sealed).map_err(|error| error.to_string())?;
        parse_pack_header(header).map_err(|error| error.to_string())
    }

    /// The places of a blob.
    fn places(&self, id: ResticId) -> impl Iterator<Item = &(PackedPlace, u32)> {
        let start = self.blobs.partition_point(|(blob, _)| blob.id < id);
        self.blobs.get(start..).unwrap_or_default().iter().take_while(move |(blob, _)| blob.id == id)
    }

    /// The bytes of all lists of files.
    pub(super) fn all_tree_bytes(&self) -> u64 {
        let trees = self.blobs.iter().filter(|(blob, _)| blob.kind == PackedKind::Tree);
        trees.map(|(blob, _)| blob.plain_bytes()).fold(0, u64::saturating_add)
    }

    /// The plain length of a blob, if it is known.
    pub(super) fn packed_bytes(&self, id: ResticId) -> Option<u64> {
        self.places(id).next().map(|(blob, _)| blob.plain_bytes())
    }

    /// Reads a blob, and compares it with its id. Tries every pack that has it.
    pub(super) fn packed(&self, id: ResticId, kind: PackedKind) -> Result<Vec<u8>, ReadPackedError> {
        let mut failed = ReadPackedError::Unknown { id };
        for (blob, pack) in self.places(id).filter(|(blob, _)| blob.kind == kind) {
            match self.read_packed(blob, *pack) {
                Ok(plain) => return Ok(plain),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn read_packed(&self, blob: &PackedPlace, pack: u32) -> Result<Vec<u8>, ReadPackedError> {
        let PackedPlace { id, offset, length, uncompressed, .. } = *blob;
        let path = self.pack_path(pack);
        let unread = |source| ReadPackedError::Read { id, path: path.clone(), source };
        let damaged = |reason: String| ReadPackedError::Damaged { id, path: path.clone(), reason };
        let file = self.pack(pack, &path).map_err(unread)?;
        // A claim of the index: memory is used only for bytes that are there.
        let present = file.metadata().map_err(unread)?.len();
        if u64::from(offset) + u64::from(length) > present {
            return Err(damaged(format!("the pack ends at byte {present}")));
        }
        let mut sealed = vec![0; to_usize(length)];
        file.read_exact_at(&mut sealed, offset.into()).map_err(unread)?;
        self.key.open(&mut sealed).map_err(|error| damaged(error.to_string()))?;
        let start = OVERHEAD_BYTES / 2;
        sealed.truncate(sealed.len() - start);
        sealed.drain(..start);
        let plain = match uncompressed {
            None => sealed,
            Some(bytes) => decompress(&sealed, bytes.into()).map_err(damaged)?,
        };
        if ResticId::of(&plain) == id {
            Ok(plain)
        } else {
            Err(damaged("its bytes do not match its name".into()))
        }
    }

    fn pack_path(&self, pack: u32) -> PathBuf {
        let id = self.packs.get(to_usize(pack)).copied();
        let name = id.map(|id| id.to_string()).unwrap_or_default();
        let data = self.folder.join("data");
        let usual = data.join(name.get(..2).unwrap_or_default()).join(&name);
        // The layout of old repositories on S3.
        let flat = data.join(&name);
        if !usual.exists() && flat.exists() { flat } else { usual }
    }

    fn pack(&self, pack: u32, path: &Path) -> io::Result<Arc<File>> {
        let mut open = self.open.lock();
        if let Some(place) = open.0.iter().position(|(number, _)| *number == pack) {
            let found = open.0.remove(place);
            let file = Arc::clone(&found.1);
            open.0.push(found);
            return Ok(file);
        }
        let file = Arc::new(File::open(path)?);
        if open.0.len() >= OPEN_PACK_COUNT_MAX {
            open.0.remove(0);
        }
        open.0.push((pack, Arc::clone(&file)));
        Ok(file)
    }
}

fn with_source(error: &dyn std::error::Error) -> String {
    let source = error.source().map(|source| format!(": {source}"));
    format!("{error}{}", source.unwrap_or_default())
}

/// Tries the password on all keys.
fn master_key(folder: &Path, password: &[u8]) -> Result<SealKey, OpenResticError> {
    let keys = folder.join("keys");
    let unread = |path: &Path| {
        let path = path.to_path_buf();
        |source| OpenResticError::Read { path, source }
    };
    let files = hashed_files(&keys).map_err(unread(&keys))?;
    let count = files.len();
    let mut unusable = None;
    for path in files.into_iter().take(KEY_COUNT_MAX) {
        let bytes = read_file(&path, SMALL_FILE_BYTES_MAX).map_err(unread(&path))?;
        match KeyFile::parse(&bytes).and_then(|file| file.open(password)) {
            Ok(key) => return Ok(key),
            Err(KeyFileError::Password) => {}
            Err(source) => unusable = unusable.or(Some(OpenResticError::Key { path, source })),
        }
    }
    Err(unusable.unwrap_or(OpenResticError::Password { count }))
}

/// The files in a folder whose names are hashes, sorted.
fn hashed_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.file_name().and_then(|name| name.to_str()).and_then(ResticId::parse).is_some() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read_file(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// Decrypts a file other than a pack. Files of version 2 begin with 2 if they are compressed.
fn open_file(key: &SealKey, mut sealed: Vec<u8>) -> Result<Vec<u8>, String> {
    let plain = key.open(&mut sealed).map_err(|error| error.to_string())?;
    match plain.split_first() {
        Some((2, compressed)) => decompress_unsized(compressed),
        _ => Ok(plain.to_vec()),
    }
}

/// Decompresses to exactly `bytes` bytes.
fn decompress(compressed: &[u8], bytes: u64) -> Result<Vec<u8>, String> {
    let room = to_usize(bytes.min(BLOB_BYTES_MAX.into()));
    let mut plain = Vec::with_capacity(room);
    zstd_safe::decompress(&mut plain, compressed)
        .map_err(|code| format!("it cannot be decompressed ({})", zstd_safe::get_error_name(code)))?;
    if plain.len() == room { Ok(plain) } else { Err("its length is not the recorded one".into()) }
}

/// Decompresses a stream of zstd whose length is not recorded elsewhere.
fn decompress_unsized(compressed: &[u8]) -> Result<Vec<u8>, String> {
    const PIECE_BYTES: usize = 1 << 20;
    let failed = |code| format!("it cannot be decompressed ({})", zstd_safe::get_error_name(code));
    let mut context = zstd_safe::DCtx::try_create().ok_or("there is no memory to decompress it")?;
    let mut input = zstd_safe::InBuffer::around(compressed);
    let mut plain = Vec::new();
    loop {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        let mut output = zstd_safe::OutBuffer::around(&mut piece);
        let hint = context.decompress_stream(&mut output, &mut input).map_err(failed)?;
        let is_stuck = piece.is_empty();
        plain.append(&mut piece);
        if plain.len() as u64 > FILE_BYTES_MAX {
            return Err(format!("it has more than {FILE_BYTES_MAX} bytes"));
        }
        if hint == 0 && input.pos == compressed.len() {
            return Ok(plain);
        }
        if is_stuck && input.pos == compressed.len() {
            return Err("it is cut short".into());
        }
    }
}
