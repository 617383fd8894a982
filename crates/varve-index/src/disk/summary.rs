//! The summary of the index on disk: the file that names the valid run, and has those parts of it
//! that must be in memory. Little-endian.
//!
//! | offset      | bytes | field           | meaning                                                                    |
//! |------------:|------:|-----------------|----------------------------------------------------------------------------|
//! |           0 |     8 | magic, version  | `varveID1`                                                                 |
//! |           8 |     8 | generation      | the run is in `index/disk-GENERATION`                                      |
//! |          16 |    16 | session         | random: whose run of that generation it is                                 |
//! |          32 |     8 | key_bits        | leading bits of fingerprints that are kept, 32 to 64                       |
//! |          40 |     8 | page_count      | pages of the run                                                           |
//! |          48 |     8 | entry_count     | entries in them, at most 2,032 a page                                      |
//! |          56 |     8 | filter_capacity | keys that the filter is made for                                           |
//! |          64 |     8 | filter_keys     | keys in the filter                                                         |
//! |          72 |     8 | note_bytes      | length of the note, at most 16 MiB                                         |
//! |          80 |     n | note            | opaque: which part of the log the run covers                               |
//! |      80 + n |    8p | fences          | the first key of each page, ascending                                      |
//! | 80 + n + 8p |    32 | authentication  | `BLAKE3(key, all before)`                                                  |
//! |             |   64f | filter          | lines of the filter                                                        |
//! |             |    32 | authentication  | `BLAKE3(key, the code before ‖ the filter)`                                |
//!
//! The filter holds every key of the run, and others. If its part is damaged, it is rebuilt from
//! the run; if the part before it is damaged, there is no index. The seed of the pages' codes is
//! the first 8 bytes of `BLAKE3(key, session ‖ generation)`.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;

use varve_block::to_usize;
use varve_world::{FileName, Storage};

use super::filter::{Filter, LINE_BYTES};
use super::page::{PAGE_BYTES, PAGE_ENTRIES_MAX, PageCodes};

const MAGIC: &[u8; 8] = b"varveID1";
const HEADER_BYTES: usize = 80;
const CODE_BYTES: usize = 32;
const NOTE_BYTES_MAX: u64 = 16 << 20;
/// A filter is read and written in pieces of this many lines.
const PIECE_LINES: usize = 16 << 10;

/// The reason why there is no index on disk to open.
#[derive(Debug, thiserror::Error)]
pub enum OpenDiskIndexError {
    #[error("there is no index on disk")]
    Missing,
    /// The code of the summary does not match.
    #[error("{file} is damaged, or belongs to another store")]
    Damaged {
        /// The summary.
        file: FileName,
    },
    /// The file of entries is not the one that the summary names.
    #[error("{file} has {bytes} bytes, but should have {expected}")]
    Length {
        /// The file of entries.
        file: FileName,
        bytes: u64,
        /// The length according to the summary.
        expected: u64,
    },
    #[error("cannot read {file}")]
    Storage { file: FileName, source: io::Error },
}

/// The identity of a run in its summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunIdentity {
    pub(super) generation: u64,
    pub(super) session: [u8; 16],
    pub(super) key_bits: u32,
}

/// A summary without its filter.
pub(super) struct Summary {
    pub(super) identity: RunIdentity,
    pub(super) entry_count: u64,
    pub(super) filter_capacity: u64,
    pub(super) filter_keys: u64,
    pub(super) note: Vec<u8>,
    pub(super) fences: Vec<u64>,
}

pub(super) fn summary_file() -> FileName {
    FileName::new("index/disk").expect("a plain name")
}

impl RunIdentity {
    pub(super) fn file(&self) -> FileName {
        FileName::new(&format!("index/disk-{:010}", self.generation)).expect("a plain name")
    }

    pub(super) fn codes(&self, key: &[u8; 32]) -> PageCodes {
        let hash = blake3::Hasher::new_keyed(key)
            .update(&self.session)
            .update(&self.generation.to_le_bytes())
            .finalize();
        let seed = hash.as_bytes().first_chunk().copied().unwrap_or_default();
        PageCodes { seed: u64::from_le_bytes(seed), key_bits: self.key_bits }
    }
}

