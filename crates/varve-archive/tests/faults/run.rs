//! Carrying out a schedule, and holding the archive to its promises.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use varve_archive::{Archive, ImageSource, Progress, Request, TakeError};
use varve_block::{Block, BlockKind, BlockName, BlockStore, BlockType};
use varve_sim::{Disk, Draw, Fault};
use varve_store::{Access, CreateError, OpenError, PassphraseCost, Store, StoreConfig};
use varve_tree::{ContentWriter, Cutting};
use varve_world::LockError;

use crate::contents::{Content, change_image};
use crate::model::{Model, Promised, StoredFile};
use crate::report::{Failure, Outcome};
use crate::schedule::{Action, Schedule, Step};
use crate::session::{self, WRITER, chain, world};

const IMAGE_BYTES_MAX: usize = 1_500_000;
const BLOCK_BYTES: u32 = 4096;

type Checked<T = ()> = Result<T, Failure>;

/// A promise was broken, though nothing that was acknowledged is lost.
fn broken(text: impl Into<String>) -> Failure {
    Failure { is_loss: false, text: text.into() }
}

/// Something that was acknowledged is gone, or wrong.
fn lost(text: impl Into<String>) -> Failure {
    Failure { is_loss: true, text: text.into() }
}

/// Runs a schedule to its end, and then one more power cut.
pub fn run(schedule: &Schedule) -> Result<Outcome, Failure> {
    let mut case = Case::create(schedule)?;
    if schedule.pretends_to_sync {
        case.disk.pretend_to_sync();
    }
    for (number, step) in schedule.steps.iter().enumerate() {
        case.step(step).map_err(|failure| Failure {
            text: format!("step {number}, {:?}: {}", step.action, failure.text),
            ..failure
        })?;
    }
    case.end().map_err(|failure| Failure { text: format!("at the end: {}", failure.text), ..failure })?;
    Ok(Outcome { tally: case.disk.tally(), actions: case.actions })
}

/// An archive on a disk, and what is known of it.
struct Case {
    disk: Disk,
    config: StoreConfig,
    model: Model,
    writer: Option<Archive>,
    reader: Option<Reader>,
    /// The image, as the next snapshot finds it.
    image: Vec<u8>,
    next_snapshot: u64,
    sessions: u64,
    /// What had struck before the step.
    struck_before: BTreeMap<Fault, u64>,
    /// Whether a failed sync from before the step was still to be told.
    owed_failure: bool,
    actions: BTreeMap<&'static str, u64>,
}

/// An archive that is open to be read, and what was promised when it was opened.
struct Reader {
    archive: Archive,
    promised: Promised,
}

impl Case {
    fn create(schedule: &Schedule) -> Checked<Self> {
        let mut case = Self {
            disk: Disk::new(schedule.seed),
            config: schedule.config(),
            model: Model::default(),
            writer: None,
            reader: None,
            image: Vec::new(),
            next_snapshot: 0,
            sessions: 0,
            struck_before: BTreeMap::new(),
            owed_failure: false,
            actions: BTreeMap::new(),
        };
        case.disk.arm(&schedule.create);
        let mut outcome = case.try_create(1);
        if let Err(error) = &outcome {
            case.excused(&chain(error))?;
            case.recover_disk();
            outcome = match case.open(WRITER) {
                Ok(_) => Ok(()),
                Err(text) if text.contains("not a store") => match case.try_create(2) {
                    // What is there is no store, and its maker is told so: he may empty the folder.
                    Err(CreateError::NotEmpty { .. }) => {
                        case.disk = Disk::new(schedule.seed);
                        case.try_create(3)
                    }
                    other => other,
                },
                Err(text) => return Err(broken(format!("half a store was made: {text}"))),
            };
        }
        outcome.map_err(|error| broken(format!("no store was made: {}", chain(&error))))?;
        case.disk.behave();
        Ok(case)
    }

    fn try_create(&self, seed: u64) -> Result<(), CreateError> {
        let secret = session::secret(&self.config);
        Store::create(&world(&self.disk, seed), &self.config, secret.as_ref(), PassphraseCost::default())
    }

    fn step(&mut self, step: &Step) -> Checked {
        self.disk.reseed(step.draw);
        self.struck_before = self.disk.tally().struck;
        self.owed_failure = self.disk.owes_failure();
        self.disk.arm(&step.strikes);
        *self.actions.entry(step.action.name()).or_default() += 1;
        self.act(step)?;
        self.disk.arm(&[]);
        if self.disk.is_down() {
            self.restart()?;
        }
        Ok(())
    }

