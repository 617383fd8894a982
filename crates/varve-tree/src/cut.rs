//! Content-defined cutting: FastCDC (Xia and others, 2020), as implemented by the crate `fastcdc`.
//!
//! The positions of the cuts are not part of the format. But a store recognises a file only if it
//! is cut as before, so a test pins the cuts of a fixed input.

use fastcdc::v2020::{Normalization, select_masks};
use varve_block::BLOCK_BYTES_MAX;

/// The sizes of leaves in bytes for content-defined cutting.
///
/// Invariant: `64 <= min <= average <= max <= BLOCK_BYTES_MAX`, `average >= 256`, all even, as the
/// algorithm requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cutting {
    min: u32,
    average: u32,
    max: u32,
}

impl Cutting {
    /// For the bytes of files: 16, 64 and 256 KiB.
    pub const FILE: Self = Self { min: 16 << 10, average: 64 << 10, max: 256 << 10 };
    /// For lists that change a little every day, such as folders and catalogs: 2, 8 and 32 KiB.
    pub const DIRECTORY: Self = Self { min: 2 << 10, average: 8 << 10, max: 32 << 10 };

    /// Makes custom sizes. Returns `None` unless all are even and `64 <= min <= average <= max <=
    /// `[`BLOCK_BYTES_MAX`], with `average` at least 256.
    #[must_use]
    pub const fn new(min: u32, average: u32, max: u32) -> Option<Self> {
        let even = min.is_multiple_of(2) && average.is_multiple_of(2) && max.is_multiple_of(2);
        let ordered = 64 <= min && min <= average && average <= max && max as usize <= BLOCK_BYTES_MAX;
        if even && ordered && average >= 256 { Some(Self { min, average, max }) } else { None }
    }

    /// Returns the size of the smallest leaf. Only the last leaf before a hole or the end may be
    /// smaller. A file of at most this size is one leaf.
    #[must_use]
    pub const fn min(&self) -> u32 {
        self.min
    }

    /// Returns the size of the largest leaf.
    #[must_use]
    pub const fn max(&self) -> u32 {
        self.max
    }
}

/// Finds cuts.
pub(crate) struct Cutter {
    min: usize,
    average: usize,
    max: usize,
    strict: u64,
    loose: u64,
}

impl Cutter {
    pub(crate) fn new(cutting: &Cutting) -> Self {
        let [min, average, max] = [cutting.min, cutting.average, cutting.max].map(|bytes| bytes as usize);
        // Measured on 300 MB of programs with an edit every 3 MB: level 3 stored 0.63 of the bytes
        // that level 1 stored again, and level 2 stored 0.73.
        let (strict, loose) = select_masks(average, Normalization::Level3);
        Self { min, average, max, strict, loose }
    }

    /// Returns the number of bytes that determine the end of a leaf.
    pub(crate) fn window(&self) -> usize {
        self.max
    }

    /// Returns the length of the first leaf of `bytes`. It is 0 only if `bytes` is empty. It is
    /// final only if `bytes` has at least [`window`](Self::window) bytes, or is the end of the
    /// file.
    pub(crate) fn cut(&self, bytes: &[u8]) -> usize {
        let (strict, loose) = (self.strict, self.loose);
        let Self { min, average, max, .. } = *self;
        fastcdc::v2020::cut(bytes, min, average, max, strict, loose, strict << 1, loose << 1).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pseudo-random bytes from a fixed seed.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[7]
        };
        (0..length).map(|_| next()).collect()
    }

    fn cuts(cutting: Cutting, mut bytes: &[u8]) -> Vec<usize> {
        let cutter = Cutter::new(&cutting);
        let mut cuts = Vec::new();
        while !bytes.is_empty() {
            let length = cutter.cut(bytes);
            cuts.push(length);
            bytes = &bytes[length..];
        }
        cuts
    }

    /// If this fails after an upgrade of `fastcdc`, every file in every store would be stored again
    /// at its next change.
    #[test]
    fn cuts_fall_where_they_always_fell() {
        assert_eq!(
            cuts(Cutting::FILE, &noise(600_000)),
            [49658, 70596, 66942, 72437, 69281, 68444, 71193, 69251, 62198]
        );
        assert_eq!(
            cuts(Cutting::DIRECTORY, &noise(80_000)),
            [8364, 10386, 8650, 9199, 8890, 4169, 9179, 8496, 8316, 4351]
        );
        assert_eq!(cuts(Cutting::DIRECTORY, &[7; 80_000]), [32_768, 32_768, 14_464]);
    }

    #[test]
    fn a_window_decides() {
        let (cutter, bytes) = (Cutter::new(&Cutting::DIRECTORY), noise(200_000));
        for start in (0..100_000).step_by(997) {
            let window = cutter.window();
            assert_eq!(cutter.cut(&bytes[start..start + window]), cutter.cut(&bytes[start..]));
        }
    }

    #[test]
    fn sizes_that_the_algorithm_does_not_take_are_refused() {
        assert!(Cutting::new(64, 256, 1024).is_some());
        assert!(Cutting::new(1 << 20, 1 << 20, 1 << 20).is_some());
        for (min, average, max) in [
            (62, 256, 1024),
            (64, 254, 1024),
            (64, 257, 1024),
            (512, 256, 1024),
            (64, 512, 256),
            (64, 256, 2 << 20),
        ] {
            assert_eq!(Cutting::new(min, average, max), None, "{min} {average} {max}");
        }
    }
}
