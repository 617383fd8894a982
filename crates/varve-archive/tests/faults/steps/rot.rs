//! Damage to durable data. Damaged data is never returned, `verify` names what the damage harms,
//! and all data that can come back does: from parity, from the replica, or by archiving it again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use varve_archive::{Archive, RepairPlan, RepairReport, RepairScope, Snapshot, plan_repair, repair, verify};
use varve_block::{Block, BlockName, BlockStore, BlockType, with_causes};
use varve_content::Progress;
use varve_log::ArenaId;
use varve_sim::{Rot, SeededDraw, Strike};
use varve_store::{Store, StoreAccess};
use varve_upkeep::{AuditShare, Checker, MendPlan, MendWay};
use varve_world::{FileName, MemoryStorage, Storage, World};

use crate::action::{Cure, Rotten};
use crate::case::{Case, Checked, broken, lost, once_more_if_owed};
use crate::folder::SourceFolder;
use crate::model::{Promised, Taken};
use crate::schedule::Step;
use crate::session::{self, WRITER, world};
use crate::steps::write::{take_folder, take_image, write_file};

/// Promised data that cannot be read. No other data has replaced it.
#[derive(Debug, Default)]
pub struct Missing {
    pub blocks: BTreeSet<BlockName>,
    pub files: usize,
    /// Snapshots that are listed or in the trash, and cannot be restored completely.
    pub harmed: BTreeSet<String>,
    /// Snapshots that are not listed.
    pub unlisted: BTreeSet<String>,
}

impl Missing {
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.files == 0 && self.harmed.is_empty() && self.unlisted.is_empty()
    }
}

/// The files of a store, with their contents.
type Files = BTreeMap<FileName, Vec<u8>>;

/// A repair that was carried out, and the files as they were before it.
struct RepairedStore {
    report: RepairReport,
    opened: Files,
}

impl RepairedStore {
    fn is_mended_from_parity(&self) -> bool {
        self.report.mended.values().any(|way| *way == MendWay::FromParity)
    }
}

impl Case {
    pub fn rot(
        &mut self,
        step: &Step,
        draw: &mut SeededDraw,
        (rot, count, kind): (Rot, u32, Rotten),
        cure: Cure,
    ) -> Checked {
        self.disarm();
        self.settle()?;
        if kind == Rotten::Arenas && cure == Cure::Repair && draw.once_in(2) {
            self.replicate()?;
            self.settle()?;
        }
        let files: Vec<_> = self.disk.files().into_iter().filter(|file| kind.has(file)).collect();
        let mut hit = Vec::new();
        for _ in 0..count {
            let Some(file) = files.get(draw.index(files.len())) else { return Ok(()) };
            let before = self.disk.contents(file);
            if self.disk.rot(file, rot) {
                self.tell(|| format!("{file}: {rot:?}, of {:?}", self.lengths()));
                hit.push((file.clone(), before.expect("it was there")));
            }
        }
        let mendable = self.is_mendable(rot, &hit);
        self.cure(step, kind, (cure, mendable), hit)
    }

    /// Checks that the damage is noticed, and repairs it.
    pub fn cure(
        &mut self,
        step: &Step,
        kind: Rotten,
        (cure, mendable): (Cure, bool),
        hit: Vec<(FileName, Vec<u8>)>,
    ) -> Checked {
        self.note_struck();
        self.forget_owed_failure();
        match kind {
            Rotten::Hints => {
                let is_of_index = |(file, _): &(FileName, _)| file.as_str().starts_with("index/disk-");
                self.index_is_harmed |= hit.iter().any(is_of_index);
                self.open_writer()?;
                self.check_all(true)
            }
            Rotten::Settings => self.put_back(hit),
            Rotten::Parity => {
                self.look()?;
                self.repair_until_done(&step.strikes, false)?;
                self.recover_disk();
                self.accept_the_rest()?;
                self.open_writer()?;
                self.check_all(true)?;
                self.check_parity()
            }
            Rotten::Arenas => self.rot_of_log(step, cure, mendable),
        }
    }

