//! One history of a scheme: copies are lost, found missing by an audit, and made again, until too
//! few are left at once or the years are over.

use super::costs::{ArchiveCosts, SchemePlaces};
use super::draws::Draws;

/// The rates of a scheme.
pub(super) struct Rates {
    /// Losses of each place's copy in a year.
    losses: Vec<f64>,
    needed: usize,
    audit_years: f64,
    /// Repairs of a missing copy in a year.
    repairs: f64,
}

impl Rates {
    /// A copy on several devices is lost with any of them. Their number is that of the copy at its
    /// present size.
    pub(super) fn of(costs: &ArchiveCosts, layout: &SchemePlaces<'_>) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a few places")]
        let bytes = costs.bytes / layout.needed as f64;
        let losses =
            layout.places.iter().map(|place| place.losses + place.device_failures * place.devices(bytes));
        Self {
            losses: losses.collect(),
            needed: layout.needed,
            audit_years: costs.audit_years(),
            repairs: 1.0 / costs.repair_years(),
        }
    }
}

/// The end of a history.
pub(super) struct Fate {
    /// The year in which too few copies were left.
    pub lost_at: Option<f64>,
}

impl Fate {
    /// Draws a history. `repaired` gets the time and the place of each repair.
    pub(super) fn draw(
        rates: &Rates,
        years: f64,
        draws: &mut Draws,
        repaired: &mut dyn FnMut(f64, usize),
    ) -> Self {
        // The next event of each place: the loss of its copy, or the end of its repair.
        let mut next: Vec<f64> = rates.losses.iter().map(|rate| draws.wait(*rate)).collect();
        let mut is_there = vec![true; next.len()];
        let mut present = next.len();
        loop {
            let first = next.iter().enumerate().min_by(|one, other| one.1.total_cmp(other.1));
            let Some((place, time)) = first.map(|(place, time)| (place, *time)) else {
                return Self { lost_at: None };
            };
            if time >= years {
                return Self { lost_at: None };
            }
            if is_there[place] {
                is_there[place] = false;
                present -= 1;
                if present < rates.needed {
                    return Self { lost_at: Some(time) };
                }
                next[place] = found(time, rates.audit_years) + draws.wait(rates.repairs);
            } else {
                is_there[place] = true;
                present += 1;
                repaired(time, place);
                next[place] = time + draws.wait(rates.losses[place]);
            }
        }
    }
}

/// Returns the time of the next audit, which finds a loss.
fn found(time: f64, audit_years: f64) -> f64 {
    if audit_years > 0.0 { (time / audit_years).ceil() * audit_years } else { time }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(rates: &Rates, years: f64, runs: u32) -> f64 {
        let mut draws = Draws::new(3);
        let histories = (0..runs).map(|_| Fate::draw(rates, years, &mut draws, &mut |_, _| ()));
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let kept = histories.filter(|fate| fate.lost_at.is_none()).count() as f64;
        kept / f64::from(runs)
    }

    fn rates(losses: &[f64], needed: usize, repairs: f64) -> Rates {
        Rates { losses: losses.to_vec(), needed, audit_years: 0.0, repairs }
    }

    /// The probability that a Markov chain has not reached its last state, by small steps of its
    /// equations. In state i, i copies are missing.
    fn markov(loss: f64, copies: u32, needed: u32, repairs: f64, years: f64) -> f64 {
        const STEPS_IN_YEAR: u32 = 10_000;
        let step = 1.0 / f64::from(STEPS_IN_YEAR);
        let states: Vec<f64> = (0..=copies - needed).map(f64::from).collect();
        let mut share = vec![0.0; states.len()];
        share[0] = 1.0;
        let mut time = 0.0;
        while time < years {
            let mut next = share.clone();
            for (at, missing) in states.iter().enumerate() {
                let (worse, better) = ((f64::from(copies) - missing) * loss, missing * repairs);
                next[at] -= share[at] * (worse + better) * step;
                if let Some(one_more) = next.get_mut(at + 1) {
                    *one_more += share[at] * worse * step;
                }
                if at > 0 {
                    next[at - 1] += share[at] * better * step;
                }
            }
            share = next;
            time += step;
        }
        share.iter().sum()
    }

    /// One copy: it is there after t years with probability e^-λt.
    #[test]
    fn one_copy_decays() {
        let simulated = kept(&rates(&[0.03], 1, 10.0), 20.0, 100_000);
        assert!((simulated - (-0.6_f64).exp()).abs() < 0.005, "{simulated}");
    }

    /// Two copies with failures λ and repairs μ: the chain of three states has the closed form
    /// (s₁ e^{s₂t} - s₂ e^{s₁t}) / (s₁ - s₂) with the roots s of s² + (3λ + μ) s + 2λ².
    #[test]
    fn two_copies_are_a_markov_chain() {
        let (loss, repairs, years) = (0.2_f64, 6.0_f64, 30.0_f64);
        let half = (3.0 * loss + repairs) / 2.0;
        let root = (half * half - 2.0 * loss * loss).sqrt();
        let (one, other) = (-half + root, -half - root);
        let closed = (one * (other * years).exp() - other * (one * years).exp()) / (one - other);
        assert!((markov(loss, 2, 1, repairs, years) - closed).abs() < 1e-3, "{closed}");
        let simulated = kept(&rates(&[loss; 2], 1, repairs), years, 100_000);
        assert!((simulated - closed).abs() < 0.006, "{simulated} against {closed}");
    }

    #[test]
    fn coded_copies_are_a_markov_chain() {
        let expected = markov(0.3, 5, 3, 8.0, 10.0);
        let simulated = kept(&rates(&[0.3; 5], 3, 8.0), 10.0, 100_000);
        assert!((simulated - expected).abs() < 0.006, "{simulated} against {expected}");
    }

    #[test]
    fn a_loss_is_found_at_the_next_audit() {
        assert!((found(1.1, 0.5) - 1.5).abs() < 1e-12);
        assert!((found(1.1, 0.0) - 1.1).abs() < 1e-12);
        let often = rates(&[0.3; 2], 1, 50.0);
        let seldom = Rates { audit_years: 1.0, ..rates(&[0.3; 2], 1, 50.0) };
        assert!(kept(&often, 10.0, 20_000) > kept(&seldom, 10.0, 20_000) + 0.2);
    }
}
