//! Audits a replica without trusting it: compares the names of its objects with the codes in their
//! contents.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use varve_block::{BlockName, with_causes};
use varve_log::{
    ArenaId, ArenaState, DirectoryPage, Granule, Log, OpenLogError, OpenedArena, PageRow, ReadLogError,
    RecordHeader,
};
use varve_remote::{NonObjectKind, Observer, TargetError};
use varve_store::{FormatPage, Store};
use varve_upkeep::{Checker, Damage, DamageKind};
use varve_world::{FileName, Random, SeededRandom, World, work_in_order};

use crate::objects::listing::{ArenaAssembly, FORMAT_PAGE, ListedSegment, MARK};
use crate::objects::object_name::{KEYS, SegmentEnd, SegmentName};
use crate::objects::record_ends::{ArenaRecords, RecordsDamage};
use crate::reading::replica::{ObjectFault, Replica};

/// The read-ahead if every clump is read.
const AHEAD_BYTES: usize = 4 << 20;

/// The share of clumps to read, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClumpShare(u32);

impl ClumpShare {
    /// No clumps: the audit reads only headers, directory pages and seals.
    pub const NONE: Self = Self(0);
    /// All clumps.
    pub const ALL: Self = Self(1_000_000);

    /// Makes a share from millionths; `None` above 100 %.
    #[must_use]
    pub fn from_millionths(millionths: u32) -> Option<Self> {
        (millionths <= Self::ALL.0).then_some(Self(millionths))
    }
}

/// A problem of a replica.
#[derive(Debug)]
pub struct AuditFinding {
    /// The arena, if the problem is in one.
    pub arena: Option<ArenaId>,
    /// The offset in that arena, in bytes.
    pub offset: u64,
    /// The object with the problem, or the one before a missing part.
    pub object: Option<FileName>,
    pub kind: AuditFindingKind,
    /// The blocks that are lost with it, as far as their names are known.
    pub blocks: Vec<BlockName>,
}

impl AuditFinding {
    /// Returns true for a problem with the objects of the log itself, which makes the store in the
    /// replica incomplete.
    #[must_use]
    pub fn is_of_log(&self) -> bool {
        match self.kind {
            AuditFindingKind::InTheWay { .. } => true,
            AuditFindingKind::Order(_) => false,
            _ => self.arena.is_some(),
        }
    }
}

impl fmt::Display for AuditFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = with_causes(&self.kind);
        if let Some(object) = &self.object {
            write!(f, "{object}: ")?;
        }
        if let Some(arena) = self.arena.filter(|_| !reason.starts_with("arena ")) {
            write!(f, "arena {arena}, offset {}: ", self.offset)?;
        }
        f.write_str(&reason)
    }
}