    /// Closes the archive, with all promised data durable and nothing pending. The log's last page
    /// is then newer than all seals except its own arena's. The loss of a seal that no page counts
    /// would go unnoticed.
    pub fn settle(&mut self) -> Checked {
        self.reader = None;
        self.disk.behave();
        self.open_writer()?;
        self.close()?;
        // A failure of due parity may have ended the session.
        self.note_struck();
        if self.disk.owes_failure() {
            // The disk reports this failure once, to the next sync.
            self.note_owed_failure();
            self.put_and_close()?;
        }
        self.forget_owed_failure();
        self.put_and_close()
    }

    fn put_and_close(&mut self) -> Checked {
        self.open_writer()?;
        let fresh = 2_000_000 + self.next_session();
        self.put(fresh, 1, 100)?;
        self.close()
    }

    /// True if parity can surely mend the damage: one place in one sealed arena that has parity.
    fn is_mendable(&self, rot: Rot, hit: &[(FileName, Vec<u8>)]) -> bool {
        let [(file, _)] = hit else { return false };
        let is_local = matches!(rot, Rot::FlippedBit | Rot::ZeroedSector | Rot::UnreadableSector);
        let number = file.as_str().trim_start_matches("arenas/").trim_end_matches(".arena");
        let parity = format!("parity/{number}.");
        is_local && self.disk.files().iter().any(|file| file.as_str().starts_with(&parity))
    }

    /// Settings and keys are damaged: nothing opens, or nothing wrong is returned. Once they are
    /// put back from any copy, all is well.
    fn put_back(&mut self, hit: Vec<(FileName, Vec<u8>)>) -> Checked {
        if let Ok(archive) = self.open(StoreAccess::Read) {
            let missing = self.never_wrong(&archive, &self.model.durable)?;
            let complaints = session::complaints(&archive, true).unwrap_or_else(|text| vec![text]);
            if !missing.is_empty() && complaints.is_empty() {
                return Err(lost(format!("lost without a word, for damaged settings: {missing:?}")));
            }
        }
        // A file that was hit twice is in the list twice. Its first copy is the undamaged one.
        for (file, bytes) in hit.into_iter().rev() {
            let storage: &dyn Storage = &self.disk;
            storage.replace(&file, &bytes).map_err(|error| broken(error.to_string()))?;
        }
        self.open_writer()?;
        self.check_all(true)
    }

    fn rot_of_log(&mut self, step: &Step, cure: Cure, mendable: bool) -> Checked {
        self.second_home.may_have_parted = true;
        let seen = self.look()?;
        if seen.is_empty() {
            self.count_cure("nothing that was promised was hit");
        }
        let covers = cure == Cure::Repair && self.is_covered();
        if covers {
            self.read_with_help()?;
        }
        if cure == Cure::Nights {
            self.heal_by_the_next_night()?;
        }
        let mended = self.repair_until_done(&step.strikes, cure == Cure::Repair)?;
        self.note_struck();
        self.forget_owed_failure();
        // A fault that came too late for the repair must not strike the checks of its result.
        self.recover_disk();
        let archive =
            self.open(WRITER).map_err(|text| lost(format!("does not open after repair: {text}")))?;
        let left = self.never_wrong(&archive, &self.model.durable)?;
        if mendable && !left.is_empty() {
            return Err(lost(format!("parity could have mended this: {left:?}")));
        }
        // A snapshot that was never acknowledged may exist here, and not at the replica.
        let promised = &self.model.durable.snapshots;
        if covers && promised.iter().any(|name| left.harmed.contains(name) || left.unlisted.contains(name)) {
            return Err(lost(format!("the second home has this: {left:?}")));
        }
        self.must_be_known(&archive, &left)?;
        self.count_cure(match () {
            () if seen.is_empty() => "repaired",
            () if mendable && mended => "mended from parity, all of it",
            () if covers => "brought back from the second home, all snapshots",
            () if left.is_empty() => "all came back by repair",
            () => "named as lost, and healed as far as it was archived again",
        });
        self.model.durable.settle(&archive);
        self.writer = Some(archive);
        if self.is_by_value() && !left.is_empty() {
            self.next_night_is_whole(&left.harmed)?;
            self.close()?;
            let archive = self.open(WRITER).map_err(lost)?;
            // By value, no hash identifies the data: it is lost for good, and stays known as lost.
            self.must_be_known(&archive, &left)?;
            drop(archive);
            return self.begin_anew();
        }
        self.archive_again(&left.harmed)?;
        self.close()?;
        self.accept_the_rest()?;
        self.open_writer()?;
        self.check_all(true)
    }

