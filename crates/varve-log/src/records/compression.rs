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
    /// One zstd frame whose prefix is another block. Only frames of a framed clump have it.
    Delta,
}

impl Codec {
    pub(crate) fn to_number(self) -> u32 {
        match self {
            Self::Stored => 0,
            Self::Zstd => 1,
            Self::Delta => 2,
        }
    }

    /// Returns the codec with this number.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        match number {
            2 => Some(Self::Delta),
            other => Self::of_whole(other),
        }
    }

    /// Returns the codec with this number where a delta is not allowed.
    pub(crate) fn of_whole(number: u32) -> Option<Self> {
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
    /// A delta has a base that no writer uses.
    #[error("the block that it is a delta of cannot be one")]
    Base,
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

/// zstd takes bytes that begin like this for a dictionary in its own format, and not for a prefix.
const DICTIONARY_MAGIC: [u8; 4] = 0xEC30_A437_u32.to_le_bytes();

/// Returns true if a block can be the base of a delta.
pub(crate) fn can_be_base(base: &[u8]) -> bool {
    !base.is_empty() && !base.starts_with(&DICTIONARY_MAGIC)
}

/// Returns `content` as a zstd frame that has `base` as its prefix; `None` if that takes more than
/// `bytes_max` bytes, or if `base` cannot be a base.
pub(crate) fn compress_delta(
    content: &[u8],
    base: &[u8],
    level: CompressionLevel,
    bytes_max: usize,
) -> Option<Vec<u8>> {
    if !can_be_base(base) {
        return None;
    }
    let mut delta = vec![0; bytes_max];
    let level = level_for(content.len(), level);
    let written = CONTEXTS.with_borrow_mut(|(compressor, _)| {
        compressor.compress_using_dict(delta.as_mut_slice(), content, base, level)
    });
    delta.truncate(written.ok()?);
    Some(delta)
}

/// Decompresses the zstd frame of a delta to a recorded length of `content_bytes`, which the caller
/// has bounded.
pub(crate) fn decompress_delta(
    delta: &[u8],
    base: &[u8],
    content_bytes: usize,
) -> Result<Vec<u8>, DecompressError> {
    if !can_be_base(base) {
        return Err(DecompressError::Base);
    }
    let mut content = Vec::with_capacity(content_bytes);
    CONTEXTS
        .with_borrow_mut(|(_, decompressor)| decompressor.decompress_using_dict(&mut content, delta, base))
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
    fn a_delta_comes_back_with_its_base_only() {
        let base = random(16_384);
        let mut content = base.clone();
        content[5000..5008].copy_from_slice(b"changed!");
        let delta = compress_delta(&content, &base, CompressionLevel::default(), content.len()).unwrap();
        assert!(delta.len() < 200, "{} bytes", delta.len());
        assert_eq!(decompress_delta(&delta, &base, content.len()), Ok(content.clone()));
        assert_ne!(decompress_delta(&delta, &random(16_385), content.len()), Ok(content.clone()));
        assert!(decompress_delta(&delta, &base, content.len() - 1).is_err());
        assert_eq!(compress_delta(&random(16_000), &base, CompressionLevel::default(), 8000), None);
    }

    #[test]
    fn what_zstd_would_take_for_a_dictionary_is_no_base() {
        let content = random(1000);
        let base = [&DICTIONARY_MAGIC[..], &content].concat();
        assert_eq!(compress_delta(&content, &base, CompressionLevel::default(), 1000), None);
        assert_eq!(decompress_delta(&[1, 2, 3], &base, 1000), Err(DecompressError::Base));
        assert_eq!(decompress_delta(&[1, 2, 3], &[], 1000), Err(DecompressError::Base));
        // A base of a few bytes is a prefix as well.
        for bytes in 1..20 {
            let base = &content[..bytes];
            let delta = compress_delta(&content, base, CompressionLevel::default(), 2000).unwrap();
            assert_eq!(decompress_delta(&delta, base, 1000), Ok(content.clone()), "{bytes} bytes");
        }
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
