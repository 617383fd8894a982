//! An archive on the simulated disk and what the test knows of it: its sessions, and the faults
//! that excuse an error.

use std::collections::BTreeMap;
use std::sync::Arc;

use varve_archive::{Archive, Collection};
use varve_block::with_causes;
use varve_sim::{Fault, SimDisk, Strike, Tally};
use varve_store::{
    CompareMode, CreateError, Encryption, HeldLease, Keyring, NewKey, PassphraseCost, Role, Store,
    StoreAccess, StoreConfig,
};
use varve_world::{FileName, FixedClock, Timestamp, World};

use crate::folder::SourceFolder;
use crate::model::{Model, Promised};
use crate::report::{Failure, Outcome};
use crate::schedule::{Schedule, Step};
use crate::session::{self, WRITER, world};
use crate::target::{SimTarget, TargetTally};

pub type Checked<T = ()> = Result<T, Failure>;

/// A broken promise without a loss of acknowledged data.
pub fn broken(text: impl Into<String>) -> Failure {
    Failure { is_loss: false, text: text.into(), outcome: None }
}

/// Runs `attempt`, and runs it again after an error if the disk owed a failure. A sync that failed
/// in the background during an earlier attempt is reported once, to the next sync.
pub fn once_more_if_owed<T>(
    owes_failure: bool,
    mut attempt: impl FnMut() -> Result<T, String>,
) -> Result<T, String> {
    match attempt() {
        Err(_) if owes_failure => attempt(),
        first => first,
    }
}

/// Acknowledged data is gone or wrong.
pub fn lost(text: impl Into<String>) -> Failure {
    Failure { is_loss: true, text: text.into(), outcome: None }
}

/// An archive on a disk, and what the test knows of it.
pub struct Case {
    pub disk: SimDisk,
    pub config: StoreConfig,
    pub model: Model,
    pub writer: Option<Archive>,
    pub reader: Option<Reader>,
    /// The image in the state that the next snapshot archives.
    pub image: Vec<u8>,
    /// The folder in the state that the next snapshot archives. It is made when it is first needed.
    pub folder: Option<SourceFolder>,
    pub second_home: SecondHome,
    pub next_snapshot: u64,
    pub sessions: u64,
    struck_before: Struck,
    /// The faults that had struck before the last successful opening to write began. An opening may
    /// fail in part without an error.
    struck_at_opening: Struck,
    /// True if a failed sync from before the step was not yet reported.
    owed_failure: bool,
    /// A copy of all files of this disk, and what was promised when they were copied.
    pub kept: Option<(BTreeMap<FileName, Vec<u8>>, Promised)>,
    /// True if the index on disk was damaged. The next opening after the damage is noticed makes
    /// the index anew.
    pub index_is_harmed: bool,
    /// The time at which the next session is opened.
    pub now: Timestamp,
    /// A collection that was planned, and not carried out to its end.
    pub collection: Option<Collection>,
    /// The number of times that a batch of a collection was begun.
    pub collected_count: u64,
    /// The counts of actions, and of the ways in which damage ended.
    pub counts: BTreeMap<&'static str, u64>,
    pub cures: BTreeMap<&'static str, u64>,
    /// The tallies of disks and targets that are no longer used.
    past: Tally,
    past_target: TargetTally,
}

/// An archive that is open for reading, and what was promised when it was opened.
pub struct Reader {
    pub archive: Archive,
    pub promised: Promised,
    /// The collections that had been begun by then.
    pub collected_count: u64,
    /// The lease on its snapshots, if it has taken one.
    pub lease: Option<HeldLease>,
}

/// The target that keeps the replica, and what the test knows of it.
pub struct SecondHome {
    pub target: SimTarget,
    /// The data that the replica surely has; `None` until a replication has completed.
    pub promised: Option<Promised>,
    /// True if the log here may have a different history since then: it was repaired, or put back.
    pub may_have_parted: bool,
}

