//! The simulated disk. Every call is counted, can be hit by a fault, and can be the last one before
//! a power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use varve_block::to_usize;
use varve_world::{FileLock, FileName, LockError, Storage};

use crate::draw::SeededDraw;
use crate::fault::{Call, Fault, Strike};
use crate::file_names::{FileNames, InodeNumber};
use crate::inode::SimInode;
use crate::tally::{Leftover, Tally};

/// A simulated disk with a file system. Clones share the disk, like processes on one machine: a
/// lock is held by one of them, and each sees at once what another has written.
#[derive(Debug, Clone)]
pub struct SimDisk {
    inside: Arc<Mutex<SimDiskState>>,
}

#[derive(Debug, Clone)]
pub(crate) struct SimDiskState {
    pub(crate) names: FileNames,
    pub(crate) inodes: BTreeMap<InodeNumber, SimInode>,
    next_inode: InodeNumber,
    locks: BTreeMap<FileName, u64>,
    next_lock: u64,
    pub(crate) draw: SeededDraw,
    /// The faults that are still to occur, each with the number of calls after which it may.
    armed: Vec<(u64, Fault)>,
    is_down: bool,
    is_full: bool,
    pretends_to_sync: bool,
    pretends_to_sync_folders: bool,
    pub(crate) tally: Tally,
}

impl SimDisk {
    /// An empty disk without faults. `seed` determines the outcome of all later faults.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let inside = SimDiskState {
            names: FileNames::default(),
            inodes: BTreeMap::new(),
            next_inode: 0,
            locks: BTreeMap::new(),
            next_lock: 0,
            draw: SeededDraw::new(seed),
            armed: Vec::new(),
            is_down: false,
            is_full: false,
            pretends_to_sync: false,
            pretends_to_sync_folders: false,
            tally: Tally::default(),
        };
        Self { inside: Arc::new(Mutex::new(inside)) }
    }

    /// Replaces the source of random decisions.
    pub fn reseed(&self, seed: u64) {
        self.inside().draw = SeededDraw::new(seed);
    }

    /// A second disk in the state of this one. From here on they share nothing. `seed` determines
    /// the outcome of its later faults.
    ///
    /// A disk that is down and is forked before its restart shows another outcome of the same power
    /// cut for each seed.
    #[must_use]
    pub fn fork(&self, seed: u64) -> Self {
        let inside = SimDiskState { draw: SeededDraw::new(seed), ..self.inside().clone() };
        Self { inside: Arc::new(Mutex::new(inside)) }
    }

    /// A hash of the names and contents of all files, as a process sees them. Two disks that were
    /// restarted and have the same hash behave in the same way, but for their faults.
    #[must_use]
    pub fn contents_hash(&self) -> u64 {
        let inside = self.inside();
        let mut hasher = DefaultHasher::new();
        for file in inside.names.files() {
            let contents = inside.names.inode(file).and_then(|number| inside.inodes.get(&number));
            (file.as_str(), contents.map(SimInode::bytes)).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Sets the faults that are to occur, replacing those set before.
    pub fn arm(&self, strikes: &[Strike]) {
        let mut inside = self.inside();
        let now = inside.tally.operations;
        inside.armed = strikes.iter().map(|strike| (now + strike.after, strike.fault)).collect();
    }

    /// Ends all faults, and frees space on a full disk.
    pub fn behave(&self) {
        let mut inside = self.inside();
        inside.armed.clear();
        inside.is_full = false;
    }

    /// Makes syncs report success without making anything durable, as some drives do. No engine
    /// survives that: a crash test must fail on such a disk.
    pub fn pretend_to_sync(&self) {
        self.inside().pretends_to_sync = true;
    }

    /// Makes syncs of folders report success without making any name durable, or ends that. An
    /// engine that leaves out these syncs behaves in the same way: a crash test must fail on it.
    pub fn pretend_to_sync_folders(&self, pretends: bool) {
        self.inside().pretends_to_sync_folders = pretends;
    }

    /// Cuts the power now. No call succeeds until [`restart`](Self::restart).
    pub fn cut_power(&self) {
        let mut inside = self.inside();
        inside.strike(Fault::PowerCut);
        inside.is_down = true;
    }

    /// Reports whether the power is cut.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.inside().is_down
    }

    /// Reports whether the disk is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.inside().is_full
    }

    /// Reports whether a background sync has failed and the failure has not been reported yet. The
    /// next sync of that file reports it.
    #[must_use]
    pub fn owes_failure(&self) -> bool {
        self.inside().inodes.values().any(SimInode::owes_failure)
    }

    /// Restarts the machine with the data that the power cut left. All locks are released.
    pub fn restart(&self) {
        let mut inside = self.inside();
        let SimDiskState { names, inodes, draw, tally, .. } = &mut *inside;
        let mut left = BTreeSet::new();
        names.survive(draw, &mut left);
        let named = names.inodes();
        inodes.retain(|number, _| named.contains(number));
        for inode in inodes.values_mut() {
            inode.survive(draw, &mut left);
        }
        note_left(tally, left);
        inside.locks.clear();
        inside.is_down = false;
    }

    /// The events so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.inside().tally.clone()
    }

    pub(crate) fn inside(&self) -> MutexGuard<'_, SimDiskState> {
        self.inside.lock()
    }

    /// Performs a call. `act` gets the fault that hits it, if any, and does the part of the call
    /// that still takes place.
    fn call<T>(
        &self,
        call: Call,
        name: &str,
        act: impl FnOnce(&mut SimDiskState, Option<Fault>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut inside = self.inside();
        if inside.is_down {
            return Err(off());
        }
        let now = inside.tally.operations;
        inside.tally.operations += 1;
        inside.tally.note(call as u64);
        inside.tally.note_bytes(name.as_bytes());
        let struck =
            inside.armed.iter().position(|(at, fault)| *at <= now && fault.can_strike(call)).map(|place| {
                let (_, fault) = inside.armed.remove(place);
                inside.strike(fault);
                fault
            });
        if struck == Some(Fault::PowerCut) {
            // The call was in progress: it may have taken effect, but its result is lost.
            if inside.draw.once_in(2) {
                drop(act(&mut inside, struck));
            }
            inside.is_down = true;
            return Err(off());
        }
        let result = act(&mut inside, struck);
        inside.tally.note(u64::from(result.is_ok()));
        result
    }
}

