//! Imports one arena into a store.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use sha1::{Digest, Sha1};
use varve_block::{Block, BlockStore, BlockType, PutError, Score, SyncError, to_usize};
use varve_content::Progress;
use varve_content::vac::VacLine;
use varve_store::Store;
use varve_tree::VentiRoot;
use varve_venti::{
    ARENA_HEAD_BYTES, ArenaHead, ArenaPlace, ArenaTrailer, CLUMP_HEADER_BYTES, ClumpHeader,
    DIRECTORY_ENTRY_BYTES, DecodeArenaHeadError, DecodeArenaTrailerError, OpenVentiClumpError, SCORE_BYTES,
};

use super::position::ArenaIdentity;
use super::seal::{SealCheck, SealSum};
use super::source::{VentiArenas, read_up_to};

/// Bytes of an arena that are read at a time.
const READ_BYTES: usize = 1 << 20;
/// Bytes of blocks that are stored together.
const BATCH_BYTES: usize = 4 << 20;
/// Each time after this many bytes of an arena, the stored blocks are made durable, and the
/// position is recorded.
const NOTED_BYTES: u64 = 256 << 20;

/// A place in an arena that holds no block that could be stored.
#[derive(Debug)]
pub struct ArenaDamage {
    /// The byte range, counted from the start of the arena's clumps.
    pub range: std::ops::Range<u64>,
    /// The reason why there is no block at the start of the range.
    pub reason: ClumpDamage,
}

/// Why there is no block.
#[derive(Debug, thiserror::Error)]
pub enum ClumpDamage {
    /// There should be a clump, but its magic number is missing.
    #[error("no clump begins here")]
    NoClump,
    /// The file, or the space for clumps, ends before the clump does.
    #[error("the clump exceeds the end of the arena, or of the file")]
    CutOff,
    #[error("{0}")]
    Open(#[from] OpenVentiClumpError),
    /// The block type is unknown.
    #[error("its type, {byte}, is unknown")]
    Type { byte: u8 },
    /// The score of the block does not match.
    #[error("its block does not match the score in the clump")]
    Score,
}

/// The root of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRoot {
    /// The line `vac:SCORE`, or the same with another kind.
    pub line: String,
    /// The name that its creator gave it.
    pub name: Vec<u8>,
}

/// Receives events while an arena is read.
pub trait ArenaObserver {
    /// Reports a damaged place.
    fn damaged(&mut self, damage: ArenaDamage);
    /// Reports the root of an archive.
    fn found(&mut self, root: FoundRoot);
}

/// The result of reading an arena.
#[derive(Debug)]
pub struct ArenaReport {
    pub name: String,
    /// The version of its format.
    pub version: u32,
    /// True if no more clumps will be added to it.
    pub is_sealed: bool,
    pub trailer: Result<ArenaTrailer, DecodeArenaTrailerError>,
    /// Clumps that were found, including those of earlier runs.
    pub clump_count: u64,
    /// Clumps among them that an earlier run has stored.
    pub known_count: u64,
    /// Blocks that were stored, or existed already.
    pub block_count: u64,
    /// The bytes of these blocks.
    pub block_bytes: u64,
    pub damage_count: u64,
    pub seal: SealCheck,
    /// True if the directory at its end matches the clumps that were found. `None` if that is
    /// unknown.
    pub directory_is_right: Option<bool>,
}

impl ArenaReport {
    /// Returns whether no damage was found.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let is_sealed_well = self.seal != SealCheck::Bad && self.directory_is_right != Some(false);
        self.damage_count == 0 && self.trailer.is_ok() && is_sealed_well
    }
}