    pub fn count_cure(&mut self, what: &'static str) {
        *self.cures.entry(what).or_default() += 1;
    }

    /// True if the replica has all snapshots.
    fn is_covered(&self) -> bool {
        let promised = self.second_home.promised.as_ref();
        promised.is_some_and(|there| {
            self.model.durable.snapshots.iter().all(|name| there.snapshots.contains(name))
        })
    }

    /// Compares what a reader finds with the report of `verify`: wrong bytes are never returned,
    /// and every loss is reported.
    fn look(&mut self) -> Checked<Missing> {
        let seed = self.next_session();
        let secret = session::secret(&self.config);
        let store = session::open_store(world(&self.disk, seed), secret.as_ref(), StoreAccess::Read)
            .map_err(|text| lost(format!("a damaged log does not open: {text}")))?;
        let plan = plan_repair(&store, &[], RepairScope::All, &Progress::new())
            .map_err(|error| broken(format!("damage cannot be told: {}", with_causes(&error))))?;
        // The newest catalog may have been there, and an earlier one is what is left.
        if store.end_is_lost() {
            self.doubt_places();
        }
        let missing = match Archive::open(store) {
            Ok(archive) => self.never_wrong(&archive, &self.model.durable)?,
            Err(_) if plan.catalog_was_lost => {
                self.doubt_places();
                let unlisted = self.model.durable.snapshots.iter().cloned().collect();
                Missing { unlisted, ..Missing::default() }
            }
            Err(error) => {
                return Err(lost(format!("the catalog is not told to be lost: {}", with_causes(&error))));
            }
        };
        let before = &plan.before;
        self.tell(|| format!("found {:?}; missing {missing:?}", session::described(&before.damage)));
        let is_told = !before.damage.is_empty() || !before.harm.is_empty() || plan.catalog_was_lost;
        if !missing.is_empty() && !is_told {
            return Err(lost(format!("lost without a word: {missing:?}")));
        }
        let harms = |name: &String| before.harm.iter().any(|harm| harm.snapshot_name == *name);
        let labelled = |name: &String| self.snapshot_name(name);
        match missing.harmed.iter().find(|name| !harms(&labelled(name))) {
            Some(name) => Err(broken(format!("{name} is harmed, and verify does not say so"))),
            None => Ok(missing),
        }
    }

    /// The name of a snapshot in the report of `verify`. All snapshots of the folder have one name.
    fn snapshot_name(&self, label: &str) -> String {
        match self.model.taken.get(label) {
            Some(Taken::Folder(_)) => session::FOLDER_NAME.into(),
            _ => label.into(),
        }
    }

    /// Returns the data that cannot be read. Fails if other data comes back in its place.
    pub fn never_wrong(&self, archive: &Archive, promised: &Promised) -> Checked<Missing> {
        let store = archive.store();
        let mut missing = Missing::default();
        let names: Vec<_> = promised.blocks.keys().copied().collect();
        for ((name, content), found) in promised.blocks.iter().zip(store.get_batch(&names)) {
            match found {
                Ok(bytes) if bytes == content.bytes() => {}
                Ok(_) => return Err(lost(format!("{name} has other bytes than were put"))),
                Err(_) => drop(missing.blocks.insert(*name)),
            }
        }
        for file in &promised.files {
            match session::read_file(store, file) {
                Ok(bytes) if bytes == file.content.bytes() => {}
                Ok(_) => return Err(lost(format!("{:?} has other bytes", file.content))),
                Err(_) => missing.files += 1,
            }
        }
        let mut listed = BTreeSet::new();
        for snapshot in archive.snapshots() {
            let label = session::label(snapshot).to_owned();
            if !self.is_whole(store, snapshot)? {
                missing.harmed.insert(label.clone());
            }
            if !listed.insert(label.clone()) {
                return Err(broken(format!("{label} is listed twice")));
            }
        }
        // Each of them may come back.
        for trashed in archive.trash() {
            if !self.is_whole(store, &trashed.snapshot)? {
                missing.harmed.insert(session::label(&trashed.snapshot).to_owned());
            }
        }
        missing.unlisted =
            promised.snapshots.iter().filter(|name| !listed.contains(*name)).cloned().collect();
        Ok(missing)
    }