    /// One more power cut, and everything that was promised is there; closed and opened again, too.
    fn end(&mut self) -> Checked {
        self.disk.reseed(u64::MAX);
        self.struck_before = self.disk.tally().struck;
        self.disk.behave();
        self.disk.cut_power();
        self.restart()?;
        self.struck_before = self.disk.tally().struck;
        self.owed_failure = false;
        self.open_writer()?;
        self.check_all(true)?;
        self.close()?;
        self.open_writer()?;
        self.check_all(true)
    }

    fn act(&mut self, step: &Step) -> Checked {
        let draw = &mut Draw::new(step.draw);
        match step.action {
            Action::Put { first, count, bytes } => self.put(first, count, bytes),
            Action::Get { count } => self.get(draw, count),
            Action::Sync => {
                self.open_writer()?;
                self.sync()
            }
            Action::Image { changes } => {
                change_image(&mut self.image, draw.number(), changes, IMAGE_BYTES_MAX);
                self.take_image()
            }
            Action::File { bytes } => {
                self.store_file(Content { number: draw.below(50), length: bytes as usize })
            }
            Action::Restore { count } => self.restore(draw, count),
            Action::Verify { data } => self.verify(data),
            Action::Checkpoint => self.checkpoint(),
            Action::OpenReader => self.open_reader(),
            Action::AskReader => self.ask_reader(),
            Action::SecondWriter => self.second_writer(),
            Action::Close => {
                self.open_writer()?;
                self.close()
            }
            Action::Kill => {
                self.end_session();
                self.open_writer()
            }
            Action::PowerCut => {
                self.disk.cut_power();
                self.restart()?;
                self.open_writer()?;
                self.disk.arm(&[]);
                self.check_all(draw.once_in(2))
            }
            Action::MakeRoom => {
                self.disk.behave();
                Ok(())
            }
        }
    }

    // ---- what may go wrong

    /// Whether something has struck since the step began.
    fn has_struck(&self) -> bool {
        self.disk.tally().struck != self.struck_before
    }

    /// An error is no failure if something struck, or the disk is full.
    fn excused(&self, text: &str) -> Checked {
        if self.has_struck() || self.owed_failure || self.disk.is_full() || self.disk.is_down() {
            Ok(())
        } else {
            Err(broken(format!("an error on a disk that works: {text}")))
        }
    }

    /// The disk works from now on: after a restart, if the power was gone.
    fn recover_disk(&self) {
        self.disk.behave();
        if self.disk.is_down() {
            self.disk.restart();
        }
    }

    fn restart(&mut self) -> Checked {
        self.end_session();
        self.reader = None;
        self.recover_disk();
        Ok(())
    }

    /// The writer is gone, without a word.
    fn end_session(&mut self) {
        self.writer = None;
        self.model.forget_pending();
    }

    /// Does what only reads, and again with nothing in its way if that failed: then it must succeed.
    fn twice<T>(&self, mut read: impl FnMut(bool) -> Result<T, String>) -> Checked<T> {
        match read(false) {
            Ok(found) => Ok(found),
            Err(text) => {
                if !self.has_struck() {
                    return Err(lost(text));
                }
                if self.disk.is_down() {
                    return Err(broken("the power is gone"));
                }
                self.disk.arm(&[]);
                read(true).map_err(|again| lost(format!("{again}; tried before with a fault: {text}")))
            }
        }
    }

    /// As `twice`; none if the power went.
    fn unless_down(&self, checked: Checked) -> Checked {
        if self.disk.is_down() { Ok(()) } else { checked }
    }

    // ---- sessions

    fn open(&mut self, access: Access<'_>) -> Result<Archive, String> {
        self.sessions += 1;
        session::open(world(&self.disk, 1000 + self.sessions), &self.config, access)
    }

    /// Opens the archive to write, if it is not: at once, or as soon as the disk works.
    fn open_writer(&mut self) -> Checked {
        if self.writer.is_some() {
            return Ok(());
        }
        let archive = match self.open(WRITER) {
            Ok(archive) => archive,
            Err(text) => {
                self.excused(&text)?;
                if self.disk.is_down() {
                    self.reader = None;
                }
                self.recover_disk();
                self.open(WRITER).map_err(|again| lost(format!("does not open: {again}; before: {text}")))?
            }
        };
        let listed = session::listed(&archive);
        if let Some(wrong) = Model::compare_catalog(&self.model.durable, &self.model.images, &listed) {
            return Err(lost(format!("opened to write, {wrong}")));
        }
        self.writer = Some(archive);
        Ok(())
    }

    fn writer(&self) -> &Archive {
        self.writer.as_ref().expect("it was opened")
    }

    fn store(&self) -> &Store {
        self.writer().store()
    }

