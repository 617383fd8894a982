//! Reading back: all promised data exists and is right.

use varve_archive::{Archive, Snapshot};
use varve_block::{BlockStore, with_causes};
use varve_sim::SeededDraw;
use varve_store::{Store, StoreAccess};

use crate::case::{Case, Checked, Reader, broken, lost};
use crate::model::{Model, Promised, StoredFile};
use crate::report::Failure;
use crate::session;

/// `verify` finds nothing wrong; `of_what` goes on after "verify complains".
pub fn must_verify(archive: &Archive, data: bool, of_what: &str) -> Checked {
    let complaints = session::complaints(archive, data).map_err(broken)?;
    if complaints.is_empty() {
        return Ok(());
    }
    Err(broken(format!("verify complains{of_what}: {}", complaints.join("; "))))
}

impl Case {
    pub fn open_reader(&mut self) -> Checked {
        let archive = match self.open(StoreAccess::Read) {
            Ok(archive) => archive,
            Err(text) => {
                self.excused(&text)?;
                if self.disk.is_down() {
                    return Ok(());
                }
                self.disarm();
                self.open(StoreAccess::Read)
                    .map_err(|again| lost(format!("does not open: {again}; before: {text}")))?
            }
        };
        let promised = self.model.durable.clone();
        if let Some(wrong) = Model::compare_catalog(&promised, &self.model.taken, &archive) {
            return Err(lost(format!("opened to read, {wrong}")));
        }
        let collected_count = self.collected_count;
        self.reader = Some(Reader { archive, promised, collected_count, lease: None });
        self.ask_reader()
    }

    pub fn ask_reader(&mut self) -> Checked {
        let Some(reader) = &self.reader else { return Ok(()) };
        if self.collected_count > reader.collected_count {
            let checked = self.check_after_collections(reader);
            return self.unless_down(checked);
        }
        let store = reader.archive.store();
        let checked = self
            .check_blocks(store, &reader.promised, 200)
            .and_then(|()| self.check_files(store, &reader.promised, 1))
            .and_then(|()| self.check_snapshots(&reader.archive, 1));
        self.unless_down(checked)
    }

    pub fn get(&mut self, draw: &mut SeededDraw, count: u32) -> Checked {
        self.open_writer()?;
        let Model { durable, pending, doubtful, .. } = &self.model;
        let all: Vec<_> = durable.blocks.iter().chain(&pending.blocks).chain(doubtful).collect();
        if all.is_empty() {
            return Ok(());
        }
        let chosen: Vec<_> = (0..count).map(|_| all[draw.index(all.len())]).collect();
        let names: Vec<_> = chosen.iter().map(|(name, _)| **name).collect();
        // After a sync has failed in the background, pending data may be gone. The next sync
        // reports it.
        let has_pending = !self.disk.owes_failure();
        let is_promised =
            |name| durable.blocks.contains_key(name) || (has_pending && pending.blocks.contains_key(name));
        let read = self.twice(|_| {
            let mut missing = Ok(());
            for ((name, content), found) in chosen.iter().zip(self.store().get_batch(&names)) {
                match found {
                    Ok(bytes) if bytes == content.bytes() => {}
                    Ok(_) => return Ok(Some(format!("{name} has other bytes than were put"))),
                    Err(error) if is_promised(name) => missing = Err(with_causes(&error)),
                    Err(_) => {}
                }
            }
            missing.map(|()| None)
        });
        self.unless_down(read.and_then(|wrong| wrong.map_or(Ok(()), |wrong| Err(lost(wrong)))))
    }

    pub fn restore(&mut self, draw: &mut SeededDraw, count: u32) -> Checked {
        self.open_writer()?;
        for _ in 0..count {
            let snapshots = self.writer().snapshots();
            if !snapshots.is_empty() {
                let snapshot = &snapshots[draw.index(snapshots.len())];
                let checked = self.check_snapshot(self.writer(), snapshot);
                self.unless_down(checked)?;
            }
            let files = &self.model.durable.files;
            if !files.is_empty() {
                let checked = self.check_file(self.store(), &files[draw.index(files.len())]);
                self.unless_down(checked)?;
            }
        }
        Ok(())
    }

