//! Contents of files. Each sector is compared with its checksum, unless the file has none. If a
//! copy is wrong or unreadable, the next one is read.

use std::ops::Range;
use std::sync::Arc;

use quick_cache::sync::Cache;
use varve_block::to_usize;

use super::damaged;
use super::data_checksums::DataChecksums;
use super::extent::{BtrfsExtent, ExtentSource, FileOfSubvolume, InlineContent, PackedExtent};
use super::trees::Trees;
use crate::file_systems::file_system::FileSystemError;

/// Bytes that are read and checked at a time.
const PIECE_BYTES: u64 = 256 << 10;
/// The decompressed extents that are remembered: usually 4 MiB.
const CACHED_EXTENTS: usize = 32;

/// A file whose content is read.
#[derive(Clone, Copy)]
pub(super) struct BtrfsContent {
    pub(super) file: FileOfSubvolume,
    pub(super) size: u64,
    pub(super) has_checksums: bool,
}

/// Reads contents, and remembers decompressed extents.
pub(super) struct Contents {
    checksums: DataChecksums,
    unpacked: Cache<PackedExtent, Arc<Vec<u8>>>,
}

/// Copies the bytes of `from` at `offset`, and zeros after its end.
fn copy_at(from: &[u8], offset: u64, into: &mut [u8]) {
    let present = from.get(to_usize(offset)..).unwrap_or_default();
    let bytes = present.iter().copied().chain(std::iter::repeat(0));
    into.iter_mut().zip(bytes).for_each(|(into, from)| *into = from);
}

impl Contents {
    pub(super) fn new(checksums: DataChecksums) -> Self {
        Self { checksums, unpacked: Cache::new(CACHED_EXTENTS) }
    }

