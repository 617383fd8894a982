//! Measures how much of each arena is live, from its directory pages. Clumps are not read, except
//! for the tables of frames of clumps that are partly live.

use std::collections::BTreeSet;

use varve_block::{BlockKind, BlockName, with_causes};
use varve_log::{
    ArenaId, ArenaState, ArenaWindow, ClumpMap, ClumpRow, DirectoryPage, Footer, GRANULE_BYTES, OpenedArena,
    PageBlock, PageRow, ReadLogError,
};
use varve_store::Store;

use super::kept_frames::{ClumpFate, FrameUse, kept_frames};
use super::live_blocks::{LiveBlocks, is_structure};
use crate::check::Checker;
use crate::damage::is_finding;

/// The bytes of an arena without blocks: header, one page, its row and the footer.
pub(super) const EMPTY_ARENA_BYTES: u64 = 1024;
/// The bytes of a record's header and of the counts of a table, and those of a frame's row.
const TABLE_BYTES: u64 = 72;
const FRAME_ROW_BYTES: u64 = 32;
/// A read for a table of frames. Most tables are shorter.
const TABLE_READ_BYTES: usize = 4096;

/// The most measurements of an arena that other processes change all the time.
const MEASURES_MAX: usize = 16;

/// The use of one arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArenaUse {
    pub arena: ArenaId,
    /// The generation that was measured.
    pub generation: u32,
    /// The length of its file.
    pub file_bytes: u64,
    pub block_count: u64,
    /// The bytes of all blocks, before compression.
    pub block_bytes: u64,
    pub live_count: u64,
    pub live_bytes: u64,
    /// The length of the file if it is written anew without the dead blocks.
    pub kept_bytes: u64,
    /// The bytes that are read for that.
    pub read_bytes: u64,
    /// The clumps that are partly live.
    pub mixed_count: u64,
    /// Dead blocks that lead to others.
    pub dead_structure_count: u64,
    /// True if a write-only key has written the arena.
    pub is_write_only: bool,
    /// The reason why it must not be written anew, whatever is dead in it.
    pub obstacle: Option<ArenaObstacle>,
}

/// The reason why an arena cannot be written anew.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ArenaObstacle {
    /// It is still growing.
    Unsealed,
    /// Damage was found in it that is not mended yet.
    Damaged,
    /// A part of it that names blocks cannot be read.
    Unreadable { reason: String },
}

impl ArenaUse {
    /// Returns the bytes that are freed if the arena is written anew.
    #[must_use]
    pub fn dead_bytes(&self) -> u64 {
        self.file_bytes.saturating_sub(self.kept_bytes)
    }
}

/// An arena that was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredArena {
    pub usage: ArenaUse,
    /// The dead blocks that lead to others, sorted.
    pub barren: Vec<BlockName>,
}

/// Measures arenas. One meter may be used by several threads.
pub struct ArenaMeter<'a> {
    store: &'a Store,
    live: &'a LiveBlocks,
    damaged: BTreeSet<ArenaId>,
}

impl<'a> ArenaMeter<'a> {
    /// Makes a meter. `live` must be complete: all roots of the store were walked.
    #[must_use]
    pub fn new(store: &'a Store, live: &'a LiveBlocks) -> Self {
        Self { store, live, damaged: Checker::of(store).damaged_arenas() }
    }

