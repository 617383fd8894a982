//! Measures how long the machine itself takes for writes like those of an index. The bench prints
//! this beside the index's times, since a virtual machine may stop a thread at memory that the
//! thread has written to many times before.

use std::time::{Duration, Instant};

/// Memory that belongs to no index. All of it has been written to before.
pub struct PlainMemory {
    words: Vec<u64>,
    place: u64,
}

impl PlainMemory {
    pub fn new(bytes: u64) -> Self {
        let count = usize::try_from(bytes / 8).expect("as much as the index has");
        let mut words = vec![0; count.max(1)];
        (0..).zip(&mut words).for_each(|(number, word)| *word = number);
        Self { words, place: 1 }
    }

    pub fn bytes(&self) -> u64 {
        size_of_val::<[u64]>(&self.words) as u64
    }

    /// Writes to this many scattered places, and returns the time that it took.
    #[expect(clippy::cast_possible_truncation, reason = "less than the count of words")]
    pub fn write(&mut self, places: usize) -> Duration {
        let begun = Instant::now();
        for _ in 0..places {
            // This is Knuth's generator for MMIX.
            self.place =
                self.place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (u128::from(self.place) * self.words.len() as u128) >> 64;
            self.words[at as usize] ^= self.place;
        }
        begun.elapsed()
    }
}
