//! Replicating the store, reading and auditing the replica, and cloning it.

use std::collections::BTreeSet;
use std::sync::Arc;

use varve_archive::Archive;
use varve_block::with_causes;
use varve_replica::{
    AuditFindingKind, AuditReport, CloneError, CloneOptions, ClumpShare, Replica, ReplicaStorage,
    ReplicaToAudit, ReplicateError, ReplicateOptions, ReplicationPlan, ReplicationSource, audit,
    clone_replica,
};
use varve_sim::{Fault, SeededDraw, SimDisk};
use varve_store::{Store, StoreAccess};
use varve_world::{FileName, World};

use crate::case::{Case, Checked, broken, lost, once_more_if_owed};
use crate::model::Model;
use crate::schedule::Step;
use crate::session::{self, WRITER, world, world_of};
use crate::steps::read::must_verify;
use crate::target::{Spoil, TargetFault};

/// Each arena becomes several objects.
const SEGMENT_BYTES: u64 = 300 << 10;

/// The reason why a replication did not complete.
enum NotReplicated {
    /// The replicated log is not a part of the log here.
    Parted(String),
    Failed(String),
}

impl Case {
    /// Replicates a log that was opened since the last crash, or one that was not.
    pub fn replicate(&mut self) -> Checked {
        if self.writer.is_none() && self.next_snapshot.is_multiple_of(2) {
            self.open_writer()?;
        }
        if self.has_sync_failed_since_opening() {
            self.second_home.may_have_parted = true;
        }
        let promised = self.model.durable.clone();
        // If the replication does not complete, the replica is of any state between the two.
        if let Some(before) = &mut self.second_home.promised {
            before.may_become(&promised);
        }
        if let Err(first) = self.replicate_all() {
            let (NotReplicated::Parted(text) | NotReplicated::Failed(text)) = &first;
            // An answer of the service may be anything, and is not trusted.
            let is_parted = matches!(first, NotReplicated::Parted(_)) && self.second_home.may_have_parted;
            if !is_parted {
                self.excused(text)?;
            }
            if self.has_struck_one_of(&[Fault::SyncError]) || self.disk.owes_failure() {
                // The system reports a failed sync once, and reported this one to another process.
                // Until the next opening, the state of the disk is unknown. The log was read from
                // memory, so parts of it may exist only at the replica.
                self.second_home.may_have_parted = true;
            }
            self.disarm();
            self.restart();
            self.note_struck();
            self.open_writer()?;
            self.replicate_again(text)?;
        }
        self.second_home.promised = Some(promised);
        Ok(())
    }

    /// Without faults, replication completes. It goes to a new target if the log has a different
    /// history by now.
    fn replicate_again(&mut self, before: &str) -> Checked {
        self.note_struck();
        let mut outcome = self.replicate_all();
        if outcome.is_err() && self.second_home.may_have_parted {
            // The first attempt met a sync that had failed in the writer's background.
            outcome = self.replicate_all();
        }
        match outcome {
            Ok(()) => return Ok(()),
            Err(NotReplicated::Parted(_)) if self.second_home.may_have_parted => {}
            Err(NotReplicated::Parted(text) | NotReplicated::Failed(text)) => {
                return Err(broken(format!("cannot be replicated: {text}; before: {before}")));
            }
        }
        self.move_second_home();
        match self.replicate_all() {
            Ok(()) => Ok(()),
            Err(NotReplicated::Parted(text) | NotReplicated::Failed(text)) => {
                Err(broken(format!("cannot be replicated to an empty place: {text}")))
            }
        }
    }

    /// Uploads missing objects, and objects that have a wrong length at the target.
    fn replicate_all(&mut self) -> Result<(), NotReplicated> {
        let wrong = self.replicate_once(BTreeSet::new())?;
        if !wrong.is_empty() {
            self.replicate_once(wrong)?;
        }
        Ok(())
    }