/// The faults that have struck so far, at the disk and at the target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Struck {
    here: BTreeMap<Fault, u64>,
    there: u64,
}

impl Case {
    pub fn create(schedule: &Schedule) -> Checked<Self> {
        let mut case = Self {
            disk: SimDisk::new(schedule.seed.number),
            config: schedule.config(),
            model: Model::default(),
            writer: None,
            reader: None,
            image: Vec::new(),
            folder: None,
            second_home: SecondHome::new(0),
            next_snapshot: 0,
            sessions: 0,
            struck_before: Struck::default(),
            struck_at_opening: Struck::default(),
            owed_failure: false,
            kept: None,
            index_is_harmed: false,
            now: session::EPOCH,
            collection: None,
            collected_count: 0,
            counts: BTreeMap::new(),
            cures: BTreeMap::new(),
            past: Tally::default(),
            past_target: TargetTally::default(),
        };
        case.disk.arm(&schedule.create);
        let mut outcome = case.try_create(1);
        if let Err(error) = &outcome {
            case.excused(&with_causes(error))?;
            case.recover_disk();
            outcome = match case.open(WRITER) {
                Ok(_) => Ok(()),
                Err(text) if text.contains("not a store") => match case.try_create(2) {
                    // The folder is not a store, and the error says so: the user may empty it.
                    Err(CreateError::NotEmpty { .. }) => {
                        case.disk = SimDisk::new(schedule.seed.number);
                        case.try_create(3)
                    }
                    other => other,
                },
                Err(text) => return Err(broken(format!("half a store was made: {text}"))),
            };
        }
        outcome.map_err(|error| broken(format!("no store was made: {}", with_causes(&error))))?;
        case.disk.behave();
        if !schedule.seed.is_old && case.has_write_only_key() {
            case.add_write_only_key().map_err(broken)?;
        }
        Ok(case)
    }

    fn try_create(&self, seed: u64) -> Result<(), CreateError> {
        let secret = session::secret(&self.config);
        Store::create(&world(&self.disk, seed), &self.config, secret.as_ref(), PassphraseCost::default())
    }

    /// True if there is a key that may add and not read. Comparing by value requires reading.
    pub fn has_write_only_key(&self) -> bool {
        self.config.encryption == Encryption::Aes256Gcm && !self.is_by_value()
    }

    pub fn is_by_value(&self) -> bool {
        self.config.compare == CompareMode::Value
    }

    /// Replaces an archive that has lost something for good by a new one.
    pub fn begin_anew(&mut self) -> Checked {
        let disk = SimDisk::new(self.next_session());
        self.move_to(disk);
        self.move_second_home();
        self.model = Model::default();
        self.try_create(5).map_err(|error| broken(format!("no store was made: {}", with_causes(&error))))
    }

    /// Adds a second key, for a machine that may add and not read.
    fn add_write_only_key(&self) -> Result<(), String> {
        let keyring = Keyring::of(&world(&self.disk, 4)).map_err(|error| with_causes(&error))?;
        let by = session::secret(&self.config).expect("it is encrypted");
        let by = keyring.unlock(&by).map_err(|error| with_causes(&error))?;
        let secret = session::write_only_secret();
        let cost = PassphraseCost::default();
        let new = NewKey { secret: &secret, cost, label: "", role: Role::WriteOnly };
        keyring.add(&by, &new).map(|_| ()).map_err(|error| with_causes(&error))
    }

    /// The outcome so far, on all disks and targets.
    pub fn outcome(&self) -> Outcome {
        let mut outcome = Outcome {
            tally: self.past.clone(),
            target: self.past_target.clone(),
            actions: self.counts.clone(),
            cures: self.cures.clone(),
        };
        outcome.tally.add(&self.disk.tally());
        outcome.target.add(&self.second_home.target.tally());
        outcome
    }

