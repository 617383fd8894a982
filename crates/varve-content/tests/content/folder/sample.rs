//! Folders to archive, and a description of everything in a folder that a restore must bring back.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use varve_block::MemoryBlockStore;
use varve_content::folder::{
    ArchiveFolderError, ArchivedFolder, FolderOptions, RestoreCounts, RestoreOptions, StoredFiles, Watch,
    archive_folder, restore_folder,
};
use varve_content::{Node, Problem, Progress};
use varve_world::{InlineWorkers, RealWorkers, Workers};

/// A store in memory, and a folder on disk that is removed with it.
pub struct Place {
    pub blocks: MemoryBlockStore,
    pub folder: tempfile::TempDir,
    pub options: FolderOptions,
    pub progress: Progress,
    pub inline: bool,
}

impl Place {
    pub fn new() -> Self {
        let place = Self {
            blocks: MemoryBlockStore::new(),
            folder: tempfile::tempdir().unwrap(),
            options: FolderOptions::default(),
            progress: Progress::new(),
            inline: false,
        };
        fs::create_dir(place.source()).unwrap();
        place
    }

    pub fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    pub fn destination(&self) -> PathBuf {
        self.folder.path().join("destination")
    }

    /// Makes a file of the source, and its parent folders.
    pub fn file(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.source().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn workers(&self) -> Box<dyn Workers> {
        if self.inline { Box::new(InlineWorkers) } else { Box::new(RealWorkers::new(4)) }
    }

    pub fn try_archive(
        &self,
        previous: Option<&Node>,
    ) -> (Result<ArchivedFolder, ArchiveFolderError>, Vec<Problem>) {
        self.try_archive_of(&self.source(), previous)
    }

    /// Archives any folder.
    pub fn try_archive_of(
        &self,
        source: &Path,
        previous: Option<&Node>,
    ) -> (Result<ArchivedFolder, ArchiveFolderError>, Vec<Problem>) {
        let problems = Mutex::new(Vec::new());
        let watch = Watch { progress: &self.progress, report: &|problem| problems.lock().push(problem) };
        let workers = self.workers();
        let archived = archive_folder(&self.blocks, workers.as_ref(), source, previous, &self.options, watch);
        (archived, problems.into_inner())
    }

    /// Archives the source, and fails at any problem.
    pub fn archive(&self, previous: Option<&Node>) -> ArchivedFolder {
        let (archived, problems) = self.try_archive(previous);
        assert!(problems.is_empty(), "{problems:?}");
        archived.unwrap()
    }

    pub fn restore_with_problems(&self, root: &Node) -> (RestoreCounts, Vec<Problem>) {
        let problems = Mutex::new(Vec::new());
        let watch = Watch { progress: &self.progress, report: &|problem| problems.lock().push(problem) };
        let (workers, options) = (self.workers(), RestoreOptions::default());
        let counts = restore_folder(
            &StoredFiles::new(&self.blocks),
            workers.as_ref(),
            root,
            &self.destination(),
            options,
            watch,
        )
        .unwrap();
        (counts, problems.into_inner())
    }

    /// Restores to the destination, and fails at any problem.
    pub fn restore(&self, root: &Node) -> RestoreCounts {
        let (counts, problems) = self.restore_with_problems(root);
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(counts.problem_count, 0);
        counts
    }

    /// The names of entries beside source and destination.
    pub fn leftovers(&self) -> Vec<String> {
        let names = fs::read_dir(self.folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        names.filter(|name| !matches!(name.as_str(), "source" | "destination")).collect()
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Everything of one entry that a restore must bring back.
#[derive(Debug, PartialEq, Eq)]
pub struct Description {
    file_type_and_mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    size: u64,
    /// For a file, the first path of its inode. It shows which paths are hard links of one file.
    first_name: PathBuf,
    link_count: u64,
    device: u64,
    content: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Description {
    pub fn is_folder(&self) -> bool {
        FileType::from_raw_mode(self.file_type_and_mode) == FileType::Directory
    }

    /// Describes the file as if it had no other hard links.
    pub fn forget_other_names(&mut self) {
        self.link_count = 1;
    }

    pub fn is_file(&self) -> bool {
        FileType::from_raw_mode(self.file_type_and_mode) == FileType::RegularFile
    }
}

/// Describes everything below `root`, and `root` itself.
pub fn describe(root: &Path) -> BTreeMap<PathBuf, Description> {
    let mut descriptions = BTreeMap::new();
    let mut first_names = BTreeMap::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(path) = waiting.pop() {
        let full = if path.as_os_str().is_empty() { root.to_path_buf() } else { root.join(&path) };
        let metadata = fs::symlink_metadata(&full).unwrap();
        let is_folder = metadata.is_dir();
        let content = if metadata.is_file() {
            fs::read(&full).unwrap()
        } else if metadata.is_symlink() {
            fs::read_link(&full).unwrap().as_os_str().as_bytes().to_vec()
        } else {
            Vec::new()
        };
        if is_folder {
            let mut names: Vec<_> =
                fs::read_dir(&full).unwrap().map(|entry| path.join(entry.unwrap().file_name())).collect();
            names.sort_by(|a, b| b.cmp(a));
            waiting.extend(names);
        }
        let first_name = first_names.entry(metadata.ino()).or_insert_with(|| path.clone()).clone();
        let description = Description {
            file_type_and_mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            size: if is_folder { 0 } else { metadata.size() },
            first_name,
            link_count: if is_folder { 0 } else { metadata.nlink() },
            device: metadata.rdev(),
            content,
            xattrs: read_xattrs(&full),
        };
        descriptions.insert(path, description);
    }
    descriptions
}

fn read_xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 65_536];
    let length = rustix::fs::llistxattr(path, &mut names).unwrap();
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let mut value = vec![0; 65_536];
            let length = rustix::fs::lgetxattr(path, name, &mut value).unwrap();
            (name.to_vec(), value[..length].to_vec())
        })
        .collect()
}

/// An ACL in the kernel's form: the owner, user 1234, the group, the mask, all others.
pub fn acl() -> Vec<u8> {
    let rows: [(u16, u16, u32); 5] =
        [(0x01, 6, u32::MAX), (0x02, 5, 1234), (0x04, 4, u32::MAX), (0x10, 5, u32::MAX), (0x20, 0, u32::MAX)];
    let rows = rows.map(|(tag, permissions, id)| {
        [tag.to_le_bytes().as_slice(), &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    });
    [2u32.to_le_bytes().as_slice(), &rows.concat()].concat()
}

pub fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}

pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Fills a folder with one entry of every kind.
pub fn make_everything(root: &Path) {
    let at = |name: &str| root.join(name);
    let noise: Vec<u8> =
        (0..3_000_000u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
    for folder in ["empty", "deep/er/and/deeper", "odd"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    fs::write(at("empty file"), []).unwrap();
    fs::write(at("small"), b"some bytes").unwrap();
    fs::write(at("zeros"), vec![0; 100_000]).unwrap();
    fs::write(at("deep/er/and/deeper/large"), &noise).unwrap();
    fs::write(root.join(OsStr::from_bytes(b"odd/\xff\xfe not UTF-8 \n")), b"named").unwrap();
    fs::write(at("odd/-r *?[a]\\"), b"named").unwrap();
    fs::hard_link(at("small"), at("deep/small again")).unwrap();
    fs::hard_link(at("deep/er/and/deeper/large"), at("zz large again")).unwrap();
    symlink("deep/er", at("link")).unwrap();
    symlink("/nowhere/at all", at("dangling")).unwrap();
    make_sparse(&at("sparse"));
    for (name, file_type) in [("fifo", FileType::Fifo), ("socket", FileType::Socket)] {
        rustix::fs::mknodat(CWD, at(name), file_type, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }
    set_xattr(&at("small"), "user.comment", b"attributes of a file");
    set_xattr(&at("deep"), "user.folder", &[0; 1500]);
    set_xattr(&at("empty file"), "system.posix_acl_access", &acl());
    set_xattr(&at("empty"), "system.posix_acl_default", &acl());
    for (name, mode) in
        [("small", 0o4751), ("empty", 0o1777), ("deep/er", 0o2770), ("zeros", 0o000), ("fifo", 0o622)]
    {
        if is_root() || name != "zeros" {
            set_mode(&at(name), mode);
        }
    }
    if is_root() {
        make_what_only_root_can(root);
    }
    let times = rustix::fs::Timestamps {
        last_access: rustix::fs::Timespec { tv_sec: 5, tv_nsec: 6 },
        last_modification: rustix::fs::Timespec { tv_sec: -77, tv_nsec: 123_456_789 },
    };
    for name in ["zeros", "deep/er", "link", "fifo"] {
        rustix::fs::utimensat(CWD, at(name), &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// Makes entries that require root: devices, files of other users, capabilities, attributes of
/// links.
fn make_what_only_root_can(root: &Path) {
    let at = |name: &str| root.join(name);
    let (null, disk) = (rustix::fs::makedev(1, 3), rustix::fs::makedev(259, 70_000));
    for (name, file_type, device) in
        [("null", FileType::CharacterDevice, null), ("disk", FileType::BlockDevice, disk)]
    {
        rustix::fs::mknodat(CWD, at(name), file_type, Mode::RUSR, device).unwrap();
    }
    fs::write(at("capable"), b"runs").unwrap();
    for (name, uid, gid) in [("capable", 12, 34), ("link", 56, 78), ("empty", 1 << 30, 90), ("null", 5, 6)] {
        std::os::unix::fs::lchown(at(name), Some(uid), Some(gid)).unwrap();
    }
    // Version 2, permitted: CAP_NET_BIND_SERVICE.
    let capability = [[0, 0, 0, 2], [0, 4, 0, 0], [0; 4], [0; 4], [0; 4]].concat();
    set_xattr(&at("capable"), "security.capability", &capability);
    set_xattr(&at("dangling"), "trusted.link", b"of a link");
    set_xattr(&at("null"), "trusted.device", b"of a device");
}

/// Makes a file of 40 MiB that has two pieces of data.
fn make_sparse(path: &Path) {
    let file = fs::File::create(path).unwrap();
    file.set_len(40 << 20).unwrap();
    file.write_all_at(&[1; 5000], 10 << 20).unwrap();
    file.write_all_at(&[2; 70_000], (30 << 20) + 17).unwrap();
}