    fn close(&mut self) -> Checked {
        let Some(archive) = self.writer.take() else { return Ok(()) };
        match archive.close() {
            Ok(()) => self.model.acknowledge(),
            Err(error) => {
                self.excused(&chain(&error))?;
                self.model.forget_pending();
            }
        }
        Ok(())
    }

    /// After a write or a sync that failed: the store refuses more, lies about nothing, and is opened again.
    fn after_failure(&mut self, text: &str) -> Checked {
        self.excused(text)?;
        if self.disk.is_down() {
            return Ok(());
        }
        self.disk.arm(&[]);
        let tally = self.disk.tally();
        let has_struck = |fault| {
            tally.struck.get(&fault).copied().unwrap_or(0)
                > self.struck_before.get(&fault).copied().unwrap_or(0)
        };
        let is_write = [Fault::WriteError, Fault::SyncError, Fault::FolderSyncError, Fault::NameError];
        if is_write.into_iter().any(has_struck) || self.disk.is_full() {
            let is_refused = self.store().sync().is_err();
            let fresh = Content { number: 1_000_000 + self.sessions, length: 100 }.bytes();
            let takes = self.store().put(Block { block_type: BlockType::DATA, bytes: &fresh }).is_ok();
            if !is_refused || takes {
                return Err(broken(format!("goes on after a write that failed: {text}")));
            }
            // What was acknowledged can still be read by it.
            self.check_blocks(self.store(), &self.model.durable, 20)?;
        }
        self.end_session();
        Ok(())
    }

    // ---- actions

