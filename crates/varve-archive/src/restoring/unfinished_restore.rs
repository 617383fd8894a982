//! An unfinished restore: where it is made, and how much of it is known to be whole, so that a later run goes on with it.
//!
//! ```text
//! folder/ ─┬─ .NAME.varve-partial-0         <─ what is made: a file or a folder
//!          ├─ .NAME.varve-partial-0.state   <─ what it is made from, and how much of it is durable; locked while a run works on it
//!          └─ NAME                          <─ renamed to this once it is complete and durable
//! ```
//!
//! The state file is text, one record a line. Records are only appended, each with a checksum, and the last valid one counts. A
//! record is written only after all that it speaks of has been synced, so a power cut can lose records but never makes one
//! untrue. The file names the inode of what is made: nobody can put something else in its place.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use varve_block::to_hex;

use crate::restoring::partial::partial_names;

/// The first line of a state file.
const HEADER: &str = "varve: a restore that is not finished; the same command goes on with it";
/// Appended to the name of what is made.
const STATE_ENDING: &[u8] = b".state";
/// No state file is larger.
const STATE_BYTES_MAX: u64 = 64 << 20;
/// A source that no other run goes on with.
const NAMELESS: &str = "-";
/// How many hexadecimal digits of a hash guard a record.
const CHECKSUM_DIGITS: usize = 16;

/// How much of an unfinished restore is whole and durable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    /// All that comes before this path in the order of the walk, and the path itself.
    pub(crate) after: Option<PathBuf>,
    /// The first bytes of this file; the path is empty if the file is all that is restored.
    pub(crate) large: Option<(PathBuf, u64)>,
    /// Set once everything is written, and what was made is on its way to its place.
    pub(crate) is_placing: bool,
}

/// Which ranges of something are written, when they are written in any order.
#[derive(Debug, Default)]
pub(crate) struct WrittenRanges {
    /// Everything before this.
    end: u64,
    /// Those after a gap: their ends by their starts.
    later: BTreeMap<u64, u64>,
}

impl WrittenRanges {
    /// Everything before `end` is written.
    pub(crate) fn up_to(end: u64) -> Self {
        Self { end, later: BTreeMap::new() }
    }

    /// Up to where everything is written.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Adds a range. None overlaps another.
    pub(crate) fn add(&mut self, range: Range<u64>) {
        self.later.insert(range.start, range.end);
        while let Some(next) = self.later.remove(&self.end) {
            self.end = next;
        }
    }
}

/// What is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    File,
    Folder,
}

/// Something that is being restored, under another name than it will have. Locked: no other run works on it.
pub(crate) struct Unfinished {
    folder: OwnedFd,
    name: Vec<u8>,
    state: File,
    noted: Noted,
    is_continued: bool,
}

impl Unfinished {
    /// Goes on with what an earlier run from the same `source` has left for the name `wanted` in `folder`, or begins anew under a
    /// name that is free. What is made can be seen by its owner alone.
    pub(crate) fn open(folder: OwnedFd, wanted: &[u8], made: Made, source: &[u8]) -> Result<Self, Errno> {
        let source = line_of(source);
        for name in partial_names(wanted) {
            let claimed = match Claim::existing(&folder, &name)? {
                Existing::Ours(claim) => claim.go_on(&folder, &name, made, &source)?,
                Existing::None => Claim::new(&folder, &name)?,
                Existing::Foreign => None,
            };
            let Some(claim) = claimed else { continue };
            if claim.inode.is_some() {
                let Claim { file, noted, .. } = claim;
                return Ok(Self { folder, name, state: file, noted, is_continued: true });
            }
            if let Some(state) = claim.begin(&folder, &name, made, &source)? {
                return Ok(Self { folder, name, state, noted: Noted::default(), is_continued: false });
            }
        }
        Err(Errno::EXIST)
    }

    /// Whether an earlier run from `source` has begun to move what it made to its place.
    pub(crate) fn is_placing(folder: &OwnedFd, wanted: &[u8], source: &[u8]) -> Result<bool, Errno> {
        let source = line_of(source);
        for name in partial_names(wanted) {
            match Claim::existing(folder, &name)? {
                Existing::Ours(claim)
                    if source != NAMELESS && claim.source == source && claim.noted.is_placing =>
                {
                    return Ok(true);
                }
                Existing::None => return Ok(false),
                _ => {}
            }
        }
        Ok(false)
    }

