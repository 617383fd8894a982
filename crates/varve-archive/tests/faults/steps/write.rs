//! The actions of a writer: blocks, files and snapshots. After a failure it may do less.

use std::io;
use std::path::Path;
use std::sync::Arc;

use varve_archive::{Archive, SnapshotRequest, TakeError, TakenSnapshot as Finished};
use varve_block::{Block, BlockKind, BlockName, BlockStore, BlockType, PutError, with_causes};
use varve_content::Progress;
use varve_content::folder::Watch;
use varve_content::image::ImageSource;
use varve_sim::{Fault, SeededDraw};
use varve_store::{OpenStoreError, Store};
use varve_tree::{ContentWriter, Cutting, Entry};

use crate::case::{Case, Checked, broken};
use crate::contents::Content;
use crate::folder::{self, SourceFolder};
use crate::model::{StoredFile, Taken};
use crate::session::{self, WRITER, world};

pub const IMAGE_BYTES_MAX: usize = 1_500_000;
pub const BLOCK_BYTES: u32 = 4096;

/// Faults after which a writer must accept nothing more.
const WRITE_FAULTS: [Fault; 4] =
    [Fault::WriteError, Fault::SyncError, Fault::FolderSyncError, Fault::NameError];

/// Takes a snapshot of an image.
pub fn take_image(archive: &mut Archive, name: &str, image: &[u8]) -> Result<Finished, TakeError> {
    let source = ImageSource::stream(Box::new(io::Cursor::new(image.to_vec())), Path::new("image"));
    let request =
        SnapshotRequest { name: name.into(), source: b"image".to_vec(), ..SnapshotRequest::default() };
    archive.take_image(&source, BLOCK_BYTES, request, &Progress::new())
}

/// Takes a snapshot of the folder. It has the name of the snapshot of the night before; a label
/// tells them apart.
pub fn take_folder(archive: &mut Archive, label: &str, source: &Path) -> Result<Finished, TakeError> {
    let progress = Progress::new();
    let watch = Watch { progress: &progress, report: &|problem| panic!("{problem:?}") };
    let name = session::FOLDER_NAME.to_owned();
    let request = SnapshotRequest { name, tags: vec![label.into()], ..SnapshotRequest::default() };
    archive.take_folder(source, folder::options(), request, watch)
}

/// Stores a file as a tree cut by content.
pub fn write_file(store: &Store, content: Content) -> Result<Entry, PutError> {
    let mut file = ContentWriter::new(store, BlockKind::Data, Cutting::FILE);
    file.write(&content.bytes()).and_then(|()| file.finish())
}

impl Case {
    /// The places of all snapshots are durable as the writer knows them.
    pub fn settle_places(&mut self) {
        let writer = self.writer.as_ref().expect("it was opened");
        self.model.durable.settle(writer);
    }

    /// Checks a store whose write or sync has failed: it refuses more and returns nothing wrong.
    /// Then the session ends.
    pub fn after_failure(&mut self, text: &str) -> Checked {
        self.excused(text)?;
        if self.disk.is_down() {
            return Ok(());
        }
        self.disarm();
        // With parity, the fault may have struck only that, which does not end the session.
        let is_certain = self.config.parity_percent.is_none();
        if is_certain && (self.has_struck_one_of(&WRITE_FAULTS) || self.disk.is_full()) {
            let is_refused = self.store().sync().is_err();
            let fresh = Content { number: 1_000_000 + self.next_session(), length: 100 }.bytes();
            let takes = self.store().put(Block { block_type: BlockType::DATA, bytes: &fresh }).is_ok();
            if !is_refused || takes {
                return Err(broken(format!("goes on after a write that failed: {text}")));
            }
            // The store can still read acknowledged data.
            self.check_blocks(self.store(), &self.model.durable, 20)?;
        }
        self.end_session();
        Ok(())
    }

