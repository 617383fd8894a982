//! Copies bytes into a sparse file.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, bail};
use varve_block::to_usize;
use varve_content::Progress;
use varve_image::ReadAt;
use varve_session::Interrupted;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 1 << 20;
/// Zeros of this size become holes.
const HOLE_BYTES: usize = 64 << 10;

/// Copies a range of bytes to the same place in a file, whose bytes are zeros before.
pub(super) fn copy_range(
    from: &dyn ReadAt,
    range: Range<u64>,
    into: &File,
    progress: &Progress,
) -> Result<()> {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut at = range.start;
    while at < range.end {
        if progress.is_cancelled() {
            bail!(Interrupted("interrupted"));
        }
        let length = to_usize(range.end - at).min(PIECE_BYTES);
        let piece = &mut buffer[..length];
        from.read_at(at, piece).with_context(|| format!("cannot read at byte {at}"))?;
        let mut place = at;
        for part in piece.chunks(HOLE_BYTES) {
            if part.iter().any(|byte| *byte != 0) {
                into.write_all_at(part, place).context("cannot write")?;
            }
            place += part.len() as u64;
        }
        at = place;
        progress.add_bytes_done(length as u64);
    }
    Ok(())
}
