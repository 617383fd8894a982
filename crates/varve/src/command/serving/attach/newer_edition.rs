//! Asks for a newer edition from time to time, and announces it once. The attached disk stays as it
//! is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use varve_attach::{AttachedEdition, EditionOpener, PublicationServer, TrustRules, choose_image};
use varve_edition::PublishedImage;
use varve_world::{Clock, RealClock, Storage};

use super::access_file::AccessFile;
use super::{LOOK, shown};
use crate::moment;

/// The numbers of the attached edition and of the newest one that was seen.
pub(super) struct EditionSerials {
    pub(super) attached: u64,
    pub(super) newest: AtomicU64,
}

impl EditionSerials {
    pub(super) fn new(attached: u64) -> Self {
        Self { attached, newest: AtomicU64::new(attached) }
    }
}

/// Everything that a look needs.
pub(super) struct NewerEditionWatch {
    pub(super) place: String,
    pub(super) servers: Vec<PublicationServer>,
    pub(super) rules: TrustRules,
    pub(super) patience: Option<Duration>,
    pub(super) folder: Option<Arc<dyn Storage>>,
    pub(super) image: PublishedImage,
    pub(super) log: Option<Arc<AccessFile>>,
    pub(super) serials: Arc<EditionSerials>,
}

impl NewerEditionWatch {
    /// Looks again and again on a thread of its own, until `is_over` is set.
    pub(super) fn start(self, every: Duration, is_over: &Arc<AtomicBool>) -> std::io::Result<()> {
        let is_over = Arc::clone(is_over);
        let watch = move || {
            while waits(every, &is_over) {
                self.look();
            }
        };
        std::thread::Builder::new().name("newer edition".into()).spawn(watch).map(drop)
    }

    fn look(&self) {
        let opener = EditionOpener {
            place: &self.place,
            mirrors: &self.servers,
            rules: &self.rules,
            folder: self.folder.as_deref(),
            patience: self.patience,
            now: RealClock.now(),
        };
        match opener.look() {
            Ok(edition) => self.compare(&edition),
            // The next look may find a server. Reads report a server that is down by themselves.
            Err(error) => tracing::info!(%error, "no newer edition could be looked for"),
        }
    }

    fn compare(&self, edition: &AttachedEdition) {
        let fields = edition.head.fields();
        if fields.serial <= self.serials.newest.fetch_max(fields.serial, Ordering::Relaxed) {
            return;
        }
        let newest = choose_image(&fields.images, Some(&self.image.name), None);
        let with = match newest {
            Ok(newest) if newest.time > self.image.time => format!(" with {}", shown(newest)),
            _ => String::new(),
        };
        warning!(
            "edition {} of {} is published{with}: this disk stays that of edition {} until it is attached again",
            fields.serial,
            moment::show(fields.time),
            self.serials.attached
        );
        if let Some(log) = &self.log {
            log.newer_edition(fields.serial);
        }
    }
}

/// Waits for this time. Returns false as soon as `is_over` is set.
fn waits(time: Duration, is_over: &AtomicBool) -> bool {
    let mut left = time;
    while !left.is_zero() && !is_over.load(Ordering::Relaxed) {
        let step = left.min(LOOK);
        std::thread::park_timeout(step);
        left = left.saturating_sub(step);
    }
    !is_over.load(Ordering::Relaxed)
}