    /// Fills `into` with the bytes of a file from `offset`. Returns the number of bytes, which is
    /// less only at the end of the file.
    ///
    /// # Errors
    /// [`FileSystemError`]
    pub(super) fn read(
        &self,
        trees: &Trees,
        content: &BtrfsContent,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize, FileSystemError> {
        let present = content.size.saturating_sub(offset);
        let length = to_usize(present).min(into.len());
        let (mut rest, _) = into.split_at_mut(length);
        let mut at = offset;
        while !rest.is_empty() {
            let extent = BtrfsExtent::at(trees, &content.file, at)?;
            let left = extent.end.saturating_sub(at);
            let (now, later) = rest.split_at_mut(to_usize(left).min(rest.len()));
            let inside = at.saturating_sub(extent.start);
            match &extent.source {
                ExtentSource::Hole => now.fill(0),
                ExtentSource::Inline(inline) => {
                    let length = extent.end.saturating_sub(extent.start);
                    self.read_inline(trees, content, inline, length, inside, now)?;
                }
                ExtentSource::Stored { logical } => {
                    self.read_stored(trees, content, logical.saturating_add(inside), at, now)?;
                }
                ExtentSource::Compressed { packed, offset } => {
                    let bytes = self.unpacked.get_or_insert_with(packed, || {
                        self.unpack(trees, content, packed, at).map(Arc::new)
                    })?;
                    copy_at(&bytes, offset.saturating_add(inside), now);
                }
            }
            at = at.saturating_add(now.len() as u64);
            rest = later;
        }
        Ok(length)
    }

    fn read_inline(
        &self,
        trees: &Trees,
        content: &BtrfsContent,
        inline: &InlineContent,
        length: u64,
        inside: u64,
        into: &mut [u8],
    ) -> Result<(), FileSystemError> {
        let Some(compression) = inline.compression else {
            copy_at(inline.bytes(), inside, into);
            return Ok(());
        };
        let sector_bytes = to_usize(trees.superblock().sector_bytes);
        let length = to_usize(length);
        let bytes = compression.decompress(inline.bytes(), length, sector_bytes);
        copy_at(&bytes.map_err(|problem| damaged(content.file.what(0), problem))?, inside, into);
        Ok(())
    }

    fn unpack(
        &self,
        trees: &Trees,
        content: &BtrfsContent,
        packed: &PackedExtent,
        at: u64,
    ) -> Result<Vec<u8>, FileSystemError> {
        let mut stored = vec![0; to_usize(packed.stored_bytes)];
        self.read_stored(trees, content, packed.logical, at, &mut stored)?;
        let sector_bytes = to_usize(trees.superblock().sector_bytes);
        let length = to_usize(packed.content_bytes);
        let unpacked = packed.compression.decompress(&stored, length, sector_bytes);
        unpacked.map_err(|problem| damaged(content.file.what(at), problem))
    }

    /// Reads the bytes at an address, which are those of the file at `at`.
    fn read_stored(
        &self,
        trees: &Trees,
        content: &BtrfsContent,
        logical: u64,
        at: u64,
        into: &mut [u8],
    ) -> Result<(), FileSystemError> {
        let sector_bytes = u64::from(trees.superblock().sector_bytes).max(1);
        let what = || content.file.what(at);
        let end =
            logical.checked_add(into.len() as u64).and_then(|end| end.checked_next_multiple_of(sector_bytes));
        let end = end.ok_or_else(|| damaged(what(), "its address has no end"))?;
        let mut start = logical.saturating_sub(logical.checked_rem(sector_bytes).unwrap_or(0));
        let mut rest = into;
        let mut buffer = Vec::new();
        while !rest.is_empty() {
            let piece = start..end.min(start.saturating_add(PIECE_BYTES));
            let length = to_usize(piece.end.saturating_sub(piece.start));
            buffer.resize(length, 0);
            self.read_piece(trees, content, &piece, &mut buffer, &what)?;
            let skipped = to_usize(logical.saturating_sub(piece.start));
            let bytes = buffer.get(skipped..).unwrap_or_default();
            let count = bytes.len().min(rest.len());
            if count == 0 {
                return Err(damaged(what(), "its address has no end"));
            }
            let (now, later) = rest.split_at_mut(count);
            copy_at(bytes, 0, now);
            rest = later;
            start = piece.end;
        }
        Ok(())
    }

    /// Reads whole sectors, and checks them.
    fn read_piece(
        &self,
        trees: &Trees,
        content: &BtrfsContent,
        piece: &Range<u64>,
        into: &mut [u8],
        what: &dyn Fn() -> String,
    ) -> Result<(), FileSystemError> {
        let sector_bytes = to_usize(trees.superblock().sector_bytes).max(1);
        let kind = trees.superblock().checksum;
        let sums = match content.has_checksums {
            true => Some(self.checksums.of(trees, piece)?),
            false => None,
        };
        let is_read = trees.bytes().read(piece.start, into, 0, what).is_ok();
        let addresses = (piece.start..).step_by(sector_bytes);
        for (number, (sector, logical)) in into.chunks_mut(sector_bytes).zip(addresses).enumerate() {
            let check = |sector: &[u8]| match &sums {
                None => Ok(()),
                Some(sums) => match sums.get(number).and_then(Option::as_ref) {
                    Some(sum) if kind.is_of(sum, sector) => Ok(()),
                    Some(_) => Err(damaged(
                        what(),
                        &format!("the sector at the address {logical} does not match its checksum"),
                    )),
                    None => {
                        let problem = format!("the sector at the address {logical} has no checksum");
                        Err(damaged(what(), &problem))
                    }
                },
            };
            if is_read && check(sector).is_ok() {
                continue;
            }
            let mut copies = 0..trees.bytes().copy_count(logical);
            let mut try_copy = |copy| {
                trees.bytes().read(logical, sector, copy, what)?;
                check(sector)
            };
            let first = copies.next().map_or(Ok(()), &mut try_copy);
            if let Err(problem) = first
                && !copies.any(|copy| try_copy(copy).is_ok())
            {
                return Err(problem);
            }
        }
        Ok(())
    }

    /// Returns the first range of a file at or after `offset` that is not a hole.
    ///
    /// # Errors
    /// [`FileSystemError`]
    pub(super) fn next_data(
        trees: &Trees,
        content: &BtrfsContent,
        offset: u64,
    ) -> Result<Option<Range<u64>>, FileSystemError> {
        let mut found: Option<Range<u64>> = None;
        let mut at = offset;
        while at < content.size {
            let extent = BtrfsExtent::at(trees, &content.file, at)?;
            let end = extent.end.min(content.size);
            match (&mut found, matches!(extent.source, ExtentSource::Hole)) {
                (Some(_), true) => break,
                (Some(range), false) => range.end = end,
                (None, false) => found = Some(at..end),
                (None, true) => {}
            }
            at = end;
        }
        Ok(found)
    }
}