    fn put(&mut self, first: u64, count: u32, bytes: u32) -> Checked {
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
            Err(error) => self.after_failure(&chain(&error)),
        }
    }

    fn sync(&mut self) -> Checked {
        match self.store().sync() {
            Ok(()) => {
                self.model.acknowledge();
                Ok(())
            }
            Err(error) => self.after_failure(&chain(&error)),
        }
    }

    fn take_image(&mut self) -> Checked {
        self.open_writer()?;
        let name = format!("image-{}", self.next_snapshot);
        self.next_snapshot += 1;
        self.model.images.insert(name.clone(), Arc::new(self.image.clone()));
        let source = ImageSource::stream(Box::new(io::Cursor::new(self.image.clone())), Path::new("image"));
        let request = Request { name, ..Request::default() };
        let archive = self.writer.as_mut().expect("it was opened");
        match archive.take_image(&source, BLOCK_BYTES, request, &Progress::new()) {
            Ok(_) => {
                self.model.acknowledge();
                // Those that nobody was told of and that are listed all the same are there for good now.
                self.model.durable.snapshots = session::listed(archive);
                Ok(())
            }
            // Nothing was written for the lack of it.
            Err(error @ TakeError::Stats(_)) => self.excused(&chain(&error)),
            Err(error) => self.after_failure(&chain(&error)),
        }
    }

    fn store_file(&mut self, content: Content) -> Checked {
        self.open_writer()?;
        let store = self.store();
        let mut file = ContentWriter::new(store, BlockKind::Data, Cutting::FILE);
        match file.write(&content.bytes()).and_then(|()| file.finish()) {
            Ok(entry) => {
                self.model.pending.files.push(StoredFile { entry, content });
                Ok(())
            }
            Err(error) => self.after_failure(&chain(&error)),
        }
    }

    fn checkpoint(&mut self) -> Checked {
        self.open_writer()?;
        self.sync()?;
        let Some(archive) = &self.writer else { return Ok(()) };
        if self.disk.is_down() {
            return Ok(());
        }
        match archive.store().save_checkpoint() {
            Ok(()) => Ok(()),
            Err(error) => self.excused(&chain(&error)),
        }
    }

    fn second_writer(&mut self) -> Checked {
        self.open_writer()?;
        let secret = session::secret(&self.config);
        match Store::open(world(&self.disk, 1), secret.as_ref(), WRITER, &mut |_| {}) {
            Ok(_) => Err(broken("two writers at the same time")),
            Err(OpenError::Locked(LockError::Held { holder })) if holder == "the model" => Ok(()),
            Err(other) => self.excused(&chain(&other)),
        }
    }

    fn open_reader(&mut self) -> Checked {
        let archive = match self.open(Access::Read) {
            Ok(archive) => archive,
            Err(text) => {
                self.excused(&text)?;
                if self.disk.is_down() {
                    return Ok(());
                }
                self.disk.arm(&[]);
                self.open(Access::Read)
                    .map_err(|again| lost(format!("does not open: {again}; before: {text}")))?
            }
        };
        let promised = self.model.durable.clone();
        if let Some(wrong) = Model::compare_catalog(&promised, &self.model.images, &session::listed(&archive))
        {
            return Err(lost(format!("opened to read, {wrong}")));
        }
        self.reader = Some(Reader { archive, promised });
        self.ask_reader()
    }

    fn ask_reader(&mut self) -> Checked {
        let Some(reader) = &self.reader else { return Ok(()) };
        let store = reader.archive.store();
        let checked = self
            .check_blocks(store, &reader.promised, 200)
            .and_then(|()| self.check_files(store, &reader.promised, 1))
            .and_then(|()| self.check_snapshots(&reader.archive, 1));
        self.unless_down(checked)
    }

    // ---- reading back

    fn get(&mut self, draw: &mut Draw, count: u32) -> Checked {
        self.open_writer()?;
        let Model { durable, pending, doubtful, .. } = &self.model;
        let all: Vec<_> = durable.blocks.iter().chain(&pending.blocks).chain(doubtful).collect();
        if all.is_empty() {
            return Ok(());
        }
        let chosen: Vec<_> = (0..count).map(|_| all[draw.index(all.len())]).collect();
        let names: Vec<_> = chosen.iter().map(|(name, _)| **name).collect();
        // When a sync behind the writer's back has failed, what waits for the next sync may be gone: that sync will say so.
        let has_pending = !self.disk.owes_failure();
        let is_promised =
            |name| durable.blocks.contains_key(name) || (has_pending && pending.blocks.contains_key(name));
        let read = self.twice(|_| {
            let mut missing = Ok(());
            for ((name, content), found) in chosen.iter().zip(self.store().get_batch(&names)) {
                match found {
                    Ok(bytes) if bytes == content.bytes() => {}
                    Ok(_) => return Ok(Some(format!("{name} has other bytes than were put"))),
                    Err(error) if is_promised(name) => missing = Err(chain(&error)),
                    Err(_) => {}
                }
            }
            missing.map(|()| None)
        });
        self.unless_down(read.and_then(|wrong| wrong.map_or(Ok(()), |wrong| Err(lost(wrong)))))
    }

    fn restore(&mut self, draw: &mut Draw, count: u32) -> Checked {
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

    fn verify(&mut self, data: bool) -> Checked {
        self.open_writer()?;
        if self.disk.owes_failure() {
            // It may see what that failure took, before the next sync tells of it.
            return session::complaints(self.writer(), data)
                .map_or_else(|text| self.excused(&text), |_| Ok(()));
        }
        let verified = self.twice(|_| {
            let complaints = session::complaints(self.writer(), data)?;
            if complaints.is_empty() { Ok(()) } else { Err(complaints.join("; ")) }
        });
        // Nothing is known to be lost: what is is told by those who read it.
        let verified = verified.map_err(|failure| broken(format!("verify complains: {}", failure.text)));
        self.unless_down(verified)
    }

    /// All that was promised is there, and `verify` agrees.
    fn check_all(&self, verifies: bool) -> Checked {
        let archive = self.writer();
        self.check_blocks(archive.store(), &self.model.durable, usize::MAX)?;
        self.check_files(archive.store(), &self.model.durable, usize::MAX)?;
        self.check_snapshots(archive, usize::MAX)?;
        if verifies {
            let complaints = session::complaints(archive, true).map_err(broken)?;
            if !complaints.is_empty() {
                return Err(broken(format!("verify complains: {}", complaints.join("; "))));
            }
        }
        Ok(())
    }

    fn check_blocks(&self, store: &Store, promised: &Promised, count: usize) -> Checked {
        let chosen: Vec<_> = promised.blocks.iter().take(count).collect();
        let names: Vec<_> = chosen.iter().map(|(name, _)| **name).collect();
        let wrong = self.twice(|_| {
            let mut missing = Ok(None);
            for ((name, content), found) in chosen.iter().zip(store.get_batch(&names)) {
                match found {
                    Ok(bytes) if bytes == content.bytes() => {}
                    Ok(_) => return Ok(Some(format!("{name} has other bytes than were put"))),
                    Err(error) => missing = Err(chain(&error)),
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

    /// Every snapshot that is listed is whole, whether or not it was reported.
    fn check_snapshots(&self, archive: &Archive, count: usize) -> Checked {
        archive
            .snapshots()
            .iter()
            .rev()
            .take(count)
            .try_for_each(|snapshot| self.check_snapshot(archive, snapshot))
    }

    fn check_snapshot(&self, archive: &Archive, snapshot: &varve_archive::Snapshot) -> Checked {
        let name = &snapshot.name;
        let Some(image) = self.model.images.get(name) else {
            return Err(lost(format!("{name} was never taken")));
        };
        let bytes = self
            .twice(|_| session::restore(archive.store(), snapshot))
            .map_err(|failure| Failure { text: format!("{name}: {}", failure.text), ..failure })?;
        if bytes == **image { Ok(()) } else { Err(lost(format!("{name} comes back as something else"))) }
    }
}
