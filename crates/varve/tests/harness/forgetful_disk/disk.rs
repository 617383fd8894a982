//! A model in memory of the damage that a power cut may do to a disk and its file system.
//!
//! Every reader sees a write at once. After a cut, the disk has everything that was synced, and any
//! part of the rest: some sectors of a write and not others, a file's length without its contents,
//! a new name without its file's bytes, a rename or a removal that never happened. Syncing a file
//! makes its bytes durable, but not its name. The name belongs to its folder, and becomes durable
//! when the folder is synced.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

use crate::crash_runs::Dice;

/// The root folder.
pub const ROOT: u64 = 1;

const SECTOR_BYTES: usize = 512;

/// The part of unsynced changes that survives a power cut.
#[derive(Debug, Clone, Copy)]
pub struct Fate {
    /// The probability, in percent, that a piece of data survives.
    pub data_percent: u64,
    /// The length of a piece in sectors.
    pub piece_sectors: usize,
    /// The changes of each folder that survive.
    pub names: Names,
}

/// The changes of a folder that survive a power cut.
#[derive(Debug, Clone, Copy)]
pub enum Names {
    None,
    /// The first changes, up to this percentage, as a journal keeps them.
    First(u64),
    /// Each change with this probability in percent.
    Any(u64),
}

impl Fate {
    pub fn draw(dice: &mut Dice) -> Self {
        let percent = dice.below(101);
        Self {
            data_percent: dice.choose(&[0, 50, 90, 99, 100]),
            piece_sectors: dice.choose(&[1, 8]),
            names: dice.choose(&[Names::None, Names::First(percent), Names::Any(percent)]),
        }
    }
}

/// The reason for a refused operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The power is off.
    Off,
    NotFound,
    Exists,
    NotEmpty,
    /// A folder in the place of a file, or a file in the place of a folder.
    OtherKind,
    /// A rename from one folder to another: no test needs it.
    OtherFolder,
    /// A sector that the disk cannot read.
    Unreadable,
}

#[derive(Default)]
struct File {
    now: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<FileChange>,
    /// The numbers of unreadable sectors.
    unreadable: BTreeSet<usize>,
}

enum FileChange {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

impl FileChange {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => write(to, *offset, bytes),
            Self::Length(length) => to.resize(*length, 0),
        }
    }
}

fn write(to: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if to.len() < end {
        to.resize(end, 0);
    }
    to[offset..end].copy_from_slice(bytes);
}

type Entries = BTreeMap<OsString, u64>;

#[derive(Default)]
struct Folder {
    now: Entries,
    durable: Entries,
    unsynced: Vec<FolderChange>,
}

enum FolderChange {
    Add { name: OsString, node: u64 },
    Remove { name: OsString },
    Rename { from: OsString, to: OsString, node: u64 },
}

impl FolderChange {
    fn apply(&self, to: &mut Entries) {
        match self {
            Self::Add { name, node } => drop(to.insert(name.clone(), *node)),
            Self::Remove { name } => drop(to.remove(name)),
            Self::Rename { from, to: name, node } => {
                // If the creation of the file was lost, the rename alone adds its name.
                if to.get(from) == Some(node) {
                    to.remove(from);
                }
                to.insert(name.clone(), *node);
            }
        }
    }
}

enum Kind {
    File(File),
    Folder(Folder),
}

struct Node {
    mode: u32,
    kind: Kind,
}

/// The attributes of a file or folder.
#[derive(Debug, Clone, Copy)]
pub struct About {
    pub node: u64,
    pub mode: u32,
    pub length: u64,
    pub is_folder: bool,
}

/// A disk with one file system.
pub struct Disk {
    nodes: BTreeMap<u64, Node>,
    next: u64,
    /// The number of changes and syncs so far.
    operations: u64,
    /// The operation at which the power fails, and a flag that this operation still takes effect.
    cut: Option<(u64, bool)>,
    is_off: bool,
}

impl Disk {
    pub fn new() -> Self {
        let root = Node { mode: 0o700, kind: Kind::Folder(Folder::default()) };
        Self { nodes: [(ROOT, root)].into(), next: ROOT + 1, operations: 0, cut: None, is_off: false }
    }