    pub fn put(&mut self, first: u64, count: u32, bytes: u32) -> Checked {
        self.open_writer()?;
        let contents: Vec<_> = (first..first + u64::from(count))
            .map(|number| Content { number, length: bytes as usize + number as usize % 7 })
            .collect();
        let all: Vec<_> = contents.iter().map(|content| content.bytes()).collect();
        let blocks: Vec<_> = all.iter().map(|bytes| Block { block_type: BlockType::DATA, bytes }).collect();
        let named = |score| BlockName { score, block_type: BlockType::DATA };
        match self.store().put_batch(&blocks) {
            Ok(scores) => {
                self.model.pending.blocks.extend(scores.into_iter().map(named).zip(contents));
                Ok(())
            }
            Err(error) => self.after_failure(&with_causes(&error)),
        }
    }

    pub fn sync(&mut self) -> Checked {
        match self.store().sync() {
            Ok(()) => {
                self.model.acknowledge();
                Ok(())
            }
            Err(error) => self.after_failure(&with_causes(&error)),
        }
    }

    /// Returns the name of the next snapshot. From now on the model knows its contents, in case it
    /// is listed.
    pub fn begin_snapshot(&mut self, kind: &str, taken: Taken) -> String {
        let name = format!("{kind}-{}", self.next_snapshot);
        self.next_snapshot += 1;
        self.model.taken.insert(name.clone(), taken);
        name
    }

    pub fn change_folder(&mut self, draw: &mut SeededDraw, changes: u32) -> Checked {
        let unusable = |error: io::Error| broken(format!("a real folder cannot be used: {error}"));
        if self.folder.is_none() {
            self.folder = Some(SourceFolder::new().map_err(unusable)?);
        }
        let folder = self.folder.as_mut().expect("it was made");
        folder.change(draw.number(), changes).map_err(unusable)
    }

    pub fn take_image(&mut self) -> Checked {
        self.open_writer()?;
        let name = self.begin_snapshot("image", Taken::Image(Arc::new(self.image.clone())));
        let archive = self.writer.as_mut().expect("it was opened");
        let finished = take_image(archive, &name, &self.image);
        self.after_snapshot(finished)
    }

    pub fn take_folder(&mut self) -> Checked {
        self.open_writer()?;
        let folder = self.folder.as_ref().expect("it was changed first");
        let (path, state) = (folder.path().to_path_buf(), Arc::new(folder.state().clone()));
        let name = self.begin_snapshot("folder", Taken::Folder(state));
        let archive = self.writer.as_mut().expect("it was opened");
        let finished = take_folder(archive, &name, &path);
        self.after_snapshot(finished)
    }

    fn after_snapshot(&mut self, finished: Result<Finished, TakeError>) -> Checked {
        match finished {
            Ok(_) => {
                self.model.acknowledge();
                // Snapshots that are listed and were never reported are permanent now.
                self.settle_places();
                Ok(())
            }
            // The size of the store could not be determined, so nothing was written.
            Err(error @ TakeError::Stats(_)) => self.excused(&with_causes(&error)),
            Err(error) => self.after_failure(&with_causes(&error)),
        }
    }

    pub fn store_file(&mut self, content: Content) -> Checked {
        self.open_writer()?;
        match write_file(self.store(), content) {
            Ok(entry) => {
                self.model.pending.files.push(StoredFile { entry, content });
                Ok(())
            }
            Err(error) => self.after_failure(&with_causes(&error)),
        }
    }

    pub fn checkpoint(&mut self) -> Checked {
        self.open_writer()?;
        self.sync()?;
        let Some(archive) = &self.writer else { return Ok(()) };
        if self.disk.is_down() {
            return Ok(());
        }
        match archive.store().save_checkpoint() {
            Ok(()) => Ok(()),
            // The damage may have been noticed only now. The next opening makes the index anew.
            Err(_) if self.index_is_harmed || self.has_sync_failed_since_opening() => {
                self.index_is_harmed = false;
                self.end_session();
                self.checkpoint()
            }
            Err(error) => self.excused(&with_causes(&error)),
        }
    }

    pub fn second_writer(&mut self) -> Checked {
        self.open_writer()?;
        let secret = session::secret(&self.config);
        match Store::open(world(&self.disk, 1), secret.as_ref(), WRITER, &mut |_| {}) {
            Ok(_) => Err(broken("two writers at the same time")),
            Err(OpenStoreError::Locked { holder }) if holder == "the model" => Ok(()),
            Err(other) => self.excused(&with_causes(&other)),
        }
    }
}
