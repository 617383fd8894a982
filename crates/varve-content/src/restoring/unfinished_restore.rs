//! An unfinished restore: its partial file or folder, and the record of its durable part, from
//! which a later run continues.
//!
//! ```text
//! folder/ ─┬─ .NAME.varve-partial-0         <─ the partial file or folder
//!          ├─ .NAME.varve-partial-0.state   <─ its source and its durable part; locked while in use
//!          └─ NAME                          <─ renamed to this once it is complete and durable
//! ```
//!
//! The state file is text, with one record on each line. Records are only appended, each with a
//! checksum, and the last valid record counts. A record is written only after everything that it
//! covers has been synced. A power cut can therefore lose records, but never makes one untrue. The
//! file records the inode of the partial file or folder, so that a replacement is detected.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use varve_block::to_hex;
use varve_world::LockedFile;

use crate::restoring::partial::partial_names;

/// The first line of a state file.
const HEADER: &str = "varve: a restore that is not finished; the same command goes on with it";
/// Appended to the name of the partial file or folder.
const STATE_ENDING: &[u8] = b".state";
/// Upper bound on the size of a state file.
const STATE_BYTES_MAX: u64 = 64 << 20;
/// Marks a restore that no later run continues.
const NAMELESS: &str = "-";
/// The number of hexadecimal digits in the checksum of a record.
const CHECKSUM_DIGITS: usize = 16;

/// The part of an unfinished restore that is complete and durable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CompletedPart {
    /// Everything up to and including this path, in the order of the walk, is done.
    pub(crate) after: Option<PathBuf>,
    /// The number of leading bytes that are done of this file. The path is empty if the restore is
    /// of a single file.
    pub(crate) large: Option<(PathBuf, u64)>,
    /// Set once everything is written, and the move to the final place has begun.
    pub(crate) is_placing: bool,
}

/// The written ranges of a file whose parts are written in any order.
#[derive(Debug, Default)]
pub(crate) struct WrittenRanges {
    /// Everything before this offset is written.
    end: u64,
    /// The ranges after a gap: a map from start to end.
    later: BTreeMap<u64, u64>,
}

impl WrittenRanges {
    /// A file of which everything before `end` is written.
    pub(crate) fn up_to(end: u64) -> Self {
        Self { end, later: BTreeMap::new() }
    }

    /// The end of the range from 0 that is written without a gap.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Adds a range. Ranges must not overlap.
    pub(crate) fn add(&mut self, range: Range<u64>) {
        self.later.insert(range.start, range.end);
        while let Some(next) = self.later.remove(&self.end) {
            self.end = next;
        }
    }
}

/// The kind of a partial file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartialKind {
    File,
    Folder,
}

/// A file or folder that is being restored under a partial name. It is locked, so that no other run
/// works on it.
pub(crate) struct UnfinishedRestore {
    folder: OwnedFd,
    name: Vec<u8>,
    state: LockedFile,
    noted: CompletedPart,
    is_continued: bool,
}

impl UnfinishedRestore {
    /// Continues what an earlier run from the same `source` left for the name `wanted` in `folder`,
    /// or begins anew under a free name. Only the owner can read the partial file or folder.
    pub(crate) fn open(
        folder: OwnedFd,
        wanted: &[u8],
        made: PartialKind,
        source: &[u8],
    ) -> Result<Self, Errno> {
        let source = line_of(source);
        for name in partial_names(wanted) {
            let claimed = match ClaimedState::existing(&folder, &name)? {
                ExistingState::Ours(claim) => claim.go_on(&folder, &name, made, &source)?,
                ExistingState::None => ClaimedState::new(&folder, &name)?,
                ExistingState::Foreign => None,
            };
            let Some(claim) = claimed else { continue };
            if claim.inode.is_some() {
                let ClaimedState { file, noted, .. } = claim;
                return Ok(Self { folder, name, state: file, noted, is_continued: true });
            }
            if let Some(state) = claim.begin(&folder, &name, made, &source)? {
                return Ok(Self {
                    folder,
                    name,
                    state,
                    noted: CompletedPart::default(),
                    is_continued: false,
                });
            }
        }
        Err(Errno::EXIST)
    }

