//! Places: the meaning of `SNAPSHOT[:PATH]`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use varve_archive::{LeftOutRecord, Snapshot, SnapshotContent};
use varve_block::{BlockStore, visible};
use varve_content::folder::{LookupError, StoredFiles, lookup};
use varve_content::image::{CachedBlocks, ImagePart};
use varve_content::vac::{VacArchive, VacContent, VacFiles, VacLine};
use varve_content::{Files, ImageFiles, Node, NodeKind};
use varve_replica::HealingStore;
use varve_tree::Entry;

use super::meant_path::meant_path;
use crate::{moment, show};

/// A snapshot or an archive of another program, and a path in it, as `SNAPSHOT[:PATH]` names them.
pub struct PlaceInSnapshot<'a> {
    pub what: NamedSource<'a>,
    pub path: &'a Path,
}

/// The root of a place.
#[derive(Clone, Copy)]
pub enum NamedSource<'a> {
    Snapshot(&'a Snapshot),
    /// An archive of vac or vbackup, named by its score.
    Vac(VacLine),
}

impl<'a> NamedSource<'a> {
    /// Returns the snapshot; `None` for an archive of another program.
    pub fn snapshot(&self) -> Option<&'a Snapshot> {
        match self {
            Self::Snapshot(snapshot) => Some(snapshot),
            Self::Vac(_) => None,
        }
    }

    /// Returns the id that the output for programs uses.
    pub fn id(&self) -> String {
        match self {
            Self::Snapshot(snapshot) => snapshot.id.to_string(),
            Self::Vac(line) => line.to_string(),
        }
    }
}

impl<'a> PlaceInSnapshot<'a> {
    /// Returns the records of left-out ranges of the named disk image or volume, including ranges
    /// that were kept against the rule. Returns nothing for a file in a volume.
    pub fn left_out(&self) -> Vec<&'a LeftOutRecord> {
        let NamedSource::Snapshot(snapshot) = self.what else { return Vec::new() };
        let mut parts = self.path.components();
        let name = match (parts.next(), parts.next()) {
            (None, _) => return snapshot.left_out.iter().collect(),
            (Some(first), None) => first.as_os_str().to_string_lossy(),
            (Some(_), Some(_)) => return Vec::new(),
        };
        let volume = name.strip_suffix(".raw").unwrap_or(&name);
        snapshot.left_out.iter().filter(|record| volume == "disk" || record.volume == volume).collect()
    }
}

