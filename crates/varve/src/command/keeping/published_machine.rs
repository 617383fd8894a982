//! The description of a machine in a publication: made from the facts that a snapshot has, or read
//! from a file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use varve_archive::{Firmware, Machine, SnapshotId};
use varve_edition::{
    DescribedBoard, DescribedBus, DescribedFirmware, MACHINE_DESCRIPTION_BYTES_MAX, MachineDescription,
};
use varve_machine::boot::{Bus, attached};

/// Reads a description that the user has written.
pub fn read_machine(file: &Path) -> Result<MachineDescription> {
    let context = || format!("cannot read the description of a machine in {}", file.display());
    let mut bytes = Vec::new();
    let opened = File::open(file).with_context(context)?;
    opened.take(MACHINE_DESCRIPTION_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).with_context(context)?;
    MachineDescription::parse(&bytes).with_context(context)
}

/// Describes the machine that a snapshot of a disk of `size` bytes belongs to. Its name, its other
/// drives and everything else that a reader does not need stay private.
pub fn machine_of(machine: &Machine, snapshot: SnapshotId, size: u64) -> MachineDescription {
    let drives = attached(Some(machine), snapshot, size);
    let own = drives.iter().find(|drive| drive.snapshot == snapshot);
    let board = match machine.board.contains("q35") {
        true => DescribedBoard::Q35,
        false => DescribedBoard::Pc,
    };
    let description = MachineDescription {
        memory: Some(machine.memory).filter(|memory| *memory > 0),
        cpu_count: Some(machine.cpu_count).filter(|count| *count > 0),
        firmware: match machine.firmware {
            Firmware::Unknown => None,
            Firmware::Bios => Some(DescribedFirmware::Bios),
            Firmware::Uefi => Some(DescribedFirmware::Uefi),
        },
        board: Some(board).filter(|_| !machine.board.is_empty()),
        bus: own.map(|drive| described_bus(drive.bus)),
    };
    description.bounded()
}

fn described_bus(bus: Bus) -> DescribedBus {
    match bus {
        Bus::Virtio => DescribedBus::Virtio,
        Bus::Ide => DescribedBus::Ide,
        Bus::Sata => DescribedBus::Sata,
        Bus::Scsi => DescribedBus::Scsi,
        Bus::Nvme => DescribedBus::Nvme,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_has_the_facts_of_the_snapshot_and_nothing_private() {
        let machine = Machine {
            name: "payroll".into(),
            board: "pc-q35-8.0".into(),
            memory: 1 << 20,
            cpu_count: 200,
            ..Machine::default()
        };
        let text = machine_of(&machine, SnapshotId([1; 16]), 4096).to_text();
        assert_eq!(text, "varve machine 1\nmemory = 67108864\ncpus = 64\nboard = q35\nbus = virtio\n");
        let unknown = machine_of(&Machine::default(), SnapshotId([1; 16]), 4096).to_text();
        assert_eq!(unknown, "varve machine 1\nbus = virtio\n");
    }
}
