//! Compresses with zstd if that pays, and stores the bytes unchanged otherwise.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::RefCell;

use zstd_safe::{CCtx, CParameter, DCtx};

/// The level of zstd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CompressionLevel(i32);

impl CompressionLevel {
    /// Makes a level between 1 (fast) and 19 (small); `None` for any other.
    #[must_use]
    pub fn new(level: i32) -> Option<Self> {
        (1..=19).contains(&level).then_some(Self(level))
    }

    /// Returns zstd's number of the level.
    #[must_use]
    pub fn get(self) -> i32 {
        self.0
    }
}

impl Default for CompressionLevel {
    fn default() -> Self {
        Self(3)
    }
}

/// The storage form of a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    Stored,
    Zstd,
}

impl Codec {
    pub(crate) fn to_number(self) -> u32 {
        match self {
            Self::Stored => 0,
            Self::Zstd => 1,
        }
    }

    pub(crate) fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Stored),
            1 => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// The reason why a content could not be decompressed. It was authenticated before, so the cause is
/// an error of a writer, or an attack by a holder of the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// zstd refused it.
    #[error("not a zstd frame: {reason}")]
    Zstd {
        /// The error of zstd.
        reason: &'static str,
    },
    /// The length is not the recorded one.
    #[error("it has {actual} bytes, but {recorded} are recorded")]
    Length { actual: usize, recorded: usize },
}

thread_local! {
    // A context holds about a megabyte of tables. A new one for each clump would cost more than the
    // compression.
    static CONTEXTS: RefCell<(CCtx<'static>, DCtx<'static>)> = RefCell::new((CCtx::create(), DCtx::create()));
}

/// Appends `content` to `into`, compressed if that saves at least one part in 32. Returns the
/// codec.
pub(crate) fn compress(content: &[u8], level: CompressionLevel, into: &mut Vec<u8>) -> Codec {
    let start = into.len();
    let level = level_for(content.len(), level);
    if looks_incompressible(content) || !zstd(content, level, content.len() - content.len() / 32, into) {
        into.truncate(start);
        into.extend_from_slice(content);
        return Codec::Stored;
    }
    Codec::Zstd
}

/// zstd has other parameters for small contents. There level 4 is level 3 with matches of four
/// bytes instead of five, in the same time. `docs/decisions/0006-random-reads.md` has the
/// measurement.
fn level_for(content_bytes: usize, level: CompressionLevel) -> i32 {
    const SMALL_BYTES: std::ops::RangeInclusive<usize> = (16 << 10) + 1..=128 << 10;
    if level == CompressionLevel::default() && SMALL_BYTES.contains(&content_bytes) {
        level.0 + 1
    } else {
        level.0
    }
}

/// Appends one zstd frame to `into`; false if it would not fit in `bytes_max`.
fn zstd(content: &[u8], level: i32, bytes_max: usize, into: &mut Vec<u8>) -> bool {
    let start = into.len();
    into.resize(start + bytes_max, 0);
    let Some(room) = into.get_mut(start..) else { return false };
    let written = CONTEXTS.with_borrow_mut(|(compressor, _)| {
        compressor
            .set_parameter(CParameter::CompressionLevel(level))
            .and_then(|_| compressor.compress2(room, content))
    });
    match written {
        Ok(bytes) => {
            into.truncate(start + bytes);
            true
        }
        Err(_does_not_fit) => false,
    }
}

/// The sample for the estimate of compressibility: this many pieces, spread over the content.
const SAMPLE_PIECES: usize = 8;
const SAMPLE_PIECE_BYTES: usize = 512;
/// The length of the trial compression. It runs if the sample looks like random bytes.
const TRIAL_BYTES: usize = 16 << 10;