    fn is_whole(&self, store: &Store, snapshot: &Snapshot) -> Checked<bool> {
        let label = session::label(snapshot);
        let Some(taken) = self.model.taken.get(label) else {
            return Err(lost(format!("{label} was never taken")));
        };
        match session::is_right(store, snapshot, taken) {
            Ok(true) => Ok(true),
            Ok(false) => Err(lost(format!("{label} comes back as something else"))),
            Err(_) => Ok(false),
        }
    }

    // ---- repairing and healing

    /// Repairs while faults strike, and once more without faults if they did. Returns true if
    /// something came from parity.
    pub fn repair_until_done(&mut self, strikes: &[Strike], with_second_home: bool) -> Checked<bool> {
        // The known damage is what a read has found. Nobody knows yet about damage from faults of
        // this step.
        let planned = self.plan_without_a_change(RepairScope::Known, with_second_home)?;
        self.arm(strikes);
        let first = self.try_repair(RepairScope::Known, with_second_home);
        let has_struck = self.has_struck();
        let mut mended = false;
        match first {
            Ok(repaired) if !has_struck => {
                self.only_as_planned(&planned.log, &repaired)?;
                return Ok(repaired.is_mended_from_parity());
            }
            Ok(repaired) => mended |= repaired.is_mended_from_parity(),
            Err(text) => self.excused(&text)?,
        }
        self.disarm();
        self.restart();
        self.note_struck();
        self.must_be_known_between()?;
        let planned = self.plan_without_a_change(RepairScope::All, with_second_home)?;
        let owes_failure = self.disk.owes_failure();
        let second = once_more_if_owed(owes_failure, || self.try_repair(RepairScope::All, with_second_home));
        let repaired = second
            .map_err(|text| lost(format!("cannot be repaired after a repair that was stopped: {text}")))?;
        if !owes_failure {
            self.only_as_planned(&planned.log, &repaired)?;
        }
        Ok(mended || repaired.is_mended_from_parity())
    }

    /// Plans a repair. The plan changes no byte of the store.
    fn plan_without_a_change(&mut self, scope: RepairScope, with_second_home: bool) -> Checked<RepairPlan> {
        let sessions = self.sessions;
        let failed = |text| lost(format!("cannot be planned: {text}"));
        let source = match with_second_home && self.second_home.promised.is_some() {
            true => Some(self.open_second_home().map_err(failed)?),
            false => None,
        };
        let sources: Vec<_> = source.iter().collect();
        let seed = self.next_session();
        let before = self.all_contents();
        let secret = session::secret(&self.config);
        let store = session::open_store(world(&self.disk, seed), secret.as_ref(), StoreAccess::Read)
            .map_err(failed)?;
        let plan = plan_repair(&store, &sources, scope, &Progress::new())
            .map_err(|error| failed(with_causes(&error)))?;
        drop(store);
        let after = self.all_contents();
        if let Some((file, _)) = after.iter().find(|(file, bytes)| before.get(*file) != Some(*bytes)) {
            return Err(broken(format!("a plan has changed {file}")));
        }
        if before.len() != after.len() {
            return Err(broken("a plan has removed a file"));
        }
        self.sessions = sessions;
        Ok(plan)
    }

    fn all_contents(&self) -> Files {
        let files = self.disk.files().into_iter();
        files.filter_map(|file| Some((file.clone(), self.disk.contents(&file)?))).collect()
    }

