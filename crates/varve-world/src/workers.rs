//! Workers that run tasks: as many threads as there are cores, or none at all.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// A unit of work.
pub type Task<'scope> = Box<dyn FnOnce() + Send + 'scope>;

/// Runs tasks. A task must never wait for another one to start, because the tasks may run one after
/// the other.
pub trait Workers: Send + Sync {
    /// The maximum number of tasks that run at the same time.
    fn width(&self) -> usize;

    /// Runs all tasks to completion.
    fn run_all(&self, tasks: Vec<Task<'_>>);

    /// The maximum number of reading tasks that run at the same time. It is larger than
    /// [`width`](Self::width), because some of them wait for the disk while others work.
    fn reading_width(&self) -> usize {
        self.width()
    }

    /// Runs all reading tasks to completion.
    fn run_reading(&self, tasks: Vec<Task<'_>>) {
        self.run_all(tasks);
    }
}

/// Runs two reading tasks, and returns their results.
///
/// # Panics
/// If one of the tasks panics.
pub fn both<A: Send, B: Send>(
    workers: &dyn Workers,
    one: impl FnOnce() -> A + Send,
    other: impl FnOnce() -> B + Send,
) -> (A, B) {
    let (mut of_one, mut of_other) = (None, None);
    workers.run_reading(vec![Box::new(|| of_one = Some(one())), Box::new(|| of_other = Some(other()))]);
    (of_one.expect("it was run to its end"), of_other.expect("it was run to its end"))
}

/// Runs a reading task for each item, and returns the results in order. The tasks also start in
/// order.
///
/// # Panics
/// If one of the tasks panics.
pub fn read_each<I: Sync, T: Send>(
    workers: &dyn Workers,
    items: &[I],
    read: impl Fn(&I) -> T + Sync,
) -> Vec<T> {
    let width = workers.reading_width().min(items.len());
    read_each_with(workers, items, &mut vec![(); width], |(), item| read(item))
}

/// Like [`read_each`], with at most as many concurrent tasks as there are elements in `owned`. Each
/// task uses one of these elements, for example a buffer, for all items that it handles.
///
/// # Panics
/// If one of the tasks panics, or if there are items and `owned` is empty.
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

/// Runs tasks on the caller's thread, one after the other and in order. The same work therefore
/// gives the same bytes.
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

/// The number of additional threads for reading tasks: enough to keep a disk busy while the others
/// work.
const WAITING_COUNT: usize = 6;

/// Runs each task on a thread of its own.
#[derive(Debug, Clone, Copy)]
pub struct RealWorkers {
    width: usize,
}

impl RealWorkers {
    /// Runs at most `width` tasks at a time, and at least one.
    #[must_use]
    pub fn new(width: usize) -> Self {
        Self { width: width.max(1) }
    }

    /// Runs as many tasks at a time as there are cores for this process.
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
