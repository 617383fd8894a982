//! Checks every byte: neighbouring clumps are read in one go.

use std::sync::Arc;

use varve_block::{BlockName, to_usize};
use varve_log::{
    ArenaId, ArenaWindow, ClumpRow, DirectoryPage, FrameContent, GRANULE_BYTES, OpenedArena, PageBlock,
    RECORD_BYTES_MAX, ReadLogError,
};
use varve_world::PageBuffer;

use super::Checker;
use crate::damage::{ArenaCheck, CheckArenaError, DamageKind, is_finding};

/// A group ends before a clump that would make it longer than this. A few groups then fit into
/// the processor's nearest cache, from which they are decrypted and hashed faster.
const STRETCH_BYTES: u64 = 1 << 20;

/// Neighbouring clumps of an arena, at least one.
pub struct ClumpGroup {
    arena: Arc<OpenedArena>,
    clumps: Vec<(Arc<DirectoryPage>, ClumpRow)>,
}

impl ClumpGroup {
    /// Returns all clumps of an arena that these pages name, in groups.
    pub(super) fn all(arena: OpenedArena, pages: Vec<DirectoryPage>) -> Vec<Self> {
        let arena = Arc::new(arena);
        let mut groups: Vec<Self> = Vec::new();
        for page in pages.into_iter().map(Arc::new) {
            for row in page.clumps() {
                let clump = (Arc::clone(&page), *row);
                let fits = |last: &&mut Self| row.end().saturating_sub(last.start()) <= STRETCH_BYTES;
                match groups.last_mut().filter(fits) {
                    Some(last) => last.clumps.push(clump),
                    None => groups.push(Self { arena: Arc::clone(&arena), clumps: vec![clump] }),
                }
            }
        }
        groups
    }

    fn start(&self) -> u64 {
        self.clumps.first().map_or(0, |(_, row)| row.granule.byte_offset())
    }

    /// Returns the length of the group in the file, at most that of a record, whatever its page
    /// says.
    fn byte_count(&self) -> usize {
        let end = self.clumps.last().map_or(0, |(_, row)| row.end());
        to_usize(end.saturating_sub(self.start())).min(RECORD_BYTES_MAX)
    }
}

impl Checker<'_> {
    /// Does a part of [`check_arena`](Self::check_arena): every byte of a group. A caller that
    /// checks several groups passes the same memory. If the arena was replaced since its outline
    /// was checked, the result is [outdated](ArenaCheck::is_outdated), and has no damage.
    ///
    /// # Errors
    /// As for [`check_arena`](Self::check_arena).
    pub fn check_group(
        &self,
        group: &ClumpGroup,
        memory: &mut PageBuffer,
    ) -> Result<ArenaCheck, CheckArenaError> {
        let mut check = self.look_at_group(group, memory)?;
        if !check.damage.is_empty() {
            // Damage must be found twice in the same file.
            let again = self.look_at_group(group, memory)?;
            check.keep_found_again(&again);
            if self.log().is_replaced(&group.arena) {
                check.damage.clear();
                check.is_outdated = true;
            }
        }
        Ok(check)
    }

    fn look_at_group(
        &self,
        group: &ClumpGroup,
        memory: &mut PageBuffer,
    ) -> Result<ArenaCheck, CheckArenaError> {
        let mut check = ArenaCheck::default();
        let window = self.log().window(&group.arena, group.byte_count());
        let window = window.with_bases(self.store).uncached();
        let mut window = window.in_memory(std::mem::take(memory));
        for (page, row) in &group.clumps {
            self.check_clump((group.arena.id(), page, row), &mut window, &mut check)?;
        }
        *memory = window.into_memory();
        Ok(check)
    }

    fn check_clump(
        &self,
        (id, page, row): (ArenaId, &DirectoryPage, &ClumpRow),
        window: &mut ArenaWindow<'_>,
        check: &mut ArenaCheck,
    ) -> Result<(), ReadLogError> {
        let offset = row.granule.byte_offset();
        let recorded: Vec<_> = page.blocks_of(row.granule).collect();
        let names = |blocks: &[PageBlock]| blocks.iter().map(|block| block.name).collect();
        let map = match window.map(row.granule) {
            Ok(map) => map,
            Err(error) if is_finding(&error) => {
                check.report(id, offset, error.into(), names(&recorded));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        check.checked_bytes += u64::from(row.body_bytes).next_multiple_of(GRANULE_BYTES);
        let block_count = (0..map.frame_count()).map(|number| map.block_count(number)).sum::<Option<u32>>();
        let is_counted = block_count.is_none_or(|count| count == row.block_count);
        let is_marked = recorded.iter().all(|block| !map.places_of(&block.name.score).is_empty());
        if map.header().code != row.code || !is_counted || !is_marked {
            check.report(id, offset, DamageKind::OtherClump, names(&recorded));
            return Ok(());
        }
        let mut recorded = recorded.as_slice();
        for number in 0..map.frame_count() {
            let count = map.block_count(number).map_or(recorded.len(), |count| count as usize);
            let (of_frame, others) = recorded.split_at(count.min(recorded.len()));
            recorded = others;
            match window.frame(&map, number) {
                // A clump that is not framed shows its block count only in its one frame.
                Ok(content)
                    if block_count.is_none() && content.blocks().len() != row.block_count as usize =>
                {
                    check.report(id, offset, DamageKind::OtherClump, names(of_frame));
                }
                // The collector keeps the bases that pages name.
                Ok(content) if of_frame.iter().any(|block| block.base != content.base()) => {
                    check.report(id, offset, DamageKind::OtherClump, names(of_frame));
                }
                Ok(content) => self.check_blocks((id, offset), &content, of_frame, check),
                Err(error) if is_finding(&error) => check.report(id, offset, error.into(), names(of_frame)),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn check_blocks(
        &self,
        (id, offset): (ArenaId, u64),
        content: &FrameContent,
        recorded: &[PageBlock],
        check: &mut ArenaCheck,
    ) {
        for ((block_type, bytes), recorded) in content.blocks().zip(recorded) {
            let score = self.store.namer().named_again(&recorded.name.score, &bytes);
            let actual = BlockName { score, block_type };
            let same_digest = recorded.digest == self.store.namer().digest(&bytes);
            if actual != recorded.name || !same_digest || recorded.size as usize != bytes.len() {
                let kind = DamageKind::OtherBlock { actual, recorded: recorded.name };
                check.report(id, offset, kind, vec![recorded.name]);
            }
        }
    }
}