/// The kinds of problems.
#[derive(Debug, thiserror::Error)]
pub enum AuditFindingKind {
    /// A small file is missing.
    #[error("it is missing")]
    Missing,
    /// `FORMAT.md` is not as a program has written it.
    #[error("this page was altered: no program of this store has written it")]
    AlteredPage,
    /// A file of `keys/` is malformed.
    #[error("this key is damaged")]
    DamagedKey,
    /// Something other than an object has the name of one.
    #[error("{kind} is in place of {place}")]
    InTheWay {
        kind: NonObjectKind,
        /// The expected entry: an object, or a folder of objects.
        place: &'static str,
    },
    /// An object that belongs to no replica.
    #[error("it belongs to no replica")]
    Stranger,
    /// No object has this part of an arena.
    #[error("bytes {} to {} are in no object: one is missing, or the one before is cut short", .0.start, .0.end)]
    Hole(Range<u64>),
    /// A segment is unusable because the part before it is missing.
    #[error("the part before it is missing: it was removed, or its upload was interrupted")]
    Detached,
    /// The listing shows that the object is damaged.
    #[error("it {0}")]
    Listed(ObjectFault),
    /// The length of an object differs from the one that its name implies.
    #[error("it has {bytes} bytes, but should have {expected}")]
    WrongLength {
        /// The actual length in bytes.
        bytes: u64,
        /// The expected length in bytes.
        expected: u64,
    },
    /// The record that the name gives as its end is not in this log.
    #[error("its contents do not match its name: it was swapped, or belongs to another history of the store")]
    OtherEnd,
    /// The contents are damaged.
    #[error("{0}")]
    Damaged(#[from] RecordsDamage),
    /// A clump is undamaged, but differs from the one that its directory page names.
    #[error("a clump differs from the one that its directory page names")]
    OtherClump,
    /// Arenas are missing, or differ from those that the newest page has seen.
    #[error("{0}")]
    Order(#[source] DamageKind),
}

/// The result of an audit.
#[derive(Debug, Default)]
pub struct AuditReport {
    /// The arenas that a reader sees.
    pub arena_count: u64,
    /// The existing segments.
    pub segment_count: u64,
    /// The total length of the segments, in bytes.
    pub segment_bytes: u64,
    /// The clumps that the pages name.
    pub clump_count: u64,
    /// The clumps that were read and checked.
    pub checked_count: u64,
    /// The total length of the checked clumps, in bytes.
    pub checked_bytes: u64,
    /// The problems.
    pub findings: Vec<AuditFinding>,
}

/// The reason why an audit has no result.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The arenas could not be listed.
    #[error("{0}")]
    List(#[from] OpenLogError),
    /// A read failed for a reason that may pass.
    #[error("the replica cannot be read")]
    Read(#[from] ReadLogError),
    /// A small object could not be fetched.
    #[error("the replica cannot be read")]
    Target(#[from] TargetError),
    /// No random numbers could be drawn.
    #[error("the system provides no random bytes")]
    Random(#[source] std::io::Error),
    /// The caller cancelled it.
    #[error("interrupted")]
    Cancelled,
}

/// A replica that has been opened as a store with trusted keys.
#[derive(Clone, Copy)]
pub struct ReplicaToAudit<'a> {
    pub replica: &'a Replica,
    /// The world with the replica's storage.
    pub world: &'a World,
    /// The store in the replica, open for reading.
    pub store: &'a Store,
    /// The log of that store.
    pub log: &'a Log,
}

/// Checks every object of a replica: headers, pages and seals, and a random share of all clumps.
///
/// # Errors
/// [`AuditError`]. Problems of the replica are results, not errors.
pub fn audit(
    audited: ReplicaToAudit<'_>,
    share: ClumpShare,
    observer: &dyn Observer,
) -> Result<AuditReport, AuditError> {
    let ReplicaToAudit { replica, world, .. } = audited;
    let mut audit = AuditReport::default();
    for found in replica.in_the_way() {
        let kind = AuditFindingKind::InTheWay { kind: found.kind, place: found.place() };
        audit.findings.push(about_object(Some(found.object.clone()), kind));
    }
    for wanted in [MARK, FORMAT_PAGE] {
        let mut known =
            replica.settings().keys().chain(replica.in_the_way().iter().map(|found| &found.object));
        if !known.any(|file| file.as_str() == wanted) {
            audit.findings.push(about_object(FileName::new(wanted).ok(), AuditFindingKind::Missing));
        }
    }
    if let Some(page) = replica.settings().keys().find(|file| file.as_str() == FORMAT_PAGE)
        && FormatPage::of(audited.log.keys(), &replica.read_setting(page)?) == FormatPage::Altered
    {
        audit.findings.push(about_object(Some(page.clone()), AuditFindingKind::AlteredPage));
    }
    for file in replica.settings().keys().filter(|file| file.folder() == KEYS) {
        let contents = replica.read_setting(file)?;
        if !varve_store::is_sound_key(file, &contents) {
            audit.findings.push(about_object(Some(file.clone()), AuditFindingKind::DamagedKey));
        }
    }
    for stranger in replica.strangers() {
        audit.findings.push(about_object(Some(stranger.name.clone()), AuditFindingKind::Stranger));
    }
    let faults: BTreeMap<_, _> = replica.damaged_objects().collect();
    let mut arenas = Vec::new();
    let mut total = 0;
    for (id, assembly) in replica.arenas() {
        let mut seed = [0; 8];
        world.random.fill(&mut seed).map_err(AuditError::Random)?;
        total += assembly.bytes();
        arenas.push((*id, assembly, u64::from_le_bytes(seed)));
    }
    observer.set_total(total);
    let arenas = arenas.into_iter();
    work_in_order(
        world.workers.as_ref(),
        usize::MAX,
        arenas.map(|arena| if observer.is_cancelled() { Err(AuditError::Cancelled) } else { Ok(arena) }),
        |claims| {
            claims.work_on_each(|(id, assembly, seed)| {
                let mut arena = ArenaAudit { id, assembly, faults: &faults, audit: AuditReport::default() };
                arena.run(audited, share, &SeededRandom::new(seed))?;
                observer.add_done(assembly.bytes());
                Ok(arena.audit)
            });
        },
        |of_arena| {
            audit.add(of_arena);
            Ok(())
        },
    )?;
    for Damage { arena, offset, kind, blocks } in Checker::of(audited.store).check_order()? {
        let kind = AuditFindingKind::Order(kind);
        audit.findings.push(AuditFinding { arena: Some(arena), offset, object: None, kind, blocks });
    }
    Ok(audit)
}

fn about_object(object: Option<FileName>, kind: AuditFindingKind) -> AuditFinding {
    AuditFinding { arena: None, offset: 0, object, kind, blocks: Vec::new() }
}

impl AuditReport {
    fn add(&mut self, other: Self) {
        self.arena_count += other.arena_count;
        self.segment_count += other.segment_count;
        self.segment_bytes += other.segment_bytes;
        self.clump_count += other.clump_count;
        self.checked_count += other.checked_count;
        self.checked_bytes += other.checked_bytes;
        self.findings.extend(other.findings);
    }
}

/// The audit of one arena.
struct ArenaAudit<'a> {
    id: ArenaId,
    assembly: &'a ArenaAssembly,
    faults: &'a BTreeMap<FileName, ObjectFault>,
    audit: AuditReport,
}

impl ArenaAudit<'_> {
    fn run(
        &mut self,
        audited: ReplicaToAudit<'_>,
        share: ClumpShare,
        random: &dyn Random,
    ) -> Result<(), AuditError> {
        for segment in self.assembly.parts.iter().chain(&self.assembly.spare) {
            self.audit.segment_count += 1;
            self.audit.segment_bytes += segment.bytes;
        }
        for hole in self.assembly.holes() {
            let before = hole.start.checked_sub(1).and_then(|byte| self.assembly.part_at(byte));
            let object = before.map(|segment| segment.name.file_name());
            self.report(hole.start, object, AuditFindingKind::Hole(hole.clone()), Vec::new());
        }
        if self.assembly.is_visible() {
            self.audit.arena_count += 1;
            match audited.log.open_arena(self.id) {
                Ok(opened) => return self.opened(audited, &opened, share, random),
                Err(error) if error.is_damage() => self.damage(error.into(), Vec::new()),
                Err(error) => return Err(error.into()),
            }
        }
        for segment in &self.assembly.spare {
            self.report(
                segment.name.offset,
                Some(segment.name.file_name()),
                AuditFindingKind::Detached,
                Vec::new(),
            );
        }
        Ok(())
    }

    fn opened(
        &mut self,
        audited: ReplicaToAudit<'_>,
        opened: &OpenedArena,
        share: ClumpShare,
        random: &dyn Random,
    ) -> Result<(), AuditError> {
        let mut records = ArenaRecords::read(audited.log, opened)?;
        let ends = self.ends(audited.log, opened, &records)?;
        let code_before: BTreeMap<_, _> = ends
            .iter()
            .filter_map(|(end, place)| match end {
                SegmentEnd::Record(code) => Some((*place, *code)),
                SegmentEnd::Seal(_) => None,
            })
            .collect();
        let begins_right = |name: &SegmentName| {
            let before = records.start_at(name.offset).or_else(|| code_before.get(&name.offset).copied());
            before == Some(name.start)
        };
        let is_right = |segment: &ListedSegment| {
            ends.get(&segment.name.end) == Some(&segment.range().end) && begins_right(&segment.name)
        };
        let known_up_to = records.damage.as_ref().map_or(u64::MAX, RecordsDamage::offset);
        for segment in &self.assembly.parts {
            let range = segment.range();
            // If the records are not known, the names of objects cannot be checked.
            if range.end <= known_up_to && !is_right(segment) {
                self.about_segment(segment, &ends);
            }
        }
        for segment in &self.assembly.spare {
            if is_right(segment) || (segment.name.offset >= known_up_to) {
                continue;
            }
            self.about_segment(segment, &ends);
        }
        if let Some(damage) = records.damage.take() {
            self.damage(damage, Vec::new());
        }
        self.sample(audited.log, opened, share, random)
    }

    /// Returns the valid ends of segments, with their offsets.
    fn ends(
        &mut self,
        log: &Log,
        opened: &OpenedArena,
        records: &ArenaRecords,
    ) -> Result<BTreeMap<SegmentEnd, u64>, AuditError> {
        let known = records.within(&(0..u64::MAX));
        let mut ends: BTreeMap<_, _> =
            known.iter().map(|record| (SegmentEnd::Record(record.code), record.end)).collect();
        if let Some(seal) = records.seal {
            ends.insert(SegmentEnd::Seal(seal.code), seal.file_bytes);
            return Ok(ends);
        }
        if records.damage.is_some() {
            return Ok(ends);
        }
        // An interrupted upload may leave clumps that no page names yet.
        let mut window = log.window(opened, 0);
        let mut place = records.log_bytes();
        while place < self.assembly.bytes() {
            let Some(granule) = Granule::at_or_after(place) else { break };
            match window.authenticate(granule) {
                Ok(header) => {
                    place += (RecordHeader::BYTES as u64 + u64::from(header.body_bytes))
                        .next_multiple_of(varve_log::GRANULE_BYTES);
                    ends.insert(SegmentEnd::Record(header.code), place);
                }
                Err(error) if error.is_damage() => {
                    self.damage(error.into(), Vec::new());
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(ends)
    }

    /// Reports why a segment does not end as its name says.
    fn about_segment(&mut self, segment: &ListedSegment, ends: &BTreeMap<SegmentEnd, u64>) {
        let kind = match ends.get(&segment.name.end) {
            Some(end) if *end != segment.range().end => {
                let expected = end.saturating_sub(segment.name.offset);
                AuditFindingKind::WrongLength { bytes: segment.bytes, expected }
            }
            _ if !self.assembly.is_sealed() && segment.name.offset > self.assembly.bytes() => {
                AuditFindingKind::Detached
            }
            _ => AuditFindingKind::OtherEnd,
        };
        self.report(segment.name.offset, Some(segment.name.file_name()), kind, Vec::new());
    }

    /// Reads a random sample of the clumps.
    fn sample(
        &mut self,
        log: &Log,
        opened: &OpenedArena,
        share: ClumpShare,
        random: &dyn Random,
    ) -> Result<(), AuditError> {
        let mut window = log.window(opened, if share == ClumpShare::ALL { AHEAD_BYTES } else { 0 });
        for page in pages(log, opened)? {
            for clump in page.clumps() {
                self.audit.clump_count += 1;
                if !is_drawn(share, random)? {
                    continue;
                }
                let names = || page.blocks_of(clump.granule).map(|block| block.name).collect();
                match window.check_clump(clump.granule) {
                    Ok(header) if header.code == clump.code => {
                        self.audit.checked_count += 1;
                        self.audit.checked_bytes += clump.end() - clump.granule.byte_offset();
                    }
                    Ok(_) => {
                        let offset = clump.granule.byte_offset();
                        let object = self.assembly.part_at(offset).map(|part| part.name.file_name());
                        self.report(offset, object, AuditFindingKind::OtherClump, names());
                    }
                    Err(error) if error.is_damage() => self.damage(error.into(), names()),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    fn damage(&mut self, damage: RecordsDamage, blocks: Vec<BlockName>) {
        let offset = damage.offset();
        let object = self.assembly.part_at(offset).map(|part| part.name.file_name());
        self.report(offset, object, damage.into(), blocks);
    }

    fn report(
        &mut self,
        offset: u64,
        object: Option<FileName>,
        kind: AuditFindingKind,
        blocks: Vec<BlockName>,
    ) {
        let listed = object.as_ref().and_then(|object| self.faults.get(object));
        let kind = match (kind, listed) {
            (AuditFindingKind::Detached | AuditFindingKind::OtherEnd, Some(fault)) => {
                AuditFindingKind::Listed(*fault)
            }
            (kind, _) => kind,
        };
        self.audit.findings.push(AuditFinding { arena: Some(self.id), offset, object, kind, blocks });
    }
}

fn is_drawn(share: ClumpShare, random: &dyn Random) -> Result<bool, AuditError> {
    if share == ClumpShare::ALL || share == ClumpShare::NONE {
        return Ok(share == ClumpShare::ALL);
    }
    let mut drawn = [0; 8];
    random.fill(&mut drawn).map_err(AuditError::Random)?;
    Ok(u64::from_le_bytes(drawn) % u64::from(ClumpShare::ALL.0) < u64::from(share.0))
}

/// Reads the undamaged pages of an arena. The damaged ones were reported when the records were
/// read.
fn pages(log: &Log, opened: &OpenedArena) -> Result<Vec<DirectoryPage>, ReadLogError> {
    let rows: Vec<PageRow> = match log.state(opened) {
        Ok(ArenaState::Sealed { pages, .. }) => pages,
        Ok(ArenaState::Unsealed) => return scanned(log, opened),
        Err(error) if error.is_damage() => return scanned(log, opened),
        Err(error) => return Err(error),
    };
    let mut pages = Vec::new();
    for row in rows {
        match log.read_page(opened, &row) {
            Ok(page) => pages.push(page),
            Err(error) if error.is_damage() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(pages)
}

fn scanned(log: &Log, opened: &OpenedArena) -> Result<Vec<DirectoryPage>, ReadLogError> {
    Ok(log.scan(opened)?.pages.into_iter().map(|(_, page)| page).collect())
}
