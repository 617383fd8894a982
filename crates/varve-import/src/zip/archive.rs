//! A zip file as a foreign archive with one snapshot.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::tz::TimeZone;
use rawzip::{FileReader, RECOMMENDED_BUFFER_SIZE, ZipArchive, ZipArchiveEntryWayfinder};
use varve_block::to_usize;
use varve_content::folder::{ContentSink, DescriptionError, FileContent, TARGET_BYTES_MAX, TreeStep};
use varve_content::{Node, NodeKind};
use varve_image::FileTime;
use varve_world::Timestamp;

use super::entries::{ZipItem, ZipMethod};
use super::inflate::Inflated;
use crate::dated_file::{DatedFile, OpenDatedFileError};
use crate::foreign::{ForeignArchive, ForeignContents, ForeignSnapshot, ForeignStep, ForeignTree};
use crate::lost_entries::LostEntries;
use crate::sorted_tree::{SortedTree, TreePathError, TreeSteps};

const PIECE_BYTES: usize = 256 << 10;

/// Why a zip file cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum OpenZipError {
    #[error(transparent)]
    File(#[from] OpenDatedFileError),
    #[error("{} is not a zip file, or is cut short", path.display())]
    Malformed { path: PathBuf, source: rawzip::Error },
    #[error("{count} entries of {} are encrypted, such as {first}", path.display())]
    Encrypted { path: PathBuf, count: u64, first: String },
}

/// A zip file.
pub struct ZipFile {
    snapshots: [ForeignSnapshot; 1],
    archive: Arc<ZipArchive<FileReader>>,
    path: PathBuf,
}

impl ZipFile {
    /// Opens a zip file. Its time is `time`, or a date in its name, or its modification time if
    /// `by_mtime` is set.
    ///
    /// # Errors
    /// [`OpenZipError`].
    pub fn open(
        path: &Path,
        time: Option<Timestamp>,
        by_mtime: bool,
        host: &str,
    ) -> Result<Self, OpenZipError> {
        let DatedFile { file, snapshot } = DatedFile::open(path, time, by_mtime, host)?;
        let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
        let malformed = |source| OpenZipError::Malformed { path: path.into(), source };
        let archive = ZipArchive::from_file(file, &mut buffer).map_err(malformed)?;
        let zip = Self { snapshots: [snapshot], archive: Arc::new(archive), path: path.into() };
        zip.refuse_encryption()?;
        Ok(zip)
    }

    /// Reads the contents of all files, as an import does. Passes on the size that each entry
    /// tells, and the number of bytes that were read.
    ///
    /// # Errors
    /// The directory is unreadable, or has too many entries.
    pub fn read_contents(
        &self,
        take: &mut dyn FnMut(u64, Result<u64, DescriptionError>),
    ) -> Result<(), DescriptionError> {
        for file in self.sorted()?.files {
            let mut total = 0;
            let read = file.read(&self.archive, &mut |piece| {
                total += piece.len() as u64;
                Ok(())
            });
            take(file.bytes, read.map(|()| total));
        }
        Ok(())
    }

