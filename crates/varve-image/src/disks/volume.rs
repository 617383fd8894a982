//! Volumes: the parts of a disk that hold content of their own.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::bytes::read_at::{BytesPart, ReadAt};
use crate::contents::detection;
use crate::contents::volume_content::VolumeContent;
use crate::disks::disk_problem::DiskProblem;
use crate::disks::joined::JoinedRanges;
use crate::disks::partitions::{Partition, PartitionType};
use crate::file_systems::file_system::{FileSystem, FileSystemError};
use crate::file_systems::open;

/// A part of a disk with content of its own: a partition, a logical volume, or the whole disk.
#[derive(Clone)]
pub struct Volume {
    name: String,
    /// The ranges of the disk that make up the volume, in the volume's order.
    pieces: Vec<Range<u64>>,
    bytes: Arc<dyn ReadAt>,
    partition_type: Option<PartitionType>,
    label: Option<String>,
    content: VolumeContent,
    /// True if the disk ends before the volume does.
    is_cut_off: bool,
    is_logical: bool,
}

impl Volume {
    pub(crate) fn whole(disk: &Arc<dyn ReadAt>) -> Self {
        Self {
            name: "p0".into(),
            pieces: std::iter::once(0..disk.size()).collect(),
            content: detection::detect(disk),
            bytes: Arc::clone(disk),
            partition_type: None,
            label: None,
            is_cut_off: false,
            is_logical: false,
        }
    }

    /// Returns `None` if the partition lies beyond the end of the disk.
    pub(crate) fn of_partition(
        disk: &Arc<dyn ReadAt>,
        partition: &Partition,
        problems: &mut Vec<DiskProblem>,
    ) -> Option<Self> {
        let name = format!("p{}", partition.number);
        let mut problem = |text: String| problems.push(DiskProblem::new(&name, text));
        if partition.start >= disk.size() {
            problem(format!("begins at {}, beyond the end of the disk", partition.start));
            return None;
        }
        let bytes = BytesPart::new(Arc::clone(disk), partition.start, partition.size);
        let present = bytes.size();
        if present < partition.size {
            problem(format!("has {} bytes, but the disk has only {present} of them", partition.size));
        }
        let label = partition.label.clone();
        let pieces = std::iter::once(partition.start..partition.start.saturating_add(present)).collect();
        let content = detection::detect(&bytes);
        let bytes = Arc::new(bytes);
        let is_cut_off = present < partition.size;
        let partition_type = Some(partition.kind);
        Some(Self { name, pieces, bytes, partition_type, label, content, is_cut_off, is_logical: false })
    }

    /// Makes a logical volume of pieces that are known to lie on the disk.
    pub(crate) fn logical(
        disk: &Arc<dyn ReadAt>,
        name: String,
        pieces: Vec<Range<u64>>,
        is_cut_off: bool,
    ) -> Self {
        let bytes: Arc<dyn ReadAt> = match pieces.as_slice() {
            [one] => Arc::new(BytesPart::new(Arc::clone(disk), one.start, one.end - one.start)),
            _ => Arc::new(JoinedRanges::new(Arc::clone(disk), pieces.clone())),
        };
        let content = detection::detect(&bytes);
        Self { name, pieces, bytes, partition_type: None, label: None, content, is_cut_off, is_logical: true }
    }

    /// Returns the name of the volume.
    ///
    /// Partitions are `p1`, `p2`, … with the numbers of Linux, so logical partitions count from
    /// `p5`. The whole disk is `p0`, if it has no table or also makes sense without it. A logical
    /// volume of LVM is `GROUP-VOLUME`, as under `/dev/mapper`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the offset on the disk at which the volume begins, in bytes.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.pieces.first().map_or(0, |piece| piece.start)
    }

    /// Returns the number of its bytes that the disk has.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.bytes.size()
    }

    /// Returns the ranges of the disk that make up the volume, in its order. Only a logical volume
    /// has more than one.
    #[must_use]
    pub fn pieces(&self) -> &[Range<u64>] {
        &self.pieces
    }

    /// Maps a range of the volume to ranges of the disk. Parts that the disk does not have are
    /// dropped.
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

    /// Returns the purpose of the volume according to the partition table.
    #[must_use]
    pub fn partition_type(&self) -> Option<PartitionType> {
        self.partition_type
    }

    /// Returns the name of the volume in the partition table. Only a GPT has names.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// Returns the kind of its content.
    #[must_use]
    pub fn content(&self) -> VolumeContent {
        self.content
    }

    /// Returns true if the disk ends before the volume does, so that its last bytes are missing.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    /// Returns true if this is a logical volume of LVM.
    pub(crate) fn is_logical(&self) -> bool {
        self.is_logical
    }

    /// Returns its bytes.
    #[must_use]
    pub fn read(&self) -> Arc<dyn ReadAt> {
        Arc::clone(&self.bytes)
    }

    /// Opens its file system.
    ///
    /// # Errors
    ///
    /// [`FileSystemError::Unsupported`] if it holds no file system, or one that this crate cannot
    /// read; other errors if it is damaged. Its bytes can still be [read](Self::read).
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