    /// Returns whether an earlier run from `source` has begun to move its result to the final
    /// place.
    pub(crate) fn is_placing(folder: &OwnedFd, wanted: &[u8], source: &[u8]) -> Result<bool, Errno> {
        let source = line_of(source);
        for name in partial_names(wanted) {
            match ClaimedState::existing(folder, &name)? {
                ExistingState::Ours(claim)
                    if source != NAMELESS && claim.source == source && claim.noted.is_placing =>
                {
                    return Ok(true);
                }
                ExistingState::None => return Ok(false),
                _ => {}
            }
        }
        Ok(false)
    }

    /// Removes the state files of runs that were killed after their result had its final name.
    /// Their partial file or folder is gone, so nothing can be continued.
    pub(crate) fn forget_completed(folder: &OwnedFd, wanted: &[u8]) {
        for name in partial_names(wanted) {
            match ClaimedState::existing(folder, &name) {
                // Without an inode, another run may be about to begin.
                Ok(ExistingState::Ours(claim))
                    if claim.inode.is_some() && matches!(if_free(folder, &name), Ok(ExistingState::None)) =>
                {
                    let _ = rustix::fs::unlinkat(folder, state_name(&name), AtFlags::empty());
                }
                Ok(ExistingState::Ours(_) | ExistingState::Foreign) => {}
                Ok(ExistingState::None) | Err(_) => return,
            }
        }
    }

    /// The folder that holds the partial file or folder.
    pub(crate) fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    /// The partial name.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// The partial path, given the path of its folder.
    pub(crate) fn path_in(&self, folder: &Path) -> PathBuf {
        folder.join(OsStr::from_bytes(&self.name))
    }

    /// Returns whether an earlier run began it, so that parts of it may exist.
    pub(crate) fn is_continued(&self) -> bool {
        self.is_continued
    }

    /// The record of earlier runs.
    pub(crate) fn noted(&self) -> &CompletedPart {
        &self.noted
    }

    /// Records the durable part. The caller must have synced everything that `noted` covers.
    pub(crate) fn note(&self, noted: &CompletedPart) -> io::Result<()> {
        append(&self.state, &record_of(noted))
    }

    /// Removes the state file, once the result has its final name or was removed.
    pub(crate) fn forget(&self) {
        let _ = rustix::fs::unlinkat(&self.folder, state_name(&self.name), AtFlags::empty());
    }
}

/// Returns whether a name may belong to a partial file of the name `wanted`, or to its state file.
pub(crate) fn is_unfinished_name(name: &[u8], wanted: &[u8]) -> bool {
    let first = partial_names(wanted).next().unwrap_or_default();
    let stem = first.strip_suffix(b"0").unwrap_or(&first);
    let Some(number) = name.strip_prefix(stem) else { return false };
    let number = number.strip_suffix(STATE_ENDING).unwrap_or(number);
    !number.is_empty() && number.iter().all(u8::is_ascii_digit)
}

/// The form of a source in the state file.
fn line_of(source: &[u8]) -> String {
    if source.is_empty() { NAMELESS.to_owned() } else { blake3::hash(source).to_hex().to_string() }
}

fn state_name(name: &[u8]) -> Vec<u8> {
    [name, STATE_ENDING].concat()
}

/// A locked state file.
struct ClaimedState {
    file: LockedFile,
    source: String,
    inode: Option<u64>,
    noted: CompletedPart,
}

enum ExistingState {
    None,
    /// A state file of this user that no other run has locked.
    Ours(ClaimedState),
    /// Another file has one of the two names, or another run has the lock.
    Foreign,
}