    /// The folder in which it is made.
    pub(crate) fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    /// What it is called there.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Its path, beside or below this one.
    pub(crate) fn path_in(&self, folder: &Path) -> PathBuf {
        folder.join(OsStr::from_bytes(&self.name))
    }

    /// Whether an earlier run has begun it, and something of it may be there.
    pub(crate) fn is_continued(&self) -> bool {
        self.is_continued
    }

    /// What earlier runs have noted.
    pub(crate) fn noted(&self) -> &Noted {
        &self.noted
    }

    /// Notes how much is durable now. What `noted` speaks of must have been synced.
    pub(crate) fn note(&self, noted: &Noted) -> io::Result<()> {
        append(&self.state, &record_of(noted))
    }

    /// Removes the state file: what was made has got its name, or was removed.
    pub(crate) fn forget(&self) {
        let _ = rustix::fs::unlinkat(&self.folder, state_name(&self.name), AtFlags::empty());
    }
}

/// Whether a name is one under which something unfinished, or its state, may lie for the name `wanted`.
pub(crate) fn is_unfinished_name(name: &[u8], wanted: &[u8]) -> bool {
    let first = partial_names(wanted).next().unwrap_or_default();
    let stem = first.strip_suffix(b"0").unwrap_or(&first);
    let Some(number) = name.strip_prefix(stem) else { return false };
    let number = number.strip_suffix(STATE_ENDING).unwrap_or(number);
    !number.is_empty() && number.iter().all(u8::is_ascii_digit)
}

/// A source as the state file has it.
fn line_of(source: &[u8]) -> String {
    if source.is_empty() { NAMELESS.to_owned() } else { blake3::hash(source).to_hex().to_string() }
}

fn state_name(name: &[u8]) -> Vec<u8> {
    [name, STATE_ENDING].concat()
}

/// A state file that is locked.
struct Claim {
    file: File,
    source: String,
    inode: Option<u64>,
    noted: Noted,
}

enum Existing {
    None,
    /// A state file of this user that nobody else works with.
    Ours(Claim),
    /// Something else has one of the two names, or another run works there.
    Foreign,
}

impl Claim {
    fn existing(folder: &OwnedFd, name: &[u8]) -> Result<Existing, Errno> {
        let state_name = state_name(name);
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match rustix::fs::openat(folder, state_name.as_slice(), flags, Mode::empty()) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return if_free(folder, name),
            Err(_) => return Ok(Existing::Foreign),
        };
        if !is_private_file(&rustix::fs::fstat(&opened)?)
            || rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive).is_err()
            // Another run may have finished between the two calls, and have removed the file.
            || rustix::fs::fstat(&opened)?.st_nlink != 1
        {
            return Ok(Existing::Foreign);
        }
        let file = File::from(opened);
        let mut text = Vec::new();
        if (&file).take(STATE_BYTES_MAX).read_to_end(&mut text).is_err() {
            return Ok(Existing::Foreign);
        }
        if text.is_empty() {
            // A crash between the making of the file and its first line.
            return Ok(Existing::Ours(Self {
                file,
                source: String::new(),
                inode: None,
                noted: Noted::default(),
            }));
        }
        let Some((source, inode, noted)) = parse(&text) else { return Ok(Existing::Foreign) };
        Ok(Existing::Ours(Self { file, source, inode: Some(inode), noted }))
    }

    fn new(folder: &OwnedFd, name: &[u8]) -> Result<Option<Self>, Errno> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        match rustix::fs::openat(folder, state_name(name), flags | OFlags::CLOEXEC, mode) {
            Ok(opened) => {
                if rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive).is_err() {
                    return Ok(None);
                }
                let noted = Noted::default();
                Ok(Some(Self { file: opened.into(), source: String::new(), inode: None, noted }))
            }
            Err(Errno::EXIST) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// `None`: what lies there belongs to another restore, and stays. A claim without an inode: nothing is there any more.
    fn go_on(self, folder: &OwnedFd, name: &[u8], made: Made, source: &str) -> Result<Option<Self>, Errno> {
        let there = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => there,
            Err(Errno::NOENT) => return Ok(Some(Self { inode: None, ..self })),
            Err(error) => return Err(error),
        };
        let is_of_kind = FileType::from_raw_mode(there.st_mode) == file_type(made);
        let is_same = source != NAMELESS && self.source == source && self.inode == Some(there.st_ino);
        Ok((is_same && is_of_kind).then_some(self))
    }

    /// Makes what is to be filled, and the first lines of the state file. `None`: the name was taken meanwhile.
    fn begin(self, folder: &OwnedFd, name: &[u8], made: Made, source: &str) -> Result<Option<File>, Errno> {
        let created = match made {
            Made::Folder => rustix::fs::mkdirat(folder, name, Mode::RWXU),
            Made::File => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR).map(drop)
            }
        };
        let begun = created.and_then(|()| {
            let inode = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?.st_ino;
            let lines = format!("{HEADER}\nsource {source}\ninode {inode}\n");
            rustix::fs::ftruncate(&self.file, 0)?;
            append(&self.file, &lines).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            // Where a folder cannot be synced, a crash costs what was done, and no more.
            let _ = rustix::fs::fsync(folder);
            Ok(())
        });
        match begun {
            Ok(()) => Ok(Some(self.file)),
            Err(error) => {
                if error != Errno::EXIST {
                    let flags = if made == Made::Folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                    let _ = rustix::fs::unlinkat(folder, name, flags);
                }
                let _ = rustix::fs::unlinkat(folder, state_name(name), AtFlags::empty());
                if error == Errno::EXIST { Ok(None) } else { Err(error) }
            }
        }
    }
}

