//! Makes changes to an input, for tests without a fuzzer. The same seed gives the same changes.

use varve_world::{Random, SeededRandom};

/// Numbers at which programs often fail.
const BOUNDARIES: [u64; 12] =
    [0, 1, 2, 127, 128, 255, 256, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, u64::MAX];

/// Makes one mutated input after the other.
pub struct Mutator {
    random: SeededRandom,
}

impl Mutator {
    /// A mutator that always makes the same changes.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { random: SeededRandom::new(seed) }
    }

    fn number(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.random.fill(&mut bytes).expect("seeded");
        u64::from_le_bytes(bytes)
    }

    #[expect(clippy::cast_possible_truncation, reason = "it is below a usize")]
    fn below(&mut self, end: usize) -> usize {
        (self.number() % end.max(1) as u64) as usize
    }

    /// One of `inputs`, with one to eight changes.
    pub fn next(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
        let other = self.below(inputs.len());
        let chosen = self.below(inputs.len());
        let mut bytes = inputs.get(chosen).cloned().unwrap_or_default();
        for _ in 0..=self.below(8) {
            self.change(&mut bytes, inputs.get(other).map_or(&[], Vec::as_slice));
        }
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let place = self.below(bytes.len() + 1);
        let length = [1, 2, 4, 8, 16, 100][self.below(6)];
        let end = (place + length).min(bytes.len());
        match self.below(9) {
            0 | 1 if place < bytes.len() => bytes[place] ^= 1 << self.below(8),
            2 if place < bytes.len() => bytes[place] = self.number().to_le_bytes()[0],
            3 => {
                let boundary = BOUNDARIES[self.below(BOUNDARIES.len())].to_le_bytes();
                let width = [1, 2, 4, 8][self.below(4)].min(bytes.len() - place);
                bytes[place..place + width].copy_from_slice(&boundary[..width]);
            }
            4 => drop(bytes.drain(place..end)),
            5 => {
                let again = bytes[place..end].to_vec();
                let at = self.below(bytes.len() + 1);
                drop(bytes.splice(at..at, again));
            }
            6 => {
                let mut fresh = vec![0; length];
                self.random.fill(&mut fresh).expect("seeded");
                drop(bytes.splice(place..place, fresh));
            }
            7 => {
                let from = self.below(other.len() + 1);
                let until = (from + length).min(other.len());
                drop(bytes.splice(place..end, other[from..until].iter().copied()));
            }
            8 if self.below(4) == 0 => bytes.truncate(place),
            _ => bytes[place..end].fill(0),
        }
    }
}
