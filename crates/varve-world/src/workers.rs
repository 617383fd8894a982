//! Hands to do work: as many threads as there are cores, or none at all.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// One piece of work.
pub type Task<'scope> = Box<dyn FnOnce() + Send + 'scope>;

/// Runs tasks. A task must never wait for another one to start: whoever runs them may run them one after the other.
pub trait Workers: Send + Sync {
    /// How many tasks run at the same time, at most.
    fn width(&self) -> usize;

    /// Runs every task to its end.
    fn run_all(&self, tasks: Vec<Task<'_>>);

    /// How many tasks run at the same time, at most, of those that work on what they read: while some work, others wait for the disk.
    fn reading_width(&self) -> usize {
        self.width()
    }

    /// Runs every such task to its end.
    fn run_reading(&self, tasks: Vec<Task<'_>>) {
        self.run_all(tasks);
    }
}

/// What two tasks return that work on what they read.
///
/// # Panics
/// When one of them does.
pub fn both<A: Send, B: Send>(
    workers: &dyn Workers,
    one: impl FnOnce() -> A + Send,
    other: impl FnOnce() -> B + Send,
) -> (A, B) {
    let (mut of_one, mut of_other) = (None, None);
    workers.run_reading(vec![Box::new(|| of_one = Some(one())), Box::new(|| of_other = Some(other()))]);
    (of_one.expect("it was run to its end"), of_other.expect("it was run to its end"))
}

/// What tasks that work on what they read return for each of these, in order. They are taken up in order, too.
///
/// # Panics
/// When one of them does.
pub fn read_each<I: Sync, T: Send>(
    workers: &dyn Workers,
    items: &[I],
    read: impl Fn(&I) -> T + Sync,
) -> Vec<T> {
    let width = workers.reading_width().min(items.len());
    read_each_with(workers, items, &mut vec![(); width], |(), item| read(item))
}

/// As [`read_each`], with no more tasks at a time than there are `owned`: each works with one of them, such as memory, on all that it takes
/// up.
///
/// # Panics
/// When one of them does, or when there is something to read and nothing `owned`.
pub fn read_each_with<I: Sync, M: Send, T: Send>(
    workers: &dyn Workers,
    items: &[I],
    owned: &mut [M],
    read: impl Fn(&mut M, &I) -> T + Sync,
) -> Vec<T> {
    if let ([item], [own, ..]) = (items, &mut *owned) {
        return vec![read(own, item)];
    }
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<T>>> = Mutex::new(items.iter().map(|_| None).collect());
    let work = |own: &mut M| {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { return };
            let result = read(own, item);
            results.lock()[number] = Some(result);
        }
    };
    let work = &work;
    workers.run_reading(owned.iter_mut().map(|own| Box::new(move || work(own)) as Task<'_>).collect());
    let results = results.into_inner();
    results.into_iter().map(|result| result.expect("it was run to its end")).collect()
}

/// Runs tasks one after the other, in order, on the caller's thread: the same work gives the same bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct InlineWorkers;

impl Workers for InlineWorkers {
    fn width(&self) -> usize {
        1
    }

    fn run_all(&self, tasks: Vec<Task<'_>>) {
        for task in tasks {
            task();
        }
    }
}

/// So many threads wait for a disk while the others work: what a disk needs to be kept busy.
const WAITING_COUNT: usize = 6;

/// Runs each task on a thread of its own.
#[derive(Debug, Clone, Copy)]
pub struct RealWorkers {
    width: usize,
}

impl RealWorkers {
    /// `width` tasks at a time; at least one.
    #[must_use]
    pub fn new(width: usize) -> Self {
        Self { width: width.max(1) }
    }

    /// As many tasks at a time as the machine has cores for this process.
    #[must_use]
    pub fn one_a_core() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
    }
}

impl Workers for RealWorkers {
    fn width(&self) -> usize {
        self.width
    }

    fn run_all(&self, tasks: Vec<Task<'_>>) {
        run_in_groups(tasks, self.width());
    }

    fn reading_width(&self) -> usize {
        self.width + WAITING_COUNT
    }

    fn run_reading(&self, tasks: Vec<Task<'_>>) {
        run_in_groups(tasks, self.reading_width());
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that starts threads for work")]
fn run_in_groups(tasks: Vec<Task<'_>>, group_size: usize) {
    let mut tasks = tasks.into_iter();
    loop {
        let group: Vec<_> = tasks.by_ref().take(group_size).collect();
        if group.is_empty() {
            return;
        }
        std::thread::scope(|scope| {
            for task in group {
                scope.spawn(task);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_tasks_run(workers: &dyn Workers) {
        let done = AtomicUsize::new(0);
        let count = || {
            done.fetch_add(1, Ordering::Relaxed);
        };
        workers.run_all((0..10).map(|_| Box::new(count) as Task<'_>).collect());
        workers.run_reading((0..20).map(|_| Box::new(count) as Task<'_>).collect());
        assert_eq!(done.into_inner(), 30);
        assert!(workers.reading_width() >= workers.width());
        assert_eq!(both(workers, || 1, || "two"), (1, "two"));
    }

    #[test]
    fn results_come_in_order() {
        let numbers: Vec<_> = (0..30).collect();
        for workers in [&InlineWorkers as &dyn Workers, &RealWorkers::new(3)] {
            for count in [0, 1, 2, 30] {
                let doubled = read_each(workers, &numbers[..count], |number| number * 2);
                assert_eq!(doubled, numbers[..count].iter().map(|number| number * 2).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn both_kinds_run_all() {
        all_tasks_run(&InlineWorkers);
        all_tasks_run(&RealWorkers::new(3));
    }

    #[test]
    fn each_that_works_has_its_own() {
        let numbers: Vec<usize> = (0..1000).collect();
        for workers in [&InlineWorkers as &dyn Workers, &RealWorkers::new(3)] {
            for owned_count in [1, 2, 20] {
                let mut owned = vec![Vec::new(); owned_count];
                let same = read_each_with(workers, &numbers, &mut owned, |own, number| {
                    own.push(*number);
                    *number
                });
                assert_eq!(same, numbers);
                assert!(owned.iter().all(|own| own.is_sorted()), "what is first is taken up first");
                let mut all = owned.concat();
                all.sort_unstable();
                assert_eq!(all, numbers);
            }
        }
    }
}
