//! Parallel work on a sequence of items, with the results taken over in order.
//!
//! ```text
//! items ── claimed in order ──> workers ── results ──> taken over in the order of the items
//! ```
//!
//! The outcome does not depend on the number of workers or on their speed. If an item fails, the
//! results before it are taken over, and its error is returned.

use std::collections::BTreeMap;

use parking_lot::{Condvar, Mutex};

use crate::workers::{Task, Workers};

/// Runs `work` on all workers. Each claims items until there are no more. `take_over` gets the
/// results in the order of the items, from one worker at a time, while the others go on. No item is
/// claimed after the first error.
///
/// A worker that finishes early leaves its result and claims the next item, unless more than
/// `waiting_max` results are waiting. Memory therefore holds at most these results, one for each
/// worker, and the one that is being taken over.
///
/// # Errors
/// The error of the first item that failed to be claimed, worked on, or taken over. All results
/// before it were taken over.
///
/// # Panics
/// If a worker panics, or drops an item without a result. The other workers finish their current
/// items.
pub fn work_in_order<I: Send, O: Send, E: Send>(
    workers: &dyn Workers,
    waiting_max: usize,
    mut items: impl Iterator<Item = Result<I, E>> + Send,
    work: impl Fn(&Claims<'_, I, O, E>) + Sync,
    mut take_over: impl FnMut(O) -> Result<(), E> + Send,
) -> Result<(), E> {
    let claims = Claims {
        waiting_max,
        items: Mutex::new(ItemsLeft { claimed_count: 0, is_exhausted: false, left: &mut items }),
        take_over: Mutex::new(&mut take_over),
        state: Mutex::new(ClaimsState {
            results: BTreeMap::new(),
            taken_over_count: 0,
            is_taking_over: false,
            phase: ClaimsPhase::Claiming,
        }),
        changed: Condvar::new(),
    };
    let one_worker = || {
        let _watch = StopOnPanic(&claims);
        work(&claims);
    };
    workers.run_all((0..workers.width().max(1)).map(|_| Box::new(&one_worker) as Task<'_>).collect());
    let Claims { items, state, .. } = claims;
    let (items, state) = (items.into_inner(), state.into_inner());
    match state.phase {
        ClaimsPhase::Failed(error) => Err(error),
        _ => {
            let is_complete = items.is_exhausted && state.taken_over_count == items.claimed_count;
            assert!(is_complete, "a worker left items behind");
            Ok(())
        }
    }
}

/// The remaining items, from which the workers of [`work_in_order`] claim.
pub struct Claims<'a, I, O, E> {
    waiting_max: usize,
    items: Mutex<ItemsLeft<'a, I, E>>,
    take_over: Mutex<&'a mut TakeOver<'a, O, E>>,
    state: Mutex<ClaimsState<O, E>>,
    /// Signalled when a result has been taken over or has made room, and when the work is over.
    changed: Condvar,
}

type TakeOver<'a, O, E> = dyn FnMut(O) -> Result<(), E> + Send + 'a;

struct ItemsLeft<'a, I, E> {
    claimed_count: usize,
    is_exhausted: bool,
    left: &'a mut (dyn Iterator<Item = Result<I, E>> + Send + 'a),
}

struct ClaimsState<O, E> {
    /// The results that are not taken over yet, by the number of their item.
    results: BTreeMap<usize, Result<O, E>>,
    /// The number of items at the front whose results are taken over.
    taken_over_count: usize,
    is_taking_over: bool,
    phase: ClaimsPhase<E>,
}

enum ClaimsPhase<E> {
    Claiming,
    /// An item has failed. The items before it are still worked on and taken over.
    Ending,
    Failed(E),
    Panicked,
}

impl<'a, I, O, E> Claims<'a, I, O, E> {
    /// Claims items and works on them, until there are no more.
    pub fn work_on_each(&self, mut work: impl FnMut(I) -> Result<O, E>) {
        while let Some((item, turn)) = self.claim() {
            turn.end(work(item));
        }
    }

    /// Claims the next item. Returns `None` if there are no more, or if an item has failed.
    pub fn claim(&self) -> Option<(I, Turn<'_, 'a, I, O, E>)> {
        let mut items = self.items.lock();
        if items.is_exhausted || !matches!(self.state.lock().phase, ClaimsPhase::Claiming) {
            return None;
        }
        let Some(item) = items.left.next() else {
            items.is_exhausted = true;
            return None;
        };
        let turn = Turn { claims: self, number: items.claimed_count, is_ended: false };
        items.claimed_count += 1;
        drop(items);
        match item {
            Ok(item) => Some((item, turn)),
            Err(error) => {
                turn.end(Err(error));
                None
            }
        }
    }

