//! The table of faults survived.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use varve_sim::{Fault, Leftover, Tally};

/// What a run that held all promises has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    pub tally: Tally,
    /// How often each action was carried out.
    pub actions: BTreeMap<&'static str, u64>,
}

/// A promise was broken.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Whether something that was acknowledged is gone, or wrong.
    pub is_loss: bool,
    pub text: String,
}

/// What many runs have seen.
#[derive(Debug, Default)]
pub struct Report {
    seeds: u64,
    losses: u64,
    sum: Tally,
    actions: BTreeMap<&'static str, u64>,
    by_fault: BTreeMap<Fault, Row>,
}

#[derive(Debug, Default)]
struct Row {
    seeds: u64,
    operations: u64,
    struck: u64,
}

impl Report {
    pub fn add(&mut self, outcome: Result<&Outcome, &Failure>) {
        self.seeds += 1;
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(failure) => {
                self.losses += u64::from(failure.is_loss);
                return;
            }
        };
        self.sum.add(&outcome.tally);
        for (fault, struck) in &outcome.tally.struck {
            let row = self.by_fault.entry(*fault).or_default();
            row.seeds += 1;
            row.operations += outcome.tally.operations;
            row.struck += struck;
        }
        for (action, count) in &outcome.actions {
            *self.actions.entry(action).or_default() += count;
        }
    }

    /// The report, as `docs/reliability.md` has it.
    pub fn text(&self, elapsed: Duration) -> String {
        let mut text = String::new();
        let operations = self.sum.operations;
        let rate = u128::from(operations) * 1000 / elapsed.as_millis().max(1);
        let seconds = elapsed.as_secs();
        writeln!(
            text,
            "{} seeds, {operations} simulated operations of the disk in {seconds} s: {rate} a second.",
            self.seeds
        )
        .unwrap();
        writeln!(text).unwrap();
        writeln!(text, "| kind of fault                                 | seeds run | operations | times it struck | acknowledged data lost |").unwrap();
        writeln!(text, "|-----------------------------------------------|----------:|-----------:|----------------:|-----------------------:|").unwrap();
        let none = Row::default();
        for fault in Fault::ALL {
            let row = self.by_fault.get(&fault).unwrap_or(&none);
            let lost = self.losses;
            let (name, Row { seeds, operations, struck }) = (fault.name(), row);
            writeln!(text, "| {name:45} | {seeds:9} | {operations:10} | {struck:15} | {lost:22} |").unwrap();
        }
        writeln!(text).unwrap();
        writeln!(text, "| what power cuts and failed syncs left              | times seen |").unwrap();
        writeln!(text, "|----------------------------------------------------|-----------:|").unwrap();
        for leftover in Leftover::ALL {
            let count = self.sum.left.get(&leftover).copied().unwrap_or(0);
            writeln!(text, "| {:50} | {count:10} |", leftover.name()).unwrap();
        }
        writeln!(text).unwrap();
        writeln!(text, "| what was done            |     times |").unwrap();
        writeln!(text, "|--------------------------|----------:|").unwrap();
        for (action, count) in &self.actions {
            writeln!(text, "| {action:24} | {count:9} |").unwrap();
        }
        text
    }
}
