//! A queue of jobs between one producer and its helpers.
//!
//! No thread waits for work that no thread does: a producer that finds the queue full, or needs a
//! result, runs a queued job itself. The same code therefore works on one thread, one job after the
//! other, and on many.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};
use varve_world::{Task, Workers};

/// Jobs that may be queued per worker before the producer has to help.
const QUEUED_A_WORKER_MAX: usize = 3;

/// Runs `produce`, and runs the jobs that it submits on all workers. Jobs start in the order in
/// which they were submitted, except for those that are to start first. Jobs that are still queued
/// when the producer returns are dropped.
pub(crate) fn run<Job: Send, Done: Send, Output: Send>(
    workers: &dyn Workers,
    work: &(dyn Fn(Job) -> Done + Sync),
    produce: impl FnOnce(&Pipeline<'_, Job, Done>) -> Output + Send,
) -> Output {
    let width = workers.width().max(1);
    run_on(width, &|tasks| workers.run_all(tasks), work, produce)
}

/// Like [`run`], for jobs that wait for a disk: on more workers than there are cores.
pub(crate) fn run_reading<Job: Send, Done: Send, Output: Send>(
    workers: &dyn Workers,
    work: &(dyn Fn(Job) -> Done + Sync),
    produce: impl FnOnce(&Pipeline<'_, Job, Done>) -> Output + Send,
) -> Output {
    let width = workers.reading_width().max(1);
    run_on(width, &|tasks| workers.run_reading(tasks), work, produce)
}

fn run_on<Job: Send, Done: Send, Output: Send>(
    width: usize,
    run_all: &dyn Fn(Vec<Task<'_>>),
    work: &(dyn Fn(Job) -> Done + Sync),
    produce: impl FnOnce(&Pipeline<'_, Job, Done>) -> Output + Send,
) -> Output {
    let pipeline = Pipeline::new(work, width);
    let producer = Mutex::new(Some(produce));
    let output = Mutex::new(None);
    // The first task that starts is the producer. A task that waits for the producer therefore
    // waits for a running task.
    let take_part = || {
        let produce = producer.lock().take();
        match produce {
            Some(produce) => {
                let _closing = CloseWhenDropped(&pipeline);
                let produced = produce(&pipeline);
                *output.lock() = Some(produced);
            }
            None => pipeline.help_until_closed(),
        }
    };
    run_all((0..width).map(|_| Box::new(&take_part) as Task<'_>).collect());
    output.into_inner().expect("workers run every task to its end")
}

/// The producer's view of the queue.
pub(crate) struct Pipeline<'a, Job, Done> {
    work: &'a (dyn Fn(Job) -> Done + Sync),
    queued_max: usize,
    state: Mutex<PipelineState<Job, Done>>,
    submitted: Condvar,
    finished: Condvar,
}

struct PipelineState<Job, Done> {
    queued: VecDeque<Job>,
    running_count: usize,
    done: Vec<Done>,
    is_closed: bool,
    has_panicked: bool,
}

impl<'a, Job, Done> Pipeline<'a, Job, Done> {
    fn new(work: &'a (dyn Fn(Job) -> Done + Sync), width: usize) -> Self {
        let state = PipelineState {
            queued: VecDeque::new(),
            running_count: 0,
            done: Vec::new(),
            is_closed: false,
            has_panicked: false,
        };
        Self {
            work,
            queued_max: width * QUEUED_A_WORKER_MAX,
            state: Mutex::new(state),
            submitted: Condvar::new(),
            finished: Condvar::new(),
        }
    }

    /// Queues a job. While the queue is full, runs the oldest job.
    pub(crate) fn submit(&self, job: Job) {
        let mut state = self.state.lock();
        state.queued.push_back(job);
        let is_full = state.queued.len() > self.queued_max;
        drop(state);
        self.submitted.notify_one();
        if is_full {
            self.help_or_wait();
        }
    }

    /// Queues a job that is to start before all others. The caller bounds the number of these jobs.
    pub(crate) fn submit_first(&self, job: Job) {
        self.state.lock().queued.push_front(job);
        self.submitted.notify_one();
    }

    /// The results of the jobs that have ended since the last call, in the order in which they
    /// ended.
    pub(crate) fn take_done(&self) -> Vec<Done> {
        std::mem::take(&mut self.state.lock().done)
    }

    /// Runs the oldest queued job, or waits until a running job has ended. Returns false if there
    /// are neither.
    ///
    /// # Panics
    /// If a job has panicked.
    pub(crate) fn help_or_wait(&self) -> bool {
        let mut state = self.state.lock();
        if let Some(job) = state.queued.pop_front() {
            state.running_count += 1;
            drop(state);
            self.run_job(job);
            return true;
        }
        if state.running_count == 0 {
            assert!(!state.has_panicked, "a job has panicked");
            return false;
        }
        let running_count = state.running_count;
        while state.running_count == running_count {
            self.finished.wait(&mut state);
        }
        assert!(!state.has_panicked, "a job has panicked");
        true
    }

    fn help_until_closed(&self) {
        let mut state = self.state.lock();
        while !state.is_closed {
            let Some(job) = state.queued.pop_front() else {
                self.submitted.wait(&mut state);
                continue;
            };
            state.running_count += 1;
            drop(state);
            self.run_job(job);
            state = self.state.lock();
        }
    }

    fn run_job(&self, job: Job) {
        let mut running = RunningJob { pipeline: self, done: None };
        running.done = Some((self.work)(job));
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.queued.clear();
        drop(state);
        self.submitted.notify_all();
    }
}

/// Counts a job as ended when it is dropped, even after a panic. Otherwise a producer could wait
/// for ever.
struct RunningJob<'p, 'a, Job, Done> {
    pipeline: &'p Pipeline<'a, Job, Done>,
    done: Option<Done>,
}

impl<Job, Done> Drop for RunningJob<'_, '_, Job, Done> {
    fn drop(&mut self) {
        let mut state = self.pipeline.state.lock();
        state.running_count -= 1;
        match self.done.take() {
            Some(done) => state.done.push(done),
            None => state.has_panicked = true,
        }
        drop(state);
        self.pipeline.finished.notify_all();
    }
}

struct CloseWhenDropped<'p, 'a, Job, Done>(&'p Pipeline<'a, Job, Done>);

impl<Job, Done> Drop for CloseWhenDropped<'_, '_, Job, Done> {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use varve_world::{InlineWorkers, RealWorkers};

    use super::*;

    /// Runs its tasks one after the other, but reports a large width.
    struct WideInline;

    impl Workers for WideInline {
        fn width(&self) -> usize {
            5
        }

        fn run_all(&self, tasks: Vec<Task<'_>>) {
            for task in tasks.into_iter().rev() {
                task();
            }
        }
    }

    fn squares(workers: &dyn Workers) -> Vec<u64> {
        let mut squares = run(workers, &|number: u64| number * number, |pipeline| {
            let mut done = Vec::new();
            for number in 0..1000 {
                pipeline.submit(number);
                done.extend(pipeline.take_done());
            }
            while pipeline.help_or_wait() {}
            done.extend(pipeline.take_done());
            done
        });
        squares.sort_unstable();
        squares
    }

    #[test]
    fn every_job_is_done_whoever_works() {
        let expected: Vec<u64> = (0..1000).map(|number| number * number).collect();
        assert_eq!(squares(&InlineWorkers), expected);
        assert_eq!(squares(&WideInline), expected);
        assert_eq!(squares(&RealWorkers::new(4)), expected);
    }

    #[test]
    fn a_job_that_panics_ends_the_producer_too() {
        let run = || {
            run(
                &RealWorkers::new(2),
                &|_: u8| panic!("as the test asks"),
                |pipeline: &Pipeline<'_, u8, ()>| {
                    pipeline.submit(0);
                    while pipeline.help_or_wait() {}
                },
            );
        };
        assert!(std::panic::catch_unwind(run).is_err());
    }
}
