//! Replays the journal (jbd2), as a mount does before it shows anything. Nothing is written: blocks
//! with a newer version in the journal are read from there.
//!
//! A transaction is a sequence of blocks: descriptors, each followed by the blocks that it names;
//! revocations, which cancel the versions of a block in earlier transactions; and a commit, without
//! which the transaction is ignored. All numbers are big-endian.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use varve_block::to_usize;

use super::sound::begins_fast_commit;
use super::{BlockRun, ExtFileSystem, MetadataBlock, damaged};
use crate::bytes::crc::crc32c_from;
use crate::bytes::fields::array_at;
use crate::bytes::read_at::ReadAt;
use crate::file_systems::file_system::FileSystemError;

const MAGIC: u32 = 0xc03b_3998;
const HEADER_BYTES: usize = 12;
const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const SUPERBLOCKS: [u32; 2] = [3, 4];
const REVOCATION: u32 = 5;

const WIDE: u32 = 0x2;
const CHECKSUMS_2: u32 = 0x8;
const CHECKSUMS_3: u32 = 0x10;
const FAST_COMMITS: u32 = 0x20;
const KNOWN: u32 = 0x3f;

/// The limit on the bytes of revocations in a journal, because they are kept in memory.
const REVOKED_BYTES_MAX: usize = 16 << 20;

const ESCAPED: u32 = 1;
const SAME_UUID: u32 = 2;
const LAST: u32 = 8;

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array_at(bytes, at))
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array_at(bytes, at))
}

/// The newest version of a block.
#[derive(Debug, Clone, Copy)]
struct NewestVersion {
    /// Its block on the volume.
    at: u64,
    /// True if its first four bytes are the magic number of the journal. The journal stores them as
    /// zeros, so that the block is not mistaken for a journal block.
    escaped: bool,
}

/// A volume as it would be after recovery.
pub(super) struct RecoveredVolume {
    volume: Arc<dyn ReadAt>,
    block_bytes: u64,
    newest: BTreeMap<u64, NewestVersion>,
}

/// The result of reading a journal.
pub(super) struct JournalReplay {
    pub(super) volume: RecoveredVolume,
    /// The reason why some of it could not be replayed.
    pub(super) problem: Option<String>,
    /// True if some of that is in the fast-commit area.
    pub(super) has_fast_commits: bool,
}

impl ReadAt for RecoveredVolume {
    fn size(&self) -> u64 {
        self.volume.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(into.len() as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.volume.read_at(offset, into)?;
        let first = offset.checked_div(self.block_bytes).unwrap_or(0);
        for (block, newest) in self.newest.range(first..end.div_ceil(self.block_bytes)) {
            let start = block.saturating_mul(self.block_bytes);
            let part = offset.max(start)..end.min(start.saturating_add(self.block_bytes));
            let inside = part.start.saturating_sub(start);
            let at = newest.at.saturating_mul(self.block_bytes).saturating_add(inside);
            let place = |at: u64| to_usize(at.saturating_sub(offset));
            let into = into.get_mut(place(part.start)..place(part.end)).unwrap_or_default();
            self.volume.read_at(at, into)?;
            if newest.escaped {
                let magic = MAGIC.to_be_bytes();
                let from = magic.get(to_usize(inside).min(4)..).unwrap_or_default();
                into.iter_mut().zip(from).for_each(|(into, from)| *into = *from);
            }
        }
        Ok(())
    }
}

/// The content of one transaction.
#[derive(Default)]
struct Transaction {
    writes: Vec<(u64, NewestVersion)>,
    revoked: Vec<u64>,
}

struct Journal<'a> {
    files: &'a ExtFileSystem,
    /// The journal's own blocks on the volume, in its order.
    runs: Vec<BlockRun>,
    /// The blocks that form the ring of transactions.
    ring: Range<u32>,
    /// The first block of the fast-commit area, if there is one.
    fast: Option<u32>,
    features: u32,
    checksum_seed: u32,
    place: u32,
    /// The number of blocks that may still be read: once around the ring.
    left: u32,
}