    /// Replaces the disk by another one.
    pub fn move_to(&mut self, disk: SimDisk) {
        self.end_session();
        self.reader = None;
        self.collection = None;
        self.past.add(&self.disk.tally());
        self.disk = disk;
        self.kept = None;
        self.note_struck();
        self.struck_at_opening = self.struck();
        self.owed_failure = false;
    }

    /// Counts the tally of a disk that is no longer used.
    pub fn forget_disk(&mut self, disk: &SimDisk) {
        self.past.add(&disk.tally());
    }

    /// Replaces the target by a new and empty one.
    pub fn move_second_home(&mut self) {
        self.past_target.add(&self.second_home.target.tally());
        self.second_home = SecondHome::new(self.next_snapshot + self.sessions * 1000);
        self.note_struck();
    }

    /// Prints an event if events were requested.
    #[expect(clippy::print_stdout, reason = "a test that was asked to tell")]
    pub fn tell(&self, what: impl FnOnce() -> String) {
        if crate::quiet::tells() {
            println!("  {}", what());
        }
    }

    /// Returns all files of the log and of its parity, with their lengths.
    pub fn lengths(&self) -> Vec<String> {
        let files = self.disk.files().into_iter();
        let is_of_log =
            |file: &FileName| file.as_str().starts_with("arenas/") || file.as_str().starts_with("parity/");
        let length = |file: &FileName| self.disk.contents(file).map_or(0, |bytes| bytes.len());
        files.filter(is_of_log).map(|file| format!("{file}: {}", length(&file))).collect()
    }

    // ---- faults and excuses

    /// Begins a step: every fault that strikes from now on excuses errors.
    pub fn begin(&mut self, step: &Step) {
        self.disk.reseed(step.draw);
        self.note_struck();
        self.note_owed_failure();
        self.disk.arm(&step.strikes);
        self.second_home.target.arm(&step.target_strikes, step.draw);
    }

    /// From now on only later faults excuse errors.
    pub fn note_struck(&mut self) {
        self.struck_before = self.struck();
    }

    /// A failure that the disk still owes excuses the next sync.
    pub fn note_owed_failure(&mut self) {
        self.owed_failure = self.disk.owes_failure();
    }

    pub fn forget_owed_failure(&mut self) {
        self.owed_failure = false;
    }

    pub fn arm(&self, strikes: &[Strike]) {
        self.disk.arm(strikes);
    }

    /// No further fault strikes in this step.
    pub fn disarm(&self) {
        self.disk.arm(&[]);
        self.second_home.target.behave();
    }

    fn struck(&self) -> Struck {
        Struck { here: self.disk.tally().struck, there: self.second_home.target.struck_count() }
    }

    /// True if a fault has struck since the step began.
    pub fn has_struck(&self) -> bool {
        self.struck() != self.struck_before
    }

    /// True if one of these faults has struck since the step began.
    pub fn has_struck_one_of(&self, faults: &[Fault]) -> bool {
        self.has_struck_after(&self.struck_before, faults)
    }

    /// True if a sync has failed since the log was opened to be written. Until the next such
    /// opening, the readable end of the log may be in memory only.
    pub fn has_sync_failed_since_opening(&self) -> bool {
        self.has_struck_after(&self.struck_at_opening, &[Fault::SyncError])
    }

    fn has_struck_after(&self, before: &Struck, faults: &[Fault]) -> bool {
        let now = self.disk.tally().struck;
        let count = |struck: &BTreeMap<Fault, u64>, fault| struck.get(fault).copied().unwrap_or(0);
        faults.iter().any(|fault| count(&now, fault) > count(&before.here, fault))
    }

    /// Accepts an error if a fault has struck or the disk is full.
    pub fn excused(&self, text: &str) -> Checked {
        let is_excused = self.has_struck() || self.owed_failure || self.disk.is_full() || self.disk.is_down();
        if is_excused || (self.writer.is_some() && self.parity_may_have_failed()) {
            Ok(())
        } else {
            Err(broken(format!("an error on a disk that works: {text}")))
        }
    }

