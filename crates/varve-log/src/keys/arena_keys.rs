//! The keys of single arenas. Many keys share one page of locked memory: a large store has
//! thousands of arenas, and systems lock few pages.
//!
//! ```text
//! KeyShelf ─▶ page of 128 keys ◀─ LockedKey (a page and a place in it)
//! ```
//!
//! A key is wiped when it is dropped, and its place is used again. A page is unlocked when its last
//! key is dropped.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use zeroize::{Zeroize, Zeroizing};

use crate::keys::locked_memory::LockedMemory;

const KEY_BYTES: usize = 32;
/// 128 keys fill a page of memory, and a `u128` has a bit for each.
const KEYS_PER_PAGE: usize = 128;

/// Stores keys in shared pages of locked memory.
#[derive(Default)]
pub(crate) struct KeyShelf {
    /// The pages that hold keys. Some may have been dropped already.
    pages: Mutex<Vec<Weak<KeyPage>>>,
}

#[derive(Default)]
struct KeyPage(Mutex<KeyPageContents>);

#[derive(Default)]
struct KeyPageContents {
    keys: LockedMemory<PageKeys>,
    /// A bit for each place, set if the place is taken.
    taken: u128,
}

#[derive(Zeroize)]
struct PageKeys([[u8; KEY_BYTES]; KEYS_PER_PAGE]);

impl Default for PageKeys {
    fn default() -> Self {
        Self([[0; KEY_BYTES]; KEYS_PER_PAGE])
    }
}

/// A key in locked memory.
pub(crate) struct LockedKey {
    page: Arc<KeyPage>,
    place: usize,
}

impl KeyShelf {
    /// Copies a key to locked memory. The caller must wipe the original.
    pub(crate) fn keep(&self, key: &[u8; KEY_BYTES]) -> LockedKey {
        let mut pages = self.pages.lock();
        for page in pages.iter().filter_map(Weak::upgrade) {
            if let Some(place) = page.put(key) {
                return LockedKey { page, place };
            }
        }
        pages.retain(|page| page.strong_count() > 0);
        let page = Arc::new(KeyPage::default());
        pages.push(Arc::downgrade(&page));
        let place = page.put(key).expect("a new page has room");
        LockedKey { page, place }
    }
}

impl KeyPage {
    /// Stores a key and returns its place; `None` if the page is full.
    fn put(&self, key: &[u8; KEY_BYTES]) -> Option<usize> {
        let mut inside = self.0.lock();
        let place = (!inside.taken).trailing_zeros() as usize;
        inside.keys.0.get_mut(place)?.copy_from_slice(key);
        inside.taken |= 1 << place;
        Some(place)
    }
}

impl LockedKey {
    /// Calls `using` with a temporary copy of the key, and wipes the copy.
    pub(crate) fn with<T>(&self, using: impl FnOnce(&[u8; KEY_BYTES]) -> T) -> T {
        let key = Zeroizing::new(self.page.0.lock().keys.0[self.place]);
        using(&key)
    }
}

impl Drop for LockedKey {
    fn drop(&mut self) {
        let mut inside = self.page.0.lock();
        inside.keys.0[self.place].zeroize();
        inside.taken &= !(1 << self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> [u8; KEY_BYTES] {
        let mut key = [7; KEY_BYTES];
        key[..8].copy_from_slice(&number.to_le_bytes());
        key
    }

    #[test]
    fn thousands_of_keys_need_few_locked_pages() {
        let shelf = KeyShelf::default();
        let kept: Vec<_> = (0..3000).map(|number| shelf.keep(&key(number))).collect();
        for (number, kept) in kept.iter().enumerate() {
            kept.with(|found| assert_eq!(*found, key(number)));
        }
        let pages = shelf.pages.lock().clone();
        assert_eq!(pages.len(), 3000_usize.div_ceil(KEYS_PER_PAGE));
        assert_eq!(size_of::<PageKeys>(), 4096, "a page has nothing but keys");
        if LockedMemory::<PageKeys>::default().is_locked() {
            assert!(pages.iter().all(|page| page.upgrade().unwrap().0.lock().keys.is_locked()));
        } else {
            eprintln!("skipped: memory cannot be locked here (ulimit -l)");
        }
        drop(kept);
        assert!(pages.iter().all(|page| page.upgrade().is_none()), "no page stays locked for nothing");
    }

    #[test]
    fn a_key_that_is_let_go_is_wiped_and_its_place_given_again() {
        let shelf = KeyShelf::default();
        let [first, second, third] = [1, 2, 3].map(|number| shelf.keep(&key(number)));
        let (page, place) = (Arc::clone(&second.page), second.place);
        drop(second);
        assert_eq!(page.0.lock().keys.0[place], [0; KEY_BYTES]);
        let fourth = shelf.keep(&key(4));
        assert_eq!((fourth.place, Arc::ptr_eq(&fourth.page, &page)), (place, true));
        for (kept, number) in [(&first, 1), (&third, 3), (&fourth, 4)] {
            kept.with(|found| assert_eq!(*found, key(number)));
        }
    }
}
