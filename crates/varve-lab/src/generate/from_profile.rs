//! A source that changes as the profile of a real one says.
//!
//! The first snapshot alternates stretches of new and of repeated blocks. In each later one,
//! stretches of new blocks replace old ones, with the gaps of the profile between them. All lengths
//! are drawn from the histograms. Only the blocks that the original snapshots put are put: all of
//! the source, or the changed part of it with some of what is beside.

use anyhow::{Result, ensure};
use varve_block::to_usize;
use varve_trace::{
    ClassHistogram, SizeClass, SnapshotBegin, SnapshotShape, SourceKind, TraceProfile, TraceRecord,
};

use super::TraceSink;
use super::dice::Dice;

/// The most blocks of a source.
const SOURCE_BLOCKS_MAX: u64 = 1 << 28;
const DAY_SECONDS: i64 = 86_400;

/// The blocks of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceShape {
    /// All blocks have one size.
    Image,
    /// The sizes of blocks are drawn.
    Tree,
}

#[derive(Debug, Clone, Copy)]
struct SourceBlock {
    content: u64,
    bytes: u32,
    size_class: SizeClass,
}

/// Makes the blocks of a source.
struct BlockMaker<'a> {
    dice: Dice,
    shape: SourceShape,
    next_content: u64,
    sizes: &'a ClassHistogram,
    classes: &'a [u64; 9],
    /// The size of the blocks of an image.
    image_bytes: u32,
}

impl BlockMaker<'_> {
    fn new_block(&mut self) -> Result<SourceBlock> {
        ensure!(
            self.next_content < SOURCE_BLOCKS_MAX,
            "the profile has more than {SOURCE_BLOCKS_MAX} blocks"
        );
        let bytes = match self.shape {
            SourceShape::Image => self.image_bytes,
            SourceShape::Tree => u32::try_from(self.dice.of_histogram(self.sizes).clamp(1, 1 << 20))?,
        };
        let content = self.next_content;
        self.next_content += 1;
        Ok(SourceBlock { content, bytes, size_class: self.dice.size_class(self.classes) })
    }
}

/// The size in which most data of a profile was cut.
fn commonest_size(sizes: &ClassHistogram) -> u32 {
    let largest = sizes.buckets().iter().max_by_key(|bucket| bucket.sum);
    largest.and_then(|bucket| u32::try_from(bucket.sum / bucket.count).ok()).unwrap_or(0)
}

/// Generates all snapshots.
pub(super) fn generate_source(
    profile: &TraceProfile,
    shape: SourceShape,
    snapshots: u32,
    seed: u64,
    sink: &mut TraceSink,
) -> Result<()> {
    let TraceProfile { first, later, .. } = profile;
    let image_bytes = commonest_size(&first.block_bytes);
    ensure!(
        image_bytes > 0 && image_bytes <= 1 << 20 && first.put_bytes.sum() > 0,
        "the profile has no first snapshot with data"
    );
    let maker = BlockMaker {
        dice: Dice::new(seed),
        shape,
        next_content: 0,
        sizes: &first.block_bytes,
        classes: &first.size_classes,
        image_bytes,
    };
    let mut source = GeneratedSource { maker, blocks: Vec::new(), later };
    source.fill(first)?;
    for day in 0..snapshots {
        let time = i64::from(day) * DAY_SECONDS;
        if day > 0 {
            sink.add(TraceRecord::Idle { milliseconds: DAY_SECONDS.unsigned_abs() * 1000 })?;
        }
        let kind = if shape == SourceShape::Image { SourceKind::Image } else { SourceKind::Folder };
        sink.add(TraceRecord::Snapshot(SnapshotBegin { time, series: 0, source: kind }))?;
        let is_put = if day == 0 { vec![true; source.blocks.len()] } else { source.change()? };
        let mut place = 0;
        for (block, is_put) in source.blocks.iter().zip(is_put) {
            if is_put {
                sink.put(place, block.content, block.bytes, block.size_class)?;
            }
            place += u64::from(block.bytes);
        }
        sink.end_snapshot(day)?;
    }
    Ok(())
}

struct GeneratedSource<'a> {
    maker: BlockMaker<'a>,
    blocks: Vec<SourceBlock>,
    later: &'a SnapshotShape,
}

