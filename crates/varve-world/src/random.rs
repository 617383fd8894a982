//! Unpredictable bytes for keys, salts and identifiers.

use std::io;

use parking_lot::Mutex;

/// A source of random bytes.
pub trait Random: Send + Sync {
    /// Fills `into`.
    ///
    /// # Errors
    /// The system cannot supply random bytes. Nothing may be encrypted then.
    fn fill(&self, into: &mut [u8]) -> io::Result<()>;
}

/// The system's random generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealRandom;

impl Random for RealRandom {
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the system")]
    fn fill(&self, into: &mut [u8]) -> io::Result<()> {
        getrandom::fill(into).map_err(io::Error::other)
    }
}

/// A sequence that a seed determines, for tests and simulations and never for secrets. SplitMix64
/// (Steele, Lea, Flood 2014).
#[derive(Debug)]
pub struct SeededRandom(Mutex<u64>);

impl SeededRandom {
    /// Starts the sequence of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }
}

impl Random for SeededRandom {
    fn fill(&self, into: &mut [u8]) -> io::Result<()> {
        let mut state = self.0.lock();
        for piece in into.chunks_mut(8) {
            *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = *state;
            word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^= word >> 31;
            piece.copy_from_slice(&word.to_le_bytes()[..piece.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_sequence() {
        let draw = |seed| {
            let mut bytes = [0; 20];
            SeededRandom::new(seed).fill(&mut bytes).unwrap();
            bytes
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn the_system_gives_different_bytes_each_time() {
        let (mut one, mut other) = ([0; 32], [0; 32]);
        RealRandom.fill(&mut one).unwrap();
        RealRandom.fill(&mut other).unwrap();
        assert_ne!(one, other);
    }
}
