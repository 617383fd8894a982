//! What a machine is made of, as far as an archived disk needs it.

use std::sync::Arc;

use varve_archive::{Firmware, Machine};
use varve_image::{Disk, PartitionType, ReadAt, TableKind};

/// Memory where nothing is known of a machine.
const MEMORY_BYTES: u64 = 2 << 30;
/// The type of a partition that UEFI starts from, as its bytes lie in a GPT: c12a7328-f81f-11d2-ba4b-00a0c93ec93b.
const EFI_SYSTEM: [u8; 16] =
    [0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11, 0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9, 0x3b];

/// What a disk hangs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bus {
    /// For guests that know that they are guests.
    Virtio,
    /// Of the old kind.
    Ide,
    /// AHCI.
    Sata,
    /// SCSI, by virtio.
    Scsi,
    /// NVM Express.
    Nvme,
}

/// A machine that can be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hardware {
    /// In bytes.
    pub memory: u64,
    /// How many processors.
    pub cpu_count: u64,
    /// What it starts with.
    pub firmware: Firmware,
    /// What the disk hangs on.
    pub bus: Bus,
    /// Whether it has the newer board, with PCI Express.
    pub is_q35: bool,
    /// Whether it reaches the network.
    pub network: bool,
}

impl Hardware {
    /// The machine that a disk is from, as its snapshot describes it; where that says nothing, as the disk looks.
    ///
    /// `drive` is the size of the disk, by which it is found among the drives of the description, unless a drive names the snapshot.
    #[must_use]
    pub fn of(machine: Option<&Machine>, snapshot: [u8; 16], disk: Arc<dyn ReadAt>) -> Self {
        let seen = if has_efi_system_partition(&disk) { Firmware::Uefi } else { Firmware::Bios };
        let firmware = match machine.map(|machine| machine.firmware) {
            Some(Firmware::Unknown) | None => seen,
            Some(known) => known,
        };
        let drives = machine.map_or(&[][..], |machine| &machine.drives);
        let is_it = |id: Option<[u8; 16]>| id == Some(snapshot);
        let drive = drives
            .iter()
            .find(|drive| is_it(drive.snapshot.map(|id| id.0)))
            .or_else(|| drives.iter().find(|drive| drive.size == disk.size()));
        let is_q35 = match machine {
            Some(machine) if !machine.board.is_empty() => machine.board.contains("q35"),
            _ => firmware == Firmware::Uefi,
        };
        Self {
            memory: machine.map_or(0, |machine| machine.memory).max(64 << 20).max(if machine.is_some() {
                0
            } else {
                MEMORY_BYTES
            }),
            cpu_count: machine.map_or(1, |machine| machine.cpu_count).clamp(1, 64),
            firmware,
            bus: drive.map_or(Bus::Virtio, |drive| bus_of(&drive.device, &drive.controller)),
            is_q35,
            network: false,
        }
    }
}

/// The bus of a device, as QEMU calls the two.
fn bus_of(device: &str, controller: &str) -> Bus {
    match device {
        device if device.starts_with("nvme") => Bus::Nvme,
        device if device.starts_with("scsi") => Bus::Scsi,
        device if device.starts_with("ide") && controller.contains("ahci") => Bus::Sata,
        device if device.starts_with("ide") => Bus::Ide,
        _ => Bus::Virtio,
    }
}

/// Whether firmware of the newer kind finds something to start on a disk that was made for it.
fn has_efi_system_partition(disk: &Arc<dyn ReadAt>) -> bool {
    let disk = Disk::open(Arc::clone(disk));
    let is_efi = |kind: Option<PartitionType>| kind == Some(PartitionType::Gpt(EFI_SYSTEM));
    disk.table() == Some(TableKind::Gpt)
        && disk.volumes().iter().any(|volume| is_efi(volume.partition_type()))
}

#[cfg(test)]
mod tests {
    use varve_archive::{MachineDrive, SnapshotId};

    use super::*;

    fn disk() -> Arc<dyn ReadAt> {
        Arc::new(vec![0_u8; 4096])
    }

    #[test]
    fn where_nothing_is_known_the_disk_decides() {
        let hardware = Hardware::of(None, [1; 16], disk());
        let expected = Hardware {
            memory: MEMORY_BYTES,
            cpu_count: 1,
            firmware: Firmware::Bios,
            bus: Bus::Virtio,
            is_q35: false,
            network: false,
        };
        assert_eq!(hardware, expected);
    }

    #[test]
    fn a_description_is_followed_and_its_numbers_are_bounded() {
        let drive = |device: &str, controller: &str, snapshot: u8| MachineDrive {
            device: device.into(),
            controller: controller.into(),
            snapshot: Some(SnapshotId([snapshot; 16])),
            ..MachineDrive::default()
        };
        let machine = Machine {
            board: "pc-q35-7.2".into(),
            cpu_count: u64::MAX,
            memory: 3 << 30,
            firmware: Firmware::Uefi,
            drives: vec![drive("virtio-blk-pci", "", 1), drive("ide-hd", "ich9-ahci", 2)],
            ..Machine::default()
        };
        let hardware = Hardware::of(Some(&machine), [2; 16], disk());
        let expected = Hardware {
            memory: 3 << 30,
            cpu_count: 64,
            firmware: Firmware::Uefi,
            bus: Bus::Sata,
            is_q35: true,
            network: false,
        };
        assert_eq!(hardware, expected);
        assert_eq!(bus_of("ide-hd", "piix3-ide"), Bus::Ide);
        assert_eq!(bus_of("scsi-hd", "virtio-scsi-pci"), Bus::Scsi);
        assert_eq!(bus_of("nvme", ""), Bus::Nvme);
    }
}
