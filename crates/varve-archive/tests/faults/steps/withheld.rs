//! Sectors of the log that the disk withholds for a while, in any state of the log. All else can be
//! read, nothing is written over the sectors, and nothing is added that would hide them. Once the
//! sectors can be read again, all data exists, as if nothing had happened.

use varve_archive::Archive;
use varve_block::{Block, BlockStore, BlockType};
use varve_sim::{Rot, SeededDraw};
use varve_store::StoreAccess;

use crate::case::{Case, Checked, broken, lost};
use crate::contents::Content;
use crate::session::{self, WRITER};
use crate::steps::write::take_image;

impl Case {
    pub fn withhold(&mut self, draw: &mut SeededDraw, count: u32, cuts_power: bool) -> Checked {
        if self.disk.is_full() {
            return Ok(());
        }
        self.end_session();
        self.reader = None;
        if cuts_power {
            self.disk.cut_power();
            self.disk.restart();
        }
        let is_of_log = |file: &varve_world::FileName| file.as_str().starts_with("arenas/");
        let files: Vec<_> = self.disk.files().into_iter().filter(is_of_log).collect();
        for _ in 0..count {
            // An opening reads the last arenas, so they are chosen more often.
            let last = files.len().saturating_sub(1 + draw.index(3));
            let chosen = if draw.once_in(4) { draw.index(files.len()) } else { last };
            if let Some(file) = files.get(chosen)
                && self.disk.rot(file, Rot::UnreadableSector)
            {
                self.tell(|| format!("{file} has a sector that cannot be read, of {:?}", self.lengths()));
            }
        }
        self.read_without(draw)?;
        for _ in 0..1 + draw.below(3) {
            self.write_without(draw)?;
        }
        self.disarm();
        if self.disk.is_down() {
            self.disk.restart();
        }
        // A failed sync that the disk owed was reported above, or ends with the session.
        self.end_session();
        self.disk.heal();
        self.note_struck();
        self.forget_owed_failure();
        self.open_writer()?;
        // The pages written meanwhile vouch only for the seals that could be read. The next page
        // vouches for all seals.
        let fresh = 4_000_000 + self.next_session();
        self.put(fresh, 1, 100)?;
        self.sync()?;
        self.check_all(true)
    }

    /// All data that can be read is right, and missing data is reported.
    fn read_without(&mut self, draw: &mut SeededDraw) -> Checked {
        let seed = self.next_session();
        let secret = session::secret(&self.config);
        let opened =
            session::open_store(session::world(&self.disk, seed), secret.as_ref(), StoreAccess::Read);
        let store = match opened {
            Ok(store) => store,
            Err(text) if self.has_struck() => return self.excused(&text),
            Err(text) => return Err(lost(format!("does not open to read: {text}"))),
        };
        match Archive::open(store) {
            Ok(archive) => {
                let missing = self.never_wrong(&archive, &self.model.durable)?;
                let complaints = session::complaints(&archive, true).unwrap_or_else(|text| vec![text]);
                if !missing.is_empty()
                    && complaints.is_empty()
                    && !self.has_struck()
                    && !self.disk.owes_failure()
                {
                    return Err(lost(format!("missing without a word: {missing:?}")));
                }
                draw.number();
                Ok(())
            }
            // The catalog itself is withheld, and the error says so.
            Err(_) => Ok(()),
        }
    }

    /// A writer opens the readable part of the log. Data that it acknowledges counts like all other
    /// data.
    fn write_without(&mut self, draw: &mut SeededDraw) -> Checked {
        if self.disk.is_down() {
            return Ok(());
        }
        let seed = self.next_session();
        let secret = session::secret(&self.config);
        // The disk reports a failed sync once, perhaps to this opening.
        let owes_failure = self.disk.owes_failure();
        let store = match session::open_store(session::world(&self.disk, seed), secret.as_ref(), WRITER) {
            Ok(store) => store,
            Err(text) if self.has_struck() || owes_failure => return self.excused(&text),
            Err(text) => return Err(lost(format!("does not open to write: {text}"))),
        };
        let refuses = store.check_nothing_withheld().is_err();
        let content = Content { number: 3_000_000 + self.next_session(), length: 300 };
        let bytes = content.bytes();
        let block = Block { block_type: BlockType::DATA, bytes: &bytes };
        // A block that got no score cannot be requested later.
        if let Ok(score) = store.put(block) {
            let name = varve_block::BlockName { score, block_type: BlockType::DATA };
            match store.sync() {
                Ok(()) if refuses => return Err(broken("takes what it should refuse")),
                Ok(()) => drop(self.model.durable.blocks.insert(name, content)),
                Err(_) => drop(self.model.doubtful.insert(name, content)),
            }
        }
        *self.cures_of(refuses) += 1;
        let Ok(mut archive) = Archive::open(store) else { return Ok(()) };
        if draw.once_in(2) {
            let label = self
                .begin_snapshot("image", crate::model::Taken::Image(std::sync::Arc::new(self.image.clone())));
            if take_image(&mut archive, &label, &self.image.clone()).is_ok() {
                self.model.durable.snapshots.push(label);
            }
        }
        if draw.once_in(2) {
            drop(archive.close());
        }
        Ok(())
    }

    fn cures_of(&mut self, refuses: bool) -> &mut u64 {
        let what = match refuses {
            true => "sectors not given for a while: nothing was added",
            false => "sectors not given for a while: the next arena was begun",
        };
        self.cures.entry(what).or_default()
    }
}
