//! Checks arenas with several workers. All of them read the same few arenas in disk order, so that
//! a disk with a moving head seeks little.

use parking_lot::Mutex;
use varve_content::Progress;
use varve_log::ArenaId;
use varve_store::Store;
use varve_upkeep::{ArenaCheck, Checker, ClumpGroup, StartedCheck};
use varve_world::{PageBuffer, read_each, read_each_with};

use super::VerifyError;

/// The number of arenas in a group of which only the structure is read.
const OUTLINE_COUNT: usize = 256;

/// The most checks of an arena that is replaced all the time.
const CHECKS_MAX: usize = 16;

/// Checks all arenas, and every byte of those in `read`. The results are sorted by arena. Results
/// that were complete before a cancellation are included.
pub(super) fn check_arenas(
    store: &Store,
    ids: &[ArenaId],
    read: &[ArenaId],
    progress: &Progress,
) -> (Vec<(ArenaId, ArenaCheck)>, Result<(), VerifyError>) {
    progress.set_total(ids.len() as u64, file_bytes(store, read));
    let checking = ArenasCheck { store, progress, failure: Mutex::default() };
    let (to_read, others): (Vec<_>, Vec<_>) = ids.iter().partition(|id| read.binary_search(id).is_ok());
    let width = store.world().workers.reading_width();
    let mut memories: Vec<_> = (0..width).map(|_| PageBuffer::default()).collect();
    let mut checks = Vec::new();
    for group in others.chunks(OUTLINE_COUNT) {
        checks.extend(checking.group(group, false, &mut memories));
    }
    for group in to_read.chunks(width) {
        checks.extend(checking.group(group, true, &mut memories));
    }
    checks.sort_by_key(|(id, _)| *id);
    let failure = checking.failure.into_inner();
    (checks, failure.map_or(Ok(()), Err))
}

/// The total size of the files of these arenas, as far as it is known.
fn file_bytes(store: &Store, ids: &[ArenaId]) -> u64 {
    let length = |id: &ArenaId| store.world().storage.length(&id.file_name()).unwrap_or(0);
    ids.iter().map(length).sum()
}

struct ArenasCheck<'a> {
    store: &'a Store,
    progress: &'a Progress,
    /// The first failure. No work starts after it.
    failure: Mutex<Option<VerifyError>>,
}

impl ArenasCheck<'_> {
    /// The results of the arenas that were checked completely. An arena that a collector replaces
    /// meanwhile is checked anew.
    fn group(&self, ids: &[ArenaId], data: bool, memories: &mut [PageBuffer]) -> Vec<(ArenaId, ArenaCheck)> {
        let mut checks = Vec::new();
        let mut due = ids.to_vec();
        for _ in 0..CHECKS_MAX {
            let (outdated, done): (Vec<_>, Vec<_>) =
                self.group_once(&due, data, memories).into_iter().partition(|(_, check)| check.is_outdated);
            checks.extend(done);
            due = outdated.into_iter().map(|(id, _)| id).collect();
            if due.is_empty() {
                break;
            }
        }
        checks
    }

    fn group_once(
        &self,
        ids: &[ArenaId],
        data: bool,
        memories: &mut [PageBuffer],
    ) -> Vec<(ArenaId, ArenaCheck)> {
        let workers = self.store.world().workers.as_ref();
        let begun = read_each(workers, ids, |id| self.unless_stopped(|| self.begin(*id, data)));
        let (mut checks, mut groups) = (Vec::new(), Vec::new());
        for (number, begun) in begun.into_iter().enumerate() {
            let (check, of_arena) = begun.map(|StartedCheck { check, groups }| (check, groups)).unzip();
            checks.push(check);
            groups.extend(of_arena.into_iter().flatten().map(|group| (number, group)));
        }
        let read = read_each_with(workers, &groups, memories, |memory, (_, group)| {
            self.unless_stopped(|| self.read(group, memory))
        });
        let mut numbers: Vec<_> = groups.into_iter().map(|(number, _)| number).collect();
        add_to(&mut checks, &numbers, read);
        numbers.dedup();
        let finish = |number: &usize| self.unless_stopped(|| self.finish(ids[*number], data));
        let finished = read_each(workers, &numbers, finish);
        add_to(&mut checks, &numbers, finished);
        ids.iter().zip(checks).filter_map(|(id, check)| Some((*id, check?))).collect()
    }

    fn begin(&self, id: ArenaId, data: bool) -> Result<StartedCheck, VerifyError> {
        let mut begun = Checker::of(self.store).begin_check(id, data)?;
        if begun.groups.is_empty() {
            begun.check.add(self.finish(id, data)?);
        }
        Ok(begun)
    }

    fn read(&self, group: &ClumpGroup, memory: &mut PageBuffer) -> Result<ArenaCheck, VerifyError> {
        let check = Checker::of(self.store).check_group(group, memory)?;
        self.progress.add_bytes_done(check.checked_bytes);
        Ok(check)
    }

    fn finish(&self, id: ArenaId, data: bool) -> Result<ArenaCheck, VerifyError> {
        let check = Checker::of(self.store).finish_check(id, data)?;
        self.progress.add_files_done(1);
        Ok(check)
    }

    fn unless_stopped<T>(&self, work: impl FnOnce() -> Result<T, VerifyError>) -> Option<T> {
        let failure = || self.failure.lock();
        if failure().is_some() {
            return None;
        }
        let done = if self.progress.is_cancelled() { Err(VerifyError::Cancelled) } else { work() };
        match done {
            Ok(done) => Some(done),
            Err(error) => {
                failure().get_or_insert(error);
                None
            }
        }
    }
}

/// Adds findings in further parts of the arenas with these numbers. An arena that was not checked
/// completely loses its result.
fn add_to(checks: &mut [Option<ArenaCheck>], numbers: &[usize], found: Vec<Option<ArenaCheck>>) {
    for (number, found) in numbers.iter().zip(found) {
        checks[*number] = checks[*number].take().zip(found).map(|(mut check, found)| {
            check.add(found);
            check
        });
    }
}