/// Parses `vac:SCORE[:PATH]` or `FILE.vac[:PATH]`. Returns `None` for any other text.
pub fn vac_place(text: &OsStr) -> Result<Option<(VacLine, &[u8])>> {
    let text = text.as_bytes();
    let path_of = |rest: &[u8]| rest.first().is_none_or(|first| *first == b':');
    let valid = text.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    if let Ok((line, rest)) = VacLine::split(valid) {
        let rest = &text[valid.len() - rest.len()..];
        if path_of(rest) {
            return Ok(Some((line, rest.get(1..).unwrap_or_default())));
        }
    }
    let endings = text.windows(VAC_ENDING.len()).enumerate().filter(|(_, part)| *part == VAC_ENDING);
    for (at, ending) in endings {
        let (name, rest) = text.split_at(at + ending.len());
        let file = Path::new(OsStr::from_bytes(name));
        if !path_of(rest) || !file.is_file() {
            continue;
        }
        match vac_file(file) {
            Ok(line) => return Ok(Some((line, rest.get(1..).unwrap_or_default()))),
            // The text may also be the name of a snapshot.
            Err(_) if !name.contains(&b'/') => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The file name extension that vac uses for its lines.
const VAC_ENDING: &[u8] = b".vac";
/// Upper bound on the bytes that are read from such a file; the line is shorter.
const VAC_FILE_BYTES: u64 = 128;

/// Reads the line in a file that vac has written.
fn vac_file(file: &Path) -> Result<VacLine> {
    let mut bytes = Vec::new();
    let context = || format!("{} is not a vac file", file.display());
    File::open(file)
        .and_then(|opened| opened.take(VAC_FILE_BYTES).read_to_end(&mut bytes))
        .with_context(context)?;
    VacLine::of_file(&bytes).with_context(context)
}

/// The contents of a place.
pub enum PlaceContent<'a> {
    /// A whole disk image and its volumes.
    Disk(ImageFiles),
    /// The bytes of a disk image, or of one of its volumes.
    Raw(ImagePart),
    /// A file or a folder, in a snapshot, a volume or an archive of another program.
    Node { files: Box<dyn Files + 'a>, node: Box<Node> },
}

impl PlaceContent<'_> {
    /// Reports whether it is a folder of files.
    pub fn is_folder(&self) -> bool {
        matches!(self, Self::Node { node, .. } if node.kind == NodeKind::Folder)
    }
}

impl PlaceInSnapshot<'_> {
    /// Returns the name for messages and default destinations.
    pub fn name(&self) -> String {
        match self.what {
            NamedSource::Snapshot(snapshot) => snapshot.name.clone(),
            NamedSource::Vac(line) => line.to_string(),
        }
    }

    /// Looks up the contents of this place. If it does not exist, the error names the place that
    /// may have been meant.
    pub fn content<'a>(&self, blocks: &'a Arc<HealingStore>) -> Result<PlaceContent<'a>> {
        let found = self.look_up(blocks).map_err(|error| match error.downcast() {
            Ok(LookupError::NotFound { path, .. }) => {
                LookupError::NotFound { path, meant: self.meant(blocks) }.into()
            }
            Ok(error) => error.into(),
            Err(error) => error,
        });
        found.with_context(|| self.title())
    }

    /// Looks up the contents of this place, which may be absent.
    pub fn content_if_there<'a>(&self, blocks: &'a Arc<HealingStore>) -> Result<PlaceContent<'a>> {
        self.look_up(blocks).with_context(|| self.title())
    }

    fn title(&self) -> String {
        match self.what {
            NamedSource::Snapshot(snapshot) => format!("{} {}", snapshot.name, moment::show(snapshot.time)),
            NamedSource::Vac(line) => line.to_string(),
        }
    }

    fn look_up<'a>(&self, blocks: &'a Arc<HealingStore>) -> Result<PlaceContent<'a>> {
        match self.what {
            NamedSource::Snapshot(snapshot) => self.in_snapshot(blocks, snapshot),
            NamedSource::Vac(line) => self.in_vac(blocks, &line),
        }
    }

    /// Returns the path that may have been meant.
    fn meant(&self, blocks: &Arc<HealingStore>) -> Option<PathBuf> {
        let snapshot = self.what.snapshot();
        let root = PlaceInSnapshot { what: self.what, path: Path::new("") };
        match root.look_up(blocks).ok()? {
            PlaceContent::Disk(disk) => meant_path(snapshot, &disk, &disk.root(), self.path),
            PlaceContent::Node { files, node } => meant_path(snapshot, &*files, &node, self.path),
            PlaceContent::Raw(_) => None,
        }
    }

    fn in_snapshot<'a>(
        &self,
        blocks: &'a Arc<HealingStore>,
        snapshot: &Snapshot,
    ) -> Result<PlaceContent<'a>> {
        match &snapshot.content {
            SnapshotContent::Image(entry) => Ok(self.inside(open_image(blocks, entry))?),
            SnapshotContent::Folder(root) => {
                let path = snapshot.path_within(self.path);
                in_files(Box::new(StoredFiles::new(&**blocks)), root, &path)
            }
        }
    }

    fn in_vac<'a>(&self, blocks: &'a Arc<HealingStore>, line: &VacLine) -> Result<PlaceContent<'a>> {
        let owners = varve_session::owner_names();
        match VacArchive::open(&**blocks, line, &owners)?.content {
            VacContent::Image(entry) => Ok(self.inside(open_image(blocks, &entry))?),
            VacContent::Folder(root) => {
                in_files(Box::new(VacFiles::new(&**blocks, owners)), &root, self.path)
            }
        }
    }

    fn inside<'a>(&self, disk: ImageFiles) -> Result<PlaceContent<'a>, LookupError> {
        if self.path.as_os_str().is_empty() {
            return Ok(PlaceContent::Disk(disk));
        }
        let node = lookup(&disk, &disk.root(), self.path)?;
        warn_of(&disk);
        Ok(match disk.raw_of(&node) {
            Some(part) => PlaceContent::Raw(part),
            None => PlaceContent::Node { files: Box::new(disk), node: Box::new(node) },
        })
    }
}