    /// Replicates once, and returns the objects that have a wrong length at the target.
    fn replicate_once(&mut self, replace: BTreeSet<FileName>) -> Result<BTreeSet<FileName>, NotReplicated> {
        let seed = self.next_session();
        let world = world(&self.disk, seed);
        let secret = session::secret(&self.config);
        let (config, log) = Store::unlock(&world, secret.as_ref())
            .map_err(|error| NotReplicated::Failed(with_causes(&error)))?;
        let source = ReplicationSource { world: &world, config: &config, log: &log };
        let target = self.second_home.target.shared();
        // All second homes have the same name, and a new one is empty.
        let options = ReplicateOptions {
            segment_bytes: SEGMENT_BYTES,
            replace,
            delete_extra_keys: false,
            recreate: true,
        };
        let plan = ReplicationPlan::new(source, &target, &options)?;
        let wrong =
            plan.wrong.iter().map(|wrong| &wrong.object).chain(&plan.wrong_settings).cloned().collect();
        let done = plan.apply(source, &target, &options, &*session::workers(), &())?;
        match done.damaged.first() {
            Some(damage) => {
                let text = format!(
                    "arena {} is damaged at {}: {}",
                    damage.arena,
                    damage.offset,
                    with_causes(&damage.reason)
                );
                Err(NotReplicated::Failed(text))
            }
            None => Ok(wrong),
        }
    }

    // ---- reading the replica

    /// Opens the replica as the folder of a store.
    fn there(&mut self) -> Result<(Arc<Replica>, World), String> {
        let replica = Replica::open(self.second_home.target.shared()).map_err(|error| with_causes(&error))?;
        let replica = Arc::new(replica);
        let storage = ReplicaStorage::new(Arc::clone(&replica), None, None);
        let seed = self.next_session();
        Ok((replica, world_of(Arc::new(storage), seed)))
    }

    pub fn open_second_home(&mut self) -> Result<Store, String> {
        let (_, world) = self.there()?;
        session::open_store(world, session::secret(&self.config).as_ref(), StoreAccess::Read)
    }

    pub fn open_second_home_archive(&mut self) -> Result<Archive, String> {
        Archive::open(self.open_second_home()?).map_err(|error| with_causes(&error))
    }

    fn audit(&mut self) -> Result<AuditReport, String> {
        let (replica, world) = self.there()?;
        let secret = session::secret(&self.config);
        let (_, log) = Store::unlock(&world, secret.as_ref()).map_err(|error| with_causes(&error))?;
        let store = session::open_store(world.clone(), secret.as_ref(), StoreAccess::Read)?;
        let audited = ReplicaToAudit { replica: &replica, world: &world, store: &store, log: &log };
        audit(audited, ClumpShare::ALL, &()).map_err(|error| with_causes(&error))
    }

    /// Reads nothing wrong from the replica while faults strike. Without faults it reads all
    /// replicated data.
    pub fn read_replica(&mut self, draw: &mut SeededDraw) -> Checked {
        let Some(promised) = self.second_home.promised.clone() else { return Ok(()) };
        match self.open_second_home_archive() {
            Ok(archive) => drop(self.never_wrong(&archive, &promised)?),
            Err(text) => self.excused(&text)?,
        }
        if draw.once_in(2)
            && let Err(text) = self.audit()
        {
            self.excused(&text)?;
        }
        self.disarm();
        self.note_struck();
        self.check_second_home()
    }

    /// All replicated data exists, and an audit finds nothing.
    pub fn check_second_home(&mut self) -> Checked {
        let Some(promised) = self.second_home.promised.clone() else { return Ok(()) };
        let archive = self.open_second_home_archive().map_err(lost)?;
        if let Some(wrong) = Model::compare_catalog(&promised, &self.model.taken, &archive) {
            return Err(lost(format!("at the second home, {wrong}")));
        }
        self.check_promised(&archive, &promised)?;
        let mut audit = self.audit().map_err(broken)?;
        // The target removes nothing: the rest of a torn upload stays beside its successor.
        audit.findings.retain(|finding| !matches!(finding.kind, AuditFindingKind::Detached));
        if audit.findings.is_empty() {
            Ok(())
        } else {
            Err(broken(format!("an audit complains: {:?}", audit.findings)))
        }
    }

