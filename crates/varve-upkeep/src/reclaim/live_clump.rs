//! Takes the live part of one clump, as a clump for the arena's successor.

use bytes::Bytes;
use varve_block::{BlockName, BlockType, Score};
use varve_log::{
    ArenaWindow, ClumpBytes, ClumpDraft, ClumpMap, ClumpRow, CompressionLevel, FrameContent, Framing,
    NamedBlock, PackedClump, PageBlock, ReadLogError,
};
use varve_store::Namer;

use super::kept_frames::{ClumpFate, FrameUse, kept_frames};

/// Returns true if a block is live.
pub type IsLive<'a> = &'a (dyn Fn(&BlockName) -> bool + Sync);

/// A clump of an arena that is written anew, with the rows of its page.
pub(super) struct NamedClump<'a> {
    pub(super) row: ClumpRow,
    pub(super) blocks: Vec<PageBlock>,
    pub(super) is_live: IsLive<'a>,
    /// True if it is taken to another arena, and every block is to be named from its bytes.
    pub(super) goes_elsewhere: bool,
}

/// The part of a clump that goes to the successor.
pub(super) struct LiveClump {
    /// `None` if nothing of the clump is live.
    pub(super) packed: Option<PackedClump>,
    /// The blocks that the clump holds under other names than its page says, and that are thus not
    /// in the log. Only a writer that cannot read can have written such a page.
    pub(super) misnamed_count: u64,
}

impl NamedClump<'_> {
    /// Takes the live part. The frames are checked and decrypted, and stay compressed.
    ///
    /// # Errors
    /// [`ReadLogError`] when the clump is damaged: its arena must then stay as it is.
    pub(super) fn take(
        mut self,
        window: &mut ArenaWindow<'_>,
        namer: &Namer,
        is_write_only: bool,
        level: CompressionLevel,
    ) -> Result<LiveClump, ReadLogError> {
        if !is_write_only && !self.has_live_block() {
            return Ok(LiveClump { packed: None, misnamed_count: 0 });
        }
        let map = window.map(self.row.granule)?;
        window.require_code(&map, self.row.code)?;
        let names_again = is_write_only || self.goes_elsewhere;
        let misnamed_count = if names_again { self.name_again(window, &map, namer)? } else { 0 };
        let mut fate = kept_frames(&self.frame_uses(&map));
        // A frame that stays as it is brings its dead blocks along. A root or a note of a writer
        // that cannot read would count where it comes to lie, so such frames are taken apart.
        if self.counts_by_place(is_write_only) && fate != ClumpFate::Dropped {
            fate = ClumpFate::Repack;
        }
        let packed = match fate {
            ClumpFate::Dropped => None,
            ClumpFate::Whole => window.take_frames(&map, &vec![true; map.frame_count()], &self.blocks)?,
            ClumpFate::Frames(is_kept) => window.take_frames(&map, &is_kept, &self.blocks)?,
            ClumpFate::Repack => Some(self.repack(window, &map, namer, level)?),
        };
        Ok(LiveClump { packed, misnamed_count })
    }

    /// Returns true if a dead block of the clump has a meaning by its place alone.
    fn counts_by_place(&self, is_write_only: bool) -> bool {
        let is_one = |block: &PageBlock| {
            matches!(block.name.block_type, BlockType::CATALOG | BlockType::NOTE)
                && !(self.is_live)(&block.name)
        };
        (is_write_only || self.goes_elsewhere) && self.blocks.iter().any(is_one)
    }

    fn has_live_block(&self) -> bool {
        self.blocks.iter().any(|block| (self.is_live)(&block.name))
    }

    fn frame_uses(&self, map: &ClumpMap) -> Vec<FrameUse> {
        let all = u32::try_from(self.blocks.len()).unwrap_or(u32::MAX);
        let counts = (0..map.frame_count()).map(|frame| map.block_count(frame).unwrap_or(all));
        FrameUse::of_frames(counts, self.blocks.iter().map(|block| (block.size, (self.is_live)(&block.name))))
    }

    /// Computes the names of all blocks from their bytes. A page of a writer that cannot read may
    /// name blocks that it has never stored. Its arena becomes one of a writer that can read, so
    /// nothing unchecked may get into it. Returns the number of blocks that had other names.
    fn name_again(
        &mut self,
        window: &mut ArenaWindow<'_>,
        map: &ClumpMap,
        namer: &Namer,
    ) -> Result<u64, ReadLogError> {
        let mut misnamed_count = 0;
        let (mut rows, mut next) = (Vec::with_capacity(self.blocks.len()), 0);
        for frame in 0..map.frame_count() {
            let content = window.frame(map, frame)?;
            for (name, bytes) in named(namer, &content, map.names(frame)) {
                let row = self.blocks.get(next).filter(|row| row.name == name);
                misnamed_count += u64::from(row.is_none());
                rows.push(PageBlock {
                    name,
                    digest: namer.digest(&bytes),
                    size: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
                    granule: self.row.granule,
                    ordinal: u32::try_from(next).unwrap_or(u32::MAX),
                    base: content.base(),
                });
                next += 1;
            }
        }
        self.blocks = rows;
        Ok(misnamed_count)
    }

    /// Compresses the live blocks again, without the dead ones.
    fn repack(
        &self,
        window: &mut ArenaWindow<'_>,
        map: &ClumpMap,
        namer: &Namer,
        level: CompressionLevel,
    ) -> Result<PackedClump, ReadLogError> {
        let mut draft = ClumpDraft::new(ClumpBytes::default());
        for frame in 0..map.frame_count() {
            let content = window.frame(map, frame)?;
            for (name, bytes) in named(namer, &content, map.names(frame)) {
                if (self.is_live)(&name) {
                    draft.push(NamedBlock { name, digest: namer.digest(&bytes), bytes: &bytes, base: None });
                }
            }
        }
        Ok(draft.pack(level, Framing::Whole))
    }
}

/// Names the blocks of a frame. In a by-value store the clump has their names.
fn named(namer: &Namer, content: &FrameContent, names: Option<Vec<Score>>) -> Vec<(BlockName, Bytes)> {
    let blocks: Vec<_> = content.blocks().collect();
    let scores = match names {
        Some(names) => names,
        None => blocks.iter().filter_map(|(_, bytes)| namer.score(bytes)).collect(),
    };
    let name = |(score, (block_type, bytes))| (BlockName { score, block_type }, bytes);
    scores.into_iter().zip(blocks).map(name).collect()
}
