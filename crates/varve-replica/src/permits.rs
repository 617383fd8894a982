//! So many at a time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Permits to do something that only so many may do at the same time.
pub(crate) struct Permits {
    free: Mutex<usize>,
    returned: Condvar,
}

/// One of them; given back when it is dropped.
pub(crate) struct Permit<'a>(&'a Permits);

impl Permits {
    pub(crate) fn new(count: usize) -> Self {
        Self { free: Mutex::new(count), returned: Condvar::new() }
    }

    /// Waits for a permit.
    pub(crate) fn take(&self) -> Permit<'_> {
        let free = self.returned.wait_while(self.free(), |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        Permit(self)
    }

    fn free(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.free() += 1;
        self.0.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use varve_world::{RealWorkers, Task, Workers};

    use super::*;

    #[test]
    fn no_more_have_one_than_there_are() {
        let permits = Permits::new(2);
        let (at_once, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || {
            for _ in 0..200 {
                let _permit = permits.take();
                most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                at_once.fetch_sub(1, Ordering::SeqCst);
                done.fetch_add(1, Ordering::SeqCst);
            }
        };
        RealWorkers::new(6).run_all((0..6).map(|_| Box::new(work) as Task<'_>).collect());
        assert_eq!((most.into_inner(), done.into_inner(), *permits.free()), (2, 1200, 2));
    }
}