/// Why an arena was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum ImportArenaError {
    /// The store's scores are not those of Venti.
    #[error("the store does not have SHA-1 scores, which Venti needs: make a store with `init --score sha1`")]
    OtherScores,
    #[error("{} cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The head of the arena is malformed.
    #[error("arena {name} of {} cannot be read", path.display())]
    Head { path: PathBuf, name: String, source: DecodeArenaHeadError },
    /// The store accepts no more data.
    #[error("{0}")]
    Put(#[from] PutError),
    /// The stored blocks may not be durable.
    #[error("{0}")]
    Sync(#[from] SyncError),
    /// [`Progress::cancel`](varve_content::Progress::cancel) was called.
    #[error("interrupted; the same command continues from here")]
    Cancelled,
}

/// Reads an arena, and stores the blocks of all intact clumps. They are durable on return. A clump
/// that an earlier run has stored is not opened again, but its bytes count for the seal.
///
/// Memory holds 1 MiB of the arena, and 4 MiB of blocks.
///
/// # Errors
/// [`ImportArenaError`]. Damage is reported to the observer, and is no error.
pub fn import_venti_arena(
    store: &Store,
    arenas: &VentiArenas,
    place: &ArenaPlace,
    progress: &Progress,
    observer: &mut dyn ArenaObserver,
) -> Result<ArenaReport, ImportArenaError> {
    if store.score_bytes() != SCORE_BYTES {
        return Err(ImportArenaError::OtherScores);
    }
    let mut import = ArenaImport::begin(store, arenas, place, progress, observer)?;
    import.read_all()?;
    import.finish()
}

struct ArenaImport<'a> {
    store: &'a Store,
    arenas: &'a VentiArenas,
    place: &'a ArenaPlace,
    progress: &'a Progress,
    observer: &'a mut dyn ArenaObserver,
    head: ArenaHead,
    trailer: Result<ArenaTrailer, DecodeArenaTrailerError>,
    identity: ArenaIdentity,
    /// An earlier run has stored everything up to this address.
    known_to: u64,
    seal: SealSum,
    directory: Sha1,
    /// Bytes that were read, but not examined yet. They begin at `address`.
    window: Vec<u8>,
    address: u64,
    /// True once the end of the clumps was found.
    has_ended: bool,
    /// The damaged place that is open at `address`.
    damage: Option<ArenaDamage>,
    batch: Vec<(BlockType, Vec<u8>)>,
    batch_bytes: usize,
    noted: u64,
    report: ImportCounts,
}

#[derive(Default)]
struct ImportCounts {
    clump_count: u64,
    known_count: u64,
    block_count: u64,
    block_bytes: u64,
    damage_count: u64,
}

/// The result of examining the front of the window.
enum ImportStep {
    /// More bytes are needed.
    More,
    /// This many bytes are done.
    Past(usize),
    End,
}

impl<'a> ArenaImport<'a> {
    fn begin(
        store: &'a Store,
        arenas: &'a VentiArenas,
        place: &'a ArenaPlace,
        progress: &'a Progress,
        observer: &'a mut dyn ArenaObserver,
    ) -> Result<Self, ImportArenaError> {
        let read = |offset: u64, length: usize| {
            read_up_to(&arenas.file, place.range.start.saturating_add(offset), length)
                .map_err(|source| ImportArenaError::Read { path: arenas.path.clone(), source })
        };
        let head_bytes = read(0, ARENA_HEAD_BYTES)?;
        let head = ArenaHead::decode(&head_bytes).map_err(|source| ImportArenaError::Head {
            path: arenas.path.clone(),
            name: place.name.clone(),
            source,
        })?;
        let middle = head.middle();
        let trailer = ArenaTrailer::decode(&read(middle.end, head.block_bytes as usize)?);
        let identity = ArenaIdentity::new(&head_bytes, &read(middle.start, CLUMP_HEADER_BYTES)?);
        let known_to = identity.noted(store);
        Ok(Self {
            store,
            arenas,
            place,
            progress,
            observer,
            seal: SealSum::new(head.size),
            head,
            trailer,
            identity,
            known_to,
            directory: Sha1::new(),
            window: Vec::new(),
            address: 0,
            has_ended: false,
            damage: None,
            batch: Vec::new(),
            batch_bytes: 0,
            noted: known_to,
            report: ImportCounts::default(),
        })
    }

    /// The end of the clumps according to the trailer. `None` if the trailer is unreadable.
    fn used(&self) -> Option<u64> {
        let middle = self.head.middle();
        self.trailer.as_ref().ok().map(|trailer| trailer.used.min(middle.end - middle.start))
    }

    fn read_all(&mut self) -> Result<(), ImportArenaError> {
        let middle = self.head.middle();
        let mut offset = 0;
        while offset < self.head.size {
            if self.progress.is_cancelled() {
                self.put_batch()?;
                self.make_durable()?;
                return Err(ImportArenaError::Cancelled);
            }
            let length = (self.head.size - offset).min(READ_BYTES as u64);
            let bytes = self.read(offset, to_usize(length))?;
            self.seal.add(&bytes);
            let chunk = offset..offset.saturating_add(bytes.len() as u64);
            let (from, to) = (middle.start.max(chunk.start), middle.end.min(chunk.end));
            if from < to && !self.has_ended {
                let within = |place: u64| to_usize(place - chunk.start);
                self.window.extend_from_slice(&bytes[within(from)..within(to)]);
                let is_last = to == middle.end || (bytes.len() as u64) < length;
                self.look(is_last)?;
            }
            self.progress.add_bytes_done(bytes.len() as u64);
            if (bytes.len() as u64) < length {
                break;
            }
            offset = chunk.end;
        }
        Ok(())
    }

    fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, ImportArenaError> {
        read_up_to(&self.arenas.file, self.place.range.start.saturating_add(offset), length)
            .map_err(|source| ImportArenaError::Read { path: self.arenas.path.clone(), source })
    }

    /// Takes all complete clumps out of the window.
    fn look(&mut self, is_last: bool) -> Result<(), ImportArenaError> {
        let mut passed = 0;
        let window = std::mem::take(&mut self.window);
        while !self.has_ended {
            match self.step(&window[passed..], is_last)? {
                ImportStep::More => break,
                ImportStep::Past(count) => {
                    passed += count;
                    self.address += count as u64;
                }
                ImportStep::End => self.has_ended = true,
            }
        }
        self.window = window[passed..].to_vec();
        if is_last || self.has_ended {
            self.has_ended = true;
            self.end_damage();
        }
        Ok(())
    }

    fn step(&mut self, bytes: &[u8], is_last: bool) -> Result<ImportStep, ImportArenaError> {
        let magic = self.head.clump_magic;
        let is_beyond = self.used().is_none_or(|used| self.address >= used);
        if bytes.is_empty() || bytes.len() < CLUMP_HEADER_BYTES && !is_last {
            return Ok(ImportStep::More);
        }
        let Some(header) = ClumpHeader::decode(bytes, magic) else {
            if is_beyond {
                return Ok(ImportStep::End);
            }
            self.note_damage(ClumpDamage::NoClump, 0);
            return Ok(to_next(bytes, 0, magic, is_last));
        };
        let Some(data) = bytes.get(CLUMP_HEADER_BYTES..header.clump_bytes()) else {
            if !is_last {
                return Ok(ImportStep::More);
            }
            if !is_beyond {
                self.note_damage(ClumpDamage::CutOff, 0);
            }
            return Ok(to_next(bytes, 1, magic, is_last));
        };
        let end = self.address.saturating_add(header.clump_bytes() as u64);
        if end <= self.known_to && self.damage.is_none() {
            self.report.known_count += 1;
        } else if let Err(reason) = self.take(&header, data)? {
            // Beyond the end in the trailer, this is an unfinished write that a crash has left.
            if is_beyond {
                return Ok(ImportStep::End);
            }
            self.note_damage(reason, CLUMP_HEADER_BYTES);
            return Ok(to_next(bytes, 1, magic, is_last));
        }
        self.end_damage();
        self.count(&header, bytes);
        if self.address.saturating_sub(self.noted) >= NOTED_BYTES {
            self.put_batch()?;
            self.make_durable()?;
        }
        Ok(ImportStep::Past(header.clump_bytes()))
    }

    /// Counts a complete clump. Its header is hashed for the comparison with the directory at the
    /// end.
    fn count(&mut self, header: &ClumpHeader, bytes: &[u8]) {
        let listed = self.trailer.as_ref().map_or(0, |trailer| u64::from(trailer.clumps));
        if self.report.clump_count < listed {
            self.directory.update(&bytes[4..4 + DIRECTORY_ENTRY_BYTES]);
        }
        self.report.clump_count += 1;
        tracing::trace!(address = self.address, size = header.size, "clump");
    }

    /// Opens a clump, and queues its block for storing.
    fn take(
        &mut self,
        header: &ClumpHeader,
        data: &[u8],
    ) -> Result<Result<(), ClumpDamage>, ImportArenaError> {
        let block = match header.open(data) {
            Ok(block) => block,
            Err(error) => return Ok(Err(error.into())),
        };
        let Some(block_type) = header.wire_type.block_types().next() else {
            return Ok(Err(ClumpDamage::Type { byte: header.wire_type.to_byte() }));
        };
        if Score::sha1(&block).as_bytes() != header.score {
            return Ok(Err(ClumpDamage::Score));
        }
        if block_type == BlockType::ROOT {
            self.tell_root(&block, &header.score);
        }
        self.report.block_count += 1;
        self.report.block_bytes += block.len() as u64;
        self.batch_bytes += block.len();
        self.batch.push((block_type, Cow::into_owned(block)));
        if self.batch_bytes >= BATCH_BYTES {
            self.put_batch()?;
        }
        Ok(Ok(()))
    }