fn off() -> io::Error {
    io::Error::other("the power is gone")
}

fn broken() -> io::Error {
    io::Error::from_raw_os_error(5)
}

fn no_space() -> io::Error {
    io::Error::from_raw_os_error(28)
}

fn not_found(file: &FileName) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{file} does not exist"))
}

/// Fails if this fault hits the call.
fn unless(struck: Option<Fault>, fault: Fault) -> io::Result<()> {
    if struck == Some(fault) { Err(broken()) } else { Ok(()) }
}

fn note_left(tally: &mut Tally, left: BTreeSet<Leftover>) {
    for leftover in left {
        *tally.left.entry(leftover).or_default() += 1;
    }
}

impl SimDiskState {
    fn strike(&mut self, fault: Fault) {
        *self.tally.struck.entry(fault).or_default() += 1;
        self.tally.note(fault as u64);
        self.is_full |= fault == Fault::DiskFull;
    }

    fn file(&mut self, file: &FileName) -> io::Result<&mut SimInode> {
        let number = self.names.inode(file).ok_or_else(|| not_found(file))?;
        Ok(self.inodes.get_mut(&number).expect("a named file exists"))
    }

    fn make(&mut self, file: &FileName) {
        let number = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(number, SimInode::default());
        self.names.create(file, number);
    }

