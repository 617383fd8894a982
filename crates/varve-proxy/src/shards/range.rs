//! Ranges of scores, by their leading 32 bits.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use varve_block::Score;

/// The leading 32 bits of a score.
pub(super) fn leading_bits(score: &Score) -> u32 {
    score.as_bytes().iter().take(4).fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

/// The scores whose leading bits lie between two bounds, both inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u32; 2]", into = "[u32; 2]")]
pub(crate) struct ScoreRange {
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl ScoreRange {
    /// All scores.
    pub(crate) const ALL: Self = Self { first: 0, last: u32::MAX };

    /// The range of these parts, of `count` equal parts.
    pub(super) fn part(numbers: Range<usize>, count: usize) -> Self {
        let begin = |number: usize| ((number as u64) << 32).div_ceil(count as u64);
        let narrow = |bits: u64| u32::try_from(bits).unwrap_or(u32::MAX);
        Self { first: narrow(begin(numbers.start)), last: narrow(begin(numbers.end).saturating_sub(1)) }
    }

    pub(crate) fn contains(&self, score: &Score) -> bool {
        (self.first..=self.last).contains(&leading_bits(score))
    }

    /// Reports whether `other` lies within this range.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}

impl From<[u32; 2]> for ScoreRange {
    fn from([first, last]: [u32; 2]) -> Self {
        Self { first, last }
    }
}

impl From<ScoreRange> for [u32; 2] {
    fn from(range: ScoreRange) -> Self {
        [range.first, range.last]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_beside_each_other_and_are_all_there_is() {
        for count in [1, 2, 3, 7, 16, 255, 256] {
            let parts: Vec<ScoreRange> =
                (0..count).map(|number| ScoreRange::part(number..number + 1, count)).collect();
            assert_eq!(parts[0].first, 0);
            assert_eq!(parts[count - 1].last, u32::MAX);
            assert!(parts.windows(2).all(|pair| pair[0].last + 1 == pair[1].first), "{count}");
            assert_eq!(ScoreRange::part(0..count, count), ScoreRange::ALL);
        }
    }
}
