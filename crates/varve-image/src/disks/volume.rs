//! The parts of a disk that stand for themselves.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::bytes::read_at::{Part, ReadAt};
use crate::disks::content::{self, VolumeContent};
use crate::disks::disk_problem::DiskProblem;
use crate::disks::joined::Joined;
use crate::disks::partitions::{Partition, PartitionType};
use crate::file_systems::open;
use crate::{FileSystem, FileSystemError};

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
    /// Whether the disk ends before it does.
    is_cut_off: bool,
    is_logical: bool,
}

impl Volume {
    pub(crate) fn whole(disk: &Arc<dyn ReadAt>) -> Self {
        Self {
            name: "p0".into(),
            pieces: std::iter::once(0..disk.size()).collect(),
            content: content::detect(disk),
            bytes: Arc::clone(disk),
            partition_type: None,
            label: None,
            is_cut_off: false,
            is_logical: false,
        }
    }

    /// `None` if it lies beyond the disk.
    pub(crate) fn of_partition(
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
        let is_cut_off = present < partition.size;
        let partition_type = Some(partition.kind);
        Some(Self { name, pieces, bytes, partition_type, label, content, is_cut_off, is_logical: false })
    }

    /// A logical volume, of pieces that are known to lie on the disk.
    pub(crate) fn logical(
        disk: &Arc<dyn ReadAt>,
        name: String,
        pieces: Vec<Range<u64>>,
        is_cut_off: bool,
    ) -> Self {
        let bytes: Arc<dyn ReadAt> = match pieces.as_slice() {
            [one] => Arc::new(Part::new(Arc::clone(disk), one.start, one.end - one.start)),
            _ => Arc::new(Joined::new(Arc::clone(disk), pieces.clone())),
        };
        let content = content::detect(&bytes);
        Self { name, pieces, bytes, partition_type: None, label: None, content, is_cut_off, is_logical: true }
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

    /// Where a range of it lies on the disk, as far as it is there.
    pub(crate) fn on_disk(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut found = Vec::new();
        let mut before = 0_u64;
        for piece in &self.pieces {
            let end = before.saturating_add(piece.end.saturating_sub(piece.start));
            let part = range.start.clamp(before, end)..range.end.clamp(before, end);
            let place = |at: u64| piece.start.saturating_add(at.saturating_sub(before));
            found.push(place(part.start)..place(part.end));
            before = end;
        }
        found.retain(|place| !place.is_empty());
        found
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

    /// Whether the disk ends before it does, so that some of its bytes are not there.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    /// Whether it is a logical volume of LVM.
    pub(crate) fn is_logical(&self) -> bool {
        self.is_logical
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
        open::file_system(self.name(), self.content, self.read())
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
