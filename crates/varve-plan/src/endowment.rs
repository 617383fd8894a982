//! The cost of an archive for ever: the money that is needed now, so that with some probability it
//! suffices for many years and no snapshot is lost (after D. Rosenthal's model of an endowment for
//! stored data; *;login:* June 2012 reports on it).
//!
//! `costs.rs` has the input. `fate.rs` simulates the failures of one scheme, and `money.rs` adds
//! what it spends, discounted to now. [`endow`] runs both many times for each scheme, from a seed.

mod costs;
mod draws;
mod fate;
mod money;

use serde::Serialize;

pub use costs::{ArchiveCosts, CopyPlace, CopyScheme};

use crate::chart::{ChartLine, ChartPanel, chart};
use costs::SchemePlaces;
use draws::Draws;
use fate::{Fate, Rates};
use money::Spending;

/// The quantiles of the cost that the picture shows.
const QUANTILES: [f64; 13] = [0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99];
/// Standard errors of a 95 % confidence interval.
const SIGMAS: f64 = 1.96;

/// A question about an endowment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EndowmentRuns {
    pub years: u32,
    /// Simulated histories of each scheme.
    pub runs: u32,
    pub seed: u64,
}

impl EndowmentRuns {
    /// Upper bounds, so that an answer takes seconds.
    pub const YEARS_MAX: u32 = 1000;
    /// See [`Self::YEARS_MAX`].
    pub const RUNS_MAX: u32 = 10_000_000;
}

/// The endowments of all schemes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Endowment {
    pub costs: ArchiveCosts,
    pub asked: EndowmentRuns,
    /// Bytes of the store at the end.
    pub bytes_at_the_end: f64,
    pub schemes: Vec<SchemeOutcome>,
    /// The position of the cheapest scheme that is safe enough; `None` if none is.
    pub choice: Option<usize>,
}

/// The simulated histories of one scheme.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SchemeOutcome {
    pub name: String,
    /// The share of the histories in which no snapshot was lost.
    pub kept: f64,
    /// The ends of its 95 % confidence interval (Wilson's).
    pub kept_between: (f64, f64),
    /// True if the lower end is at least the required probability.
    pub is_safe: bool,
    /// Money needed now, on average.
    pub mean_cost: f64,
    /// Money that suffices with the required probability.
    pub endowment: f64,
    /// Copies that were lost and made again in one history, on average.
    pub repairs: f64,
    /// Probabilities, each with the money that suffices so often.
    pub quantiles: Vec<(f64, f64)>,
    /// The share of the histories without a loss after each year.
    pub kept_by_year: Vec<f64>,
}

/// Simulates all schemes. The same seed gives the same figures.
#[must_use]
pub fn endow(costs: &ArchiveCosts, asked: &EndowmentRuns) -> Endowment {
    let layouts = costs.layouts();
    let schemes: Vec<_> = layouts.iter().map(|layout| outcome(costs, layout, asked)).collect();
    let safe = schemes.iter().enumerate().filter(|(_, scheme)| scheme.is_safe);
    let choice = safe.min_by(|one, other| one.1.endowment.total_cmp(&other.1.endowment));
    Endowment {
        costs: costs.clone(),
        asked: *asked,
        bytes_at_the_end: costs.bytes_after(f64::from(asked.years)),
        choice: choice.map(|(number, _)| number),
        schemes,
    }
}

fn outcome(costs: &ArchiveCosts, layout: &SchemePlaces<'_>, asked: &EndowmentRuns) -> SchemeOutcome {
    let years = f64::from(asked.years);
    let spending = Spending::of(costs, layout, asked.years);
    // Each scheme sees the same interest and prices, so that their differences have less noise.
    let mut economy = Draws::new(asked.seed);
    let mut failures = Draws::new(asked.seed ^ 0x5eed);
    let mut spent = Vec::with_capacity(asked.runs as usize);
    let mut lost_in_year = vec![0_u32; asked.years as usize];
    let (mut lost, mut repairs) = (0_u32, 0_u64);
    let rates = Rates::of(costs, layout);
    for _ in 0..asked.runs {
        let path = spending.path(costs, &mut economy);
        let mut cost = spending.planned(&path);
        let fate = Fate::draw(&rates, years, &mut failures, &mut |time, place| {
            repairs += 1;
            cost += spending.repair(&path, time, place);
        });
        if let Some(time) = fate.lost_at {
            lost += 1;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a year of the plan")]
            let year = (time as usize).min(lost_in_year.len() - 1);
            lost_in_year[year] += 1;
        }
        spent.push(cost);
    }
    spent.sort_by(f64::total_cmp);
    let runs = f64::from(asked.runs);
    let kept = 1.0 - f64::from(lost) / runs;
    let kept_between = wilson(kept, runs);
    let after_year = lost_in_year.iter().scan(0_u32, |before, lost| {
        *before += lost;
        Some(1.0 - f64::from(*before) / runs)
    });
    #[expect(clippy::cast_precision_loss, reason = "a mean")]
    let repairs = repairs as f64 / runs;
    SchemeOutcome {
        name: layout.name.to_owned(),
        kept,
        kept_between,
        is_safe: kept_between.0 >= costs.probability,
        mean_cost: spent.iter().sum::<f64>() / runs,
        endowment: quantile(&spent, costs.probability),
        repairs,
        quantiles: QUANTILES.map(|share| (share, quantile(&spent, share))).to_vec(),
        kept_by_year: after_year.collect(),
    }
}

/// Returns the smallest value that is at least as large as a share of them.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place in the list"
    )]
    let place = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len());
    sorted[place - 1]
}

/// Returns Wilson's confidence interval of a share.
fn wilson(share: f64, count: f64) -> (f64, f64) {
    let square = SIGMAS * SIGMAS;
    let middle = share + square / (2.0 * count);
    let half = SIGMAS * (share * (1.0 - share) / count + square / (4.0 * count * count)).sqrt();
    let scale = 1.0 + square / count;
    // The share lies within, also after rounding.
    (((middle - half) / scale).clamp(0.0, share), ((middle + half) / scale).clamp(share, 1.0))
}

impl Endowment {
    /// Draws the money against the probability that it suffices, and the share of histories without
    /// a loss over the years.
    #[must_use]
    pub fn svg(&self) -> String {
        let lines = |points: &dyn Fn(&SchemeOutcome) -> Vec<(f64, f64)>| {
            let line = |scheme: &SchemeOutcome| ChartLine {
                name: scheme.name.clone(),
                points: points(scheme),
                is_stepped: false,
            };
            self.schemes.iter().map(line).collect()
        };
        let by_year = |scheme: &SchemeOutcome| {
            (1_u32..).map(f64::from).zip(scheme.kept_by_year.iter().copied()).collect()
        };
        let panels = [
            ChartPanel {
                title: "money needed now".into(),
                horizontal: "probability that it suffices".into(),
                vertical: self.costs.currency.clone(),
                is_log: false,
                mark: Some(self.costs.probability),
                lines: lines(&|scheme| scheme.quantiles.clone()),
            },
            ChartPanel {
                title: "no snapshot lost".into(),
                horizontal: "years".into(),
                vertical: "share of the histories".into(),
                is_log: false,
                mark: None,
                lines: lines(&by_year),
            },
        ];
        chart(&format!("{}, {} years", self.costs.name, self.asked.years), &panels)
    }
}