    /// The service damages its objects: an audit reports it, and replicating again mends the
    /// replica.
    pub fn spoil_replica(&mut self, draw: &mut SeededDraw, spoil: Spoil, count: u32) -> Checked {
        if self.second_home.promised.is_none() {
            return Ok(());
        }
        self.disarm();
        // A replica can be mended only with data that exists here.
        self.restart();
        self.note_struck();
        self.open_writer()?;
        self.replicate()?;
        self.forget_owed_failure();
        let promised = self.model.durable.clone();
        let hit: Vec<_> = (0..count).filter_map(|_| self.second_home.target.spoil(spoil, draw)).collect();
        if hit.is_empty() {
            return Ok(());
        }
        let is_harmed = match self.open_second_home_archive() {
            Ok(archive) => !self.never_wrong(&archive, &promised)?.is_empty(),
            Err(_) => true,
        };
        let audit = self.audit().map_err(broken)?;
        // A log without its end is a good, shorter log, and some bits between records have no
        // meaning.
        if audit.findings.is_empty() && spoil != Spoil::Lost && (is_harmed || spoil == Spoil::Cut) {
            return Err(broken(format!("an audit does not see what happened to {hit:?}")));
        }
        // A lost page hides everything behind it, so the audit may name the object where that
        // begins.
        let named = audit.findings.into_iter().filter_map(|finding| finding.object);
        // A lost object is uploaded again without being named, and only existing objects can be
        // named.
        let hit = hit.into_iter().filter(|_| spoil != Spoil::Lost);
        let there: BTreeSet<_> = named.chain(hit).collect();
        // A replication with nothing to upload has synced nothing. A sync that failed behind the
        // last session may still be reported here.
        let made_whole = once_more_if_owed(self.disk.owes_failure(), || {
            let replicated = self.replicate_once(there.clone()).and_then(|_| self.replicate_all());
            replicated.map_err(|(NotReplicated::Parted(text) | NotReplicated::Failed(text))| text)
        });
        made_whole.map_err(|text| broken(format!("cannot be made whole: {text}")))?;
        self.check_second_home()
    }

    // ---- cloning

    /// Clones the store to another disk while faults strike.
    pub fn bring_back(&mut self, step: &Step, moves: bool) -> Checked {
        let Some(promised) = self.second_home.promised.clone() else { return Ok(()) };
        self.arm(&[]);
        let mut disk = SimDisk::new(step.draw);
        disk.arm(&step.strikes);
        if let Err(text) = self.clone_to(&disk) {
            let is_excused = !disk.tally().struck.is_empty() || self.has_struck();
            if !is_excused {
                return Err(lost(format!("cannot be brought back: {text}")));
            }
        }
        disk.behave();
        if disk.is_down() {
            disk.restart();
        }
        self.second_home.target.behave();
        // A reader that has never seen a newer listing cannot know that this one is old. The clone
        // is then of an earlier state.
        let tally = self.second_home.target.tally();
        if tally.struck.contains_key(&TargetFault::OldListing) && self.has_struck() {
            self.forget_disk(&disk);
            disk = SimDisk::new(step.draw + 1);
        }
        self.note_struck();
        let again = once_more_if_owed(disk.owes_failure(), || self.clone_to(&disk));
        again.map_err(|text| lost(format!("cannot be brought back after a try: {text}")))?;
        let seed = self.next_session();
        let secret = session::secret(&self.config);
        let archive = session::open(world(&disk, seed), secret.as_ref(), WRITER)
            .map_err(|text| lost(format!("what came back does not open: {text}")))?;
        if let Some(wrong) = Model::compare_catalog(&promised, &self.model.taken, &archive) {
            return Err(lost(format!("of what came back, {wrong}")));
        }
        self.check_promised(&archive, &promised)?;
        must_verify(&archive, true, " of what came back")?;
        if !moves {
            self.forget_disk(&disk);
            return Ok(());
        }
        self.move_to(disk);
        self.model.go_back_to(promised);
        self.model.durable.settle(&archive);
        self.writer = Some(archive);
        Ok(())
    }

    fn clone_to(&mut self, disk: &SimDisk) -> Result<(), String> {
        let replica = Replica::open(self.second_home.target.shared()).map_err(|error| with_causes(&error))?;
        let seed = self.next_session();
        let secret = session::secret(&self.config);
        let options = CloneOptions::default();
        match clone_replica(&Arc::new(replica), &world(disk, seed), secret.as_ref(), options, &()) {
            // The attempt before completed, and could not report it.
            Ok(_) | Err(CloneError::Exists) => Ok(()),
            Err(error) => Err(with_causes(&error)),
        }
    }
}

impl From<ReplicateError> for NotReplicated {
    fn from(error: ReplicateError) -> Self {
        let text = with_causes(&error);
        match error {
            ReplicateError::Ahead { .. } | ReplicateError::Diverged { .. } => Self::Parted(text),
            _ => Self::Failed(text),
        }
    }
}