/// Reads a journal that has transactions to replay.
pub(super) fn replay(files: &ExtFileSystem) -> Result<JournalReplay, FileSystemError> {
    let block_bytes = u64::from(files.superblock.block_bytes);
    let volume = RecoveredVolume { volume: Arc::clone(&files.volume), block_bytes, newest: BTreeMap::new() };
    let mut replay = JournalReplay { volume, problem: None, has_fast_commits: false };
    let number = files.superblock.journal_inode;
    if number == 0 {
        replay.problem = Some("it is on another disk".into());
        return Ok(replay);
    }
    let Some((mut journal, sequence)) = Journal::open(files, number)? else { return Ok(replay) };
    let (transactions, problem) = journal.transactions(sequence)?;
    replay.problem = problem;
    let next = u32::try_from(transactions.len()).map_or(sequence, |count| sequence.wrapping_add(count));
    replay.has_fast_commits = journal.has_fast_commits(next);
    if replay.has_fast_commits {
        replay.problem.get_or_insert("its fast commits are not supported".into());
    }
    let mut revoked: BTreeMap<u64, usize> = BTreeMap::new();
    for (number, transaction) in transactions.iter().enumerate() {
        revoked.extend(transaction.revoked.iter().map(|block| (*block, number)));
    }
    for (number, transaction) in transactions.into_iter().enumerate() {
        let counts = |block: &u64| revoked.get(block).is_none_or(|last| *last < number);
        replay.volume.newest.extend(transaction.writes.into_iter().filter(|(block, _)| counts(block)));
    }
    Ok(replay)
}

/// Returns true if the journal has no transactions, or if there is no journal on this volume.
pub(super) fn is_empty(files: &ExtFileSystem) -> Result<bool, FileSystemError> {
    match files.superblock.journal_inode {
        0 => Ok(true),
        inode => Ok(Journal::open(files, inode)?.is_none()),
    }
}

impl<'a> Journal<'a> {
    /// Opens the journal and returns the number of its first transaction; `None` if it is empty.
    fn open(files: &'a ExtFileSystem, inode: u32) -> Result<Option<(Self, u32)>, FileSystemError> {
        let mut runs = Vec::new();
        files.for_each_run(&files.inode(inode)?, |run| {
            runs.push(run);
            Ok(())
        })?;
        let wrong = |problem: &str| Err(damaged("journal", problem));
        let mut journal =
            Self { files, runs, ring: 0..1, fast: None, features: 0, checksum_seed: 0, place: 0, left: 0 };
        let superblock = journal.block(0)?;
        let kind = be32(&superblock, 4);
        if be32(&superblock, 0) != MAGIC || !SUPERBLOCKS.contains(&kind) {
            return wrong("its superblock is malformed");
        }
        if be32(&superblock, 12) != files.superblock.block_bytes {
            return wrong("its block size differs");
        }
        if kind == 4 {
            journal.features = be32(&superblock, 40);
        }
        if journal.features & !KNOWN != 0 {
            let feature = format!("the feature {:#x}", journal.features & !KNOWN);
            return Err(FileSystemError::Unsupported { what: "journal".into(), feature });
        }
        journal.checksum_seed = crc32c_from(!0, &array_at::<16>(&superblock, 48));
        let (mut end, first) = (be32(&superblock, 16), be32(&superblock, 20));
        if journal.features & FAST_COMMITS != 0 {
            // The default is 256 blocks.
            let fast = Some(be32(&superblock, 0x54)).filter(|count| *count > 0).unwrap_or(256);
            end = end.saturating_sub(fast);
            journal.fast = Some(end);
        }
        let start = be32(&superblock, 28);
        if start == 0 {
            return Ok(None);
        }
        if first == 0
            || first >= end
            || !(first..end).contains(&start)
            || u64::from(end) > files.block_count()
        {
            return wrong("its start or end is impossible");
        }
        journal.ring = first..end;
        journal.place = start;
        journal.left = end.saturating_sub(first);
        Ok(Some((journal, be32(&superblock, 24))))
    }

    fn physical(&self, block: u32) -> Result<u64, FileSystemError> {
        let block = u64::from(block);
        let after = self.runs.partition_point(|run| run.logical <= block);
        let run = after.checked_sub(1).and_then(|at| self.runs.get(at));
        let inside = |run: &BlockRun| block.checked_sub(run.logical).filter(|inside| *inside < run.count);
        run.and_then(|run| run.physical?.checked_add(inside(run)?))
            .ok_or_else(|| damaged("journal", &format!("it has no block {block}")))
    }

    fn block(&self, block: u32) -> Result<MetadataBlock, FileSystemError> {
        self.files.metadata(self.physical(block)?, || "journal".into())
    }

    /// Returns the next block of the ring; `None` after a full round.
    fn next(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let place = self.place;
        let next = place.saturating_add(1);
        self.place = if self.ring.contains(&next) { next } else { self.ring.start };
        Some(place)
    }

    /// Returns true if the fast-commit area extends the transactions before number `sequence`, or
    /// if it cannot be read.
    fn has_fast_commits(&self, sequence: u32) -> bool {
        let Some(place) = self.fast else { return false };
        self.block(place).map_or(true, |block| begins_fast_commit(&block, sequence))
    }

    fn has_checksums(&self) -> bool {
        self.features & (CHECKSUMS_2 | CHECKSUMS_3) != 0
    }

