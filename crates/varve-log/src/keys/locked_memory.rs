//! Memory for keys: never written to swap, and wiped when dropped.
//!
//! Each value has memory pages of its own, so unlocking one never unlocks another. If the system
//! refuses to lock memory (the limit is small, `ulimit -l`), the keys still work. They are still
//! wiped, but may be swapped out before.

use std::ops::{Deref, DerefMut};

use zeroize::Zeroize;

/// The page size of most machines. On machines with larger pages, a neighbour may be unlocked too
/// early; nothing worse happens.
#[repr(align(4096))]
struct OwnPages<T>(T);

/// A value in locked memory.
pub struct LockedMemory<T: Zeroize> {
    // Fields are dropped in this order: the wiped memory is unlocked and then freed.
    _lock: Option<region::LockGuard>,
    value: Box<OwnPages<T>>,
}

impl<T: Zeroize + Default> Default for LockedMemory<T> {
    fn default() -> Self {
        let value = Box::new(OwnPages(T::default()));
        let lock = region::lock(std::ptr::from_ref(&*value), size_of::<OwnPages<T>>());
        if let Err(error) = &lock {
            tracing::debug!(%error, "memory for keys cannot be locked");
        }
        Self { _lock: lock.ok(), value }
    }
}

impl<T: Zeroize + Default> LockedMemory<T> {
    /// Makes a value in place, so that it is never stored anywhere else.
    pub fn filled(fill: impl FnOnce(&mut T)) -> Self {
        let mut memory = Self::default();
        fill(&mut memory);
        memory
    }

    /// Returns true if the system keeps this memory out of swap.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self._lock.is_some()
    }
}

impl<T: Zeroize> Deref for LockedMemory<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value.0
    }
}

impl<T: Zeroize> DerefMut for LockedMemory<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value.0
    }
}

impl<T: Zeroize> Drop for LockedMemory<T> {
    fn drop(&mut self) {
        self.value.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The locked memory of this process, in KiB.
    fn locked_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmLck:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn keys_are_kept_out_of_swap() {
        let memory: Vec<_> = (0..8).map(|_| LockedMemory::<[u8; 32]>::filled(|key| key.fill(7))).collect();
        assert!(memory.iter().all(|memory| **memory == [7; 32]));
        if memory.iter().all(LockedMemory::is_locked) {
            assert!(locked_kib() >= 32, "each has a page of its own, and all are locked");
        } else {
            eprintln!("skipped: memory cannot be locked here (ulimit -l)");
        }
    }

    #[test]
    fn what_is_let_go_is_wiped() {
        use std::sync::atomic::{AtomicBool, Ordering};
        static WIPED: AtomicBool = AtomicBool::new(false);
        #[derive(Default)]
        struct Watched;
        impl Zeroize for Watched {
            fn zeroize(&mut self) {
                WIPED.store(true, Ordering::Relaxed);
            }
        }
        drop(LockedMemory::<Watched>::default());
        assert!(WIPED.load(Ordering::Relaxed));
    }
}