    /// A repair that nothing has struck did no more than was planned: only planned arenas are
    /// mended or written anew, in the planned ways. Others are repaired only if the plan says that
    /// they may be named on the way. The report lists each arena whose file has changed.
    fn only_as_planned(&mut self, plan: &MendPlan, repaired: &RepairedStore) -> Checked {
        let RepairedStore { report, opened } = repaired;
        let is_planned =
            |id: &ArenaId, way: MendWay| plan.arenas.get(id).is_some_and(|arena| arena.ways.contains(&way));
        let mended = report.mended.iter().map(|(id, way)| (*id, *way));
        let rewritten = report.plan.log.arenas.keys().map(|id| (*id, MendWay::Rewrite));
        let late = report.late.arenas.keys().map(|id| (*id, MendWay::Rewrite));
        let done: Vec<_> = mended.chain(rewritten).chain(late).collect();
        let unplanned: Vec<_> = done.iter().filter(|(id, way)| !is_planned(id, *way)).collect();
        if !unplanned.is_empty() {
            if !plan.may_name_more() {
                return Err(broken(format!("{unplanned:?} is not as planned: {plan:?}")));
            }
            self.count_cure("repaired further arenas, as the plan had said");
        }
        let is_changed = |file: &FileName| self.disk.contents(file).as_ref() != opened.get(file);
        let is_done = |id: &ArenaId| done.iter().any(|(done, _)| done == id);
        let mut changed = opened.keys().filter(|file| is_changed(file)).filter_map(ArenaId::of_file);
        let unsealed = self.unsealed_of(opened)?;
        match changed.find(|id| !is_done(id) && !unsealed.contains(id)) {
            Some(id) => Err(broken(format!("{id} has changed, and no step names it: {report:?}"))),
            None => Ok(()),
        }
    }

    /// The arenas without a seal, to which any writer may append.
    fn unsealed_of(&self, files: &Files) -> Checked<BTreeSet<ArenaId>> {
        let storage = MemoryStorage::new();
        files.iter().for_each(|(file, bytes)| storage.set_contents(file, bytes.clone()));
        let world = World::deterministic(Arc::new(storage), 0);
        let secret = session::secret(&self.config);
        let store = session::open_store(world, secret.as_ref(), StoreAccess::Read).map_err(broken)?;
        Checker::of(&store).unsealed_arenas().map_err(|error| broken(error.to_string()))
    }

    fn try_repair(&mut self, scope: RepairScope, with_second_home: bool) -> Result<RepairedStore, String> {
        let seed = self.next_session();
        let secret = session::secret(&self.config);
        let store = session::open_store(world(&self.disk, seed), secret.as_ref(), WRITER)?;
        let opened = self.all_contents();
        let source = match with_second_home && self.second_home.promised.is_some() {
            true => Some(self.open_second_home()?),
            false => None,
        };
        let sources: Vec<_> = source.iter().collect();
        let report =
            repair(&store, &sources, scope, &Progress::new()).map_err(|error| with_causes(&error))?;
        store.close().map_err(|error| with_causes(&error))?;
        // An earlier catalog is what is left, and the loss is known.
        let hides_some = report.plan.losses.places().any(|place| place.id.may_hide_snapshots);
        if report.plan.catalog_was_lost || hides_some {
            self.doubt_places();
        }
        self.tell(|| {
            let (before, mended) = (session::described(&report.plan.before.damage), &report.mended);
            let (lost, fetched) = (report.plan.catalog_was_lost, report.fetched_block_count);
            let left = report.harm_left.iter().map(|harm| format!("{}: {}", harm.snapshot_name, harm.reason));
            let left: Vec<_> = left.collect();
            format!("repaired {before:?}, mended {mended:?}, catalog lost: {lost}, fetched {fetched}, left: {left:?}")
        });
        Ok(RepairedStore { report, opened })
    }

    /// `verify` notes the lost blocks. The next night archives its usual sources, and heals
    /// everything that a night can heal.
    fn heal_by_the_next_night(&mut self) -> Checked {
        let Ok(archive) = self.open(WRITER) else {
            // An archive without its catalog accepts nothing.
            return Ok(());
        };
        let left = self.never_wrong(&archive, &self.model.durable)?;
        if left.harmed.is_empty() {
            return Ok(());
        }
        let verified = verify(&archive, Some(AuditShare::ALL), &Progress::new())
            .map_err(|error| broken(format!("damage cannot be told: {}", with_causes(&error))))?;
        archive.store().remember_lost(&verified.lost);
        if archive.store().check_nothing_withheld().is_err() {
            // The unreadable part might be newer than all known data, so the nights wait for the
            // repair.
            self.count_cure("the nights waited for the repair");
            return Ok(());
        }
        self.writer = Some(archive);
        if self.is_by_value() {
            self.next_night_is_whole(&left.harmed)?;
            return self.close();
        }
        self.archive_again(&left.harmed)?;
        self.close()?;
        let archive = self.open(WRITER).map_err(lost)?;
        let left = self.never_wrong(&archive, &self.model.durable)?;
        if !left.harmed.is_empty() {
            return Err(broken(format!("the next night has not healed {:?}", left.harmed)));
        }
        self.count_cure("healed by the next night");
        Ok(())
    }