impl ClaimedState {
    fn existing(folder: &OwnedFd, name: &[u8]) -> Result<ExistingState, Errno> {
        let state_name = state_name(name);
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match rustix::fs::openat(folder, state_name.as_slice(), flags, Mode::empty()) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return if_free(folder, name),
            Err(_) => return Ok(ExistingState::Foreign),
        };
        if !is_private_file(&rustix::fs::fstat(&opened)?) {
            return Ok(ExistingState::Foreign);
        }
        let Some(file) = try_lock(opened)? else { return Ok(ExistingState::Foreign) };
        // Before it was locked, another run may have finished and removed the file.
        if rustix::fs::fstat(&*file)?.st_nlink != 1 {
            return Ok(ExistingState::Foreign);
        }
        let mut text = Vec::new();
        if (&*file).take(STATE_BYTES_MAX).read_to_end(&mut text).is_err() {
            return Ok(ExistingState::Foreign);
        }
        if text.is_empty() {
            // A crash came between creating the file and writing its first line.
            return Ok(ExistingState::Ours(Self {
                file,
                source: String::new(),
                inode: None,
                noted: CompletedPart::default(),
            }));
        }
        let Some((source, inode, noted)) = parse(&text) else { return Ok(ExistingState::Foreign) };
        Ok(ExistingState::Ours(Self { file, source, inode: Some(inode), noted }))
    }

    fn new(folder: &OwnedFd, name: &[u8]) -> Result<Option<Self>, Errno> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        match rustix::fs::openat(folder, state_name(name), flags | OFlags::CLOEXEC, mode) {
            Ok(opened) => Ok(try_lock(opened)?.map(|file| {
                let noted = CompletedPart::default();
                Self { file, source: String::new(), inode: None, noted }
            })),
            Err(Errno::EXIST) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns `None` if the partial file belongs to another restore, and stays. Returns a claim
    /// without an inode if the partial file is gone.
    fn go_on(
        self,
        folder: &OwnedFd,
        name: &[u8],
        made: PartialKind,
        source: &str,
    ) -> Result<Option<Self>, Errno> {
        let there = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => there,
            Err(Errno::NOENT) => return Ok(Some(Self { inode: None, ..self })),
            Err(error) => return Err(error),
        };
        let is_of_kind = FileType::from_raw_mode(there.st_mode) == file_type(made);
        if self.inode.is_none() && is_of_kind && remove_if_empty(folder, name, made, &there) {
            return Ok(Some(self));
        }
        let is_same = source != NAMELESS && self.source == source && self.inode == Some(there.st_ino);
        Ok((is_same && is_of_kind).then_some(self))
    }

    /// Creates the partial file or folder, and writes the first lines of the state file. Returns
    /// `None` if the name was taken meanwhile.
    fn begin(
        self,
        folder: &OwnedFd,
        name: &[u8],
        made: PartialKind,
        source: &str,
    ) -> Result<Option<LockedFile>, Errno> {
        let created = match made {
            PartialKind::Folder => rustix::fs::mkdirat(folder, name, Mode::RWXU),
            PartialKind::File => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR).map(drop)
            }
        };
        let begun = created.and_then(|()| {
            let inode = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?.st_ino;
            let lines = format!("{HEADER}\nsource {source}\ninode {inode}\n");
            rustix::fs::ftruncate(&*self.file, 0)?;
            append(&self.file, &lines).map_err(errno)?;
            // If the folder cannot be synced, a crash costs only the work done so far.
            let _ = rustix::fs::fsync(folder);
            Ok(())
        });
        match begun {
            Ok(()) => Ok(Some(self.file)),
            Err(error) => {
                if error != Errno::EXIST {
                    let flags =
                        if made == PartialKind::Folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                    let _ = rustix::fs::unlinkat(folder, name, flags);
                }
                let _ = rustix::fs::unlinkat(folder, state_name(name), AtFlags::empty());
                if error == Errno::EXIST { Ok(None) } else { Err(error) }
            }
        }
    }
}

fn try_lock(opened: OwnedFd) -> Result<Option<LockedFile>, Errno> {
    LockedFile::try_lock(opened).map_err(errno)
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Removes what a run has made that was killed before its first line was written. Returns false if
/// it holds something.
fn remove_if_empty(folder: &OwnedFd, name: &[u8], made: PartialKind, there: &Stat) -> bool {
    let flags = match made {
        PartialKind::Folder => AtFlags::REMOVEDIR,
        PartialKind::File if there.st_size == 0 => AtFlags::empty(),
        PartialKind::File => return false,
    };
    there.st_uid == rustix::process::geteuid().as_raw() && rustix::fs::unlinkat(folder, name, flags).is_ok()
}

/// A name without a state file is free, or belongs to another program.
fn if_free(folder: &OwnedFd, name: &[u8]) -> Result<ExistingState, Errno> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(ExistingState::None),
        Ok(_) => Ok(ExistingState::Foreign),
        Err(error) => Err(error),
    }
}