impl GeneratedSource<'_> {
    /// Makes the first state.
    #[expect(clippy::cast_precision_loss, reason = "shares need few digits")]
    fn fill(&mut self, first: &SnapshotShape) -> Result<()> {
        let goal = first.put_bytes.mean();
        let repeated_share = first.repeated_runs.sum() as f64 / first.put_bytes.sum() as f64;
        let (mut bytes, mut repeated) = (0_u64, 0_u64);
        while bytes < goal {
            // The stretch that brings the shares nearer to those of the profile comes next.
            let is_repeated = (repeated as f64) < repeated_share * bytes as f64;
            let histogram = if is_repeated { &first.repeated_runs } else { &first.new_runs };
            let length = self.maker.dice.of_histogram(histogram).max(1).min(goal - bytes);
            let mut at = to_usize(self.maker.dice.below(self.blocks.len() as u64));
            let mut done = 0;
            while done < length {
                let block = match self.blocks.get(at).filter(|_| is_repeated) {
                    Some(block) => *block,
                    None => self.maker.new_block()?,
                };
                at += 1;
                done += u64::from(block.bytes);
                self.blocks.push(block);
            }
            bytes += done;
            repeated += if is_repeated { done } else { 0 };
        }
        Ok(())
    }

    /// Changes the source to the next day. Returns the blocks that its snapshot puts.
    #[expect(clippy::cast_precision_loss, reason = "shares need few digits")]
    fn change(&mut self) -> Result<Vec<bool>> {
        let later = self.later;
        (self.maker.sizes, self.maker.classes) = match later.block_bytes.count() {
            0 => (self.maker.sizes, self.maker.classes),
            _ => (&later.block_bytes, &later.size_classes),
        };
        let all: u64 = self.blocks.iter().map(|block| u64::from(block.bytes)).sum();
        let goal = self.maker.dice.of_histogram(&later.new_bytes).min(all);
        // Stretches and gaps, in their order, until enough is new.
        let (mut stretches, mut new, mut span) = (Vec::new(), 0, 0_u64);
        while new < goal {
            let gap = if stretches.is_empty() { 0 } else { self.maker.dice.of_histogram(&later.gaps) };
            let length = self.maker.dice.of_histogram(&later.new_runs).max(1).min(goal - new);
            stretches.push((gap, length));
            new += length;
            span = span.saturating_add(gap).saturating_add(length);
        }
        // Gaps that do not fit into the source become shorter alike.
        let shrunk = (all.saturating_sub(new) as f64 / span.saturating_sub(new).max(1) as f64).min(1.0);
        let mut place = self.maker.dice.below(all.saturating_sub(span).saturating_add(1));
        let kept_share = {
            let known = later.put_bytes.mean().saturating_sub(later.new_bytes.mean()) as f64;
            known / all.saturating_sub(later.new_bytes.mean()).max(1) as f64
        };
        let mut next = stretches.into_iter().peekable();
        let before = std::mem::take(&mut self.blocks);
        let mut is_put = Vec::with_capacity(before.len());
        let (mut at, mut new_left) = (0_u64, 0_u64);
        let mut puts_known = self.maker.dice.is(kept_share);
        for block in before {
            let bytes = u64::from(block.bytes);
            // Lengths are those of the nearest number of blocks.
            if new_left.saturating_mul(2) < bytes {
                new_left = 0;
            }
            if new_left == 0
                && let Some((gap, length)) = next.peek().copied()
            {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it shrinks")]
                let begin = place.saturating_add((gap as f64 * shrunk) as u64);
                if at.saturating_add(bytes / 2) >= begin {
                    new_left = length.max(bytes);
                    next.next();
                }
            }
            let is_new = new_left > 0;
            if is_new {
                let mut fresh = self.maker.new_block()?;
                // The others keep their places.
                fresh.bytes = block.bytes;
                self.blocks.push(fresh);
                new_left = new_left.saturating_sub(bytes);
                place = at + bytes;
                puts_known = self.maker.dice.is(kept_share);
            } else {
                self.blocks.push(block);
            }
            is_put.push(is_new || puts_known);
            at += bytes;
        }
        Ok(is_put)
    }
}
