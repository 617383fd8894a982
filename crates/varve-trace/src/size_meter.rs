//! Measures how well a block compresses.

use crate::record::SizeClass;

/// The fastest level of zstd: a trace needs the size only roughly.
const LEVEL: i32 = 1;

/// Finds the classes of blocks, with one buffer for all.
#[derive(Debug, Default)]
pub struct SizeMeter {
    packed: Vec<u8>,
}

impl SizeMeter {
    /// Makes a meter.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Compresses a block, and returns the class of its size.
    pub fn class(&mut self, bytes: &[u8]) -> SizeClass {
        self.packed.resize(zstd_safe::compress_bound(bytes.len()), 0);
        match zstd_safe::compress(self.packed.as_mut_slice(), bytes, LEVEL) {
            Ok(packed) => SizeClass::of(packed, bytes.len()),
            Err(_) => SizeClass::UNKNOWN,
        }
    }
}

#[cfg(test)]
mod tests {
    use varve_world::{Random, SeededRandom};

    use super::*;

    #[test]
    fn zeros_compress_and_noise_does_not() {
        let mut noise = vec![0; 4096];
        SeededRandom::new(1).fill(&mut noise).unwrap();
        let mut meter = SizeMeter::new();
        assert_eq!(meter.class(&[0; 4096]).eighths(), 1);
        assert_eq!(meter.class(&noise), SizeClass::INCOMPRESSIBLE);
        let half = [&noise[..2000], &[0; 2096]].concat();
        assert_eq!(meter.class(&half).eighths(), 4);
        assert_eq!(meter.class(&[]), SizeClass::UNKNOWN);
    }
}