    /// Parity is made after its data was acknowledged, so the session's next call reports its
    /// errors.
    pub fn parity_may_have_failed(&self) -> bool {
        self.config.parity_percent.is_some() && self.struck() != self.struck_at_opening
    }

    /// The disk works from now on, after a restart if the power was gone.
    pub fn recover_disk(&self) {
        self.disk.behave();
        if self.disk.is_down() {
            self.disk.restart();
        }
    }

    pub fn restart(&mut self) {
        self.end_session();
        self.reader = None;
        self.recover_disk();
    }

    /// The writer is gone, and has closed nothing.
    pub fn end_session(&mut self) {
        self.writer = None;
        self.model.forget_pending();
    }

    /// Calls `read`, and calls it again without faults if it failed. The second call must succeed.
    pub fn twice<T>(&self, mut read: impl FnMut(bool) -> Result<T, String>) -> Checked<T> {
        match read(false) {
            Ok(found) => Ok(found),
            Err(text) => {
                if !self.has_struck() {
                    return Err(lost(text));
                }
                if self.disk.is_down() {
                    return Err(broken("the power is gone"));
                }
                self.disarm();
                read(true).map_err(|again| lost(format!("{again}; tried before with a fault: {text}")))
            }
        }
    }

    /// Returns `checked`, or success if the power failed.
    pub fn unless_down(&self, checked: Checked) -> Checked {
        if self.disk.is_down() { Ok(()) } else { checked }
    }

    // ---- sessions

    /// Numbers sessions, so that each draws different random bytes.
    pub fn next_session(&mut self) -> u64 {
        self.sessions += 1;
        1000 + self.sessions
    }

    /// The world of the next session.
    pub fn world(&mut self) -> World {
        let seed = self.next_session();
        World { clock: Arc::new(FixedClock(self.now)), ..world(&self.disk, seed) }
    }

    pub fn open(&mut self, access: StoreAccess<'_>) -> Result<Archive, String> {
        let world = self.world();
        session::open(world, session::secret(&self.config).as_ref(), access)
    }

    /// Opens the archive to write if it is not open: immediately, or as soon as the disk works.
    pub fn open_writer(&mut self) -> Checked {
        if self.writer.is_some() {
            return Ok(());
        }
        self.struck_at_opening = self.struck();
        let archive = match self.open(WRITER) {
            Ok(archive) => archive,
            Err(text) => {
                self.excused(&text)?;
                if self.disk.is_down() {
                    self.reader = None;
                }
                self.recover_disk();
                self.struck_at_opening = self.struck();
                let mut again = self.open(WRITER);
                // A sync that failed in the background of an earlier session is reported once, to
                // the next sync. That is this one if the first attempt did not get to its sync.
                if again.is_err() && self.owed_failure {
                    self.forget_owed_failure();
                    again = self.open(WRITER);
                }
                again.map_err(|again| lost(format!("does not open: {again}; before: {text}")))?
            }
        };
        if let Some(wrong) = Model::compare_catalog(&self.model.durable, &self.model.taken, &archive) {
            return Err(lost(format!("opened to write, {wrong}")));
        }
        self.writer = Some(archive);
        Ok(())
    }

    pub fn writer(&self) -> &Archive {
        self.writer.as_ref().expect("it was opened")
    }

    pub fn store(&self) -> &Store {
        self.writer().store()
    }

    pub fn close(&mut self) -> Checked {
        let Some(archive) = self.writer.take() else { return Ok(()) };
        match archive.close() {
            Ok(()) => self.model.acknowledge(),
            Err(error) => {
                if !self.parity_may_have_failed() {
                    self.excused(&with_causes(&error))?;
                }
                self.model.forget_pending();
            }
        }
        Ok(())
    }
}

impl SecondHome {
    fn new(number: u64) -> Self {
        Self { target: SimTarget::new(number), promised: None, may_have_parted: false }
    }
}
