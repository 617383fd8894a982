//! The money that a scheme spends, discounted to now.
//!
//! Prices and interest change once a year. A byte is bought at the beginning of a year for the size
//! that the store has at its end, and again when its device has reached its life.

use super::costs::{ArchiveCosts, SchemePlaces};
use super::draws::Draws;

/// The purchases and payments of each year, in prices of now.
pub(super) struct Spending {
    /// For each year: purchases, and yearly costs of all places.
    planned: Vec<f64>,
    /// For each place and year: the cost of a repair.
    repairs: Vec<Vec<f64>>,
}

/// For each year: the worth now of what costs 1 at prices of now.
pub(super) struct YearlyWorth(Vec<f64>);

impl Spending {
    pub(super) fn of(costs: &ArchiveCosts, layout: &SchemePlaces<'_>, years: u32) -> Self {
        let years = years as usize;
        #[expect(clippy::cast_precision_loss, reason = "a few places and years")]
        let bytes: Vec<f64> =
            (1..=years).map(|year| costs.bytes_after(year as f64) / layout.needed as f64).collect();
        let mut planned = vec![0.0; years];
        for place in &layout.places {
            // Bytes that are bought in each year, to grow or to replace.
            let mut bought = vec![0.0; years];
            let mut capacity = 0.0;
            for (year, size) in bytes.iter().copied().enumerate() {
                let grown = f64::max(size - capacity, 0.0);
                capacity += grown;
                bought[year] += grown;
                if let Some(life) = place.life_years {
                    #[expect(clippy::cast_precision_loss, reason = "a year")]
                    let end = year as f64 + life;
                    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a year")]
                    let end = end.min(1e9) as usize;
                    let now = bought[year];
                    if let Some(later) = bought.get_mut(end.max(year + 1)) {
                        *later += now;
                    }
                }
                planned[year] += bought[year] * place.price + size * place.yearly;
            }
        }
        let egress = |lost: usize| {
            // A repair reads from the cheapest of the other places, as many as are needed.
            let mut prices: Vec<f64> = layout
                .places
                .iter()
                .enumerate()
                .filter(|(number, _)| *number != lost)
                .map(|(_, place)| place.egress)
                .collect();
            prices.sort_by(f64::total_cmp);
            prices.into_iter().take(layout.needed).sum::<f64>()
        };
        let repairs = layout.places.iter().enumerate().map(|(number, place)| {
            let of_year = |bytes: &f64| bytes * (egress(number) + place.price / place.devices(*bytes));
            bytes.iter().map(of_year).collect()
        });
        Self { repairs: repairs.collect(), planned }
    }

    /// Draws interest and prices for all years.
    pub(super) fn path(&self, costs: &ArchiveCosts, draws: &mut Draws) -> YearlyWorth {
        let mut worth = 1.0;
        let of_year = |_: &f64| {
            let now = worth;
            let interest = costs.interest + costs.interest_deviation * draws.normal();
            let fall = costs.price_fall + costs.price_fall_deviation * draws.normal();
            worth *= (1.0 - fall).max(0.01) / (1.0 + interest).max(0.01);
            now
        };
        YearlyWorth(self.planned.iter().map(of_year).collect())
    }

    /// Returns the worth now of all purchases and yearly costs.
    pub(super) fn planned(&self, path: &YearlyWorth) -> f64 {
        self.planned.iter().zip(&path.0).map(|(cost, worth)| cost * worth).sum()
    }

