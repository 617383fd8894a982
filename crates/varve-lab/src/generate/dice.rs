//! Draws numbers that a seed determines.

use varve_trace::{ClassHistogram, SizeClass};
use varve_world::{Random, SeededRandom};

/// A sequence of random numbers.
pub(super) struct Dice(SeededRandom);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(SeededRandom::new(seed))
    }

    fn number(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes).expect("a seeded sequence never fails");
        u64::from_le_bytes(bytes)
    }

    /// A number below `end`; 0 if there is none.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.number() % end.max(1)
    }

    /// A number from 0 up to and without 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    pub(super) fn unit(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with this probability.
    pub(super) fn is(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Returns the index of one of these weights, each as often as its share.
    pub(super) fn weighted(&mut self, weights: &[f64]) -> usize {
        let all: f64 = weights.iter().sum();
        let mut rest = self.unit() * all;
        for (index, weight) in weights.iter().enumerate() {
            if rest < *weight {
                return index;
            }
            rest -= weight;
        }
        weights.len().saturating_sub(1)
    }

    /// A number of a log-normal distribution with this median.
    pub(super) fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        // Box and Muller.
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.unit()).cos();
        median * (sigma * normal).exp()
    }

    /// A number of a histogram: a class by its count, and in it a number around its mean; 0 of an
    /// empty one.
    pub(super) fn of_histogram(&mut self, histogram: &ClassHistogram) -> u64 {
        let mut rest = self.below(histogram.count());
        for bucket in histogram.buckets() {
            if rest >= bucket.count {
                rest -= bucket.count;
                continue;
            }
            let mean = bucket.sum / bucket.count.max(1);
            let end = bucket.at_least.saturating_mul(2).saturating_sub(u64::from(bucket.at_least > 0));
            let room = (mean - bucket.at_least.min(mean)).min(end.saturating_sub(mean));
            return mean - room + self.below(room.saturating_mul(2).saturating_add(1));
        }
        0
    }

    /// A class of compressed sizes, each as often as its share of the bytes.
    #[expect(clippy::cast_precision_loss, reason = "shares need few digits")]
    pub(super) fn size_class(&mut self, classes: &[u64; 9]) -> SizeClass {
        let weights = classes.map(|bytes| bytes as f64);
        if weights.iter().sum::<f64>() == 0.0 {
            return SizeClass::UNKNOWN;
        }
        u8::try_from(self.weighted(&weights)).ok().and_then(SizeClass::new).unwrap_or(SizeClass::UNKNOWN)
    }
}
