//! Processes that use one disk at the same time. Each runs on a thread of its own, one of them at a
//! time, and a schedule decides at each call to the disk which one goes on. So a reader's opening
//! is cut into steps between the calls of a writer, and the same schedule gives the same run.

use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};
use varve_block::to_usize;
use varve_world::{FileLock, FileName, FreeSpace, LockError, Storage};

use crate::draw::SeededDraw;

/// Decides who goes on.
pub enum TurnSchedule {
    /// At each call, changes to a process drawn at random with a chance of one in `each`.
    Drawn { draw: SeededDraw, each: u64 },
    /// The processes run in the order of these pairs: a process, and the number of calls that it
    /// makes before the next one goes on. Afterwards each runs to its end, in order.
    Cut(Vec<(usize, u64)>),
}

/// The right to run, which one process has.
pub struct Turns {
    state: Mutex<TurnState>,
    changed: Condvar,
}

struct TurnState {
    schedule: TurnSchedule,
    holder: usize,
    is_over: Vec<bool>,
    /// The calls of each process.
    calls: Vec<u64>,
}

impl TurnState {
    /// Decides who goes on after a call of `process`.
    fn next(&mut self, process: usize) -> usize {
        let count = self.is_over.len();
        let next = match &mut self.schedule {
            TurnSchedule::Drawn { draw, each } => {
                if draw.below(*each) == 0 {
                    to_usize(draw.below(count as u64))
                } else {
                    process
                }
            }
            TurnSchedule::Cut(parts) => {
                if let Some((first, left)) = parts.first_mut()
                    && *first == process
                {
                    *left = left.saturating_sub(1);
                }
                parts.retain(|(of, left)| *left > 0 && !self.is_over[*of]);
                parts.first().map_or(process, |(of, _)| *of)
            }
        };
        if self.is_over[next] { self.first_left().unwrap_or(process) } else { next }
    }

    fn first_left(&self) -> Option<usize> {
        self.is_over.iter().position(|is_over| !is_over)
    }
}

impl Turns {
    /// Makes turns for `count` processes. The first one begins, unless the schedule says otherwise.
    #[must_use]
    pub fn new(count: usize, schedule: TurnSchedule) -> Arc<Self> {
        let holder = match &schedule {
            TurnSchedule::Cut(parts) => parts.first().map_or(0, |(process, _)| *process),
            TurnSchedule::Drawn { .. } => 0,
        };
        let state = TurnState { schedule, holder, is_over: vec![false; count], calls: vec![0; count] };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Returns the disk as a process sees it: each call may let another process go on before.
    #[must_use]
    pub fn storage(self: &Arc<Self>, process: usize, inner: Arc<dyn Storage>) -> Arc<dyn Storage> {
        Arc::new(TurnStorage { turns: Arc::clone(self), process, inner })
    }

    /// Runs the processes to their ends. Returns the number of calls of each.
    ///
    /// # Panics
    /// If one of them does, or if there are not as many as were announced.
    #[expect(clippy::disallowed_methods, reason = "one of these threads runs at a time")]
    pub fn run(&self, processes: Vec<Box<dyn FnOnce() + Send + '_>>) -> Vec<u64> {
        assert_eq!(processes.len(), self.state.lock().is_over.len());
        std::thread::scope(|scope| {
            for (process, run) in processes.into_iter().enumerate() {
                scope.spawn(move || {
                    let _end = ProcessEnd { turns: self, process };
                    self.wait(&mut self.state.lock(), process);
                    run();
                });
            }
        });
        self.state.lock().calls.clone()
    }

    /// Lets the process go on whose turn it is, and waits for the own turn.
    fn call(&self, process: usize) {
        let mut state = self.state.lock();
        state.calls[process] += 1;
        state.holder = state.next(process);
        self.changed.notify_all();
        self.wait(&mut state, process);
    }

    fn wait(&self, state: &mut MutexGuard<'_, TurnState>, process: usize) {
        while state.holder != process {
            self.changed.wait(state);
        }
    }
}

/// Ends a process, also one that panics.
struct ProcessEnd<'a> {
    turns: &'a Turns,
    process: usize,
}

impl Drop for ProcessEnd<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock();
        state.is_over[self.process] = true;
        if let Some(left) = state.first_left() {
            state.holder = left;
        }
        self.turns.changed.notify_all();
    }
}

struct TurnStorage {
    turns: Arc<Turns>,
    process: usize,
    inner: Arc<dyn Storage>,
}

macro_rules! in_turn {
    ($($method:ident($($name:ident: $type:ty),*) -> $output:ty;)+) => {
        $(fn $method(&self, $($name: $type),*) -> $output {
            self.turns.call(self.process);
            self.inner.$method($($name),*)
        })+
    };
}

impl Storage for TurnStorage {
    in_turn! {
        create(file: &FileName) -> io::Result<()>;
        append(file: &FileName, bytes: &[u8]) -> io::Result<u64>;
        append_uncached(file: &FileName, bytes: &[u8]) -> io::Result<u64>;
        read_at(file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()>;
        read_uncached_at(file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()>;
        length(file: &FileName) -> io::Result<u64>;
        truncate(file: &FileName, length: u64) -> io::Result<()>;
        sync_soon(file: &FileName) -> ();
        sync(file: &FileName) -> io::Result<()>;
        sync_folder(folder: &str) -> io::Result<()>;
        rename(from: &FileName, to: &FileName) -> io::Result<()>;
        remove(file: &FileName) -> io::Result<()>;
        remove_and_free_soon(file: &FileName) -> io::Result<()>;
        list(folder: &str) -> io::Result<Vec<FileName>>;
        lock(file: &FileName, holder: &str) -> Result<Box<dyn FileLock>, LockError>;
        lock_folder(folder: &str) -> Result<Box<dyn FileLock>, LockError>;
        free_space() -> io::Result<Option<FreeSpace>>;
        other_folder(path: &str) -> io::Result<Arc<dyn Storage>>;
    }
}