    /// Sorts all entries.
    fn sorted(&self) -> Result<ZipSorter<'_>, DescriptionError> {
        let mut sorter = ZipSorter {
            zip: self,
            tree: SortedTree::default(),
            files: Vec::new(),
            lost: LostEntries::default(),
            failed: None,
        };
        self.each(&mut |item| sorter.add(item))?;
        sorter.refuse_overlaps();
        match sorter.failed.take() {
            Some(error) => Err(error.into()),
            None => Ok(sorter),
        }
    }

    /// The number of names that were in the code page of DOS, and the first of them.
    #[must_use]
    pub fn dos_names(&self) -> Option<(u64, Vec<u8>)> {
        let (mut count, mut first) = (0_u64, None);
        // An unreadable directory is reported by the import.
        drop(self.each(&mut |item| {
            if item.is_from_dos {
                count += 1;
                first.get_or_insert(item.path);
            }
        }));
        Some((count, first?))
    }

    fn refuse_encryption(&self) -> Result<(), OpenZipError> {
        let (mut count, mut first) = (0_u64, None);
        self.each(&mut |item| {
            if item.is_encrypted {
                count += 1;
                first.get_or_insert_with(|| String::from_utf8_lossy(&item.path).into_owned());
            }
        })
        .map_err(|source| OpenZipError::Malformed { path: self.path.clone(), source })?;
        match first {
            None => Ok(()),
            Some(first) => {
                let first = varve_block::visible(&first);
                Err(OpenZipError::Encrypted { path: self.path.clone(), count, first })
            }
        }
    }

    /// Passes on each entry, in the order of the central directory.
    fn each(&self, take: &mut dyn FnMut(ZipItem)) -> Result<(), rawzip::Error> {
        let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
        let zone = TimeZone::system();
        let mut entries = self.archive.entries(&mut buffer);
        while let Some(record) = entries.next_entry()? {
            take(ZipItem::new(&record, &zone));
        }
        Ok(())
    }
}

impl ForeignArchive for ZipFile {
    fn kind(&self) -> &'static str {
        "zip"
    }

    fn snapshots(&self) -> &[ForeignSnapshot] {
        &self.snapshots
    }

    fn trees_are_cheap(&self) -> bool {
        false
    }

    fn tree(&self, _: usize) -> Result<Box<dyn ForeignTree + '_>, DescriptionError> {
        let [snapshot] = &self.snapshots;
        let ZipSorter { tree, files, lost, .. } = self.sorted()?;
        let mut missing = Node::new(Vec::new(), NodeKind::Folder);
        missing.mode = 0o755;
        missing.mtime = FileTime::from_nanoseconds(snapshot.time.0);
        let steps = tree.into_steps(&missing);
        Ok(Box::new(ZipTree { zip: self, files, lost, steps, has_begun: false }))
    }
}

/// The content of a file, compressed.
#[derive(Clone, Copy)]
struct PackedFile {
    wayfinder: ZipArchiveEntryWayfinder,
    method: ZipMethod,
    bytes: u64,
    /// The place of its header, and its compressed size.
    place: (u64, u64),
    is_shared: bool,
}

/// Sorts entries into a tree.
struct ZipSorter<'a> {
    zip: &'a ZipFile,
    tree: SortedTree,
    /// While a node is in the tree, its inode is the number of its content, from 1 on.
    files: Vec<PackedFile>,
    lost: LostEntries,
    failed: Option<TreePathError>,
}

impl ZipSorter<'_> {
    fn add(&mut self, item: ZipItem) {
        let ZipItem { path, mut node, method, bytes, place, wayfinder, .. } = item;
        // Zip files are not added to: one of them would be lost in silence.
        if self.tree.has(&path) && node.kind != NodeKind::Folder {
            return self.lost.lose(path, "the archive has another entry of this name before it");
        }
        let file = PackedFile { wayfinder, method, bytes, place, is_shared: false };
        match node.kind {
            NodeKind::File if bytes > 0 => {
                self.files.push(file);
                node.inode = self.files.len() as u64;
                node.size = bytes;
            }
            NodeKind::SymbolicLink => {
                let target = if bytes <= TARGET_BYTES_MAX as u64 {
                    let mut target = Vec::new();
                    let read = file.read(&self.zip.archive, &mut |piece| {
                        target.extend_from_slice(piece);
                        Ok(())
                    });
                    read.map(|()| target)
                } else {
                    Err(format!(
                        "its target has {bytes} bytes, and Linux has links of up to {TARGET_BYTES_MAX}"
                    )
                    .into())
                };
                match target {
                    Ok(target) => node.target = target,
                    Err(error) => return self.lost.lose(path, error),
                }
            }
            _ => {}
        }
        match self.tree.set(&path, node) {
            Ok(()) => {}
            Err(TreePathError::TooMany) => self.failed = Some(TreePathError::TooMany),
            Err(error) => self.lost.lose(path, error),
        }
    }

    /// Marks files whose compressed bytes another file has too. Real programs make none, and a few
    /// such bytes can stand for any amount of data.
    fn refuse_overlaps(&mut self) {
        let mut places: Vec<(u64, u64, usize)> = self
            .files
            .iter()
            .enumerate()
            .map(|(number, file)| (file.place.0, file.place.1, number))
            .collect();
        places.sort_unstable();
        let mut end = 0;
        for (start, bytes, number) in places {
            if start < end
                && let Some(file) = self.files.get_mut(number)
            {
                file.is_shared = true;
            }
            end = end.max(start.saturating_add(bytes));
        }
    }
}