    /// Returns true if a journal block matches its checksum at `at`.
    fn is_whole(&self, block: &[u8], at: usize) -> bool {
        let (before, rest) = block.split_at_checked(at).unwrap_or((block, &[]));
        let code = crc32c_from(crc32c_from(self.checksum_seed, before), &[0; 4]);
        !self.has_checksums() || crc32c_from(code, rest.get(4..).unwrap_or_default()) == be32(block, at)
    }

    /// Returns all committed transactions, and the problem of the one after them unless it is
    /// simply absent.
    fn transactions(&mut self, first: u32) -> Result<(Vec<Transaction>, Option<String>), FileSystemError> {
        let mut transactions = Vec::new();
        let mut sequence = first;
        let mut current = Transaction::default();
        let mut revoked = 0_usize;
        while let Some(place) = self.next() {
            let block = self.block(place)?;
            if be32(&block, 0) != MAGIC || be32(&block, 8) != sequence {
                break;
            }
            let tail = block.len().saturating_sub(4);
            let problem =
                |what: &str| Some(format!("{what} of transaction {sequence} does not match its checksum"));
            match be32(&block, 4) {
                DESCRIPTOR if !self.is_whole(&block, tail) => {
                    return Ok((transactions, problem("a descriptor")));
                }
                DESCRIPTOR => {
                    if !self.add_writes(&block, sequence, &mut current)? {
                        return Ok((transactions, problem("a block")));
                    }
                }
                REVOCATION if !self.is_whole(&block, tail) => {
                    return Ok((transactions, problem("a revocation")));
                }
                REVOCATION => {
                    revoked = revoked.saturating_add(block.len());
                    if revoked > REVOKED_BYTES_MAX {
                        return Ok((transactions, Some("it revokes an impossible number of blocks".into())));
                    }
                    self.add_revoked(&block, &mut current);
                }
                // The checksum of a commit is at 16. A torn commit was never acknowledged.
                COMMIT if !self.is_whole(&block, 16) => break,
                COMMIT => {
                    transactions.push(std::mem::take(&mut current));
                    sequence = sequence.wrapping_add(1);
                }
                _ => break,
            }
        }
        Ok((transactions, None))
    }

    /// Adds the blocks that follow a descriptor. Returns false if one of them does not match its
    /// checksum.
    fn add_writes(
        &mut self,
        descriptor: &[u8],
        sequence: u32,
        into: &mut Transaction,
    ) -> Result<bool, FileSystemError> {
        let is_3 = self.features & CHECKSUMS_3 != 0;
        let is_wide = self.features & WIDE != 0;
        let tag_bytes = match (is_3, self.features & CHECKSUMS_2 != 0) {
            (true, _) => 16,
            (false, true) => {
                if is_wide {
                    14
                } else {
                    10
                }
            }
            (false, false) => {
                if is_wide {
                    12
                } else {
                    8
                }
            }
        };
        let end = descriptor.len().saturating_sub(if self.has_checksums() { 4 } else { 0 });
        let mut rest = descriptor.get(HEADER_BYTES..end).unwrap_or_default();
        while let Some((tag, after)) = rest.split_at_checked(tag_bytes) {
            let flags = if is_3 { be32(tag, 4) } else { u32::from(be16(tag, 6)) };
            let high = if is_wide { u64::from(be32(tag, 8)) } else { 0 };
            let block = high << 32 | u64::from(be32(tag, 0));
            let Some(place) = self.next() else { return Ok(true) };
            let escaped = flags & ESCAPED != 0;
            if self.has_checksums() {
                let content = self.block(place)?;
                let seed = crc32c_from(self.checksum_seed, &sequence.to_be_bytes());
                let code = crc32c_from(seed, &content);
                let fits =
                    if is_3 { code == be32(tag, 12) } else { code & 0xffff == u32::from(be16(tag, 4)) };
                if !fits {
                    return Ok(false);
                }
            }
            into.writes.push((block, NewestVersion { at: self.physical(place)?, escaped }));
            let skipped = if flags & SAME_UUID != 0 { 0 } else { 16 };
            rest = after.get(skipped..).unwrap_or_default();
            if flags & LAST != 0 {
                break;
            }
        }
        Ok(true)
    }

    fn add_revoked(&self, block: &[u8], into: &mut Transaction) {
        let is_wide = self.features & WIDE != 0;
        let end = to_usize(be32(block, HEADER_BYTES)).min(block.len());
        let list = block.get(HEADER_BYTES.saturating_add(4)..end).unwrap_or_default();
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
        into.revoked.extend(list.chunks_exact(if is_wide { 8 } else { 4 }).map(number));
    }
}