    /// Measures an arena. Damage is no error, but an obstacle.
    ///
    /// # Errors
    /// [`ReadLogError`] when the arena cannot be read for a reason other than damage.
    pub fn measure(&self, id: ArenaId) -> Result<MeasuredArena, ReadLogError> {
        let (log, vault) = (self.store.vault().log(), self.store.vault());
        let (mut tries_left, mut damaged) = (MEASURES_MAX, None);
        loop {
            let before = log.arena_file(id);
            let mut found = Measurement::new(id);
            found.usage.file_bytes = vault.storage().length(&id.file_name()).unwrap_or(0);
            if self.damaged.contains(&id) {
                found.usage.obstacle = Some(ArenaObstacle::Damaged);
            }
            match self.measure_pages(id, &mut found) {
                Err(error) if is_finding(&error) => found.note_unreadable(&error),
                other => other?,
            }
            tries_left -= 1;
            if !found.is_unreadable || tries_left == 0 {
                return Ok(found.finish());
            }
            if log.was_never_begun(id).unwrap_or(false) {
                found.usage.obstacle = Some(ArenaObstacle::Unsealed);
                return Ok(found.finish());
            }
            // Damage counts if it is met twice in one file, which nobody has begun, replaced,
            // extended or cut meanwhile.
            let now = Some(log.arena_file(id));
            if Some(before) == now && damaged == now {
                return Ok(found.finish());
            }
            damaged = now;
        }
    }

    fn measure_pages(&self, id: ArenaId, found: &mut Measurement) -> Result<(), ReadLogError> {
        let log = self.store.vault().log();
        let arena = log.open_arena(id)?;
        found.usage.generation = arena.header().generation;
        found.usage.is_write_only = arena.header().is_write_only();
        match log.state(&arena)? {
            ArenaState::Sealed { footer, pages } => self.measure_sealed(&arena, &footer, &pages, found),
            ArenaState::Unsealed => {
                let names = self.store.names_in_arena(id)?;
                found.usage.obstacle.get_or_insert(ArenaObstacle::Unsealed);
                for name in &names.names {
                    found.count(name, 0, self.live.contains(name));
                }
                names.failure.map_or(Ok(()), Err)
            }
        }
    }