/// Estimates compressibility at far less cost than compressing. Two tests: whether the bytes of a
/// sample repeat more often than random ones, and whether the fastest level finds matches in the
/// last part. Content that is random there and repeats elsewhere is missed, and is then stored
/// uncompressed.
pub(crate) fn looks_incompressible(content: &[u8]) -> bool {
    if content.len() < SAMPLE_PIECES * SAMPLE_PIECE_BYTES * 2 {
        return false;
    }
    let mut counts = [0_u32; 256];
    let stride = content.len() / SAMPLE_PIECES;
    for piece in content.chunks(stride).take(SAMPLE_PIECES) {
        for byte in piece.iter().rev().take(SAMPLE_PIECE_BYTES) {
            if let Some(count) = counts.get_mut(usize::from(*byte)) {
                *count += 1;
            }
        }
    }
    // For uniform bytes the sum of squares is 4096 * 17 on average, with a deviation of about 370
    // (chi-square with 255 degrees of freedom). For text, code and tables it is several times that.
    let sample = (SAMPLE_PIECES * SAMPLE_PIECE_BYTES) as u64;
    let squares: u64 = counts.iter().map(|count| u64::from(*count) * u64::from(*count)).sum();
    if squares > sample * 17 + sample {
        return false;
    }
    let trial = content.get(content.len() - TRIAL_BYTES.min(content.len())..).unwrap_or(content);
    !zstd(trial, -7, trial.len() - trial.len() / 64, &mut Vec::new())
}

/// Decompresses a frame with a recorded length of `content_bytes`, which the caller has bounded.
pub(crate) fn decompress(frame: &[u8], content_bytes: usize) -> Result<Vec<u8>, DecompressError> {
    let mut content = Vec::with_capacity(content_bytes);
    CONTEXTS
        .with_borrow_mut(|(_, decompressor)| decompressor.decompress(&mut content, frame))
        .map_err(|code| DecompressError::Zstd { reason: zstd_safe::get_error_name(code) })?;
    if content.len() != content_bytes {
        return Err(DecompressError::Length { actual: content.len(), recorded: content_bytes });
    }
    Ok(content)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]
mod tests {
    use varve_world::{Random, SeededRandom};

    use super::*;

    fn random(bytes: usize) -> Vec<u8> {
        let mut content = vec![0; bytes];
        SeededRandom::new(bytes as u64).fill(&mut content).unwrap();
        content
    }

    #[test]
    fn what_compresses_is_compressed_and_comes_back() {
        let text = b"the quick brown fox jumps over the lazy dog. ".repeat(5000);
        for level in [1, 3, 19] {
            let mut frame = vec![9];
            assert_eq!(compress(&text, CompressionLevel::new(level).unwrap(), &mut frame), Codec::Zstd);
            assert!(frame.len() < text.len() / 50);
            assert_eq!(decompress(&frame[1..], text.len()), Ok(text.clone()));
        }
    }

    #[test]
    fn random_bytes_are_stored() {
        for bytes in [0, 1, 100, 8191, 8192, 65_536, 262_144] {
            let content = random(bytes);
            let mut stored = Vec::new();
            assert_eq!(
                compress(&content, CompressionLevel::default(), &mut stored),
                Codec::Stored,
                "{bytes} bytes"
            );
            assert_eq!(stored, content);
        }
        assert!(
            (0..200).all(|seed| looks_incompressible(&random(65_536 + seed))),
            "random bytes are recognised"
        );
    }

    #[test]
    fn half_random_content_is_compressed() {
        let content = [random(131_072), b"0123456789".repeat(13_000)].concat();
        assert!(!looks_incompressible(&content));
    }

    #[test]
    fn a_wrong_length_is_refused() {
        let mut frame = Vec::new();
        compress(&[7; 1000], CompressionLevel::default(), &mut frame);
        assert_eq!(decompress(&frame, 1001), Err(DecompressError::Length { actual: 1000, recorded: 1001 }));
        assert!(matches!(decompress(&frame, 999), Err(DecompressError::Zstd { .. })));
        assert!(matches!(decompress(&[1, 2, 3], 1000), Err(DecompressError::Zstd { .. })));
    }
}