impl Summary {
    fn head(&self) -> Vec<u8> {
        let mut head = MAGIC.to_vec();
        head.extend(self.identity.generation.to_le_bytes());
        head.extend(self.identity.session);
        let numbers = [
            u64::from(self.identity.key_bits),
            self.fences.len() as u64,
            self.entry_count,
            self.filter_capacity,
            self.filter_keys,
            self.note.len() as u64,
        ];
        head.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        head
    }

    /// Replaces the summary atomically. `filter_bytes` returns lines of the filter.
    pub(super) fn write(
        &self,
        storage: &dyn Storage,
        key: &[u8; 32],
        filter_bytes: &mut dyn FnMut(usize, usize) -> Vec<u8>,
    ) -> io::Result<()> {
        let mut body = self.head();
        body.extend_from_slice(&self.note);
        body.extend(self.fences.iter().flat_map(|fence| fence.to_le_bytes()));
        let code = blake3::keyed_hash(key, &body);
        body.extend_from_slice(code.as_bytes());
        let line_count = Filter::line_count(self.filter_capacity).unwrap_or_default();
        storage.replace_with(&summary_file(), |append| {
            append(&body)?;
            let mut hasher = blake3::Hasher::new_keyed(key);
            hasher.update(code.as_bytes());
            for first in (0..to_usize(line_count)).step_by(PIECE_LINES) {
                let piece = filter_bytes(first, PIECE_LINES);
                hasher.update(&piece);
                append(&piece)?;
            }
            append(hasher.finalize().as_bytes())
        })
    }

    /// Reads the summary, and the filter if its part is intact.
    pub(super) fn read(
        storage: &dyn Storage,
        key: &[u8; 32],
    ) -> Result<(Self, Option<Filter>), OpenDiskIndexError> {
        let (summary, body) = Self::read_body(storage, key)?;
        summary.check_run(storage)?;
        let filter = summary.read_filter(storage, key, &body);
        Ok((summary, filter))
    }

    /// Reads the summary without its filter.
    pub(super) fn read_without_filter(
        storage: &dyn Storage,
        key: &[u8; 32],
    ) -> Result<Self, OpenDiskIndexError> {
        let (summary, _) = Self::read_body(storage, key)?;
        summary.check_run(storage)?;
        Ok(summary)
    }