    /// By value, the store cannot know that newly archived data is the lost data, so the loss
    /// remains. But the new snapshots are complete.
    fn next_night_is_whole(&mut self, harmed: &BTreeSet<String>) -> Checked {
        let before: BTreeSet<_> = session::listed(self.writer()).into_iter().collect();
        self.archive_again(harmed)?;
        let archive = self.writer();
        for snapshot in archive.snapshots() {
            let label = session::label(snapshot);
            if !before.contains(label) && !self.is_whole(archive.store(), snapshot)? {
                return Err(lost(format!("{label} was archived after the damage, and is not whole")));
            }
        }
        self.count_cure("by value: what was lost stays lost, and the next night is whole");
        Ok(())
    }

    /// Archives again all blocks, all files, and the sources of these snapshots.
    fn archive_again(&mut self, snapshots: &BTreeSet<String>) -> Checked {
        // A fault that did not strike the repair must not strike the night that heals.
        self.disk.behave();
        let failed = |text: String| broken(format!("cannot be archived again: {text}"));
        for content in self.model.durable.blocks.clone().into_values() {
            let block = Block { block_type: BlockType::DATA, bytes: &content.bytes() };
            self.store().put(block).map_err(|error| failed(with_causes(&error)))?;
        }
        for file in self.model.durable.files.clone() {
            write_file(self.store(), file.content).map_err(|error| failed(with_causes(&error)))?;
        }
        for label in snapshots {
            let taken = self.model.taken[label].clone();
            let kind = if matches!(taken, Taken::Folder(_)) { "folder" } else { "image" };
            let name = self.begin_snapshot(kind, taken.clone());
            let archive = self.writer.as_mut().expect("it was opened");
            let finished = match taken {
                Taken::Image(image) => take_image(archive, &name, &image),
                Taken::Folder(state) => {
                    let folder = SourceFolder::of(&state).map_err(|error| failed(error.to_string()))?;
                    take_folder(archive, &name, folder.path())
                }
            };
            finished.map_err(|error| failed(with_causes(&error)))?;
            self.settle_places();
        }
        self.store().sync().map_err(|error| failed(with_causes(&error)))
    }

    /// Every snapshot of the replica can be read while this store is damaged, so reads that fail
    /// here can go to the replica.
    fn read_with_help(&mut self) -> Checked {
        let there = Arc::new(self.open_second_home_archive().map_err(broken)?);
        for snapshot in there.snapshots().to_vec() {
            if !self.is_whole(there.store(), &snapshot)? {
                return Err(lost(format!("{} is not whole at the second home", session::label(&snapshot))));
            }
        }
        Ok(())
    }

    /// Repairs an undamaged store, which changes nothing.
    pub fn repair_what_is_whole(&mut self) -> Checked {
        self.close()?;
        if self.disk.is_down() {
            return Ok(());
        }
        match self.try_repair(RepairScope::All, false) {
            Ok(RepairedStore { report, .. }) if !self.has_struck() => {
                let is_idle = report.plan.log.arenas.is_empty()
                    && report.mended.is_empty()
                    && report.harm_left.is_empty()
                    && !report.plan.catalog_was_lost;
                if is_idle { Ok(()) } else { Err(broken(format!("repaired what was whole: {report:?}"))) }
            }
            Ok(_) => {
                self.second_home.may_have_parted = true;
                Ok(())
            }
            Err(text) => {
                self.second_home.may_have_parted = true;
                self.excused(&text)
            }
        }
    }
}

impl Rotten {
    pub fn has(self, file: &FileName) -> bool {
        let name = file.as_str();
        match self {
            Self::Arenas => name.starts_with("arenas/") && name.ends_with(".arena"),
            Self::Parity => name.starts_with("parity/") && name.ends_with(".parity"),
            Self::Hints => name.starts_with("index/"),
            Self::Settings => name.starts_with("keys/") || name == "config.toml" || name == "FORMAT.md",
        }
    }
}
