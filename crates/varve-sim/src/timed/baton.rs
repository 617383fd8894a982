//! Tasks on threads of which one runs at a time. A task hands over only while its read waits for
//! the device, so the same tasks give the same result in every run.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::clock::VirtualClock;
use super::state::{DeviceRead, TimedState};

/// A task that neither ends nor reads for this long is taken for blocked.
const STUCK_AFTER: Duration = Duration::from_mins(5);

thread_local! {
    /// The number of the task that this thread runs; 0 outside of tasks.
    static TASK: Cell<u64> = const { Cell::new(0) };
}

/// The right to run, which one task has.
pub(super) struct Baton {
    clock: Arc<VirtualClock>,
    state: Mutex<BatonState>,
    changed: Condvar,
}

#[derive(Default)]
struct BatonState {
    holder: u64,
    /// The number of hand-overs.
    turn: u64,
    task_count: u64,
    /// Tasks that can go on: new ones, and those whose read has ended.
    ready: BTreeSet<u64>,
    waiting: Vec<WaitingRead>,
    /// Reads that a device performs: the moment of the end, the task, and the device.
    served: Vec<(u64, u64, Arc<Mutex<TimedState>>)>,
}

struct WaitingRead {
    task: u64,
    requested: u64,
    device: Arc<Mutex<TimedState>>,
    read: DeviceRead,
}

impl Baton {
    pub(super) fn new(clock: Arc<VirtualClock>) -> Self {
        Self { clock, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits until the device has performed a read. Other tasks run meanwhile.
    pub(super) fn read(&self, device: &Arc<Mutex<TimedState>>, read: DeviceRead) {
        let task = TASK.get();
        let requested = self.clock.nanoseconds();
        let mut state = self.state.lock();
        state.waiting.push(WaitingRead { task, requested, device: Arc::clone(device), read });
        self.hand_over(&mut state);
        self.wait_for_turn(&mut state, task);
    }

    /// Returns the number of the task that this thread runs.
    pub(super) fn own_task() -> u64 {
        TASK.get()
    }

    /// Numbers a group of tasks, which can go on from now.
    pub(super) fn add_tasks(&self, count: usize) -> RangeInclusive<u64> {
        let mut state = self.state.lock();
        let first = state.task_count + 1;
        state.task_count += count as u64;
        let tasks = first..=state.task_count;
        state.ready.extend(tasks.clone());
        tasks
    }

    /// Gives the baton away, until a group of tasks has ended.
    pub(super) fn start_group(&self) {
        self.hand_over(&mut self.state.lock());
    }

    /// Waits for the turn of a task. `task` becomes the task of this thread.
    pub(super) fn enter(&self, task: u64) {
        TASK.set(task);
        self.wait_for_turn(&mut self.state.lock(), task);
    }

    /// Ends a task. After the last one of a group, `next` can go on: the task that began it.
    pub(super) fn leave(&self, next: Option<u64>) {
        let mut state = self.state.lock();
        state.ready.extend(next);
        self.hand_over(&mut state);
    }

    /// Gives the baton to the first task that can go on. If none can, time passes until the next
    /// read ends.
    fn hand_over(&self, state: &mut BatonState) {
        if state.ready.is_empty() {
            state.start_reads();
            let next = (0..state.served.len()).min_by_key(|at| (state.served[*at].0, state.served[*at].1));
            if let Some(next) = next {
                let (end, task, _) = state.served.remove(next);
                self.clock.wait_until(end);
                state.ready.insert(task);
            }
        }
        if let Some(task) = state.ready.pop_first() {
            state.holder = task;
            state.turn += 1;
            self.changed.notify_all();
        }
    }

    fn wait_for_turn(&self, state: &mut MutexGuard<'_, BatonState>, task: u64) {
        while state.holder != task {
            let turn = state.turn;
            let is_late = self.changed.wait_for(state, STUCK_AFTER).timed_out();
            assert!(
                !is_late || state.turn != turn,
                "task {} is blocked: it may wait for a lock that another task holds while it reads",
                state.holder
            );
        }
    }
}

impl BatonState {
    /// Gives each device that can begin with a read the next of those that wait for it.
    fn start_reads(&mut self) {
        loop {
            let idle = self.waiting.iter().find(|waiting| {
                let served =
                    self.served.iter().filter(|(.., device)| Arc::ptr_eq(device, &waiting.device)).count();
                served < waiting.device.lock().slots()
            });
            let Some(device) = idle.map(|waiting| Arc::clone(&waiting.device)) else { return };
            let mut timed = device.lock();
            let own: Vec<usize> = (0..self.waiting.len())
                .filter(|at| Arc::ptr_eq(&self.waiting[*at].device, &device))
                .collect();
            let first = own.iter().map(|at| self.waiting[*at].requested).min().unwrap_or(0);
            let start = first.max(timed.free_at());
            let there: Vec<usize> =
                own.into_iter().filter(|at| self.waiting[*at].requested <= start).collect();
            let chosen = there[timed.next_of(there.iter().map(|at| &self.waiting[*at].read))];
            let WaitingRead { task, requested, read, .. } = self.waiting.remove(chosen);
            let end = timed.read(requested, &read);
            drop(timed);
            self.served.push((end, task, device));
        }
    }
}
