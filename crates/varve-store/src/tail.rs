//! The tail: the state of the log's end, and the limits of what is known of it.
//!
//! It owns the places that the disk did not return when the store was opened, the position of a
//! reader that follows a writer, and the finding that the noted last page was gone. It depends on
//! the vault and the finder.
//!
//! Always true:
//! - While an unread place may hold a page that matters, nothing is added to the store and no index
//!   is saved.
//! - The note of the last page is replaced only by a session that found that page, or in which the
//!   user has accepted the log as it is.

mod follow;
mod unread_places;

pub(crate) use follow::{FollowedLog, GrowingArena};
pub(crate) use unread_places::UnreadPlaces;
pub use unread_places::WithheldError;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::finder::Finder;
use crate::vault::Vault;

/// The state of the log's end.
pub(crate) struct Tail {
    vault: Arc<Vault>,
    finder: Arc<Finder>,
    unread: UnreadPlaces,
    /// The position of a reader that follows a writer.
    followed: Mutex<FollowedLog>,
    /// True if the page that was noted last was missing when the store was opened.
    is_end_lost: AtomicBool,
}

impl Tail {
    /// Decides, once the log has been read, whether blocks may be added. Also looks for the page
    /// that was noted last.
    pub(crate) fn new(
        vault: Arc<Vault>,
        finder: Arc<Finder>,
        mut unread: UnreadPlaces,
        followed: FollowedLog,
    ) -> Self {
        unread.judge(&vault, finder.newest_final_catalog());
        let is_end_lost = AtomicBool::new(has_lost_end(&vault));
        Self { vault, finder, unread, followed: Mutex::new(followed), is_end_lost }
    }

    /// Refuses if nothing may be added.
    ///
    /// # Errors
    /// [`WithheldError`].
    pub(crate) fn check_nothing_withheld(&self) -> Result<(), WithheldError> {
        self.unread.check()
    }

    /// Returns true if the disk returned every part of the log that was read when the store was
    /// opened.
    pub(crate) fn is_log_given(&self) -> bool {
        !self.unread.is_any()
    }

    /// From now on, data that cannot be read counts as lost.
    pub(crate) fn accept_withheld(&self) {
        self.unread.accept();
    }

    /// Returns true if the log had lost its end when it was opened.
    pub(crate) fn end_is_lost(&self) -> bool {
        self.is_end_lost.load(Ordering::Relaxed)
    }

    /// From now on, the log as it is counts as complete.
    pub(crate) fn accept_end(&self) {
        self.is_end_lost.store(false, Ordering::Relaxed);
    }

    /// Notes the log's last page. Everything must have been synced. If this fails, only the note is
    /// lost.
    pub(crate) fn note_newest(&self) {
        // A part that the disk does not return may be newer than the pages that are known here.
        if self.end_is_lost() || self.check_nothing_withheld().is_err() {
            return;
        }
        if let Err(error) = self.vault.note_newest_seen() {
            tracing::info!(%error, "the log's last page could not be recorded");
        }
    }
}

/// The most looks for the page that was noted last, until two in a row agree.
const LOOKS_MAX: usize = 16;

/// Looks for the page that was noted last, first among the pages that were read anyway. The end is
/// lost if two looks in a row miss the same page in the same file: a writer may have replaced the
/// note, or the page's arena, during the first one.
fn has_lost_end(vault: &Vault) -> bool {
    let mut missed_before = None;
    for _ in 0..LOOKS_MAX {
        let Some(noted) = vault.noted_page() else { return false };
        let file = vault.log().arena_file(noted.arena);
        let is_there = vault.directory().has_page(noted.arena, noted.code)
            // An error other than damage proves nothing.
            || vault.newest_is_there().unwrap_or_else(|error| !error.is_damage());
        if is_there {
            return false;
        }
        let missed = Some((noted, file));
        if missed == missed_before && file == vault.log().arena_file(noted.arena) {
            return true;
        }
        missed_before = missed;
    }
    true
}
