//! Decides which frames of a clump are kept when its arena is written anew. The estimate before a
//! run and the run itself ask the same function, so a run keeps exactly what its plan says.
//!
//! A frame is copied as it is, without compressing it again. So a frame with a live block is kept
//! with its dead ones: with frames of 32 KiB these are less than a hundredth of a log. A clump of
//! one frame may be large and mostly dead, and its live blocks are then packed again.

use varve_block::to_usize;

/// The blocks of a frame, or of a clump that is not framed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameUse {
    pub block_count: u64,
    /// Their bytes, before compression.
    pub block_bytes: u64,
    pub live_count: u64,
    pub live_bytes: u64,
}

/// The fate of a clump whose arena is written anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClumpFate {
    /// It is copied as it is.
    Whole,
    /// The frames with `true` are copied, and the others are dropped. There is one of each at
    /// least.
    Frames(Vec<bool>),
    /// Its live blocks are compressed again, without the dead ones. Only a clump of one frame.
    Repack,
    /// Nothing of it is live.
    Dropped,
}

impl FrameUse {
    /// Adds a block of this size.
    pub fn add(&mut self, size: u32, is_live: bool) {
        self.block_count += 1;
        self.block_bytes += u64::from(size);
        if is_live {
            self.live_count += 1;
            self.live_bytes += u64::from(size);
        }
    }

    /// Sums up the blocks of each frame. `frames` are the numbers of blocks of the frames in order,
    /// and `blocks` are the size of each block and whether it is live. Blocks beyond the last frame
    /// are left out.
    #[must_use]
    pub fn of_frames(
        frames: impl IntoIterator<Item = u32>,
        blocks: impl IntoIterator<Item = (u32, bool)>,
    ) -> Vec<Self> {
        let mut blocks = blocks.into_iter();
        let sum_up = |count: u32| {
            let mut frame = Self::default();
            for (size, is_live) in blocks.by_ref().take(to_usize(count)) {
                frame.add(size, is_live);
            }
            frame
        };
        frames.into_iter().map(sum_up).collect()
    }

    /// Returns true if a block of it is live.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.live_count > 0
    }
}

/// Decides the fate of a clump with these frames. A clump that is not framed counts as one frame.
#[must_use]
pub fn kept_frames(frames: &[FrameUse]) -> ClumpFate {
    if let [frame] = frames
        && frame.is_live()
        && frame.live_count < frame.block_count
        && frame.live_bytes < frame.block_bytes.div_ceil(2)
    {
        return ClumpFate::Repack;
    }
    let kept: Vec<_> = frames.iter().map(FrameUse::is_live).collect();
    match kept.iter().filter(|is_kept| **is_kept).count() {
        0 => ClumpFate::Dropped,
        count if count == kept.len() => ClumpFate::Whole,
        _ => ClumpFate::Frames(kept),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames(counts: &[u32], live: &[bool]) -> Vec<FrameUse> {
        FrameUse::of_frames(counts.iter().copied(), live.iter().map(|is_live| (100, *is_live)))
    }

    #[test]
    fn a_frame_stays_if_a_block_of_it_is_live() {
        let of = |live: [bool; 5]| kept_frames(&frames(&[2, 2, 1], &live));
        assert_eq!(of([true; 5]), ClumpFate::Whole);
        assert_eq!(of([true, false, false, true, true]), ClumpFate::Whole);
        assert_eq!(of([false, true, false, false, false]), ClumpFate::Frames(vec![true, false, false]));
        assert_eq!(of([false; 5]), ClumpFate::Dropped);
    }

    #[test]
    fn a_clump_of_one_frame_is_packed_again_if_more_than_half_is_dead() {
        let of = |live: &[bool]| kept_frames(&frames(&[u32::try_from(live.len()).unwrap()], live));
        assert_eq!(of(&[true, true, true]), ClumpFate::Whole);
        assert_eq!(of(&[true, false]), ClumpFate::Whole);
        assert_eq!(of(&[true, false, false]), ClumpFate::Repack);
        assert_eq!(of(&[false, false]), ClumpFate::Dropped);
        let sized = |blocks: [(u32, bool); 2]| kept_frames(&FrameUse::of_frames([2], blocks));
        assert_eq!(sized([(10, true), (9, false)]), ClumpFate::Whole);
        assert_eq!(sized([(9, true), (10, false)]), ClumpFate::Repack);
        // A block without bytes is live as well.
        assert_eq!(sized([(0, true), (10, false)]), ClumpFate::Repack);
        assert_eq!(sized([(0, true), (0, false)]), ClumpFate::Whole);
        assert_eq!(kept_frames(&[]), ClumpFate::Dropped);
    }

    proptest! {
        #[test]
        fn no_live_block_is_dropped(
            counts in proptest::collection::vec(1_u32..6, 1..12),
            blocks in proptest::collection::vec((0_u32..5000, any::<bool>()), 72),
        ) {
            let block_count: u32 = counts.iter().sum();
            let blocks = &blocks[..to_usize(block_count)];
            let uses = FrameUse::of_frames(counts.iter().copied(), blocks.iter().copied());
            prop_assert_eq!(uses.iter().map(|frame| frame.block_count).sum::<u64>(), u64::from(block_count));
            let is_kept: Vec<bool> = match kept_frames(&uses) {
                ClumpFate::Whole => vec![true; uses.len()],
                ClumpFate::Dropped => vec![false; uses.len()],
                ClumpFate::Frames(kept) => {
                    prop_assert!(kept.contains(&true) && kept.contains(&false));
                    kept
                }
                ClumpFate::Repack => {
                    prop_assert_eq!(uses.len(), 1);
                    prop_assert!(uses[0].is_live() && 2 * uses[0].live_bytes < uses[0].block_bytes);
                    vec![true]
                }
            };
            let is_live: Vec<bool> = uses.iter().map(FrameUse::is_live).collect();
            prop_assert_eq!(is_kept, is_live);
        }
    }
}
