//! Shrinks a failing schedule to the smallest one that still fails.

use crate::quiet;
use crate::report::Failure;
use crate::schedule::Schedule;

/// The limit on the runs that shrinking may take.
const RUNS_MAX: usize = 1500;

/// Returns the smallest schedule that was found to fail, and its failure.
pub fn shrink(schedule: &Schedule, failure: Failure) -> (Schedule, Failure) {
    let mut smallest = (schedule.clone(), failure);
    let mut runs = 0;
    loop {
        let before = runs;
        let found = candidates(&smallest.0).take_while(|_| runs_left(&mut runs)).find_map(|candidate| {
            let failure = quiet::run(&candidate).err()?;
            // A loss stays a loss: another kind of failure has another cause.
            (failure.is_loss == smallest.1.is_loss).then_some((candidate, failure))
        });
        match found {
            Some(smaller) => smallest = smaller,
            None => return smallest,
        }
        if before >= RUNS_MAX {
            return smallest;
        }
    }
}

fn runs_left(runs: &mut usize) -> bool {
    *runs += 1;
    *runs <= RUNS_MAX
}

/// Smaller schedules. Those that leave out most come first.
fn candidates(schedule: &Schedule) -> impl Iterator<Item = Schedule> + '_ {
    let count = schedule.steps.len();
    let sizes = std::iter::successors(Some(count / 2), |size| (*size > 1).then_some(size / 2))
        .filter(|size| *size > 0);
    let without = sizes
        .flat_map(move |size| (0..count).step_by(size).map(move |from| from..(from + size).min(count)))
        .map(|range| {
            let mut smaller = schedule.clone();
            smaller.steps.drain(range);
            smaller
        });
    let uncreated =
        (!schedule.create.is_empty()).then(|| Schedule { create: Vec::new(), ..schedule.clone() });
    let unstruck = (0..count).flat_map(move |step| {
        (0..schedule.steps[step].strikes.len()).map(move |strike| {
            let mut smaller = schedule.clone();
            smaller.steps[step].strikes.remove(strike);
            smaller
        })
    });
    let unstruck_there = (0..count).flat_map(move |step| {
        (0..schedule.steps[step].target_strikes.len()).map(move |strike| {
            let mut smaller = schedule.clone();
            smaller.steps[step].target_strikes.remove(strike);
            smaller
        })
    });
    let unparitied =
        (schedule.parity_percent > 0).then(|| Schedule { parity_percent: 0, ..schedule.clone() });
    let lesser = (0..count).flat_map(move |step| {
        schedule.steps[step].action.lesser().into_iter().map(move |action| {
            let mut smaller = schedule.clone();
            smaller.steps[step].action = action;
            smaller
        })
    });
    without.chain(uncreated).chain(unparitied).chain(unstruck).chain(unstruck_there).chain(lesser)
}

/// Returns all that is needed to find the cause.
pub fn explain(schedule: &Schedule, failure: &Failure) -> String {
    let (smallest, still) = shrink(schedule, failure.clone());
    let still = quiet::run_telling(&smallest).err().unwrap_or(still);
    format!(
        "seed {seed} fails: {text}\n\nthe smallest schedule that fails, of {steps} steps: {still}\n{smallest}\n\
         replay: VARVE_FAULT_SEED='{seed}' cargo test --release -p varve-archive --test faults replay -- --exact --nocapture\n\
         then add {seed} to crates/varve-archive/tests/faults/failed-seeds.txt",
        seed = schedule.seed,
        text = failure.text,
        steps = schedule.steps.len(),
        still = still.text,
    )
}