    /// Returns the number of changes and syncs so far.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    pub fn is_off(&self) -> bool {
        self.is_off
    }

    /// Makes the power fail at the change or sync after `operations` more. With `done` that
    /// operation still takes effect, although its caller gets an error.
    pub fn cut_after(&mut self, operations: u64, done: bool) {
        self.cut = Some((self.operations + operations, done));
    }

    /// Restores the power. `fate` decides which unsynced changes the disk has kept.
    pub fn come_back(&mut self, fate: Fate, dice: &mut Dice) {
        for node in self.nodes.values_mut() {
            match &mut node.kind {
                Kind::File(file) => {
                    let piece_bytes = fate.piece_sectors * SECTOR_BYTES;
                    for change in file.unsynced.drain(..).flat_map(|change| pieces(change, piece_bytes)) {
                        if dice.percent(fate.data_percent) {
                            change.apply(&mut file.durable);
                        }
                    }
                    file.now.clone_from(&file.durable);
                }
                Kind::Folder(folder) => {
                    let count = folder.unsynced.len();
                    for (number, change) in folder.unsynced.drain(..).enumerate() {
                        let is_kept = match fate.names {
                            Names::None => false,
                            Names::First(percent) => (number as u64) * 100 < percent * count as u64,
                            Names::Any(percent) => dice.percent(percent),
                        };
                        if is_kept {
                            change.apply(&mut folder.durable);
                        }
                    }
                    folder.now.clone_from(&folder.durable);
                }
            }
        }
        self.drop_nameless();
        (self.cut, self.is_off) = (None, false);
    }

    fn drop_nameless(&mut self) {
        let mut named = BTreeSet::from([ROOT]);
        let mut waiting = vec![ROOT];
        while let Some(number) = waiting.pop() {
            if let Some(Node { kind: Kind::Folder(folder), .. }) = self.nodes.get(&number) {
                waiting.extend(folder.now.values().filter(|below| named.insert(**below)));
            }
        }
        self.nodes.retain(|number, _| named.contains(number));
    }

    /// Counts a change or sync. The power may fail at it.
    fn counted(&mut self, change: impl FnOnce(&mut Self) -> Result<(), Refused>) -> Result<(), Refused> {
        self.powered()?;
        self.operations += 1;
        match self.cut {
            Some((last, done)) if self.operations > last => {
                self.is_off = true;
                if done {
                    change(self)?;
                }
                Err(Refused::Off)
            }
            _ => change(self),
        }
    }

    fn powered(&self) -> Result<(), Refused> {
        if self.is_off { Err(Refused::Off) } else { Ok(()) }
    }

    fn file(&mut self, node: u64) -> Result<&mut File, Refused> {
        match self.nodes.get_mut(&node).ok_or(Refused::NotFound)? {
            Node { kind: Kind::File(file), .. } => Ok(file),
            Node { .. } => Err(Refused::OtherKind),
        }
    }

    fn folder(&mut self, node: u64) -> Result<&mut Folder, Refused> {
        match self.nodes.get_mut(&node).ok_or(Refused::NotFound)? {
            Node { kind: Kind::Folder(folder), .. } => Ok(folder),
            Node { .. } => Err(Refused::OtherKind),
        }
    }

    pub fn about(&self, number: u64) -> Result<About, Refused> {
        self.powered()?;
        let node = self.nodes.get(&number).ok_or(Refused::NotFound)?;
        let (length, is_folder) = match &node.kind {
            Kind::File(file) => (file.now.len() as u64, false),
            Kind::Folder(_) => (0, true),
        };
        Ok(About { node: number, mode: node.mode, length, is_folder })
    }

    pub fn look_up(&mut self, folder: u64, name: &OsStr) -> Result<About, Refused> {
        self.powered()?;
        let node = *self.folder(folder)?.now.get(name).ok_or(Refused::NotFound)?;
        self.about(node)
    }

    pub fn list(&mut self, folder: u64) -> Result<Vec<(OsString, u64)>, Refused> {
        self.powered()?;
        Ok(self.folder(folder)?.now.iter().map(|(name, node)| (name.clone(), *node)).collect())
    }

    pub fn read(&mut self, node: u64, offset: u64, count: usize) -> Result<Vec<u8>, Refused> {
        self.powered()?;
        let File { now: bytes, unreadable, .. } = self.file(node)?;
        let start = usize::try_from(offset).unwrap().min(bytes.len());
        let end = start.saturating_add(count).min(bytes.len());
        if unreadable.range(start / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES)).next().is_some() {
            return Err(Refused::Unreadable);
        }
        Ok(bytes[start..end].to_vec())
    }

    /// Makes the sector at `offset` of the file at `path` unreadable.
    pub fn break_sector(&mut self, path: &[&str], offset: u64) {
        let node =
            path.iter().fold(ROOT, |folder, name| self.look_up(folder, OsStr::new(name)).unwrap().node);
        let sector = usize::try_from(offset).unwrap() / SECTOR_BYTES;
        self.file(node).unwrap().unreadable.insert(sector);
    }

    pub fn create(&mut self, folder: u64, name: &OsStr, mode: u32) -> Result<About, Refused> {
        self.add(folder, name, Node { mode, kind: Kind::File(File::default()) })
    }

    pub fn make_folder(&mut self, folder: u64, name: &OsStr, mode: u32) -> Result<About, Refused> {
        self.add(folder, name, Node { mode, kind: Kind::Folder(Folder::default()) })
    }

    fn add(&mut self, folder: u64, name: &OsStr, new: Node) -> Result<About, Refused> {
        let node = self.next;
        self.counted(|disk| {
            if disk.folder(folder)?.now.contains_key(name) {
                return Err(Refused::Exists);
            }
            disk.nodes.insert(node, new);
            disk.next += 1;
            disk.change_folder(folder, FolderChange::Add { name: name.into(), node })
        })?;
        self.about(node)
    }

    fn change_folder(&mut self, folder: u64, change: FolderChange) -> Result<(), Refused> {
        let folder = self.folder(folder)?;
        change.apply(&mut folder.now);
        folder.unsynced.push(change);
        Ok(())
    }

    fn change_file(&mut self, node: u64, change: FileChange) -> Result<(), Refused> {
        self.counted(|disk| {
            let file = disk.file(node)?;
            change.apply(&mut file.now);
            file.unsynced.push(change);
            Ok(())
        })
    }

    pub fn write(&mut self, node: u64, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        let offset = usize::try_from(offset).unwrap();
        self.change_file(node, FileChange::Write { offset, bytes: bytes.into() })
    }

    pub fn set_length(&mut self, node: u64, length: u64) -> Result<(), Refused> {
        self.change_file(node, FileChange::Length(usize::try_from(length).unwrap()))
    }

    pub fn remove(&mut self, folder: u64, name: &OsStr) -> Result<(), Refused> {
        self.counted(|disk| {
            let node = *disk.folder(folder)?.now.get(name).ok_or(Refused::NotFound)?;
            if disk.folder(node).is_ok_and(|folder| !folder.now.is_empty()) {
                return Err(Refused::NotEmpty);
            }
            disk.change_folder(folder, FolderChange::Remove { name: name.into() })
        })
    }

    pub fn rename(&mut self, folder: u64, from: &OsStr, to_folder: u64, to: &OsStr) -> Result<(), Refused> {
        if folder != to_folder {
            return Err(Refused::OtherFolder);
        }
        self.counted(|disk| {
            let node = *disk.folder(folder)?.now.get(from).ok_or(Refused::NotFound)?;
            disk.change_folder(folder, FolderChange::Rename { from: from.into(), to: to.into(), node })
        })
    }

    pub fn sync_file(&mut self, node: u64) -> Result<(), Refused> {
        self.counted(|disk| {
            let file = disk.file(node)?;
            file.unsynced.drain(..).for_each(|change| change.apply(&mut file.durable));
            Ok(())
        })
    }

    pub fn sync_folder(&mut self, node: u64) -> Result<(), Refused> {
        self.counted(|disk| {
            let folder = disk.folder(node)?;
            folder.unsynced.clear();
            folder.durable.clone_from(&folder.now);
            Ok(())
        })
    }
}

/// Splits a change at multiples of `piece_bytes` into pieces that reach the disk independently.
fn pieces(change: FileChange, piece_bytes: usize) -> Vec<FileChange> {
    let FileChange::Write { offset, bytes } = change else { return vec![change] };
    let (mut pieces, mut rest, mut place) = (Vec::new(), &bytes[..], offset);
    while !rest.is_empty() {
        let (piece, others) = rest.split_at((piece_bytes - place % piece_bytes).min(rest.len()));
        pieces.push(FileChange::Write { offset: place, bytes: piece.into() });
        (place, rest) = (place + piece.len(), others);
    }
    pieces
}
