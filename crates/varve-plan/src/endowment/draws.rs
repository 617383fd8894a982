//! Pseudo-random numbers from a seed (SplitMix64), and the distributions that a simulation needs.

/// A stream of draws.
pub(super) struct Draws {
    state: u64,
}

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Draws from the open interval between 0 and 1.
    pub(super) fn share(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let number = (self.next() >> 11) as f64;
        (number + 0.5) / 9_007_199_254_740_992.0
    }

    /// Draws a waiting time; infinite if the rate is zero.
    pub(super) fn wait(&mut self, rate: f64) -> f64 {
        let share = self.share();
        if rate > 0.0 { -share.ln() / rate } else { f64::INFINITY }
    }

    /// Draws from the standard normal distribution (Box and Muller).
    pub(super) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.share().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.share()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_their_mean_and_deviation() {
        let mut draws = Draws::new(7);
        let count = 200_000;
        let mut sums = [0.0; 4];
        for _ in 0..count {
            let (normal, wait) = (draws.normal(), draws.wait(4.0));
            for (sum, value) in sums.iter_mut().zip([normal, normal * normal, wait, wait * wait]) {
                *sum += value / f64::from(count);
            }
        }
        for (mean, expected) in sums.into_iter().zip([0.0, 1.0, 0.25, 0.125]) {
            assert!((mean - expected).abs() < 0.01, "{mean} against {expected}");
        }
        assert!(draws.wait(0.0).is_infinite());
    }
}