    fn read_body(storage: &dyn Storage, key: &[u8; 32]) -> Result<(Self, SummaryBody), OpenDiskIndexError> {
        let file = summary_file();
        let damaged = || OpenDiskIndexError::Damaged { file: file.clone() };
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => OpenDiskIndexError::Missing,
            io::ErrorKind::UnexpectedEof => OpenDiskIndexError::Damaged { file: file.clone() },
            _ => OpenDiskIndexError::Storage { file: file.clone(), source },
        };
        let bytes_total = storage.length(&file).map_err(failed)?;
        let mut header = [0; HEADER_BYTES];
        storage.read_at(&file, 0, &mut header).map_err(failed)?;
        let (mut summary, lengths) = Self::from_header(&header).ok_or_else(damaged)?;
        // Lengths in the file are compared with the file's length before memory is allocated. A
        // truncated filter is rebuilt.
        let body_bytes = lengths.body_bytes().filter(|bytes| *bytes <= bytes_total).ok_or_else(damaged)?;
        let mut body = vec![0; to_usize(body_bytes)];
        storage.read_at(&file, 0, &mut body).map_err(failed)?;
        let (body, code) = body.split_last_chunk::<CODE_BYTES>().ok_or_else(damaged)?;
        if blake3::keyed_hash(key, body) != *code {
            return Err(damaged());
        }
        let note_end = HEADER_BYTES.saturating_add(lengths.note);
        summary.note = body.get(HEADER_BYTES..note_end).ok_or_else(damaged)?.to_vec();
        let fences = body.get(note_end..).ok_or_else(damaged)?;
        summary.fences = fences.as_chunks::<8>().0.iter().map(|fence| u64::from_le_bytes(*fence)).collect();
        if !summary.fences.is_sorted() {
            return Err(damaged());
        }
        Ok((summary, SummaryBody { code: *code, end: body_bytes, bytes_total }))
    }

    fn from_header(header: &[u8; HEADER_BYTES]) -> Option<(Self, SummaryLengths)> {
        let (magic, rest) = header.split_first_chunk::<8>()?;
        let (generation, rest) = rest.split_first_chunk::<8>()?;
        let (session, rest) = rest.split_first_chunk::<16>()?;
        let mut numbers = rest.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let key_bits = u32::try_from(numbers.next()?).ok().filter(|bits| (32..=u64::BITS).contains(bits))?;
        let (pages, entry_count) = (numbers.next()?, numbers.next()?);
        let (filter_capacity, filter_keys, note) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let generation = u64::from_le_bytes(*generation);
        // Allocations in proportion to the count of entries are bounded by the file of entries,
        // even if the summary is malicious.
        let entries_max = pages.checked_mul(PAGE_ENTRIES_MAX)?;
        if magic != MAGIC || note > NOTE_BYTES_MAX || entry_count > entries_max {
            return None;
        }
        let identity = RunIdentity { generation, session: *session, key_bits };
        let lengths = SummaryLengths { note: to_usize(note), pages: to_usize(pages) };
        let (note, fences) = (Vec::new(), Vec::new());
        Some((Self { identity, entry_count, filter_capacity, filter_keys, note, fences }, lengths))
    }

    fn read_filter(&self, storage: &dyn Storage, key: &[u8; 32], body: &SummaryBody) -> Option<Filter> {
        let SummaryBody { code, end: begin, bytes_total } = *body;
        let filter_bytes = Filter::line_count(self.filter_capacity)?.checked_mul(LINE_BYTES)?;
        let end = begin.checked_add(filter_bytes)?;
        if end.checked_add(CODE_BYTES as u64)? != bytes_total {
            return None;
        }
        let mut filter = Filter::new(self.filter_capacity);
        filter.set_key_count(self.filter_keys);
        let mut hasher = blake3::Hasher::new_keyed(key);
        hasher.update(&code);
        let (mut offset, mut line) = (begin, 0_usize);
        let piece_bytes = LINE_BYTES.checked_mul(PIECE_LINES as u64)?;
        while offset < end {
            let bytes = end.saturating_sub(offset).min(piece_bytes);
            let mut piece = vec![0; to_usize(bytes)];
            storage.read_at(&summary_file(), offset, &mut piece).ok()?;
            hasher.update(&piece);
            filter.set_lines(line, &piece);
            (offset, line) = (offset.checked_add(bytes)?, line.checked_add(PIECE_LINES)?);
        }
        let mut found = [0; CODE_BYTES];
        storage.read_at(&summary_file(), end, &mut found).ok()?;
        (hasher.finalize() == found).then_some(filter)
    }

    /// Checks the length of the file of entries. Its pages are checked when they are read.
    fn check_run(&self, storage: &dyn Storage) -> Result<(), OpenDiskIndexError> {
        let file = self.identity.file();
        let expected = (self.fences.len() as u64).saturating_mul(PAGE_BYTES as u64);
        match storage.length(&file) {
            Ok(bytes) if bytes == expected => Ok(()),
            Ok(bytes) => Err(OpenDiskIndexError::Length { file, bytes, expected }),
            Err(source) => Err(OpenDiskIndexError::Storage { file, source }),
        }
    }
}

/// The part before the filter, after its code was checked.
struct SummaryBody {
    code: [u8; CODE_BYTES],
    /// The end of this part.
    end: u64,
    /// The end of the file.
    bytes_total: u64,
}

/// Lengths that a header claims.
struct SummaryLengths {
    note: usize,
    pages: usize,
}

impl SummaryLengths {
    fn body_bytes(&self) -> Option<u64> {
        let fences = (self.pages as u64).checked_mul(8)?;
        let fixed = (HEADER_BYTES as u64).checked_add(CODE_BYTES as u64)?;
        fixed.checked_add(self.note as u64)?.checked_add(fences)
    }
}