    /// Leaves a result, and takes over the results whose turn it is, unless another worker does so.
    fn end(&self, number: usize, result: Result<O, E>) {
        let mut state = self.state.lock();
        if result.is_err() && matches!(state.phase, ClaimsPhase::Claiming) {
            state.phase = ClaimsPhase::Ending;
        }
        state.results.insert(number, result);
        while !state.is_over() {
            let next = state.taken_over_count;
            if !state.is_taking_over
                && let Some(result) = state.results.remove(&next)
            {
                state.is_taking_over = true;
                drop(state);
                self.changed.notify_all();
                let taken_over = result.and_then(|output| (self.take_over.lock())(output));
                state = self.state.lock();
                state.is_taking_over = false;
                match taken_over {
                    Ok(()) => state.taken_over_count += 1,
                    Err(error) => state.phase = ClaimsPhase::Failed(error),
                }
                self.changed.notify_all();
            } else if state.results.len() > self.waiting_max {
                self.changed.wait(&mut state);
            } else {
                return;
            }
        }
    }

    fn stop(&self) {
        self.state.lock().phase = ClaimsPhase::Panicked;
        self.changed.notify_all();
    }
}

impl<O, E> ClaimsState<O, E> {
    fn is_over(&self) -> bool {
        matches!(self.phase, ClaimsPhase::Failed(_) | ClaimsPhase::Panicked)
    }
}

/// A claimed item. The worker must give its result.
pub struct Turn<'p, 'a, I, O, E> {
    claims: &'p Claims<'a, I, O, E>,
    number: usize,
    is_ended: bool,
}

impl<I, O, E> Turn<'_, '_, I, O, E> {
    /// Gives the result. Waits while too many results are waiting to be taken over. A worker that
    /// has claimed several items must end the first one first.
    pub fn end(mut self, result: Result<O, E>) {
        self.is_ended = true;
        self.claims.end(self.number, result);
    }

    /// Waits until the results of the first `count` items are taken over. Returns `false` if they
    /// never will be.
    ///
    /// # Panics
    /// If the item itself is one of them.
    #[must_use]
    pub fn wait_for(&self, count: usize) -> bool {
        assert!(count <= self.number, "an item waits for those before it");
        let mut state = self.claims.state.lock();
        while !state.is_over() && state.taken_over_count < count {
            self.claims.changed.wait(&mut state);
        }
        state.taken_over_count >= count
    }
}

impl<I, O, E> Drop for Turn<'_, '_, I, O, E> {
    fn drop(&mut self) {
        if !self.is_ended {
            // Other workers may be waiting for this result.
            self.claims.stop();
        }
    }
}

/// Stops the other workers if a worker panics, even while it claims an item or takes over a result.
struct StopOnPanic<'p, 'a, I, O, E>(&'p Claims<'a, I, O, E>);

