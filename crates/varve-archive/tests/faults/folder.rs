//! A small real folder that a seed changes. Another run of the seed makes the same snapshots, byte
//! for byte.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use tempfile::TempDir;
use varve_block::with_causes;
use varve_content::folder::{FolderOptions, ListEvent, ListNext, StoredFiles, list};
use varve_content::{InodeFlags, Node, NodeKind};
use varve_image::FileTime;
use varve_sim::SeededDraw;
use varve_store::Store;
use varve_tree::{StreamPiece, TreeReader};

use crate::contents::{Content, noise};

/// The contents of a folder, by path: folders, files and links.
pub type FolderState = BTreeMap<String, Kept>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    Folder,
    /// The bytes of the file, and the time of its last change in seconds.
    File(Vec<u8>, u64),
    Link(String),
}

/// A folder on a real file system, and its expected contents.
pub struct SourceFolder {
    place: TempDir,
    state: FolderState,
    changed_at: u64,
}

impl SourceFolder {
    pub fn new() -> io::Result<Self> {
        // The folder is in memory if possible, because thousands are made.
        let shared = Path::new("/dev/shm");
        let place = if shared.is_dir() { TempDir::new_in(shared) } else { TempDir::new() };
        Ok(Self {
            place: place?,
            state: FolderState::from([(String::new(), Kept::Folder)]),
            changed_at: 1_600_000_000,
        })
    }

    /// Makes a folder with the contents that another folder had.
    pub fn of(state: &FolderState) -> io::Result<Self> {
        let mut folder = Self::new()?;
        for (path, kept) in state {
            match kept {
                Kept::Folder => folder.make_way(&format!("{path}/"))?,
                Kept::File(bytes, changed_at) => folder.write(path, bytes.clone(), *changed_at)?,
                Kept::Link(to) => folder.link(path, to)?,
            }
        }
        Ok(folder)
    }

    pub fn path(&self) -> &Path {
        self.place.path()
    }

    pub fn state(&self) -> &FolderState {
        &self.state
    }

    /// Makes, changes and removes some entries.
    pub fn change(&mut self, draw: u64, changes: u32) -> io::Result<()> {
        let mut draw = SeededDraw::new(draw);
        for _ in 0..changes {
            self.changed_at += 1;
            let now = self.changed_at;
            let folder = ["", "a/", "a/deep/", "b/"][draw.index(4)];
            let path = format!("{folder}{}", draw.below(9));
            match draw.below(8) {
                0 => self.remove(&path)?,
                1 => self.link(&path, &format!("../{}", draw.below(9)))?,
                2 => self.write(&path, noise(draw.number(), 20_000 + draw.index(400_000)), now)?,
                // Only a few contents are drawn, so that duplicates happen.
                3 | 4 => self.write(&path, Content { number: draw.below(20), length: 9000 }.bytes(), now)?,
                _ => self.write(&path, noise(draw.number(), draw.index(3000)), now)?,
            }
        }
        Ok(())
    }

    fn remove(&mut self, path: &str) -> io::Result<()> {
        if self.state.remove(path).is_some() {
            fs::remove_file(self.path().join(path))?;
        }
        Ok(())
    }

    fn write(&mut self, path: &str, bytes: Vec<u8>, changed_at: u64) -> io::Result<()> {
        self.make_way(path)?;
        let real = self.path().join(path);
        fs::write(&real, &bytes)?;
        // The machine's clock would give another time in each run.
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(changed_at);
        File::options().write(true).open(real)?.set_modified(modified)?;
        self.state.insert(path.into(), Kept::File(bytes, changed_at));
        Ok(())
    }

    fn link(&mut self, path: &str, to: &str) -> io::Result<()> {
        self.make_way(path)?;
        let real = self.path().join(path);
        std::os::unix::fs::symlink(to, &real)?;
        // The time depends on the link's target, so that a new link differs from the one that it
        // replaced. The real time differs from run to run and is not used.
        let seconds = to.bytes().fold(1_600_000_000, |sum, byte| sum + i64::from(byte));
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, &real, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        self.state.insert(path.into(), Kept::Link(to.into()));
        Ok(())
    }

    /// Makes the parent folders, and removes what stands at the path.
    fn make_way(&mut self, path: &str) -> io::Result<()> {
        self.remove(path)?;
        for (end, _) in path.match_indices('/') {
            let above = &path[..end];
            if !above.is_empty() && self.state.insert(above.into(), Kept::Folder).is_none() {
                fs::create_dir(self.path().join(above))?;
            }
        }
        Ok(())
    }
}

/// Everything that differs from run to run is replaced, so that the snapshot depends on the seed
/// only.
pub fn options() -> FolderOptions {
    FolderOptions { adjust: forget_machine, ..FolderOptions::default() }
}

fn forget_machine(node: &mut Node) {
    (node.uid, node.gid) = (0, 0);
    node.mode = if node.kind == NodeKind::Folder { 0o755 } else { 0o644 };
    if node.kind == NodeKind::Folder {
        node.mtime = FileTime::EPOCH;
    }
    node.ctime = Some(node.mtime);
    node.inode_flags = InodeFlags::NONE;
    node.inode = node.name.iter().fold(7, |hash, byte| hash * 31 + u64::from(*byte));
}

/// Reads the contents of a folder snapshot.
pub fn read(store: &Store, root: &Node) -> Result<FolderState, String> {
    let mut state = FolderState::new();
    let mut failed = None;
    list(&StoredFiles::new(store), root, &mut |listed| {
        let read = match listed {
            ListEvent::Node { path, node } => {
                keep(store, node).map(|kept| (path.display().to_string(), kept))
            }
            ListEvent::Unreadable { path, error } => {
                Err(format!("{}: {}", path.display(), with_causes(error.as_ref())))
            }
        };
        match read {
            Ok((path, kept)) => drop(state.insert(path, kept)),
            Err(error) => drop(failed.get_or_insert(error)),
        }
        if failed.is_some() { ListNext::Stop } else { ListNext::Descend }
    });
    failed.map_or(Ok(state), Err)
}

fn keep(store: &Store, node: &Node) -> Result<Kept, String> {
    if let Some(problem) = node.problem {
        return Err(format!("it was archived with a problem: {problem:?}"));
    }
    Ok(match node.kind {
        NodeKind::Folder => Kept::Folder,
        NodeKind::SymbolicLink => Kept::Link(String::from_utf8_lossy(&node.target).into_owned()),
        _ => {
            let mut bytes = Vec::new();
            if let Some(entry) = &node.content {
                let read = TreeReader::new(store, entry).stream(&mut |piece| {
                    match piece {
                        StreamPiece::Bytes(piece) => bytes.extend_from_slice(piece),
                        StreamPiece::Zeros(count) => bytes.resize(bytes.len() + count as usize, 0),
                    }
                    Ok(())
                });
                read.map_err(|error| with_causes(&error))?;
            }
            Kept::File(bytes, u64::try_from(node.mtime.seconds()).unwrap_or_default())
        }
    })
}