fn in_files<'a>(files: Box<dyn Files + 'a>, root: &Node, path: &Path) -> Result<PlaceContent<'a>> {
    let node = Box::new(lookup(&*files, root, path)?);
    Ok(PlaceContent::Node { files, node })
}

/// Opens the files of an archived disk.
pub fn open_image(blocks: &Arc<HealingStore>, entry: &Entry) -> ImageFiles {
    let below = Arc::clone(blocks) as Arc<dyn BlockStore>;
    ImageFiles::open(Arc::new(CachedBlocks::new(below)), entry)
}

/// Prints the warnings about the opened volumes.
pub fn warn_of(disk: &ImageFiles) {
    for (volume, warning) in disk.warnings() {
        warning!("{}: {}", show::name(volume.as_bytes()), visible(&warning));
    }
}

/// Removes the slashes around a path in a snapshot, which users write in different ways.
pub fn without_slashes(path: &[u8]) -> &Path {
    let is_name = |byte: &u8| *byte != b'/';
    let start = path.iter().position(is_name).unwrap_or(path.len());
    let end = path.iter().rposition(is_name).map_or(start, |last| last + 1);
    Path::new(OsStr::from_bytes(&path[start..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_of_vac_are_told_from_snapshots() {
        const LINE: &str = "vac:4a88b8d2d3472284cf60e0d27cf6e61ee670c531";
        let path = |text: &str| {
            vac_place(OsStr::new(text))
                .unwrap()
                .map(|(line, path)| (line.to_string(), String::from_utf8(path.to_vec()).unwrap()))
        };
        assert_eq!(path(LINE), Some((LINE.into(), String::new())));
        let bytes = [LINE.as_bytes(), b":caf\xe9"].concat();
        assert_eq!(vac_place(OsStr::from_bytes(&bytes)).unwrap().unwrap().1, b"caf\xe9");
        let bytes = [LINE.as_bytes(), b"\xe9"].concat();
        assert!(vac_place(OsStr::from_bytes(&bytes)).unwrap().is_none());
        assert_eq!(path(&format!("{LINE}:a:b")), Some((LINE.into(), "a:b".into())));
        for snapshot in ["web", "vac:etc", &LINE[..43], &format!("{LINE}0"), "night.vac"] {
            assert_eq!(path(snapshot), None, "{snapshot}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.vac").to_str().unwrap().to_owned();
        std::fs::write(&file, format!("{LINE}\n")).unwrap();
        assert_eq!(path(&format!("{file}:x")), Some((LINE.into(), "x".into())));
        assert_eq!(path(&file), Some((LINE.into(), String::new())));
        std::fs::write(&file, "something else").unwrap();
        assert!(vac_place(OsStr::new(&file)).is_err());
    }

    #[test]
    fn slashes_around_a_path_mean_nothing() {
        for (path, bare) in [("", ""), ("/", ""), ("//a/b//", "a/b"), ("a", "a")] {
            assert_eq!(without_slashes(path.as_bytes()), Path::new(bare), "{path}");
        }
    }
}
