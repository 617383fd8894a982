//! Workers that run one task at a time, and change to another while a task waits for a read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use varve_world::{Storage, Task, Workers};

use super::baton::Baton;
use super::clock::VirtualClock;
use super::device::DeviceProfile;
use super::page_cache::PageCacheLimits;
use super::storage::TimedStorage;

/// Runs tasks on threads of which one runs at a time. A task hands over only while it waits for a
/// read on one of the devices of [`storage`](Self::storage). A device therefore sees all reads that
/// wait, and the order is the same in every run.
///
/// A task must not read while it holds a lock that another task of the group waits for: then all of
/// them stand still, and after some minutes the group panics.
#[derive(Clone)]
pub struct BatonWorkers {
    baton: Arc<Baton>,
    clock: Arc<VirtualClock>,
    reading_width: usize,
}

impl BatonWorkers {
    /// Runs at most `reading_width` reading tasks at a time, and one task of other kinds.
    #[must_use]
    pub fn new(clock: Arc<VirtualClock>, reading_width: usize) -> Self {
        let baton = Arc::new(Baton::new(Arc::clone(&clock)));
        Self { baton, clock, reading_width: reading_width.max(1) }
    }

    /// Makes a timed storage whose reads hand over to other tasks of these workers.
    #[must_use]
    pub fn storage(
        &self,
        inner: Arc<dyn Storage>,
        profile: &DeviceProfile,
        limits: PageCacheLimits,
    ) -> TimedStorage {
        let clock = Arc::clone(&self.clock);
        TimedStorage::with_baton(inner, clock, profile, limits, Arc::clone(&self.baton))
    }

    #[expect(clippy::disallowed_methods, reason = "one of these threads runs at a time")]
    fn run_group(&self, group: Vec<Task<'_>>) {
        let parent = Baton::own_task();
        let left = AtomicUsize::new(group.len());
        std::thread::scope(|scope| {
            for (number, task) in self.baton.add_tasks(group.len()).zip(group) {
                let left = &left;
                scope.spawn(move || {
                    let _end = TaskEnd { baton: &self.baton, left, parent };
                    self.baton.enter(number);
                    task();
                });
            }
            self.baton.start_group();
        });
        // The last task has given the baton back.
        self.baton.enter(parent);
    }
}

/// Hands over when a task ends, in whatever way.
struct TaskEnd<'a> {
    baton: &'a Baton,
    left: &'a AtomicUsize,
    parent: u64,
}

impl Drop for TaskEnd<'_> {
    fn drop(&mut self) {
        let is_last = self.left.fetch_sub(1, Ordering::SeqCst) == 1;
        self.baton.leave(is_last.then_some(self.parent));
    }
}

impl Workers for BatonWorkers {
    fn width(&self) -> usize {
        1
    }

    fn run_all(&self, tasks: Vec<Task<'_>>) {
        for task in tasks {
            task();
        }
    }

    fn reading_width(&self) -> usize {
        self.reading_width
    }

    fn run_reading(&self, tasks: Vec<Task<'_>>) {
        let mut tasks = tasks.into_iter();
        loop {
            let group: Vec<_> = tasks.by_ref().take(self.reading_width).collect();
            if group.is_empty() {
                return;
            }
            self.run_group(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use parking_lot::Mutex;
    use varve_world::{FileName, MemoryStorage, both, read_each};

    use super::*;

    const DISK: &str = r#"
        name = "test"
        source = "made up"
        [model]
        kind = "rotating"
        bytes = 70e6
        rotations_per_minute = 6000
        seek_track_ms = 1
        seek_average_ms = 5
        seek_full_ms = 10
        write_settle_ms = 1
        command_ms = 0.1
        zone_bytes_per_second = [100e6]
        queue = 32
        bus_bytes_per_second = 100e6
        reads_ahead = false
        read_ahead_bytes = 1
        interrupt_ms = 1
    "#;

    struct Bench {
        clock: Arc<VirtualClock>,
        workers: BatonWorkers,
        storage: TimedStorage,
        file: FileName,
    }

    fn bench(width: usize) -> Bench {
        let clock = Arc::new(VirtualClock::new());
        let workers = BatonWorkers::new(Arc::clone(&clock), width);
        let profile = DeviceProfile::from_text(DISK).unwrap();
        let storage = workers.storage(Arc::new(MemoryStorage::new()), &profile, PageCacheLimits::default());
        let file = FileName::new("file").unwrap();
        storage.create(&file).unwrap();
        storage.append(&file, &vec![1; 64 << 20]).unwrap();
        Bench { clock, workers, storage, file }
    }

    fn places() -> Vec<u64> {
        let mut draw = crate::SeededDraw::new(5);
        (0..200).map(|_| draw.below(60 << 20)).collect()
    }

    fn time_of_reads(width: usize) -> (u64, Vec<u64>) {
        let Bench { clock, workers, storage, file } = bench(width);
        let before = clock.nanoseconds();
        let order = Mutex::new(Vec::new());
        let read = read_each(&workers, &places(), |place| {
            let mut byte = [0];
            storage.read_at(&file, *place, &mut byte).unwrap();
            order.lock().push(*place);
            byte[0]
        });
        assert_eq!(read, [1; 200]);
        (clock.nanoseconds() - before, order.into_inner())
    }

    #[test]
    fn a_device_that_sees_many_reads_puts_them_into_order() {
        let (alone, order) = time_of_reads(1);
        assert_eq!(order, places());
        let (many, order) = time_of_reads(16);
        assert_ne!(order, places());
        assert!(many * 10 < alone * 9, "{many} {alone}");
        assert_eq!(time_of_reads(16), (many, order), "each run is the same");
    }

    #[test]
    fn groups_may_begin_groups() {
        let Bench { workers, storage, file, .. } = bench(4);
        let byte = |place: u64| {
            let mut byte = [0];
            storage.read_at(&file, place, &mut byte).unwrap();
            u64::from(byte[0])
        };
        let sum = |from: u64| {
            let places: Vec<u64> = (from..from + 9).collect();
            read_each(&workers, &places, |place| byte(*place)).iter().sum::<u64>()
        };
        assert_eq!(both(&workers, || sum(0) + byte(3), || byte(9) + sum(100)), (10, 10));
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_others_end() {
        let Bench { workers, storage, file, .. } = bench(3);
        let done = Mutex::new(0);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            read_each(&workers, &[0_u64, 1, 2, 3, 4, 5], |place| {
                storage.read_at(&file, *place, &mut [0]).unwrap();
                assert!(*place != 1, "as the test asks");
                *done.lock() += 1;
            })
        }));
        assert!(outcome.is_err());
        assert_eq!(*done.lock(), 5);
        storage.read_at(&file, 0, &mut [0]).unwrap();
    }
}
