//! Writable overlays over a read-only disk, in a sparse file that is kept or thrown away.
//!
//! |  position |       bytes | field    | meaning                                                 |
//! |----------:|------------:|----------|---------------------------------------------------------|
//! |         0 |           8 | magic    | `VARVEOVL`                                              |
//! |         8 |           4 | version  | 1                                                       |
//! |        12 |           4 | block    | bytes of a block: 4096                                  |
//! |        16 |           8 | size     | bytes of the disk                                       |
//! |        24 |          64 | below    | identity of the disk below, as text, padded with zeros  |
//! |        88 |           8 | checksum | XXH3-64 of the bytes before                             |
//! |      4096 | 1 bit/block | map      | the blocks in the overlay; others are in the disk below |
//! | after map |        size | data     | each block at its own position; a hole reads as zeros   |
//!
//! Numbers are little-endian. The map is padded to a multiple of 4096 bytes. A flush makes the data
//! durable before it writes the map, so after a power cut the map names no block that is missing. A
//! block that was written since the last flush may then have its previous contents.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::fs::{FallocateFlags, fallocate};
use varve_block::to_usize;
use varve_world::{is_unsupported, sync_open_folder};
use xxhash_rust::xxh3::xxh3_64;

use super::disk::{DiskExtent, ServedDisk, WritableDisk, push};

const MAGIC: [u8; 8] = *b"VARVEOVL";
const VERSION: u32 = 1;
const BLOCK_BYTES: u64 = 4096;
const HEADER_BYTES: u64 = 4096;
const BELOW_BYTES: usize = 64;
const CHECKSUM_AT: usize = 88;
/// The map is read and written in parts of this size. One part covers 128 MiB of the disk.
const MAP_PART_BYTES: usize = 4096;
/// The largest disk that can have an overlay. Its map takes 2 GiB.
const SIZE_MAX: u64 = 1 << 46;
/// A scan of the map ends after this many blocks (4 GiB of the disk).
const LOOK_BLOCKS_MAX: u64 = 1 << 20;

/// Why an overlay cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// The file cannot be created, read or written.
    #[error("the overlay {} cannot be used", path.display())]
    Storage { path: PathBuf, source: io::Error },
    /// Another process has the file locked.
    #[error("the overlay {} is in use by another program", path.display())]
    InUse { path: PathBuf },
    /// A file of another kind, or a damaged overlay.
    #[error("{} is not an overlay of varve, or its first bytes are damaged: choose another file, or remove it", path.display())]
    NotAnOverlay { path: PathBuf },
    /// The overlay was made for another disk.
    #[error("the overlay {} belongs to {found}, not to {wanted}", path.display())]
    OtherDisk {
        path: PathBuf,
        /// The disk that the overlay was made for.
        found: String,
        /// The disk that is served.
        wanted: String,
    },
    #[error("a disk of {size} bytes is too large for an overlay: the limit is {SIZE_MAX} bytes")]
    TooLarge { size: u64 },
}

/// A writable disk over a read-only one.
pub struct Overlay {
    below: Arc<dyn ServedDisk>,
    file: File,
    size: u64,
    data_at: u64,
    /// Held shared by readers, and by writers to blocks that are already in the overlay. Held
    /// exclusively by writers that add blocks.
    map: RwLock<OverlayMap>,
    /// Serialises flushes.
    flushing: Mutex<()>,
    /// A flush has failed, so the system may have dropped writes: later flushes fail, too.
    is_broken: AtomicBool,
    /// The file is never read again, so nothing has to be durable.
    is_thrown_away: bool,
}

struct OverlayMap {
    bits: Vec<u8>,
    /// The parts that have changed since they were written to the file.
    dirty: Vec<bool>,
}

impl OverlayMap {
    fn has(&self, block: u64) -> bool {
        let (byte, bit) = place(block);
        self.bits.get(byte).is_some_and(|bits| bits & bit != 0)
    }

    /// Returns true if the block at `place` is here, and the end of the run of blocks like it.
    fn run_at(&self, place: u64, end: u64) -> (bool, u64) {
        let is_here = self.has(place / BLOCK_BYTES);
        let mut stop = (place / BLOCK_BYTES + 1) * BLOCK_BYTES;
        while stop < end && self.has(stop / BLOCK_BYTES) == is_here {
            stop += BLOCK_BYTES;
        }
        (is_here, stop.min(end))
    }

