//! The hardware of a machine, as far as an archived disk needs it.

use std::sync::Arc;

use varve_archive::{Firmware, Machine, MachineDrive, SnapshotId};
use varve_content::image::SectorSizes;
use varve_image::{Disk, PartitionType, ReadAt, TableKind};

/// The memory of a machine about which nothing is known.
const MEMORY_BYTES: u64 = 2 << 30;
const MEMORY_BYTES_MIN: u64 = 64 << 20;
/// The size of the sectors of most disks, and the only one that a BIOS can start from.
pub const USUAL_SECTOR_BYTES: u32 = 512;
const DISC_SECTOR_BYTES: u32 = 2048;
/// The type of an EFI system partition, in the byte order of a GPT:
/// c12a7328-f81f-11d2-ba4b-00a0c93ec93b.
const EFI_SYSTEM: [u8; 16] =
    [0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11, 0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9, 0x3b];

/// The bus of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bus {
    /// For paravirtualised guests.
    Virtio,
    /// Parallel ATA.
    Ide,
    /// AHCI.
    Sata,
    /// Virtio SCSI.
    Scsi,
    /// NVM Express.
    Nvme,
}

impl Bus {
    /// Returns true if a disk on this bus can have logical sectors of this size.
    #[must_use]
    pub fn can_have(self, logical_bytes: u32) -> bool {
        match self {
            Self::Virtio | Self::Scsi | Self::Nvme => true,
            Self::Ide | Self::Sata => logical_bytes == USUAL_SECTOR_BYTES,
        }
    }
}

/// Returns the sizes of the sectors with which a disk is attached: those that it had, or those that
/// its partition table shows.
#[must_use]
pub fn sectors_of(recorded: Option<SectorSizes>, disk: Arc<dyn ReadAt>) -> Option<SectorSizes> {
    // A disc in a drive has sectors of 2048 bytes, but most that can be booted from are made for
    // disks, too, and have a table for these.
    let is_disc = recorded.is_some_and(|recorded| recorded.logical() == DISC_SECTOR_BYTES);
    if recorded.is_some() && !is_disc {
        return recorded;
    }
    let shown = Disk::open(disk).sector_bytes();
    shown.and_then(|bytes| SectorSizes::new(bytes, bytes)).or(recorded)
}

/// The hardware of a machine that can be booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hardware {
    /// In bytes.
    pub memory: u64,
    /// The number of processors.
    pub cpu_count: u64,
    pub firmware: Firmware,
    /// True for the newer board, with PCI Express.
    pub is_q35: bool,
    /// True if the guest has a network.
    pub network: bool,
}

impl Hardware {
    /// Returns the hardware of the machine that a disk belongs to. Facts that the snapshot's
    /// description lacks are derived from the disk.
    #[must_use]
    pub fn of(machine: Option<&Machine>, disk: Arc<dyn ReadAt>) -> Self {
        let seen = if has_efi_system_partition(&disk) { Firmware::Uefi } else { Firmware::Bios };
        let firmware = match machine.map(|machine| machine.firmware) {
            Some(Firmware::Unknown) | None => seen,
            Some(known) => known,
        };
        let is_q35 = match machine {
            Some(machine) if !machine.board.is_empty() => machine.board.contains("q35"),
            _ => firmware == Firmware::Uefi,
        };
        let memory = machine.map_or(MEMORY_BYTES, |machine| machine.memory);
        Self {
            memory: memory.max(MEMORY_BYTES_MIN),
            cpu_count: machine.map_or(1, |machine| machine.cpu_count).clamp(1, 64),
            firmware,
            is_q35,
            network: false,
        }
    }
}

/// A drive of a machine that is to be attached again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedDrive {
    /// The machine's name for it; empty if unknown.
    pub name: String,
    /// The snapshot with its contents.
    pub snapshot: SnapshotId,
    /// The bus to which it is attached.
    pub bus: Bus,
    /// The place of its device on the first PCI bus, if that is known.
    pub pci_address: Option<u8>,
    /// Its place in the boot order of the firmware, from 1 on.
    pub boot_index: u64,
}

/// Returns all drives of the machine that a snapshot of a disk of `size` bytes belongs to: those
/// that were archived with it, in the machine's order, without its firmware. Returns this disk
/// alone if there is no description, or if it does not name the snapshot.
#[must_use]
pub fn attached(machine: Option<&Machine>, snapshot: SnapshotId, size: u64) -> Vec<AttachedDrive> {
    let drives = machine.iter().flat_map(|machine| &machine.drives);
    let drives: Vec<_> = drives.filter(|drive| !drive.is_firmware()).collect();
    let bus = |drive: &MachineDrive| bus_of(&drive.device, &drive.controller);
    if !drives.iter().any(|drive| drive.snapshot == Some(snapshot)) {
        let like_it = drives.iter().find(|drive| drive.size == size);
        let bus = like_it.map_or(Bus::Virtio, |drive| bus(drive));
        let pci_address = like_it.and_then(|drive| drive.pci_address);
        return vec![AttachedDrive { name: String::new(), snapshot, bus, pci_address, boot_index: 1 }];
    }
    let archived: Vec<_> =
        drives.iter().filter_map(|drive| drive.snapshot.map(|snapshot| (*drive, snapshot))).collect();
    let mut order: Vec<usize> = (0..archived.len()).collect();
    // Drives without a place come last. Drives with the same place stay in the machine's order.
    order.sort_by_key(|place| archived[*place].0.boot_index.unwrap_or(u64::MAX));
    archived
        .iter()
        .enumerate()
        .map(|(place, (drive, snapshot))| AttachedDrive {
            name: drive.name.clone(),
            snapshot: *snapshot,
            bus: bus(drive),
            pci_address: drive.pci_address,
            boot_index: order
                .iter()
                .zip(1..)
                .find(|(other, _)| **other == place)
                .map_or(1, |(_, index)| index),
        })
        .collect()
}