    /// Returns the worth now of a repair.
    pub(super) fn repair(&self, path: &YearlyWorth, time: f64, place: usize) -> f64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a year of the plan")]
        let year = time as usize;
        match (self.repairs.get(place).and_then(|years| years.get(year)), path.0.get(year)) {
            (Some(cost), Some(worth)) => cost * worth,
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{EndowmentRuns, endow};
    use super::*;
    use crate::example::Example;

    /// A store of one terabyte that stays as it is, in places that never fail.
    fn still() -> ArchiveCosts {
        let mut costs = ArchiveCosts::parse(Example::Endowment.text()).unwrap();
        (costs.bytes, costs.added_bytes_per_year) = (1e12, 0.0);
        (costs.interest, costs.price_fall) = (0.03, 0.08);
        (costs.interest_deviation, costs.price_fall_deviation) = (0.0, 0.0);
        for place in &mut costs.places {
            (place.losses, place.device_failures) = (0.0, 0.0);
        }
        costs
    }

    /// Without failures and noise the cost is a geometric sum: q is a year's fall of prices over
    /// its interest; rent is paid 100 times, and disks are bought in years 0, 5, 10, …, 95.
    #[test]
    fn without_failures_the_cost_is_a_geometric_sum() {
        let costs = still();
        let asked = EndowmentRuns { years: 100, runs: 3, seed: 1 };
        let endowment = endow(&costs, &asked);
        let q = 0.92_f64 / 1.03;
        let years = (1.0 - q.powi(100)) / (1.0 - q);
        let purchases = (1.0 - q.powi(100)) / (1.0 - q.powi(5));
        let disk = 14.0 * purchases + 0.73 * years;
        let bucket = 72.0 * years;
        let expected = [disk, 2.0 * disk, disk + bucket, 2.0 * disk + bucket, disk + bucket / 2.0];
        for (scheme, expected) in endowment.schemes.iter().zip(expected) {
            for cost in [scheme.mean_cost, scheme.endowment] {
                assert!((cost / expected - 1.0).abs() < 1e-9, "{}: {cost} against {expected}", scheme.name);
            }
            assert!((scheme.kept - 1.0).abs() < f64::EPSILON);
        }
    }

    /// Each repair of a copy on one device costs the device and the egress of the other place.
    #[test]
    fn repairs_cost_a_device_and_the_egress() {
        let costs = still();
        let layouts = costs.layouts();
        let spending = Spending::of(&costs, &layouts[2], 10);
        let path = spending.path(&costs, &mut Draws::new(1));
        let q = 0.92_f64 / 1.03;
        assert!((spending.repair(&path, 3.5, 0) - q.powi(3) * (14.0 + 10.0)).abs() < 1e-9);
        assert!(spending.repair(&path, 3.5, 1).abs() < 1e-9, "the bucket is filled from the disk");
    }

    #[test]
    fn growth_is_bought_when_it_comes() {
        let mut costs = still();
        (costs.price_fall, costs.interest) = (0.0, 0.0);
        costs.added_bytes_per_year = 1e12;
        costs.kept_years = None;
        costs.places[0].yearly = 0.0;
        costs.places[0].life_years = None;
        let spending = Spending::of(&costs, &costs.layouts()[0], 10);
        let path = spending.path(&costs, &mut Draws::new(1));
        // 11 TB at the end, each bought once.
        assert!((spending.planned(&path) - 11.0 * 14.0).abs() < 1e-9);
    }

    #[test]
    fn the_same_seed_gives_the_same_endowment_and_more_copies_keep_more() {
        let costs = ArchiveCosts::parse(Example::Endowment.text()).unwrap();
        let asked = EndowmentRuns { years: 50, runs: 4000, seed: 9 };
        let endowment = endow(&costs, &asked);
        assert_eq!(endowment, endow(&costs, &asked));
        assert_ne!(endowment.schemes, endow(&costs, &EndowmentRuns { seed: 10, ..asked }).schemes);
        let kept: Vec<f64> = endowment.schemes.iter().map(|scheme| scheme.kept).collect();
        assert!(kept[0] < kept[1] && kept[1] <= kept[3], "{kept:?}");
        for scheme in &endowment.schemes {
            assert!(scheme.kept_between.0 <= scheme.kept && scheme.kept <= scheme.kept_between.1);
            assert!(scheme.quantiles.is_sorted_by(|one, other| one.1 <= other.1));
            assert!(scheme.kept_by_year.is_sorted_by(|one, other| one >= other));
        }
        assert!(endowment.svg().contains("no snapshot lost"));
    }
}
