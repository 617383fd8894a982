//! The tail: what is known of the log's end, and how far that knowledge can be trusted.
//!
//! It owns the places that the disk did not give when the store was opened, the position of a reader that follows a
//! writer, and whether the noted last page was gone. It stands on the vault and the finder.
//!
//! Always true:
//! - While an unread place may hold a page that matters, nothing is added to the store and no index is saved.
//! - The note of the last page is replaced only by a session that found it, or that was told what counts from now on.

mod follow;
mod unread_places;

pub(crate) use follow::Followed;
pub(crate) use unread_places::UnreadPlaces;
pub use unread_places::WithheldError;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::finder::Finder;
use crate::vault::Vault;

/// What is known of the log's end.
pub(crate) struct Tail {
    vault: Arc<Vault>,
    finder: Arc<Finder>,
    unread: UnreadPlaces,
    /// How far a reader has come that follows a writer.
    followed: Mutex<Followed>,
    /// Whether the page that was noted last was not there when the store was opened.
    is_end_lost: AtomicBool,
}

impl Tail {
    /// Judges, once all is read, whether anything may be added, and looks for the page that was noted last.
    pub(crate) fn new(
        vault: Arc<Vault>,
        finder: Arc<Finder>,
        mut unread: UnreadPlaces,
        followed: Followed,
    ) -> Self {
        unread.judge(&vault, finder.newest_final_catalog());
        let is_end_lost = AtomicBool::new(has_lost_end(&vault));
        Self { vault, finder, unread, followed: Mutex::new(followed), is_end_lost }
    }

    /// Why nothing may be added, if that is so.
    ///
    /// # Errors
    /// [`WithheldError`].
    pub(crate) fn check_nothing_withheld(&self) -> Result<(), WithheldError> {
        self.unread.check()
    }

    /// Whether the disk gave all of the log that was read when the store was opened.
    pub(crate) fn is_log_given(&self) -> bool {
        !self.unread.is_any()
    }

    /// What cannot be read counts as lost from now on.
    pub(crate) fn accept_withheld(&self) {
        self.unread.accept();
    }

    /// Whether the log had lost its end when it was opened.
    pub(crate) fn end_is_lost(&self) -> bool {
        self.is_end_lost.load(Ordering::Relaxed)
    }

    /// What is there now counts as all there is.
    pub(crate) fn accept_end(&self) {
        self.is_end_lost.store(false, Ordering::Relaxed);
    }

    /// Notes the log's last page. Everything must have been synced. A failure costs nothing but the note.
    pub(crate) fn note_newest(&self) {
        // What the disk does not give may be newer than what is known here.
        if self.end_is_lost() || self.check_nothing_withheld().is_err() {
            return;
        }
        if let Err(error) = self.vault.note_newest_seen() {
            tracing::info!(%error, "the log's last page could not be noted");
        }
    }
}

/// Looks for the page that was noted last: first among those that were read anyway.
fn has_lost_end(vault: &Vault) -> bool {
    let is_known = vault.noted_page().is_none_or(|(arena, code)| vault.directory().has_page(arena, code));
    // A failure to read that is no damage says nothing.
    let is_there = || vault.newest_is_there().unwrap_or_else(|error| !error.is_damage());
    !is_known && !is_there()
}