/// Returns the bus of a device from QEMU's names for the device and its controller.
fn bus_of(device: &str, controller: &str) -> Bus {
    match device {
        device if device.starts_with("nvme") => Bus::Nvme,
        device if device.starts_with("scsi") => Bus::Scsi,
        device if device.starts_with("ide") && controller.contains("ahci") => Bus::Sata,
        device if device.starts_with("ide") => Bus::Ide,
        _ => Bus::Virtio,
    }
}

/// Returns true if a disk has a partition that UEFI can boot from.
fn has_efi_system_partition(disk: &Arc<dyn ReadAt>) -> bool {
    let disk = Disk::open(Arc::clone(disk));
    let is_efi = |kind: Option<PartitionType>| kind == Some(PartitionType::Gpt(EFI_SYSTEM));
    disk.table() == Some(TableKind::Gpt)
        && disk.volumes().iter().any(|volume| is_efi(volume.partition_type()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Arc<dyn ReadAt> {
        Arc::new(vec![0_u8; 4096])
    }

    fn drive(name: &str, device: &str, controller: &str, snapshot: Option<u8>) -> MachineDrive {
        MachineDrive {
            name: name.into(),
            device: device.into(),
            controller: controller.into(),
            snapshot: snapshot.map(|byte| SnapshotId([byte; 16])),
            size: 4096,
            ..MachineDrive::default()
        }
    }

    #[test]
    fn where_nothing_is_known_the_disk_decides() {
        let hardware = Hardware::of(None, disk());
        let expected = Hardware {
            memory: MEMORY_BYTES,
            cpu_count: 1,
            firmware: Firmware::Bios,
            is_q35: false,
            network: false,
        };
        assert_eq!(hardware, expected);
        let alone = AttachedDrive {
            name: String::new(),
            snapshot: SnapshotId([1; 16]),
            bus: Bus::Virtio,
            pci_address: None,
            boot_index: 1,
        };
        assert_eq!(attached(None, SnapshotId([1; 16]), 4096), [alone]);
    }

    #[test]
    fn a_description_is_followed_and_its_numbers_are_bounded() {
        let machine = Machine {
            board: "pc-q35-7.2".into(),
            cpu_count: u64::MAX,
            memory: 1,
            firmware: Firmware::Uefi,
            ..Machine::default()
        };
        let expected = Hardware {
            memory: MEMORY_BYTES_MIN,
            cpu_count: 64,
            firmware: Firmware::Uefi,
            is_q35: true,
            network: false,
        };
        assert_eq!(Hardware::of(Some(&machine), disk()), expected);
        assert_eq!(bus_of("ide-hd", "piix3-ide"), Bus::Ide);
        assert_eq!(bus_of("scsi-hd", "virtio-scsi-pci"), Bus::Scsi);
        assert_eq!(bus_of("nvme", ""), Bus::Nvme);
    }

    #[test]
    fn all_drives_of_the_moment_are_attached_in_their_order() {
        let mut drives = vec![
            drive("data", "virtio-blk-pci", "", Some(1)),
            drive("cd0", "ide-cd", "piix3-ide", None),
            drive("root", "ide-hd", "ich9-ahci", Some(2)),
            drive("more", "virtio-blk-pci", "", Some(3)),
            drive("pflash0", "cfi.pflash01", "", None),
            drive("pflash1", "cfi.pflash01", "", Some(4)),
        ];
        drives[2].boot_index = Some(0);
        let machine = Machine { drives, ..Machine::default() };
        // The result does not depend on the requested drive.
        for asked in [1, 2, 3] {
            let found = attached(Some(&machine), SnapshotId([asked; 16]), 4096);
            let found: Vec<_> =
                found.iter().map(|drive| (drive.name.as_str(), drive.bus, drive.boot_index)).collect();
            assert_eq!(found, [("data", Bus::Virtio, 2), ("root", Bus::Sata, 1), ("more", Bus::Virtio, 3)]);
        }
        // Another snapshot of such a disk, which the description does not name.
        let found = attached(Some(&machine), SnapshotId([9; 16]), 4096);
        assert_eq!((found.len(), found[0].snapshot, found[0].bus), (1, SnapshotId([9; 16]), Bus::Virtio));
    }
}
