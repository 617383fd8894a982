//! Takes frames out of a clump for another arena. They are checked and decrypted, and stay
//! compressed: whoever rewrites an arena spends no time on compression.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crate::keys::cipher::CODE_BYTES;
use crate::reading::log::ReadLogError;
use crate::reading::window::{ArenaWindow, ClumpMap};
use crate::records::clump::{BlockRow, PackedClump};
use crate::records::clump_content::OpenClumpError;
use crate::records::directory_page::PageBlock;
use crate::records::frame_table::{self, FrameRow};
use crate::records::record_sizes::RECORD_HEADER_BYTES;
use varve_block::to_usize;

impl ArenaWindow<'_> {
    /// Checks that a clump is the one that a page names with this code.
    ///
    /// # Errors
    /// [`ReadLogError::Forged`].
    pub fn require_code(&self, map: &ClumpMap, code: [u8; CODE_BYTES]) -> Result<(), ReadLogError> {
        if map.header().code == code { Ok(()) } else { Err(self.forged_clump(map)) }
    }

    /// Takes the frames of a clump that `is_kept` marks, in order, as a clump for another arena.
    /// `blocks` are the rows of all blocks of the clump. A clump that is not framed counts as one
    /// frame. `None` if no frame is kept.
    ///
    /// # Errors
    /// [`ReadLogError`] when a frame is damaged, or the rows are not those of the clump's blocks.
    pub fn take_frames(
        &mut self,
        map: &ClumpMap,
        is_kept: &[bool],
        blocks: &[PageBlock],
    ) -> Result<Option<PackedClump>, ReadLogError> {
        let malformed = |part| self.malformed(map.header(), OpenClumpError::Malformed { part });
        if is_kept.len() != map.frame_count() {
            return Err(malformed("number of frames"));
        }
        let Some(table) = map.table() else {
            let [true] = is_kept else { return Ok(None) };
            return self.take_body(map, blocks).map(Some);
        };
        let (mut rows, mut kept, mut rest) = (Vec::new(), Vec::new(), blocks);
        for (frame, is_kept) in is_kept.iter().enumerate() {
            let row = table.row(frame).ok_or_else(|| malformed("table of frames"))?;
            let (these, others) = rest
                .split_at_checked(to_usize(row.block_count))
                .ok_or_else(|| malformed("number of blocks"))?;
            rest = others;
            if *is_kept {
                kept.extend_from_slice(these);
                rows.push((frame, *row));
            }
        }
        if !rest.is_empty() {
            return Err(malformed("number of blocks"));
        }
        if rows.is_empty() { Ok(None) } else { self.pack(map, &rows, &kept).map(Some) }
    }

    /// Takes the body of a clump that is not framed.
    fn take_body(&mut self, map: &ClumpMap, blocks: &[PageBlock]) -> Result<PackedClump, ReadLogError> {
        let body = self.opened_frame(map, 0)?;
        let mut record = vec![0; RECORD_HEADER_BYTES];
        record.extend_from_slice(&body);
        Ok(PackedClump { rows: rows_of(blocks), record, table_bytes: 0 })
    }

    /// Makes a framed clump of these frames.
    fn pack(
        &mut self,
        map: &ClumpMap,
        frames: &[(usize, FrameRow)],
        blocks: &[PageBlock],
    ) -> Result<PackedClump, ReadLogError> {
        let rows: Vec<FrameRow> = frames.iter().map(|(_, row)| FrameRow { code: [0; 16], ..*row }).collect();
        let scores: Vec<_> = blocks.iter().map(|block| block.name.score).collect();
        let table = frame_table::encode(&rows, scores.into_iter());
        let mut record = vec![0; RECORD_HEADER_BYTES];
        record.extend_from_slice(&table);
        for (frame, _) in frames {
            let bytes = self.opened_frame(map, *frame)?;
            record.extend_from_slice(&bytes);
        }
        let table_bytes = u32::try_from(table.len()).expect("a clump has at most BLOCK_COUNT_MAX blocks");
        Ok(PackedClump { rows: rows_of(blocks), record, table_bytes })
    }
}

fn rows_of(blocks: &[PageBlock]) -> Vec<BlockRow> {
    let row = |block: &PageBlock| {
        let PageBlock { name, digest, size, base, .. } = *block;
        BlockRow { name, digest, size, base }
    };
    blocks.iter().map(row).collect()
}