impl<I, O, E> Drop for StopOnPanic<'_, '_, I, O, E> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::workers::{InlineWorkers, RealWorkers};

    /// Claims to run tasks in parallel, but runs them one after the other, the last one first.
    struct WideInline;

    impl Workers for WideInline {
        fn width(&self) -> usize {
            5
        }

        fn run_all(&self, tasks: Vec<Task<'_>>) {
            tasks.into_iter().rev().for_each(|task| task());
        }
    }

    /// The step at which an item fails.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Fault {
        Claim,
        Work,
        TakeOver,
    }

    #[derive(Debug, Clone)]
    struct Run {
        workers: usize,
        waiting_max: usize,
        item_count: u64,
        faults: BTreeMap<u64, Fault>,
        /// The working time of each item, in units of 10 µs.
        pauses: Vec<u64>,
    }

    fn any_run() -> impl Strategy<Value = Run> {
        let fault = prop_oneof![Just(Fault::Claim), Just(Fault::Work), Just(Fault::TakeOver)];
        let faults = prop::collection::btree_map(0..40_u64, fault, 0..3);
        let pauses = prop::collection::vec(0..20_u64, 1..8);
        let waiting_max = prop_oneof![Just(0), 1..5_usize, Just(usize::MAX)];
        (0..7_usize, waiting_max, 0..40_u64, faults, pauses).prop_map(
            |(workers, waiting_max, item_count, faults, pauses)| Run {
                workers,
                waiting_max,
                item_count,
                faults,
                pauses,
            },
        )
    }

    impl Run {
        fn workers(&self) -> Box<dyn Workers> {
            match self.workers {
                0 => Box::new(InlineWorkers),
                1 => Box::new(WideInline),
                width => Box::new(RealWorkers::new(width)),
            }
        }

        fn items(&self, fails: impl Fn(u64)) -> impl Iterator<Item = Result<u64, u64>> {
            (0..self.item_count).map(move |item| match self.faults.get(&item) {
                Some(Fault::Claim) => {
                    fails(item);
                    Err(item)
                }
                _ => Ok(item),
            })
        }

        #[expect(clippy::disallowed_methods, reason = "some items take longer than others")]
        fn work(&self, item: u64) {
            let pause = self.pauses[usize::try_from(item).unwrap() % self.pauses.len()];
            std::thread::sleep(Duration::from_micros(10 * pause));
        }
    }

    fn as_asked<T>(item: u64) -> T {
        panic!("at item {item}, as the test asks")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn the_outcome_is_that_of_one_worker(run in any_run()) {
            let (in_work, claimed) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let most = AtomicUsize::new(0);
            let mut taken_over = Vec::new();
            let items = run.items(|_| ()).inspect(|_| {
                claimed.fetch_add(1, Ordering::SeqCst);
            });
            let outcome = work_in_order(
                run.workers().as_ref(),
                run.waiting_max,
                items,
                |claims| {
                    claims.work_on_each(|item| {
                        run.work(item);
                        most.fetch_max(in_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        if run.faults.get(&item) == Some(&Fault::Work) { Err(item) } else { Ok(item) }
                    });
                },
                |item| {
                    in_work.fetch_sub(1, Ordering::SeqCst);
                    if run.faults.get(&item) == Some(&Fault::TakeOver) {
                        return Err(item);
                    }
                    taken_over.push(item);
                    Ok(())
                },
            );
            let first_fault = run.faults.keys().copied().find(|item| *item < run.item_count);
            prop_assert_eq!(outcome, first_fault.map_or(Ok(()), Err));
            let expected: Vec<_> = (0..first_fault.unwrap_or(run.item_count)).collect();
            prop_assert_eq!(taken_over, expected);
            if let Some(fault) = first_fault {
                let waiting_max = run.waiting_max.min(40);
                prop_assert!(claimed.into_inner() as u64 <= fault + 1 + (2 * run.workers + waiting_max + 5) as u64);
            }
            let bound = run.waiting_max.saturating_add(run.workers.max(1));
            prop_assert!(most.into_inner() <= bound, "more results than there may be");
        }

        #[test]
        fn a_panic_reaches_the_caller_wherever_it_is(run in any_run()) {
            let is_at = |item, fault| run.faults.get(&item) == Some(&fault);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                work_in_order(
                    run.workers().as_ref(),
                    run.waiting_max,
                    run.items(as_asked),
                    |claims| {
                        claims.work_on_each(|item| {
                            run.work(item);
                            if is_at(item, Fault::Work) { as_asked(item) } else { Ok(item) }
                        });
                    },
                    |item| if is_at(item, Fault::TakeOver) { as_asked(item) } else { Ok(()) },
                )
            }));
            let is_due = run.faults.keys().any(|item| *item < run.item_count);
            prop_assert_eq!(outcome.is_err(), is_due);
        }

        #[test]
        fn an_item_can_wait_for_those_before_it(run in any_run(), back in 0..5_u64) {
            let taken_over_count = AtomicUsize::new(0);
            let outcome = work_in_order(
                run.workers().as_ref(),
                usize::MAX,
                run.items(|_| ()),
                |claims| {
                    while let Some((item, turn)) = claims.claim() {
                        let before = item.saturating_sub(back);
                        if turn.wait_for(usize::try_from(before).unwrap()) {
                            assert!(taken_over_count.load(Ordering::SeqCst) as u64 >= before);
                        }
                        run.work(item);
                        turn.end(if run.faults.contains_key(&item) { Err(item) } else { Ok(item) });
                    }
                },
                |_| {
                    taken_over_count.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                },
            );
            let first_fault = run.faults.keys().copied().find(|item| *item < run.item_count);
            prop_assert_eq!(outcome, first_fault.map_or(Ok(()), Err));
            prop_assert_eq!(taken_over_count.into_inner() as u64, first_fault.unwrap_or(run.item_count));
        }
    }

    #[test]
    fn a_worker_may_claim_the_next_item_before_it_ends_the_last() {
        for workers in [&InlineWorkers as &dyn Workers, &WideInline, &RealWorkers::new(3)] {
            let mut taken_over = Vec::new();
            let outcome = work_in_order(
                workers,
                usize::MAX,
                (0..100).map(Ok::<_, ()>),
                |claims| {
                    let mut last = None;
                    loop {
                        let next = claims.claim();
                        let is_over = next.is_none();
                        if let Some((item, turn)) = std::mem::replace(&mut last, next) {
                            turn.end(Ok(item));
                        }
                        if is_over {
                            return;
                        }
                    }
                },
                |item| {
                    taken_over.push(item);
                    Ok(())
                },
            );
            assert_eq!(outcome, Ok(()));
            assert_eq!(taken_over, (0..100).collect::<Vec<_>>());
        }
    }

    #[test]
    fn items_that_are_left_behind_are_noticed() {
        let left = |work: &(dyn Fn(&Claims<'_, u32, u32, ()>) + Sync)| {
            let run = || work_in_order(&RealWorkers::new(2), 0, (0..9).map(Ok), work, |_| Ok(()));
            catch_unwind(AssertUnwindSafe(run)).is_err()
        };
        assert!(left(&|_| ()));
        assert!(left(&|claims| while let Some((_, turn)) = claims.claim() {
            drop(turn);
        }));
        assert!(!left(&|claims| claims.work_on_each(Ok)));
    }
}
