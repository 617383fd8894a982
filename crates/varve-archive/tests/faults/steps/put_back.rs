//! Files that are put back to the state of an earlier copy: each is whole, but does not fit the
//! other files any more.

use varve_sim::SeededDraw;
use varve_world::Storage;

use crate::action::{Cure, Rotten};
use crate::case::{Case, Checked, broken, lost};
use crate::schedule::Step;
use crate::session::WRITER;

impl Case {
    /// Copies all files, even while a writer is active.
    pub fn keep(&mut self) {
        let files = self.disk.files().into_iter();
        let copies = files.filter_map(|file| self.disk.contents(&file).map(|bytes| (file, bytes))).collect();
        self.kept = Some((copies, self.model.durable.clone()));
    }

    pub fn put_files_back(
        &mut self,
        step: &Step,
        draw: &mut SeededDraw,
        (count, kind): (u32, Rotten),
        cure: Cure,
    ) -> Checked {
        self.disarm();
        self.settle()?;
        let (kept, _) = self.kept.take().unwrap_or_default();
        let mut kept: Vec<_> = kept.into_iter().collect();
        kept.retain(|(file, bytes)| kind.has(file) && self.disk.contents(file).as_ref() != Some(bytes));
        let mut hit = Vec::new();
        while !kept.is_empty() && hit.len() < count as usize {
            let (file, bytes) = kept.swap_remove(draw.index(kept.len()));
            self.tell(|| {
                format!("{file}: put back as it was, {} bytes, of {:?}", bytes.len(), self.lengths())
            });
            let before = self.disk.contents(&file);
            self.disk.put_back(&file, &bytes).map_err(|error| broken(error.to_string()))?;
            hit.push((file, before.unwrap_or_default()));
        }
        if kind == Rotten::Hints {
            self.settle_the_end(step)?;
        }
        self.cure(step, kind, (cure, false), hit)
    }

    /// Goes back to the copy: everything later is gone. The replica has seen the later data, and
    /// takes new data for a different history.
    pub fn go_back(&mut self) -> Checked {
        let Some((kept, promised)) = self.kept.take() else { return Ok(()) };
        self.end_session();
        self.reader = None;
        self.collection = None;
        self.recover_disk();
        let failed = |error: std::io::Error| broken(error.to_string());
        for file in self.disk.files().iter().filter(|file| !kept.contains_key(*file)) {
            self.disk.remove(file).and_then(|()| self.disk.sync_folder(file.folder())).map_err(failed)?;
        }
        for (file, bytes) in &kept {
            self.disk.put_back(file, bytes).map_err(failed)?;
        }
        self.second_home.may_have_parted = true;
        self.model.go_back_to(promised);
        self.note_struck();
        self.forget_owed_failure();
        self.open_writer()?;
        self.check_all(true)
    }

    /// The note of the log's end may name a page that a repair has since written anew. The end
    /// then seems lost until the next repair.
    fn settle_the_end(&mut self, step: &Step) -> Checked {
        let archive =
            self.open(WRITER).map_err(|text| lost(format!("does not open with older hints: {text}")))?;
        let is_lost = archive.store().end_is_lost();
        drop(archive);
        if is_lost {
            self.repair_until_done(&step.strikes, false)?;
            self.recover_disk();
            self.accept_the_rest()?;
        }
        Ok(())
    }
}