fn file_type(made: PartialKind) -> FileType {
    match made {
        PartialKind::File => FileType::RegularFile,
        PartialKind::Folder => FileType::Directory,
    }
}

/// Returns whether only this user can have written the file.
fn is_private_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_uid == rustix::process::geteuid().as_raw()
        && stat.st_mode & 0o077 == 0
        && stat.st_nlink == 1
}

/// Appends to the state file, durably.
fn append(mut file: &File, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    rustix::fs::fdatasync(file.as_fd())?;
    Ok(())
}

/// Format: `noted PLACING AFTER LARGE BYTES CHECKSUM`. A path is `-`, or `+` followed by
/// hexadecimal digits.
fn record_of(noted: &CompletedPart) -> String {
    let hex = |path: &Path| format!("+{}", to_hex(path.as_os_str().as_bytes()));
    let after = noted.after.as_deref().map_or("-".into(), hex);
    let (large, bytes) = noted.large.as_ref().map_or(("-".into(), 0), |(path, bytes)| (hex(path), *bytes));
    let fields = format!("noted {} {after} {large} {bytes}", u8::from(noted.is_placing));
    // The leading line break ends the fragment of a record that a crash may have left.
    format!("\n{fields} {}\n", checksum(&fields))
}

fn checksum(fields: &str) -> String {
    blake3::hash(fields.as_bytes()).to_hex()[..CHECKSUM_DIGITS].to_owned()
}

/// Parses the source, the inode and the last record.
fn parse(text: &[u8]) -> Option<(String, u64, CompletedPart)> {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    if lines.next()? != HEADER {
        return None;
    }
    let source = lines.next()?.strip_prefix("source ")?.to_owned();
    let inode = lines.next()?.strip_prefix("inode ")?.parse().ok()?;
    let noted = lines.filter_map(parse_record).next_back().unwrap_or_default();
    Some((source, inode, noted))
}

fn parse_record(line: &str) -> Option<CompletedPart> {
    let (fields, sum) = line.rsplit_once(' ')?;
    if sum != checksum(fields) {
        return None;
    }
    let mut words = fields.strip_prefix("noted ")?.split(' ');
    let is_placing = words.next()? == "1";
    let path = |word: &str| match word.strip_prefix('+') {
        Some(hex) => from_hex(hex).map(Some),
        None => Some(None),
    };
    let after = path(words.next()?)?;
    let large = path(words.next()?)?;
    let bytes = words.next()?.parse().ok()?;
    Some(CompletedPart { after, large: large.map(|path| (path, bytes)), is_placing })
}