/// The tree of a zip file.
struct ZipTree<'a> {
    zip: &'a ZipFile,
    files: Vec<PackedFile>,
    lost: LostEntries,
    steps: TreeSteps,
    has_begun: bool,
}

impl ForeignTree for ZipTree<'_> {
    fn next(&mut self, _: Option<&ForeignContents<'_>>) -> Result<Option<ForeignStep>, DescriptionError> {
        if self.has_begun
            && let Some(step) = self.lost.next()
        {
            return Ok(Some(ForeignStep::Tree(step)));
        }
        self.has_begun = true;
        let step = match self.steps.next() {
            Some(TreeStep::Entry(mut node)) => {
                let number = std::mem::take(&mut node.inode);
                let place = number.checked_sub(1).map(to_usize);
                match place.and_then(|place| self.files.get(place)) {
                    None => TreeStep::Entry(node),
                    Some(file) => {
                        let archive = Arc::clone(&self.zip.archive);
                        TreeStep::File(node, Box::new(ZipContent { archive, file: *file }))
                    }
                }
            }
            Some(step) => step,
            None => return Ok(None),
        };
        Ok(Some(ForeignStep::Tree(step)))
    }
}

/// The content of a file, which is decompressed when it is stored.
struct ZipContent {
    archive: Arc<ZipArchive<FileReader>>,
    file: PackedFile,
}

impl FileContent for ZipContent {
    fn write_to(&mut self, into: &mut ContentSink<'_>) -> Result<(), DescriptionError> {
        self.file.read(&self.archive, &mut |piece| Ok(into.write(piece)?))
    }
}

impl PackedFile {
    /// Passes on the plain bytes. Their number and their CRC-32 are compared at the end, and never
    /// more bytes come than the directory tells.
    fn read(
        &self,
        archive: &ZipArchive<FileReader>,
        take: &mut dyn FnMut(&[u8]) -> Result<(), DescriptionError>,
    ) -> Result<(), DescriptionError> {
        if self.is_shared {
            return Err("its data is also that of another entry".into());
        }
        let entry = archive.get_entry(self.wayfinder)?;
        let packed = entry.reader();
        let plain: Box<dyn Read + '_> = match self.method {
            ZipMethod::Stored => Box::new(packed),
            ZipMethod::Deflate => Box::new(Inflated::new(packed)),
            ZipMethod::Other(number) => {
                return Err(format!("its compression method {number} is not supported").into());
            }
        };
        // One byte more shows that there is more.
        let mut checked = entry.verifying_reader(plain.take(self.bytes.saturating_add(1)));
        let mut buffer = vec![0; PIECE_BYTES];
        let mut total = 0_u64;
        loop {
            let count = checked.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            total = total.saturating_add(count as u64);
            if total > self.bytes {
                return Err("it is longer than its entry tells".into());
            }
            take(buffer.get(..count).unwrap_or_default())?;
        }
        if total < self.bytes {
            return Err("it is shorter than its entry tells".into());
        }
        Ok(())
    }
}