    fn has_all(&self, mut blocks: Range<u64>) -> bool {
        blocks.all(|block| self.has(block))
    }

    fn set(&mut self, block: u64) {
        let (byte, bit) = place(block);
        if self.bits[byte] & bit == 0 {
            self.bits[byte] |= bit;
            self.dirty[byte / MAP_PART_BYTES] = true;
        }
    }
}

fn place(block: u64) -> (usize, u8) {
    (to_usize(block / 8), 1 << (block % 8))
}

/// The positions of an overlay's parts, for a disk of some size.
struct OverlayLayout {
    map_bytes: u64,
    data_at: u64,
}

impl OverlayLayout {
    fn of(size: u64) -> Self {
        let map_bytes = size.div_ceil(BLOCK_BYTES).div_ceil(8).next_multiple_of(MAP_PART_BYTES as u64);
        Self { map_bytes, data_at: HEADER_BYTES + map_bytes }
    }
}

impl Overlay {
    /// Opens an overlay in a file that is kept, or creates it. `identity` names the disk below in
    /// at most 64 bytes; an overlay for another disk is refused.
    ///
    /// # Errors
    /// [`OverlayError`]
    pub fn keep(below: Arc<dyn ServedDisk>, identity: &str, path: &Path) -> Result<Self, OverlayError> {
        let storage = |source| OverlayError::Storage { path: path.into(), source };
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path).map_err(storage)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OverlayError::InUse { path: path.into() }),
            Err(TryLockError::Error(error)) => return Err(storage(error)),
        }
        let is_new = file.metadata().map_err(storage)?.len() == 0;
        let mut overlay = Self::over(below, file, false)?;
        if is_new {
            overlay.begin(identity).map_err(storage)?;
            sync_folder_of(path).map_err(storage)?;
        } else {
            overlay.take_up(identity, path)?;
        }
        Ok(overlay)
    }

    /// Makes an overlay that ends with this process. `file` must be empty and already unlinked.
    ///
    /// # Errors
    /// [`OverlayError::TooLarge`]
    pub fn throw_away(below: Arc<dyn ServedDisk>, file: File) -> Result<Self, OverlayError> {
        let overlay = Self::over(below, file, true)?;
        // A file system that does not support files of this size fails the writes beyond its limit,
        // and can still hold all others.
        if let Err(error) = overlay.file.set_len(overlay.data_at + overlay.size) {
            tracing::debug!(%error, "the overlay's file grows as it is written to");
        }
        Ok(overlay)
    }

    fn over(below: Arc<dyn ServedDisk>, file: File, is_thrown_away: bool) -> Result<Self, OverlayError> {
        let size = below.size();
        if size > SIZE_MAX {
            return Err(OverlayError::TooLarge { size });
        }
        let OverlayLayout { map_bytes, data_at } = OverlayLayout::of(size);
        let map_bytes = to_usize(map_bytes);
        let map = OverlayMap { bits: vec![0; map_bytes], dirty: vec![false; map_bytes / MAP_PART_BYTES] };
        Ok(Self {
            below,
            file,
            size,
            data_at,
            map: RwLock::new(map),
            flushing: Mutex::new(()),
            is_broken: AtomicBool::new(false),
            is_thrown_away,
        })
    }

    /// Writes an empty overlay. The header is written last: a file without it is not an overlay.
    fn begin(&self, identity: &str) -> io::Result<()> {
        self.file.set_len(self.data_at + self.size)?;
        // Allocate the map now: on a full disk, writes may then fail, but flushes do not.
        match fallocate(&self.file, FallocateFlags::empty(), HEADER_BYTES, self.data_at - HEADER_BYTES) {
            Err(error) if !is_unsupported(&error.into()) => return Err(error.into()),
            _ => {}
        }
        self.file.sync_all()?;
        self.file.write_all_at(&encode_header(self.size, identity), 0)?;
        self.file.sync_all()
    }

    /// Reads the map of an existing overlay.
    fn take_up(&mut self, identity: &str, path: &Path) -> Result<(), OverlayError> {
        let not_one = || OverlayError::NotAnOverlay { path: path.into() };
        let mut header = [0; CHECKSUM_AT + 8];
        self.file.read_exact_at(&mut header, 0).map_err(|_| not_one())?;
        let (size, found) = decode_header(&header).ok_or_else(not_one)?;
        if (size, found.as_str()) != (self.size, identity) {
            let name = |identity: &str, size: u64| format!("{identity} of {size} bytes");
            let (found, wanted) = (name(&found, size), name(identity, self.size));
            return Err(OverlayError::OtherDisk { path: path.into(), found, wanted });
        }
        let map = self.map.get_mut();
        self.file
            .read_exact_at(&mut map.bits, HEADER_BYTES)
            .map_err(|source| OverlayError::Storage { path: path.into(), source })
    }

    /// Copies the blocks at the ends of a range into the overlay if the range covers them only in
    /// part.
    fn bring_edges(&self, map: &mut OverlayMap, range: &Range<u64>) -> io::Result<()> {
        let blocks = blocks_of(range);
        let whole = whole_blocks_of(range);
        for block in [blocks.start, blocks.end - 1] {
            if !whole.contains(&block) && !map.has(block) {
                let start = block * BLOCK_BYTES;
                let length = to_usize(BLOCK_BYTES.min(self.size - start));
                let mut bytes = vec![0; length];
                self.below.read_at(start, &mut bytes)?;
                self.file.write_all_at(&bytes, self.data_at + start)?;
                map.set(block);
            }
        }
        Ok(())
    }

    /// Reads blocks that are in the overlay.
    fn read_here(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let (mut place, mut rest) = (self.data_at + offset, into);
        while !rest.is_empty() {
            match self.file.read_at(rest, place) {
                // Zeros that were written beyond the end of the file did not extend it. A kept file
                // has its full size from the beginning, so a short read there means that data was
                // lost.
                Ok(0) if self.is_thrown_away => {
                    rest.fill(0);
                    return Ok(());
                }
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    place += count as u64;
                    rest = &mut rest[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes zeros, and leaves the map alone.
    fn zero(&self, range: Range<u64>) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, self.data_at + range.start, range.end - range.start) {
            Ok(()) => return Ok(()),
            Err(error) if is_unsupported(&error.into()) => {}
            Err(error) => return Err(error.into()),
        }
        let zeros = vec![0; 1 << 20];
        let mut place = range.start;
        while place < range.end {
            let count = to_usize(range.end - place).min(zeros.len());
            self.file.write_all_at(&zeros[..count], self.data_at + place)?;
            place += count as u64;
        }
        Ok(())
    }

    /// Changes a range with `change`, after its partly covered blocks have been copied into the
    /// overlay.
    fn change(&self, range: Range<u64>, change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        if range.end > self.size {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        {
            let map = self.map.read();
            if map.has_all(blocks_of(&range)) {
                return change();
            }
        }
        let mut map = self.map.write();
        self.bring_edges(&mut map, &range)?;
        change()?;
        blocks_of(&range).for_each(|block| map.set(block));
        Ok(())
    }

    /// Makes the data durable, then writes the changed parts of the map, and makes them durable.
    fn flush_all(&self) -> io::Result<()> {
        let parts: Vec<(usize, Vec<u8>)> = {
            let mut map = self.map.write();
            let dirty: Vec<usize> = (0..map.dirty.len()).filter(|part| map.dirty[*part]).collect();
            dirty.iter().for_each(|part| map.dirty[*part] = false);
            let bytes = |part: &usize| map.bits[part * MAP_PART_BYTES..(part + 1) * MAP_PART_BYTES].to_vec();
            dirty.iter().map(|part| (*part, bytes(part))).collect()
        };
        self.file.sync_data()?;
        if parts.is_empty() {
            return Ok(());
        }
        for (part, bytes) in &parts {
            self.file.write_all_at(bytes, HEADER_BYTES + (part * MAP_PART_BYTES) as u64)?;
        }
        self.file.sync_data()
    }
}

fn blocks_of(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
}

/// The blocks that a range covers completely.
fn whole_blocks_of(range: &Range<u64>) -> Range<u64> {
    range.start.div_ceil(BLOCK_BYTES)..range.end / BLOCK_BYTES
}

fn encode_header(size: u64, identity: &str) -> Vec<u8> {
    let mut header = Vec::with_capacity(CHECKSUM_AT + 8);
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&u32::try_from(BLOCK_BYTES).unwrap_or(0).to_le_bytes());
    header.extend_from_slice(&size.to_le_bytes());
    let mut below = [0; BELOW_BYTES];
    let length = identity.floor_char_boundary(BELOW_BYTES);
    below[..length].copy_from_slice(&identity.as_bytes()[..length]);
    header.extend_from_slice(&below);
    header.extend_from_slice(&xxh3_64(&header).to_le_bytes());
    header
}

/// Returns the size and the identity of the disk below.
fn decode_header(header: &[u8; CHECKSUM_AT + 8]) -> Option<(u64, String)> {
    let (fields, checksum) = header.split_at(CHECKSUM_AT);
    let is_ours = fields.starts_with(&MAGIC)
        && fields.get(8..12)? == VERSION.to_le_bytes()
        && u64::from(u32::from_le_bytes(fields.get(12..16)?.try_into().ok()?)) == BLOCK_BYTES
        && checksum == xxh3_64(fields).to_le_bytes();
    let size = u64::from_le_bytes(fields.get(16..24)?.try_into().ok()?);
    let below = String::from_utf8_lossy(fields.get(24..)?);
    is_ours.then(|| (size, below.trim_end_matches('\0').to_owned()))
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    sync_open_folder(&File::open(folder.unwrap_or(Path::new(".")))?)
}

impl ServedDisk for Overlay {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(into.len() as u64).filter(|end| *end <= self.size);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        // Held until all is read, so that no block moves into the overlay while it is read from
        // below.
        let map = self.map.read();
        let mut place = offset;
        while place < end {
            let (is_here, stop) = map.run_at(place, end);
            let at = |place: u64| to_usize(place - offset);
            let part = &mut into[at(place)..at(stop)];
            if is_here {
                self.read_here(place, part)?;
            } else {
                self.below.read_at(place, part)?;
            }
            place = stop;
        }
        Ok(())
    }

    fn read_ahead(&self) {
        self.below.read_ahead();
    }

    fn map(&self, range: Range<u64>) -> io::Result<Vec<DiskExtent>> {
        let end = range.end.min(self.size).min(range.start.saturating_add(LOOK_BLOCKS_MAX * BLOCK_BYTES));
        let map = self.map.read();
        let mut extents = Vec::new();
        let mut place = range.start;
        while place < end {
            let (is_here, stop) = map.run_at(place, end);
            if is_here {
                push(&mut extents, DiskExtent { length: stop - place, is_hole: false });
                place = stop;
                continue;
            }
            let below = self.below.map(place..stop)?;
            let reported: u64 = below.iter().map(|extent| extent.length).sum();
            below.into_iter().for_each(|extent| push(&mut extents, extent));
            place += reported;
            if place < stop {
                break;
            }
        }
        Ok(extents)
    }

    fn writable(&self) -> Option<&dyn WritableDisk> {
        Some(self)
    }
}

impl WritableDisk for Overlay {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(io::ErrorKind::InvalidInput)?;
        self.change(offset..end, || self.file.write_all_at(bytes, self.data_at + offset))
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        self.change(range.clone(), || self.zero(range))
    }

    fn trim(&self, range: Range<u64>) -> io::Result<()> {
        let whole = whole_blocks_of(&range);
        if whole.is_empty() {
            return Ok(());
        }
        self.write_zeros(whole.start * BLOCK_BYTES..whole.end * BLOCK_BYTES)
    }

    fn flush(&self) -> io::Result<()> {
        if self.is_thrown_away {
            return Ok(());
        }
        let _one_at_a_time = self.flushing.lock();
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(io::Error::other("an earlier flush failed: later writes may be lost"));
        }
        self.flush_all().inspect_err(|_| self.is_broken.store(true, Ordering::Relaxed))
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        if let Err(error) = WritableDisk::flush(self) {
            tracing::error!(%error, "the last writes to the overlay may be lost");
        }
    }
}