    pub fn verify(&mut self, data: bool) -> Checked {
        self.open_writer()?;
        if self.disk.owes_failure() {
            // `verify` may see the damage of that failure before the next sync reports it.
            return session::complaints(self.writer(), data)
                .map_or_else(|text| self.excused(&text), |_| Ok(()));
        }
        let verified = self.twice(|_| {
            let complaints = session::complaints(self.writer(), data)?;
            if complaints.is_empty() { Ok(()) } else { Err(complaints.join("; ")) }
        });
        // A complaint is a broken promise, but no loss: a loss shows when the data is read.
        let verified = verified.map_err(|failure| broken(format!("verify complains: {}", failure.text)));
        self.unless_down(verified)
    }

    /// A reader finds nothing wrong after a power cut, before a writer has cut anything off.
    pub fn verify_as_left(&mut self) -> Checked {
        let archive = self.open(StoreAccess::Read).map_err(|text| lost(format!("does not open: {text}")))?;
        must_verify(&archive, true, " of what a power cut has left")
    }

    /// All promised data exists, and `verify` agrees.
    pub fn check_all(&self, verifies: bool) -> Checked {
        let archive = self.writer();
        self.check_promised(archive, &self.model.durable)?;
        if verifies {
            must_verify(archive, true, "")?;
        }
        Ok(())
    }

    /// All of `promised` exists, and every listed snapshot is complete.
    pub fn check_promised(&self, archive: &Archive, promised: &Promised) -> Checked {
        self.check_blocks(archive.store(), promised, usize::MAX)?;
        self.check_files(archive.store(), promised, usize::MAX)?;
        self.check_snapshots(archive, usize::MAX)?;
        // Each of them may come back.
        archive.trash().iter().try_for_each(|trashed| self.check_snapshot(archive, &trashed.snapshot))
    }

    /// A store that was closed has all the parity that is due.
    pub fn check_parity(&self) -> Checked {
        let missing = session::missing_parity(self.writer()).map_err(broken)?;
        if missing.is_empty() { Ok(()) } else { Err(broken(format!("parity is missing: {missing:?}"))) }
    }

    pub fn check_blocks(&self, store: &Store, promised: &Promised, count: usize) -> Checked {
        let chosen: Vec<_> = promised.blocks.iter().take(count).collect();
        let names: Vec<_> = chosen.iter().map(|(name, _)| **name).collect();
        let wrong = self.twice(|_| {
            let mut missing = Ok(None);
            for ((name, content), found) in chosen.iter().zip(store.get_batch(&names)) {
                match found {
                    Ok(bytes) if bytes == content.bytes() => {}
                    Ok(_) => return Ok(Some(format!("{name} has other bytes than were put"))),
                    Err(error) => missing = Err(with_causes(&error)),
                }
            }
            missing
        })?;
        wrong.map_or(Ok(()), |wrong| Err(lost(wrong)))
    }

    fn check_files(&self, store: &Store, promised: &Promised, count: usize) -> Checked {
        promised.files.iter().rev().take(count).try_for_each(|file| self.check_file(store, file))
    }

    fn check_file(&self, store: &Store, file: &StoredFile) -> Checked {
        let bytes = self.twice(|_| session::read_file(store, file))?;
        if bytes == file.content.bytes() {
            Ok(())
        } else {
            Err(lost(format!("{:?} has other bytes", file.content)))
        }
    }

    /// Every listed snapshot is complete, reported or not.
    fn check_snapshots(&self, archive: &Archive, count: usize) -> Checked {
        archive
            .snapshots()
            .iter()
            .rev()
            .take(count)
            .try_for_each(|snapshot| self.check_snapshot(archive, snapshot))
    }

    pub fn check_snapshot(&self, archive: &Archive, snapshot: &Snapshot) -> Checked {
        let name = session::label(snapshot);
        let Some(taken) = self.model.taken.get(name) else {
            return Err(lost(format!("{name} was never taken")));
        };
        let is_right = self
            .twice(|_| session::is_right(archive.store(), snapshot, taken))
            .map_err(|failure| Failure { text: format!("{name}: {}", failure.text), ..failure })?;
        if is_right { Ok(()) } else { Err(lost(format!("{name} comes back as something else"))) }
    }
}
