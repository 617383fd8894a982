//! A disk, and what volumes it has.

use std::sync::Arc;

use crate::bytes::read_at::ReadAt;
use crate::disks::content;
use crate::disks::disk_problem::DiskProblem;
use crate::disks::lvm;
use crate::disks::partitions::{self, TableKind};
use crate::disks::volume::Volume;

/// What is on a disk.
pub struct Disk {
    bytes: Arc<dyn ReadAt>,
    table: Option<TableKind>,
    volumes: Vec<Volume>,
    problems: Vec<DiskProblem>,
    /// How many of them, the first ones, are of the partition table itself.
    table_problem_count: usize,
}

impl Disk {
    /// Looks at a disk. Never fails for what is on it: what cannot be understood is listed by [`Disk::problems`], and a disk of
    /// which nothing is understood has one volume, `p0`, which is all of it.
    #[must_use]
    pub fn open(disk: Arc<dyn ReadAt>) -> Self {
        let mut problems = Vec::new();
        let table = partitions::read(&disk, &mut problems);
        let table_problem_count = problems.len();
        let mut volumes = Vec::new();
        let has_partitions = table.as_ref().is_some_and(|table| !table.partitions.is_empty());
        // Images of installation media are both: ISO 9660 from the beginning on, and a table for those who start from a stick.
        if !has_partitions || content::begins_as_iso(&disk) {
            volumes.push(Volume::whole(&disk));
        }
        for partition in table.iter().flat_map(|table| &table.partitions) {
            volumes.extend(Volume::of_partition(&disk, partition, &mut problems));
        }
        let logical = lvm::volumes(&disk, &volumes, &mut problems);
        volumes.extend(logical);
        Self { bytes: disk, table: table.map(|table| table.kind), volumes, problems, table_problem_count }
    }

    /// All of its bytes.
    pub(crate) fn bytes(&self) -> &Arc<dyn ReadAt> {
        &self.bytes
    }

    /// The first problem of the partition table itself.
    pub(crate) fn table_problem(&self) -> Option<&DiskProblem> {
        self.problems.get(..self.table_problem_count).and_then(<[_]>::first)
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
        self.volumes.iter().find(|volume| volume.name() == name)
    }

    /// What is wrong with it, as far as was seen.
    #[must_use]
    pub fn problems(&self) -> &[DiskProblem] {
        &self.problems
    }
}
