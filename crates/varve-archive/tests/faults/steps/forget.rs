//! Forgetting snapshots, bringing them back, and holds.

use std::time::Duration;

use varve_archive::{Archive, ForgetError, Snapshot, SnapshotId};
use varve_block::with_causes;
use varve_sim::SeededDraw;
use varve_world::Timestamp;

use crate::case::{Case, Checked, broken};
use crate::model::Fate;
use crate::session;

const HOUR: Duration = Duration::from_secs(3600);
/// The time for which a forgotten snapshot can come back, if it can at all.
const UNDO: Duration = HOUR.saturating_mul(3);
const HOLD: &str = "the model's";

/// Chooses up to `count` of these snapshots.
fn choose<'a>(
    snapshots: impl Iterator<Item = &'a Snapshot>,
    draw: &mut SeededDraw,
    count: u32,
) -> (Vec<SnapshotId>, Vec<String>) {
    let mut left: Vec<_> = snapshots.collect();
    let count = left.len().min(count as usize);
    let chosen = (0..count).map(|_| left.swap_remove(draw.index(left.len())));
    chosen.map(|snapshot| (snapshot.id, session::label(snapshot).to_owned())).unzip()
}

impl Case {
    pub fn wait(&mut self, hours: u32) {
        let passed = i64::from(hours) * i64::try_from(HOUR.as_nanos()).expect("an hour is short");
        self.now = Timestamp(self.now.0 + passed);
    }

    pub fn forget(&mut self, draw: &mut SeededDraw, count: u32, has_undo: bool) -> Checked {
        self.open_writer()?;
        let is_free = |snapshot: &&Snapshot| snapshot.holds.is_empty();
        let (ids, labels) = choose(self.writer().snapshots().iter().filter(is_free), draw, count);
        self.model.durable.may_be(&labels, &[Fate::InTrash]);
        let undo = if has_undo { UNDO } else { Duration::ZERO };
        let now = self.now;
        self.change_catalog(|archive| {
            archive.forget(&ids, now, undo, "the model").map(drop).map_err(|error| with_causes(&error))
        })
    }

    pub fn undo_forget(&mut self, draw: &mut SeededDraw, count: u32) -> Checked {
        self.open_writer()?;
        let trash = self.writer().trash().iter().map(|trashed| &trashed.snapshot);
        let (ids, labels) = choose(trash, draw, count);
        self.model.durable.may_be(&labels, &[Fate::Listed]);
        self.change_catalog(|archive| {
            archive.undo_forget(&ids).map(drop).map_err(|error| with_causes(&error))
        })
    }

    /// Nobody can forget a snapshot that is held.
    pub fn hold(&mut self, draw: &mut SeededDraw, releases: bool) -> Checked {
        self.open_writer()?;
        let (ids, labels) = choose(self.writer().snapshots().iter(), draw, 1);
        let now = self.now;
        let mut is_held = false;
        self.change_catalog(|archive| {
            archive.hold(&ids, HOLD, now).map_err(|error| with_causes(&error))?;
            is_held = true;
            Ok(())
        })?;
        if !is_held {
            return Ok(());
        }
        self.model.durable.held.extend(labels.iter().cloned());
        let archive = self.writer.as_mut().expect("it was opened");
        match archive.forget(&ids, now, UNDO, "the model") {
            Err(ForgetError::Protected { .. }) => {}
            Ok(_) if ids.is_empty() => {}
            other => return Err(broken(format!("{labels:?} is held, and was forgotten: {other:?}"))),
        }
        if releases {
            self.model.durable.held.retain(|label| !labels.contains(label));
            return self.change_catalog(|archive| {
                archive.release(&ids, HOLD).map(drop).map_err(|error| with_causes(&error))
            });
        }
        Ok(())
    }

    /// Makes a change that writes a new catalog. On return it is durable, with all that was put
    /// before it.
    fn change_catalog(&mut self, change: impl FnOnce(&mut Archive) -> Result<(), String>) -> Checked {
        let archive = self.writer.as_mut().expect("it was opened");
        match change(archive) {
            Ok(()) => {
                self.settle_places();
                Ok(())
            }
            Err(text) => self.after_failure(&text),
        }
    }

    /// The catalog was lost, and what was found of it may be an earlier state.
    pub fn doubt_places(&mut self) {
        for fates in self.model.durable.forgotten.values_mut() {
            fates.extend(Fate::ALL);
        }
        self.model.durable.held.clear();
    }
}
