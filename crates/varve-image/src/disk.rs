//! A disk, and what volumes it has.

use std::sync::Arc;

use crate::FileSystemKind;
use crate::content::VolumeContent;
use crate::disk_problem::DiskProblem;
use crate::lvm;
use crate::partitions::{self, TableKind};
use crate::read_at::ReadAt;
use crate::volume::Volume;

/// What is on a disk.
pub struct Disk {
    table: Option<TableKind>,
    volumes: Vec<Volume>,
    problems: Vec<DiskProblem>,
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
        let is_both = whole.content() == VolumeContent::FileSystem(FileSystemKind::Iso9660);
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
        self.volumes.iter().find(|volume| volume.name() == name)
    }

    /// What is wrong with it, as far as was seen.
    #[must_use]
    pub fn problems(&self) -> &[DiskProblem] {
        &self.problems
    }
}