/// A name with no state file is free, or belongs to somebody else.
fn if_free(folder: &OwnedFd, name: &[u8]) -> Result<Existing, Errno> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(Existing::None),
        Ok(_) => Ok(Existing::Foreign),
        Err(error) => Err(error),
    }
}

fn file_type(made: Made) -> FileType {
    match made {
        Made::File => FileType::RegularFile,
        Made::Folder => FileType::Directory,
    }
}

/// Whether nobody but this user can have written it.
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

/// `noted PLACING AFTER LARGE BYTES CHECKSUM`, where a path is `-` or hexadecimal after a `+`.
fn record_of(noted: &Noted) -> String {
    let hex = |path: &Path| format!("+{}", to_hex(path.as_os_str().as_bytes()));
    let after = noted.after.as_deref().map_or("-".into(), hex);
    let (large, bytes) = noted.large.as_ref().map_or(("-".into(), 0), |(path, bytes)| (hex(path), *bytes));
    let fields = format!("noted {} {after} {large} {bytes}", u8::from(noted.is_placing));
    // A line break first: what a crash has left of the record before is ended by it.
    format!("\n{fields} {}\n", checksum(&fields))
}

fn checksum(fields: &str) -> String {
    blake3::hash(fields.as_bytes()).to_hex()[..CHECKSUM_DIGITS].to_owned()
}

/// The source, the inode, and the last record.
fn parse(text: &[u8]) -> Option<(String, u64, Noted)> {
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

fn parse_record(line: &str) -> Option<Noted> {
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
    Some(Noted { after, large: large.map(|path| (path, bytes)), is_placing })
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

    fn opened(folder: &tempfile::TempDir) -> OwnedFd {
        File::open(folder.path()).unwrap().into()
    }

    fn open(folder: &tempfile::TempDir, source: &[u8]) -> Unfinished {
        Unfinished::open(opened(folder), b"name", Made::Folder, source).unwrap()
    }

    const FIRST: &[u8] = b".name.varve-partial-0";
    const SECOND: &[u8] = b".name.varve-partial-1";

    #[test]
    fn the_same_source_goes_on_and_another_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let noted = [
            Noted { after: Some("a\n b".into()), ..Noted::default() },
            Noted { after: Some("z".into()), large: Some((PathBuf::new(), 7)), is_placing: false },
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
        assert_eq!((other.name(), other.noted()), (SECOND, &Noted::default()));
    }

    #[test]
    fn a_source_without_a_name_is_never_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(open(&folder, b"").name(), FIRST);
        assert_eq!(open(&folder, b"").name(), SECOND);
    }

    #[test]
    fn a_torn_record_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let noted = Noted { after: Some("a".into()), ..Noted::default() };
        open(&folder, b"source").note(&noted).unwrap();
        let state = folder.path().join(".name.varve-partial-0.state");
        let whole = fs::read(&state).unwrap();
        let longer = record_of(&Noted { after: Some("b".into()), ..Noted::default() });
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
