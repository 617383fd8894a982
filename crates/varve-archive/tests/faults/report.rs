//! The table of faults survived.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use varve_sim::{Fault, Leftover, Rot, Tally};

use crate::target::{Spoil, TargetFault, TargetTally};

/// The counts of one run or of many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    pub tally: Tally,
    pub target: TargetTally,
    /// The number of times that each action was carried out.
    pub actions: BTreeMap<&'static str, u64>,
    /// The number of times that damage ended in each way.
    pub cures: BTreeMap<&'static str, u64>,
}

/// A broken promise.
#[derive(Debug, Clone)]
pub struct Failure {
    /// True if acknowledged data is gone or wrong.
    pub is_loss: bool,
    pub text: String,
    /// The counts until the failure; `None` after a panic.
    pub outcome: Option<Box<Outcome>>,
}

/// The sums over many runs.
#[derive(Debug, Default)]
pub struct Report {
    seeds: u64,
    failures: u64,
    sum: Outcome,
    by_kind: BTreeMap<&'static str, Row>,
}

const PUT_BACK: &str = "a file is put back as it was";

/// The sums over the runs in which one kind of fault struck.
#[derive(Debug, Default)]
struct Row {
    seeds: u64,
    operations: u64,
    struck: u64,
    losses: u64,
}

impl Outcome {
    /// The number of calls to disks and of requests to targets.
    fn operations(&self) -> u64 {
        self.tally.operations + self.target.requests
    }

    /// The number of times that each kind of fault has struck.
    fn struck(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let here = self.tally.struck.iter().map(|(fault, count)| (fault.name(), *count));
        let rotted = self.tally.rotted.iter().map(|(rot, count)| (rot.name(), *count));
        let there = self.target.struck.iter().map(|(fault, count)| (fault.name(), *count));
        let spoiled = self.target.spoiled.iter().map(|(spoil, count)| (spoil.name(), *count));
        let put_back = (self.tally.put_back > 0).then_some((PUT_BACK, self.tally.put_back));
        here.chain(rotted).chain(put_back).chain(there).chain(spoiled)
    }
}

/// All kinds of faults, in the table's order.
fn kinds() -> impl Iterator<Item = &'static str> {
    let there = TargetFault::ALL.iter().map(|fault| fault.name());
    let spoiled = Spoil::ALL.iter().map(|spoil| spoil.name());
    let rotted = Rot::ALL.iter().map(|rot| rot.name());
    Fault::ALL.iter().map(|fault| fault.name()).chain(rotted).chain([PUT_BACK]).chain(there).chain(spoiled)
}

impl Report {
    pub fn add(&mut self, outcome: Result<&Outcome, &Failure>) {
        self.seeds += 1;
        self.failures += u64::from(outcome.is_err());
        let is_loss = outcome.as_ref().is_err_and(|failure| failure.is_loss);
        let Some(outcome) = outcome.map_or_else(|failure| failure.outcome.as_deref(), Some) else { return };
        for (kind, struck) in outcome.struck() {
            let row = self.by_kind.entry(kind).or_default();
            row.seeds += 1;
            row.operations += outcome.operations();
            row.struck += struck;
            row.losses += u64::from(is_loss);
        }
        self.sum.tally.add(&outcome.tally);
        self.sum.target.add(&outcome.target);
        for (action, count) in &outcome.actions {
            *self.sum.actions.entry(action).or_default() += count;
        }
        for (cure, count) in &outcome.cures {
            *self.sum.cures.entry(cure).or_default() += count;
        }
    }

    /// The report in the form that `docs/internals/reliability.md` shows.
    pub fn text(&self, elapsed: Duration) -> String {
        let mut text = String::new();
        let operations = self.sum.operations();
        let rate = u128::from(operations) * 1000 / elapsed.as_millis().max(1);
        let (seeds, failures, seconds) = (self.seeds, self.failures, elapsed.as_secs());
        writeln!(
            text,
            "{seeds} seeds, {failures} of them failed; {operations} simulated operations in {seconds} s: {rate} a second."
        )
        .unwrap();
        writeln!(text).unwrap();
        writeln!(text, "| kind of fault                                 | seeds run | operations | times it struck | seeds that lost data |").unwrap();
        writeln!(text, "|-----------------------------------------------|----------:|-----------:|----------------:|---------------------:|").unwrap();
        let none = Row::default();
        for name in kinds() {
            let Row { seeds, operations, struck, losses } = self.by_kind.get(name).unwrap_or(&none);
            writeln!(text, "| {name:45} | {seeds:9} | {operations:10} | {struck:15} | {losses:20} |")
                .unwrap();
        }
        let left =
            Leftover::ALL.map(|left| (left.name(), self.sum.tally.left.get(&left).copied().unwrap_or(0)));
        counts(&mut text, "what power cuts and failed syncs left", left.into_iter());
        counts(
            &mut text,
            "how damage to the log ended",
            self.sum.cures.iter().map(|(name, count)| (*name, *count)),
        );
        counts(&mut text, "what was done", self.sum.actions.iter().map(|(name, count)| (*name, *count)));
        text
    }
}

fn counts(text: &mut String, title: &str, rows: impl Iterator<Item = (&'static str, u64)>) {
    writeln!(text).unwrap();
    writeln!(text, "| {title:54} |     times |").unwrap();
    writeln!(text, "|{}|----------:|", "-".repeat(56)).unwrap();
    for (name, count) in rows {
        writeln!(text, "| {name:54} | {count:9} |").unwrap();
    }
}
