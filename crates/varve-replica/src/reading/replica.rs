//! A replica for readers: settings, and arenas assembled from segments.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use varve_block::{has_kind, to_hex};
use varve_log::{ArenaId, ArenaMap};
use varve_remote::{HiddenObjects, Object, ObjectLock, TakePiece, Target, TargetError};
use varve_store::{ConfigError, StoreConfig};
use varve_world::FileName;

use crate::objects::listing::{ArenaAssembly, CONFIG, ListedSegment, MARK, ObstructingEntry, ReplicaListing};
use crate::objects::object_name::SegmentEnd;

/// The layout of objects that this program reads and writes.
const LAYOUT: u32 = 1;
const SETTING_BYTES_MAX: u64 = 1 << 20;

/// A store's replica at a target, as listed when this was made.
pub struct Replica {
    target: Arc<dyn Target>,
    settings: BTreeMap<FileName, u64>,
    strangers: Vec<Object>,
    in_the_way: Vec<ObstructingEntry>,
    arenas: BTreeMap<ArenaId, ArenaAssembly>,
}

/// A fault of a segment that shows in the listing of its replica. Snapshots may be missing with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectFault {
    /// It has no bytes. No writer makes such a segment.
    Empty,
    /// It ends before the place at which its continuation begins.
    CutShort,
}

impl fmt::Display for ObjectFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => {
                "is empty, which no object of the log is: it is damaged, and snapshots may be missing"
            }
            Self::CutShort => "has lost its end: it is damaged, and snapshots may be missing",
        })
    }
}