fn from_hex(hex: &str) -> Option<PathBuf> {
    let digit = |place: usize| hex.get(place..place + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes = (0..hex.len()).step_by(2).map(digit).collect::<Option<Vec<u8>>>()?;
    Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    /// A run that is killed between the rename and the removal of its state file leaves that file.
    /// The next run removes it. It leaves unfinished restores and the files of others alone.
    #[test]
    fn a_completed_restore_leaves_no_state_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let open = |source: &[u8]| {
            UnfinishedRestore::open(opened(&folder), b"out", PartialKind::Folder, source).unwrap()
        };
        let first = open(b"first");
        let other = open(b"other");
        UnfinishedRestore::forget_completed(&opened(&folder), b"out");
        assert!(path(".out.varve-partial-0.state").exists(), "it is in use");
        drop((first, other));
        fs::rename(path(".out.varve-partial-0"), path("out")).unwrap();
        UnfinishedRestore::forget_completed(&opened(&folder), b"out");
        assert!(!path(".out.varve-partial-0.state").exists());
        assert!(path(".out.varve-partial-1.state").exists(), "it can still be continued");
    }

    fn opened(folder: &tempfile::TempDir) -> OwnedFd {
        File::open(folder.path()).unwrap().into()
    }

    fn open(folder: &tempfile::TempDir, source: &[u8]) -> UnfinishedRestore {
        UnfinishedRestore::open(opened(folder), b"name", PartialKind::Folder, source).unwrap()
    }

    const FIRST: &[u8] = b".name.varve-partial-0";
    const SECOND: &[u8] = b".name.varve-partial-1";

    #[test]
    fn the_same_source_goes_on_and_another_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let noted = [
            CompletedPart { after: Some("a\n b".into()), ..CompletedPart::default() },
            CompletedPart { after: Some("z".into()), large: Some((PathBuf::new(), 7)), is_placing: false },
        ];
        for noted in &noted {
            let first = open(&folder, b"source");
            assert_eq!(first.name(), FIRST);
            first.note(noted).unwrap();
            assert_eq!(open(&folder, b"source").name(), SECOND, "another run works there");
            fs::remove_dir(folder.path().join(".name.varve-partial-1")).unwrap();
            fs::remove_file(folder.path().join(".name.varve-partial-1.state")).unwrap();
            drop(first);
            assert_eq!(open(&folder, b"source").noted(), noted);
        }
        let other = open(&folder, b"another source");
        assert_eq!((other.name(), other.noted()), (SECOND, &CompletedPart::default()));
    }

    #[test]
    fn a_source_without_a_name_is_never_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(open(&folder, b"").name(), FIRST);
        assert_eq!(open(&folder, b"").name(), SECOND);
    }

    #[test]
    fn what_a_run_has_made_before_its_first_line_is_used_again_if_it_is_empty() {
        for is_empty in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            drop(open(&folder, b"source"));
            let state = folder.path().join(".name.varve-partial-0.state");
            File::options().write(true).open(state).unwrap().set_len(0).unwrap();
            if !is_empty {
                fs::write(folder.path().join(".name.varve-partial-0/letter"), "kept").unwrap();
            }
            let restore = open(&folder, b"source");
            assert_eq!(restore.name(), if is_empty { FIRST } else { SECOND });
            assert!(!restore.is_continued());
        }
    }

    #[test]
    fn a_torn_record_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let noted = CompletedPart { after: Some("a".into()), ..CompletedPart::default() };
        open(&folder, b"source").note(&noted).unwrap();
        let state = folder.path().join(".name.varve-partial-0.state");
        let whole = fs::read(&state).unwrap();
        let longer = record_of(&CompletedPart { after: Some("b".into()), ..CompletedPart::default() });
        for cut in 0..longer.len() - 1 {
            fs::write(&state, [&whole, &longer.as_bytes()[..cut]].concat()).unwrap();
            assert_eq!(open(&folder, b"source").noted(), &noted, "{cut}");
        }
    }

    #[test]
    fn nothing_that_another_has_put_there_is_used() {
        let lay: [&dyn Fn(&Path); 5] = [
            &|path| symlink("/nowhere", path).unwrap(),
            &|path| fs::create_dir(path).unwrap(),
            &|path| fs::write(path, "").unwrap(),
            &|path| symlink("/nowhere", path.with_file_name(".name.varve-partial-0.state")).unwrap(),
            &|path| {
                let state = path.with_file_name(".name.varve-partial-0.state");
                fs::write(&state, format!("{HEADER}\nsource \ninode 1\n")).unwrap();
                fs::set_permissions(state, fs::Permissions::from_mode(0o666)).unwrap();
            },
        ];
        for lay in lay {
            let folder = tempfile::tempdir().unwrap();
            lay(&folder.path().join(".name.varve-partial-0"));
            assert_eq!(open(&folder, b"source").name(), SECOND);
        }
    }

    #[test]
    fn another_inode_under_the_name_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(&folder, b"source"));
        let there = folder.path().join(".name.varve-partial-0");
        fs::rename(&there, folder.path().join("kept")).unwrap();
        fs::create_dir(&there).unwrap();
        assert_ne!(
            fs::metadata(&there).unwrap().ino(),
            fs::metadata(folder.path().join("kept")).unwrap().ino()
        );
        assert_eq!(open(&folder, b"source").name(), SECOND);
    }

    #[test]
    fn names_of_unfinished_things_are_known() {
        for name in [FIRST, SECOND, b".name.varve-partial-17.state"] {
            assert!(is_unfinished_name(name, b"name"), "{name:?}");
        }
        for name in
            [&b"name"[..], b".name.varve-partial-", b".name.varve-partial-x", b".other.varve-partial-0"]
        {
            assert!(!is_unfinished_name(name, b"name"), "{name:?}");
        }
    }
}