    fn measure_sealed(
        &self,
        arena: &OpenedArena,
        footer: &Footer,
        rows: &[PageRow],
        found: &mut Measurement,
    ) -> Result<(), ReadLogError> {
        let log = self.store.vault().log();
        let mut window = log.window(arena, TABLE_READ_BYTES);
        for row in rows {
            let page = match log.read_page(arena, row) {
                Ok(page) => page,
                Err(error) if is_finding(&error) => {
                    found.note_unreadable(&error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let kept_before = found.kept_count;
            for clump in page.clumps() {
                self.measure_clump(clump, &page, &mut window, found)?;
            }
            let kept_count = found.kept_count - kept_before;
            let page_bytes = row.end() - row.granule.byte_offset();
            found.usage.kept_bytes += share_of(page_bytes, kept_count, page.block_count() as u64);
        }
        let rows_bytes = found.usage.file_bytes.saturating_sub(footer.log_bytes);
        let kept_count = found.kept_count;
        found.usage.kept_bytes += share_of(rows_bytes, kept_count, found.usage.block_count);
        Ok(())
    }

    fn measure_clump(
        &self,
        clump: &ClumpRow,
        page: &DirectoryPage,
        window: &mut ArenaWindow<'_>,
        found: &mut Measurement,
    ) -> Result<(), ReadLogError> {
        let blocks: Vec<_> = page.blocks_of(clump.granule).collect();
        let live: Vec<_> = blocks.iter().map(|block| self.live.contains(&block.name)).collect();
        let mut whole = FrameUse::default();
        for (block, is_live) in blocks.iter().zip(&live) {
            found.count(&block.name, block.size, *is_live);
            whole.add(block.size, *is_live);
        }
        let clump_bytes = clump.end() - clump.granule.byte_offset();
        if !whole.is_live() {
            return Ok(());
        }
        if whole.live_count == whole.block_count {
            found.keep(clump_bytes, clump_bytes, whole.block_count);
            return Ok(());
        }
        found.usage.mixed_count += 1;
        let map = match window.map(clump.granule) {
            Ok(map) => map,
            Err(error) if is_finding(&error) => {
                found.note_unreadable(&error);
                found.keep(clump_bytes, clump_bytes, whole.block_count);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let frames = frames_of(&map, &blocks, &live);
        match kept_frames(&frames) {
            ClumpFate::Whole => found.keep(clump_bytes, clump_bytes, whole.block_count),
            ClumpFate::Frames(kept) => found.keep_frames(&map, &frames, &kept),
            ClumpFate::Repack => {
                let bytes = share_of(clump_bytes, whole.live_bytes, whole.block_bytes);
                found.keep(clump_bytes, bytes.max(TABLE_BYTES), whole.live_count);
            }
            ClumpFate::Dropped => {}
        }
        Ok(())
    }
}

/// Returns the use of each frame of a clump. A clump that is not framed is one frame.
fn frames_of(map: &ClumpMap, blocks: &[PageBlock], live: &[bool]) -> Vec<FrameUse> {
    let all = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
    let counts = (0..map.frame_count()).map(|frame| map.block_count(frame).unwrap_or(all));
    FrameUse::of_frames(counts, blocks.iter().map(|block| block.size).zip(live.iter().copied()))
}

/// Returns the part of `bytes` for `count` of `all`, rounded up.
fn share_of(bytes: u64, count: u64, all: u64) -> u64 {
    let share = (u128::from(bytes) * u128::from(count.min(all))).div_ceil(u128::from(all.max(1)));
    u64::try_from(share).unwrap_or(bytes)
}

/// A measurement that is not finished.
struct Measurement {
    usage: ArenaUse,
    /// The blocks that a rewrite keeps, with dead ones in frames that are kept.
    kept_count: u64,
    barren: Vec<BlockName>,
    /// True if something of it could not be read.
    is_unreadable: bool,
}

impl Measurement {
    fn new(arena: ArenaId) -> Self {
        let usage = ArenaUse {
            arena,
            generation: 0,
            file_bytes: 0,
            block_count: 0,
            block_bytes: 0,
            live_count: 0,
            live_bytes: 0,
            kept_bytes: EMPTY_ARENA_BYTES,
            read_bytes: 0,
            mixed_count: 0,
            dead_structure_count: 0,
            is_write_only: false,
            obstacle: None,
        };
        Self { usage, kept_count: 0, barren: Vec::new(), is_unreadable: false }
    }

    fn count(&mut self, name: &BlockName, size: u32, is_live: bool) {
        self.usage.block_count += 1;
        self.usage.block_bytes += u64::from(size);
        if is_live {
            self.usage.live_count += 1;
            self.usage.live_bytes += u64::from(size);
        } else if is_structure(name) {
            self.usage.dead_structure_count += 1;
            // Nobody stores the root of a catalog twice: each has a number of its own.
            if name.block_type.kind() != BlockKind::Catalog {
                self.barren.push(*name);
            }
        }
    }

    fn keep(&mut self, read_bytes: u64, bytes: u64, block_count: u64) {
        self.usage.read_bytes += read_bytes;
        self.usage.kept_bytes += bytes.next_multiple_of(GRANULE_BYTES);
        self.kept_count += block_count;
    }

    fn keep_frames(&mut self, map: &ClumpMap, frames: &[FrameUse], kept: &[bool]) {
        let (mut bytes, mut frame_count, mut block_count) = (0, 0, 0);
        for (number, frame) in
            frames.iter().enumerate().filter(|(number, _)| kept.get(*number) == Some(&true))
        {
            let place = map.place(number);
            bytes += place.end - place.start;
            frame_count += 1;
            block_count += frame.block_count;
        }
        let marks = map.names(0).map_or(2 * block_count, |_| 14 + 10 * block_count);
        let table = TABLE_BYTES + FRAME_ROW_BYTES * frame_count + marks;
        self.keep(bytes + table, bytes + table, block_count);
    }

    fn note_unreadable(&mut self, error: &ReadLogError) {
        let reason = with_causes(error);
        self.is_unreadable = true;
        self.usage.obstacle.get_or_insert(ArenaObstacle::Unreadable { reason });
    }

    fn finish(mut self) -> MeasuredArena {
        if self.usage.obstacle.is_some() {
            self.usage.kept_bytes = self.usage.file_bytes;
        }
        self.barren.sort_unstable();
        self.barren.dedup();
        MeasuredArena { usage: self.usage, barren: self.barren }
    }
}
