//! Nights with a key that may add and not read.

use std::sync::Arc;

use varve_block::with_causes;

use crate::case::{Case, Checked};
use crate::model::Taken;
use crate::session::{self, WRITER, world};
use crate::steps::write::{take_folder, take_image};

impl Case {
    /// Another process takes a snapshot with a key that cannot read anything, and closes the
    /// archive or dies.
    pub fn write_only_night(&mut self, is_folder: bool, closes: bool) -> Checked {
        if !self.has_write_only_key() {
            return self.take_folder();
        }
        self.end_session();
        let seed = self.next_session();
        let secret = session::write_only_secret();
        let mut archive = match session::open(world(&self.disk, seed), Some(&secret), WRITER) {
            Ok(archive) => archive,
            Err(text) => return self.excused(&text),
        };
        let (name, finished) = if is_folder {
            let folder = self.folder.as_ref().expect("it was changed first");
            let (path, state) = (folder.path().to_path_buf(), Arc::new(folder.state().clone()));
            let name = self.begin_snapshot("folder", Taken::Folder(state));
            let finished = take_folder(&mut archive, &name, &path);
            (name, finished)
        } else {
            let name = self.begin_snapshot("image", Taken::Image(Arc::new(self.image.clone())));
            let finished = take_image(&mut archive, &name, &self.image);
            (name, finished)
        };
        match finished {
            Ok(_) => self.model.durable.snapshots.push(name),
            Err(error) => return self.excused(&with_causes(&error)),
        }
        if closes && let Err(error) = archive.close() {
            self.excused(&with_causes(&error))?;
        }
        Ok(())
    }
}