/// The reason why a replica was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenReplicaError {
    /// The target could not be listed.
    #[error("{0}")]
    Target(#[from] TargetError),
    /// There is no replica, or its first upload was stopped before the settings were complete.
    #[error("there is no replica here: it has no config.toml")]
    NotAReplica,
    /// There was a replica. Its target keeps the objects, but no longer lists them.
    #[error("there is no replica here any more: {0}")]
    Hidden(HiddenObjects),
    /// A necessary object is missing, and something else has its name.
    #[error("{0}")]
    InTheWay(#[from] ObstructingEntry),
    /// A newer layout.
    #[error("the replica has layout {layout}; this program reads layout {LAYOUT}: use a newer version of it")]
    NewerLayout { layout: u32 },
    /// `replica.toml` is malformed.
    #[error("replica.toml is damaged")]
    Mark,
    /// `config.toml` is malformed.
    #[error("the replica's config.toml cannot be used")]
    Config(#[from] ConfigError),
}

has_kind!(OpenReplicaError:
    Self::NotAReplica => NotAStore,
    Self::Hidden(_) => NotAStore,
    Self::NewerLayout { .. } => NewerVersion,
    Self::Mark => Damage,
);

/// `replica.toml`: the first object of a replica.
#[derive(Debug, Serialize, Deserialize)]
struct ReplicaFile {
    layout: u32,
    store: String,
}

/// The part of `replica.toml` that is the same in all layouts.
#[derive(Debug, Deserialize)]
struct ReplicaLayout {
    layout: u32,
}

/// Makes the text of `replica.toml`.
pub(crate) fn mark_text(store_id: &[u8; 16]) -> String {
    let mark = ReplicaFile { layout: LAYOUT, store: to_hex(store_id) };
    let text = toml::to_string(&mark).expect("plain values always serialise");
    format!("# A replica of a Varve store. FORMAT.md, section 6, says how to read it.\n{text}")
}

/// Reads a whole small object.
pub(crate) fn read_setting(target: &dyn Target, file: &FileName, bytes: u64) -> Result<Bytes, TargetError> {
    if bytes > SETTING_BYTES_MAX {
        let text = format!("it has {bytes} bytes, at most {SETTING_BYTES_MAX} are expected");
        let source = io::Error::new(io::ErrorKind::InvalidData, text);
        return Err(TargetError::Refused { what: file.to_string(), source });
    }
    target.get(file, 0..bytes)
}

/// Returns the store's identity from `replica.toml`, in hexadecimal; `None` if there is no such
/// file.
pub(crate) fn read_mark(
    target: &dyn Target,
    settings: &BTreeMap<FileName, u64>,
) -> Result<Option<String>, OpenReplicaError> {
    let file = FileName::new(MARK).expect("a plain name");
    let Some(bytes) = settings.get(&file) else { return Ok(None) };
    let text = read_setting(target, &file, *bytes)?;
    let text = std::str::from_utf8(&text).map_err(|_| OpenReplicaError::Mark)?;
    // A newer layout may have other keys.
    match toml::from_str(text).map_err(|_| OpenReplicaError::Mark)? {
        ReplicaLayout { layout: LAYOUT } => {}
        ReplicaLayout { layout: 0 } => return Err(OpenReplicaError::Mark),
        ReplicaLayout { layout } => return Err(OpenReplicaError::NewerLayout { layout }),
    }
    let mark: ReplicaFile = toml::from_str(text).map_err(|_| OpenReplicaError::Mark)?;
    Ok(Some(mark.store))
}

/// Returns the settings in the replica's `config.toml`; `None` if there is no such file.
pub(crate) fn read_config(
    target: &dyn Target,
    settings: &BTreeMap<FileName, u64>,
) -> Result<Option<StoreConfig>, OpenReplicaError> {
    let file = FileName::new(CONFIG).expect("a plain name");
    let Some(bytes) = settings.get(&file) else { return Ok(None) };
    let text = read_setting(target, &file, *bytes)?;
    Ok(Some(StoreConfig::from_text(&String::from_utf8_lossy(&text))?))
}

impl Replica {
    /// Lists the target. Trusts nothing except that there is a replica.
    ///
    /// # Errors
    /// [`OpenReplicaError`].
    pub fn open(target: Arc<dyn Target>) -> Result<Self, OpenReplicaError> {
        let listing = ReplicaListing::read(target.as_ref())?;
        read_mark(target.as_ref(), &listing.settings)?;
        if !listing.settings.keys().any(|file| file.as_str() == CONFIG) {
            let mut in_the_way = listing.in_the_way.into_iter();
            if let Some(found) = in_the_way.find(|found| found.object.as_str() == CONFIG) {
                return Err(OpenReplicaError::InTheWay(found));
            }
            let hidden = target.hidden()?;
            return Err(hidden.map_or(OpenReplicaError::NotAReplica, OpenReplicaError::Hidden));
        }
        let map = match read_config(target.as_ref(), &listing.settings) {
            Ok(Some(config)) => config.arena_map,
            // The error is reported when the settings are needed. This is the largest limit of an
            // arena.
            Ok(None) | Err(OpenReplicaError::Config(_)) => {
                ArenaMap::new(ArenaMap::ARENA_BYTES_MAX).expect("the largest limit is one")
            }
            Err(error) => return Err(error),
        };
        Ok(Self::of(target, listing.within(map)))
    }

    pub(crate) fn of(target: Arc<dyn Target>, listing: ReplicaListing) -> Self {
        let arenas = listing.assemble();
        let ReplicaListing { settings, strangers, in_the_way, .. } = listing;
        Self { target, settings, strangers, in_the_way, arenas }
    }

    /// Makes a view of a single segment, without the rest of its arena.
    pub(crate) fn of_one(target: Arc<dyn Target>, segment: ListedSegment) -> Self {
        let (arena, generation) = (segment.name.arena, segment.name.generation);
        let assembly = ArenaAssembly { generation, parts: vec![segment], spare: Vec::new() };
        Self { arenas: [(arena, assembly)].into(), ..Self::of(target, ReplicaListing::default()) }
    }

    /// Returns the target.
    #[must_use]
    pub fn target(&self) -> &Arc<dyn Target> {
        &self.target
    }

    /// Returns the replica's copy of the store's settings. They are not trusted until a key has
    /// opened with them.
    ///
    /// # Errors
    /// [`OpenReplicaError`].
    pub fn config(&self) -> Result<StoreConfig, OpenReplicaError> {
        read_config(self.target.as_ref(), &self.settings)?.ok_or(OpenReplicaError::NotAReplica)
    }

    /// Returns the small files that are copied unchanged, with their lengths.
    #[must_use]
    pub fn settings(&self) -> &BTreeMap<FileName, u64> {
        &self.settings
    }

    /// Returns the objects that belong to no replica.
    #[must_use]
    pub fn strangers(&self) -> &[Object] {
        &self.strangers
    }

    /// Returns the segments whose damage shows in the listing alone, with their faults.
    pub fn damaged_objects(&self) -> impl Iterator<Item = (FileName, ObjectFault)> + '_ {
        let empty = self.empty_segments().map(|segment| (segment.name.file_name(), ObjectFault::Empty));
        empty.chain(self.cut_short().map(|object| (object, ObjectFault::CutShort)))
    }

    /// Returns the segments that end before the place at which their continuation begins.
    fn cut_short(&self) -> impl Iterator<Item = FileName> + '_ {
        self.arenas.values().flat_map(|arena| {
            // Without its end, nothing that follows in an arena without a seal is a part of it.
            let all = arena.parts.iter().chain(&arena.spare);
            let starts: BTreeMap<_, _> = all.map(|next| (next.name.start, next.name.offset)).collect();
            let is_cut = move |one: &&ListedSegment| match one.name.end {
                SegmentEnd::Record(end) => starts.get(&end).is_some_and(|next| one.range().end < *next),
                SegmentEnd::Seal(_) => false,
            };
            arena.parts.iter().filter(is_cut).map(|one| one.name.file_name())
        })
    }

    pub(crate) fn empty_segments(&self) -> impl Iterator<Item = &ListedSegment> {
        self.arenas.values().flat_map(|arena| &arena.spare).filter(|segment| segment.bytes == 0)
    }

    /// Returns the entries that occupy the names of objects, which cannot be read.
    #[must_use]
    pub fn in_the_way(&self) -> &[ObstructingEntry] {
        &self.in_the_way
    }

    /// Returns the assembled arenas, including those that a reader does not see.
    #[must_use]
    pub fn arenas(&self) -> &BTreeMap<ArenaId, ArenaAssembly> {
        &self.arenas
    }

    /// Returns the protection of the replica's first object, which is the first to lose it.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn oldest_lock(&self) -> Result<Option<ObjectLock>, TargetError> {
        let first = FileName::new(MARK).expect("a plain name");
        if self.settings.contains_key(&first) { self.target.lock(&first) } else { Ok(None) }
    }

    /// Reads a small file.
    ///
    /// # Errors
    /// [`TargetError`].
    pub(crate) fn read_setting(&self, file: &FileName) -> Result<Bytes, TargetError> {
        let bytes = self.settings.get(file);
        let bytes = bytes.ok_or_else(|| TargetError::NotFound { name: file.clone() })?;
        read_setting(self.target.as_ref(), file, *bytes)
    }

    /// Returns the length of the available part of an arena in bytes; `None` if there is none.
    #[must_use]
    pub fn arena_bytes(&self, id: ArenaId) -> Option<u64> {
        self.visible(id).map(ArenaAssembly::bytes)
    }

    /// Returns the segment with a byte of an arena.
    pub(crate) fn segment_at(&self, id: ArenaId, place: u64) -> Option<&ListedSegment> {
        self.visible(id)?.part_at(place)
    }

    fn visible(&self, id: ArenaId) -> Option<&ArenaAssembly> {
        self.arenas.get(&id).filter(|arena| arena.is_visible())
    }

    /// Reads a part of an arena. The bytes are not checked.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such arena, [`io::ErrorKind::UnexpectedEof`] if
    /// the replica lacks a part of it; else the error of the target.
    pub fn read_arena(&self, id: ArenaId, range: Range<u64>) -> io::Result<Bytes> {
        self.read_parts(id, range, |segment, part| {
            self.target.get(&segment.name.file_name(), part).map_err(to_io)
        })
    }

    /// Fetches a range of an arena that lies in one object, and passes it to `take` in pieces,
    /// aligned for the same offset of a local file. The bytes are not checked.
    ///
    /// # Errors
    /// As [`read_arena`](Self::read_arena); [`io::ErrorKind::UnexpectedEof`] also if the range
    /// exceeds the object in which it begins.
    pub(crate) fn fetch_arena(
        &self,
        id: ArenaId,
        range: Range<u64>,
        take: &mut TakePiece<'_>,
    ) -> io::Result<()> {
        let arena = self.visible(id).ok_or(io::ErrorKind::NotFound)?;
        let segment = arena.part_at(range.start).filter(|segment| segment.range().end >= range.end);
        let segment = segment.ok_or(io::ErrorKind::UnexpectedEof)?;
        let part = range.start - segment.name.offset..range.end - segment.name.offset;
        let (object, place) = (segment.name.file_name(), range.start);
        self.target.get_in_pieces(&object, part, place, take).map_err(to_io)
    }

    /// Splits a range of an arena into parts of segments, and concatenates the results of `read`.
    pub(crate) fn read_parts(
        &self,
        id: ArenaId,
        range: Range<u64>,
        read: impl Fn(&ListedSegment, Range<u64>) -> io::Result<Bytes>,
    ) -> io::Result<Bytes> {
        let arena = self.visible(id).ok_or(io::ErrorKind::NotFound)?;
        let mut found = BytesMut::new();
        let mut place = range.start;
        while place < range.end {
            let Some(segment) = arena.part_at(place) else {
                let text = format!("the replica has no object with byte {place} of arena {id}");
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            };
            let end = segment.range().end.min(range.end);
            let start = segment.name.offset;
            let piece = read(segment, place - start..end - start)?;
            if piece.len() as u64 != end - place {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if place == range.start && end == range.end {
                return Ok(piece);
            }
            found.extend_from_slice(&piece);
            place = end;
        }
        Ok(found.freeze())
    }
}

/// Converts an error of a target for readers of files. A missing or short object is damage; other
/// errors may pass.
pub(crate) fn to_io(error: TargetError) -> io::Error {
    let kind = match &error {
        TargetError::NotFound { .. } => io::ErrorKind::NotFound,
        TargetError::Short { .. } => io::ErrorKind::UnexpectedEof,
        TargetError::Exists { .. } => io::ErrorKind::AlreadyExists,
        TargetError::Refused { .. } => io::ErrorKind::PermissionDenied,
        TargetError::Failed { .. } => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
