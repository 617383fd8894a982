//! A disk and its volumes.

use std::sync::Arc;

use crate::bytes::read_at::ReadAt;
use crate::contents::detection;
use crate::contents::volume_content::{FileSystemKind, VolumeContent};
use crate::disks::boot_sector;
use crate::disks::disk_problem::DiskProblem;
use crate::disks::lvm;
use crate::disks::partitions::{self, TableKind};
use crate::disks::volume::Volume;

/// An opened disk: its partition table and its volumes.
pub struct Disk {
    bytes: Arc<dyn ReadAt>,
    table: Option<TableKind>,
    sector_bytes: Option<u64>,
    volumes: Vec<Volume>,
    problems: Vec<DiskProblem>,
    /// The number of `problems` that concern the partition table itself. They come first.
    table_problem_count: usize,
}

impl Disk {
    /// Reads the partition table and the volumes of a disk.
    ///
    /// Damage never makes this fail: [`Disk::problems`] lists the parts that cannot be understood.
    /// A disk without a table that makes sense has one volume, `p0`, which is the whole disk.
    #[must_use]
    pub fn open(disk: Arc<dyn ReadAt>) -> Self {
        let mut problems = Vec::new();
        let table = partitions::read(&disk, &mut problems);
        let table_problem_count = problems.len();
        let mut volumes = Vec::new();
        let has_partitions = table.as_ref().is_some_and(|table| !table.partitions.is_empty());
        // Images of installation media are both: ISO 9660 from the first byte on, with a partition
        // table for booting from a USB stick.
        if !has_partitions || detection::begins_as_iso(&disk) {
            volumes.push(Volume::whole(&disk));
        }
        for partition in table.iter().flat_map(|table| &table.partitions) {
            volumes.extend(Volume::of_partition(&disk, partition, &mut problems));
        }
        let logical = lvm::volumes(&disk, &volumes, &mut problems);
        volumes.extend(logical);
        let is_iso =
            |volume: &&Volume| volume.content() == VolumeContent::FileSystem(FileSystemKind::Iso9660);
        for volume in volumes.iter().filter(is_iso) {
            if detection::also_has_udf(&volume.read()) {
                let problem =
                    "has ISO 9660 and UDF: only the files of ISO 9660 are shown, and UDF may have more";
                problems.push(DiskProblem::new(volume.name(), problem));
            }
        }
        let sector_bytes = match &table {
            Some(table) => table.sector_bytes,
            None => boot_sector::stated_sector_bytes(&disk),
        };
        let table = table.map(|table| table.kind);
        Self { bytes: disk, table, sector_bytes, volumes, problems, table_problem_count }
    }

    /// Returns all bytes of the disk.
    pub(crate) fn bytes(&self) -> &Arc<dyn ReadAt> {
        &self.bytes
    }

    /// Returns the first problem of the partition table itself.
    pub(crate) fn table_problem(&self) -> Option<&DiskProblem> {
        self.problems.get(..self.table_problem_count).and_then(<[_]>::first)
    }

    /// Returns the kind of the partition table; `None` if the disk has none.
    #[must_use]
    pub fn table(&self) -> Option<TableKind> {
        self.table
    }

    /// Returns the size of the sectors in which the partition table counts, or that the boot sector
    /// of a disk without a table states; `None` if the disk does not show it. On a disk with other
    /// sectors, its partitions or files are not found.
    #[must_use]
    pub fn sector_bytes(&self) -> Option<u64> {
        self.sector_bytes
    }

    /// Returns all volumes: partitions in the order of the table, then logical volumes of LVM.
    #[must_use]
    pub fn volumes(&self) -> &[Volume] {
        &self.volumes
    }

    /// Returns the volume called `name`.
    #[must_use]
    pub fn volume(&self, name: &str) -> Option<&Volume> {
        self.volumes.iter().find(|volume| volume.name() == name)
    }

    /// Returns the problems that were found while the disk was opened.
    #[must_use]
    pub fn problems(&self) -> &[DiskProblem] {
        &self.problems
    }
}