    fn create(&mut self, file: &FileName, struck: Option<Fault>) -> io::Result<()> {
        unless(struck, Fault::NameError)?;
        if self.names.inode(file).is_some() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{file} exists")));
        }
        if self.is_full {
            return Err(no_space());
        }
        self.make(file);
        Ok(())
    }

    fn append(&mut self, file: &FileName, bytes: &[u8], struck: Option<Fault>) -> io::Result<u64> {
        let mut draw = self.draw.clone();
        let is_full = self.is_full;
        let inode = self.file(file)?;
        if is_full || matches!(struck, Some(Fault::WriteError | Fault::PowerCut)) {
            let part = draw.index(bytes.len() + 1);
            // If the disk was full before this call, no part of the bytes is written.
            if struck.is_some() {
                inode.append(&bytes[..part]);
            }
            self.draw = draw;
            return Err(if is_full { no_space() } else { broken() });
        }
        Ok(inode.append(bytes) as u64)
    }

    fn read_at(
        &mut self,
        file: &FileName,
        offset: u64,
        into: &mut [u8],
        struck: Option<Fault>,
    ) -> io::Result<()> {
        unless(struck, Fault::ReadError)?;
        let number = self.names.inode(file).ok_or_else(|| not_found(file))?;
        let replaced = self.names.replaced(file);
        let Self { inodes, draw, .. } = self;
        let inode = &inodes[&number];
        let start = to_usize(offset).min(inode.bytes().len());
        let piece = inode.bytes()[start..].get(..into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        if inode.has_unreadable(start..start + into.len()) {
            return Err(broken());
        }
        into.copy_from_slice(piece);
        match struck {
            Some(Fault::ReadFlip) if !into.is_empty() => {
                let place = draw.index(into.len());
                into[place] ^= 1 << draw.below(8);
            }
            Some(Fault::ReadStale) => {
                let earlier = replaced.and_then(|number| inodes.get(&number));
                match earlier.and_then(|earlier| earlier.bytes().get(start..)?.get(..into.len())) {
                    Some(earlier) => into.copy_from_slice(earlier),
                    None => inode.stale(start, into, draw),
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn fail_sync(&mut self, file: &FileName) -> io::Result<()> {
        let mut draw = self.draw.clone();
        let mut left = BTreeSet::new();
        self.file(file)?.fail_sync(&mut draw, &mut left);
        self.draw = draw;
        note_left(&mut self.tally, left);
        Err(broken())
    }

    fn sync(&mut self, file: &FileName, struck: Option<Fault>) -> io::Result<()> {
        match struck {
            Some(Fault::SyncError) => self.fail_sync(file),
            // The sync was in progress when the power was cut. The restart decides what is durable.
            Some(Fault::PowerCut) if self.draw.once_in(2) => Ok(()),
            _ if self.pretends_to_sync => self.file(file).map(|_| ()),
            _ => {
                let inode = self.file(file)?;
                inode.sync();
                if inode.take_failure() { Err(broken()) } else { Ok(()) }
            }
        }
    }

    fn lock(&mut self, file: &FileName, holder: &str, struck: Option<Fault>) -> Result<u64, LockError> {
        let failed = |source| LockError::Storage { file: file.clone(), source };
        unless(struck, Fault::NameError).map_err(failed)?;
        if self.locks.contains_key(file) {
            let note = self.file(file).map(|inode| String::from_utf8_lossy(inode.bytes()).into_owned());
            return Err(LockError::Held { holder: note.unwrap_or_default() });
        }
        if self.names.inode(file).is_none() {
            if self.is_full {
                return Err(failed(no_space()));
            }
            self.make(file);
        }
        let note = self.file(file).map_err(failed)?;
        note.truncate(0);
        note.append(holder.as_bytes());
        let number = self.next_lock;
        self.next_lock += 1;
        self.locks.insert(file.clone(), number);
        Ok(number)
    }
}

impl Storage for SimDisk {
    fn create(&self, file: &FileName) -> io::Result<()> {
        self.call(Call::Create, file.as_str(), |inside, struck| inside.create(file, struck))
    }

    fn append(&self, file: &FileName, bytes: &[u8]) -> io::Result<u64> {
        self.call(Call::Append, file.as_str(), |inside, struck| {
            inside.tally.note_bytes(bytes);
            inside.append(file, bytes, struck)
        })
    }

    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.call(Call::Read, file.as_str(), |inside, struck| inside.read_at(file, offset, into, struck))
    }

    fn length(&self, file: &FileName) -> io::Result<u64> {
        self.call(Call::Look, file.as_str(), |inside, struck| {
            unless(struck, Fault::ReadError)?;
            Ok(inside.file(file)?.bytes().len() as u64)
        })
    }

    fn truncate(&self, file: &FileName, length: u64) -> io::Result<()> {
        self.call(Call::Truncate, file.as_str(), |inside, struck| {
            unless(struck, Fault::NameError)?;
            let inode = inside.file(file)?;
            match Some(to_usize(length)).filter(|length| *length <= inode.bytes().len()) {
                None => Err(io::ErrorKind::InvalidInput.into()),
                // The length stays the same, so there is no pending change.
                Some(length) if length == inode.bytes().len() => Ok(()),
                Some(length) => {
                    inode.truncate(length);
                    Ok(())
                }
            }
        })
    }

    fn sync_soon(&self, file: &FileName) {
        let begun = self.call(Call::SyncSoon, file.as_str(), |inside, struck| {
            if struck == Some(Fault::SyncError) {
                drop(inside.fail_sync(file));
                inside.file(file)?.fail_behind();
            }
            Ok(())
        });
        // As with a real disk, only the next sync reports a failure.
        drop(begun);
    }

    fn sync(&self, file: &FileName) -> io::Result<()> {
        self.call(Call::Sync, file.as_str(), |inside, struck| inside.sync(file, struck))
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.call(Call::SyncFolder, folder, |inside, struck| {
            if !inside.names.has_folder(folder) {
                return Err(io::ErrorKind::NotFound.into());
            }
            let pretends = inside.pretends_to_sync || inside.pretends_to_sync_folders;
            let SimDiskState { names, draw, .. } = inside;
            match struck {
                _ if pretends => Ok(()),
                Some(Fault::FolderSyncError | Fault::PowerCut) => {
                    names.fail_sync(folder, draw);
                    Err(broken())
                }
                _ => {
                    names.sync(folder);
                    Ok(())
                }
            }
        })
    }

    fn rename(&self, from: &FileName, to: &FileName) -> io::Result<()> {
        self.call(Call::Rename, to.as_str(), |inside, struck| {
            unless(struck, Fault::NameError)?;
            let inode = inside.names.inode(from).ok_or_else(|| not_found(from))?;
            inside.names.rename(from, to, inode);
            Ok(())
        })
    }

    fn remove(&self, file: &FileName) -> io::Result<()> {
        self.call(Call::Remove, file.as_str(), |inside, struck| {
            let inode = inside.names.inode(file).ok_or_else(|| not_found(file))?;
            unless(struck, Fault::NameError)?;
            inside.names.remove(file, inode);
            Ok(())
        })
    }

    fn list(&self, folder: &str) -> io::Result<Vec<FileName>> {
        self.call(Call::Look, folder, |inside, struck| {
            unless(struck, Fault::ReadError)?;
            Ok(inside.names.list(folder))
        })
    }

    fn lock(&self, file: &FileName, holder: &str) -> Result<Box<dyn FileLock>, LockError> {
        let mut refused = None;
        let taken = self.call(Call::Lock, file.as_str(), |inside, struck| {
            inside.lock(file, holder, struck).map_err(|error| {
                refused = Some(error);
                broken()
            })
        });
        match (taken, refused) {
            (Ok(number), _) => Ok(Box::new(SimLock { disk: self.clone(), file: file.clone(), number })),
            (Err(_), Some(error)) => Err(error),
            (Err(source), None) => Err(LockError::Storage { file: file.clone(), source }),
        }
    }
}

struct SimLock {
    disk: SimDisk,
    file: FileName,
    number: u64,
}

impl FileLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut inside = self.disk.inside();
        // A power cut may have released this lock, and another process may have taken it since.
        if inside.locks.get(&self.file) == Some(&self.number) {
            inside.locks.remove(&self.file);
        }
    }
}