    fn tell_root(&mut self, block: &[u8], score: &[u8; SCORE_BYTES]) {
        if let Ok(root) = VentiRoot::decode(block) {
            let line = VacLine::show(&root.kind, score);
            self.observer.found(FoundRoot { line, name: root.name });
        }
    }

    fn put_batch(&mut self) -> Result<(), ImportArenaError> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let blocks: Vec<Block<'_>> =
            batch.iter().map(|(block_type, bytes)| Block { block_type: *block_type, bytes }).collect();
        if !blocks.is_empty() {
            self.store.put_batch(&blocks)?;
        }
        Ok(())
    }

    /// Makes everything before the address durable, so that it need not be opened again. If there
    /// is damage, the position is not recorded, so that the next run reports it again.
    fn make_durable(&mut self) -> Result<(), ImportArenaError> {
        self.store.sync()?;
        self.noted = self.address;
        if self.report.damage_count == 0 && self.damage.is_none() {
            self.identity.note(self.store, self.address);
        }
        Ok(())
    }

    fn note_damage(&mut self, reason: ClumpDamage, least: usize) {
        let end = self.address.saturating_add(least.max(1) as u64);
        match &mut self.damage {
            Some(damage) => damage.range.end = end,
            None => self.damage = Some(ArenaDamage { range: self.address..end, reason }),
        }
    }

    /// Ends the damaged place at the next intact clump.
    fn end_damage(&mut self) {
        if let Some(mut damage) = self.damage.take() {
            damage.range.end = damage.range.end.max(self.address);
            self.report.damage_count += 1;
            self.observer.damaged(damage);
        }
    }

    fn finish(mut self) -> Result<ArenaReport, ImportArenaError> {
        self.end_damage();
        self.put_batch()?;
        // The trailer counts clumps that the file no longer has.
        let missing = self.used().filter(|used| *used > self.address);
        if let Some(used) = missing.filter(|_| self.report.damage_count == 0) {
            self.report.damage_count += 1;
            self.observer.damaged(ArenaDamage { range: self.address..used, reason: ClumpDamage::CutOff });
        }
        self.make_durable()?;
        let directory_is_right = self.check_directory()?;
        let Self { head, trailer, seal, report, .. } = self;
        let score = trailer.as_ref().ok().and_then(|trailer| trailer.score);
        Ok(ArenaReport {
            name: head.name,
            version: head.version,
            is_sealed: trailer.as_ref().is_ok_and(|trailer| trailer.is_sealed),
            seal: seal.check(score),
            trailer,
            clump_count: report.clump_count,
            known_count: report.known_count,
            block_count: report.block_count,
            block_bytes: report.block_bytes,
            damage_count: report.damage_count,
            directory_is_right,
        })
    }

    /// Compares the directory with the clumps that were found, if all of them were found.
    fn check_directory(&mut self) -> Result<Option<bool>, ImportArenaError> {
        let Ok(trailer) = &self.trailer else { return Ok(None) };
        let count = u64::from(trailer.clumps);
        if self.report.damage_count > 0 || self.report.clump_count < count {
            return Ok(None);
        }
        let (block_bytes, middle) = (u64::from(self.head.block_bytes), self.head.middle());
        let entries_a_block = (block_bytes / DIRECTORY_ENTRY_BYTES as u64).max(1);
        let block_count = count.div_ceil(entries_a_block);
        if block_count.saturating_mul(block_bytes) > middle.end - middle.start {
            return Ok(Some(false));
        }
        let mut sum = Sha1::new();
        for number in 0..block_count {
            let entries = entries_a_block.min(count - number * entries_a_block);
            let length = to_usize(entries) * DIRECTORY_ENTRY_BYTES;
            sum.update(self.read(middle.end - (number + 1) * block_bytes, length)?);
        }
        Ok(Some(sum.finalize() == self.directory.clone().finalize()))
    }
}

/// Skips to the next place where a clump may begin, at least `least` bytes further on.
fn to_next(bytes: &[u8], least: usize, magic: u32, is_last: bool) -> ImportStep {
    let magic = magic.to_be_bytes();
    let rest = bytes.get(least.max(1)..).unwrap_or_default();
    match rest.windows(magic.len()).position(|window| window == magic) {
        Some(place) => ImportStep::Past(place + least.max(1)),
        // The magic number may begin in these bytes, and continue in bytes that were not read yet.
        None if !is_last => ImportStep::Past(bytes.len().saturating_sub(magic.len() - 1).max(least.max(1))),
        None => ImportStep::Past(bytes.len()),
    }
}
