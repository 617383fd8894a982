//! A disk and its volumes: the parts of it that stand for themselves.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::content::{self, VolumeContent};
use crate::lvm;
use crate::partitions::{self, Partition, PartitionType, TableKind};
use crate::read_at::{Part, ReadAt};
use crate::{FileSystem, FileSystemError, FileSystemKind, open};

/// Something that is wrong with a disk, though not so wrong that nothing else can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskProblem {
    what: String,
    problem: String,
}

impl DiskProblem {
    pub(crate) fn new(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { what: what.into(), problem: problem.into() }
    }
}

/// A sentence: `the second copy of the GPT is missing`.
impl fmt::Display for DiskProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.problem)
    }
}

/// What is on a disk.
pub struct Disk {
    table: Option<TableKind>,
    volumes: Vec<Volume>,
    problems: Vec<DiskProblem>,
}

/// A part of a disk that stands for itself: a partition, a logical volume, or the whole of it.
#[derive(Clone)]
pub struct Volume {
    name: String,
    /// Where it lies on the disk, in its own order.
    pieces: Vec<Range<u64>>,
    bytes: Arc<dyn ReadAt>,
    partition_type: Option<PartitionType>,
    label: Option<String>,
    content: VolumeContent,
}

impl Disk {
    /// Looks at a disk. Never fails for what is on it: what cannot be understood is listed by [`Disk::problems`], and a disk of
    /// which nothing is understood has one volume, `p0`, which is all of it.
    #[must_use]
    pub fn open(disk: Arc<dyn ReadAt>) -> Self {
        let mut problems = Vec::new();
        let table = partitions::read(&disk, &mut problems);
        let mut volumes = Vec::new();
        let whole = Volume::whole(&disk);
        // Images of installation media are both: ISO 9660 from the beginning on, and a table for those who start from a stick.
        let is_both = whole.content == VolumeContent::FileSystem(FileSystemKind::Iso9660);
        if table.as_ref().is_none_or(|table| table.partitions.is_empty()) || is_both {
            volumes.push(whole);
        }
        for partition in table.iter().flat_map(|table| &table.partitions) {
            volumes.extend(Volume::of_partition(&disk, partition, &mut problems));
        }
        let logical = lvm::volumes(&disk, &volumes, &mut problems);
        volumes.extend(logical);
        Self { table: table.map(|table| table.kind), volumes, problems }
    }

    /// The kind of its partition table; `None` if it has none.
    #[must_use]
    pub fn table(&self) -> Option<TableKind> {
        self.table
    }

    /// All of them, in the order of the table, and logical volumes of LVM after those.
    #[must_use]
    pub fn volumes(&self) -> &[Volume] {
        &self.volumes
    }

    /// The volume of that name.
    #[must_use]
    pub fn volume(&self, name: &str) -> Option<&Volume> {
        self.volumes.iter().find(|volume| volume.name == name)
    }

    /// What is wrong with it, as far as was seen.
    #[must_use]
    pub fn problems(&self) -> &[DiskProblem] {
        &self.problems
    }
}

impl Volume {
    fn whole(disk: &Arc<dyn ReadAt>) -> Self {
        Self {
            name: "p0".into(),
            pieces: std::iter::once(0..disk.size()).collect(),
            content: content::detect(disk),
            bytes: Arc::clone(disk),
            partition_type: None,
            label: None,
        }
    }

    /// `None` if it lies beyond the disk.
    fn of_partition(
        disk: &Arc<dyn ReadAt>,
        partition: &Partition,
        problems: &mut Vec<DiskProblem>,
    ) -> Option<Self> {
        let name = format!("p{}", partition.number);
        let mut problem = |text: String| problems.push(DiskProblem::new(&name, text));
        if partition.start >= disk.size() {
            problem(format!("begins at {}, where the disk has ended", partition.start));
            return None;
        }
        let bytes = Part::new(Arc::clone(disk), partition.start, partition.size);
        let present = bytes.size();
        if present < partition.size {
            problem(format!("has {} bytes, of which the disk has {present}", partition.size));
        }
        let label = partition.label.clone();
        let pieces = std::iter::once(partition.start..partition.start.saturating_add(present)).collect();
        let content = content::detect(&bytes);
        let bytes = Arc::new(bytes);
        Some(Self { name, pieces, bytes, partition_type: Some(partition.kind), label, content })
    }

    /// A logical volume, of pieces that are known to lie on the disk.
    pub(crate) fn logical(disk: &Arc<dyn ReadAt>, name: String, pieces: Vec<Range<u64>>) -> Self {
        let bytes: Arc<dyn ReadAt> = match pieces.as_slice() {
            [one] => Arc::new(Part::new(Arc::clone(disk), one.start, one.end - one.start)),
            _ => Arc::new(lvm::Joined::new(Arc::clone(disk), pieces.clone())),
        };
        let content = content::detect(&bytes);
        Self { name, pieces, bytes, partition_type: None, label: None, content }
    }

    /// What it is called: `p1`, `p2`, … as Linux numbers partitions, logical ones from `p5` on; `p0` for the whole disk, if it has no table
    /// or also makes sense without it; `GROUP-VOLUME` for a logical volume of LVM, as below `/dev/mapper`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it begins on the disk, in bytes.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.pieces.first().map_or(0, |piece| piece.start)
    }

    /// In bytes, as far as the disk has them.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.bytes.size()
    }

    /// Where it lies on the disk, in its own order. One piece, but for logical volumes.
    #[must_use]
    pub fn pieces(&self) -> &[Range<u64>] {
        &self.pieces
    }

    /// What the partition table says that it is for.
    #[must_use]
    pub fn partition_type(&self) -> Option<PartitionType> {
        self.partition_type
    }

    /// The name that the partition table has for it. Only a GPT has such.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// What it holds.
    #[must_use]
    pub fn content(&self) -> VolumeContent {
        self.content
    }

    /// Its bytes.
    #[must_use]
    pub fn read(&self) -> Arc<dyn ReadAt> {
        Arc::clone(&self.bytes)
    }

    /// Its files.
    ///
    /// # Errors
    ///
    /// [`FileSystemError::Unsupported`] if it holds no file system, or one that cannot be read here; others if it is damaged. Its
    /// bytes can still be [read](Self::read).
    pub fn open_file_system(&self) -> Result<Arc<dyn FileSystem>, FileSystemError> {
        open::file_system(self)
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, pieces, partition_type, label, content, .. } = self;
        let mut shown = f.debug_struct("Volume");
        shown.field("name", name).field("pieces", pieces).field("partition_type", partition_type);
        shown.field("label", label).field("content", content).finish()
    }
}
