//! The machine that the publisher describes, with the attached disk as its only drive.

use std::sync::Arc;

use anyhow::Result;
use varve_archive::{Firmware, Machine};
use varve_attach::{PublishedDisk, published_machine};
use varve_edition::{DescribedBoard, DescribedBus, DescribedFirmware, MachineDescription};
use varve_machine::boot::{Bus, Hardware, sectors_of};

use super::attached_export::{AttachedExport, kept_overlay, nbd_settings};
use crate::arguments::AttachArgs;
use crate::command::serving::boot::machine_run::{self, BootDrive, DriveWrites, MachineStarter};
use crate::command::serving::serve::memory_of_this_machine;
use crate::show;

/// The memory of a machine without a description, and a description may always have as much.
const LEAST_MACHINE_MEMORY: u64 = 2 << 30;

/// Prepares a machine with the disk as its only drive.
pub(super) fn machine(
    args: &AttachArgs,
    disk: &Arc<PublishedDisk>,
    export: &AttachedExport,
) -> Result<MachineStarter> {
    let described = described_machine(disk);
    let hardware = hardware(args, &described, disk);
    let (drive, writes) = match kept_overlay(args, disk.image(), &export.disk)? {
        Some(overlay) => (overlay, DriveWrites::InDisk),
        None => (Arc::clone(&export.disk), DriveWrites::Discarded),
    };
    let drive = BootDrive {
        export: disk.image().root.name.to_string(),
        bus: args.machine.bus.map_or_else(|| described_bus(&described), machine_run::bus_of),
        pci_address: None,
        sectors: sectors_of(None, Arc::clone(disk) as _),
        boot_index: 1,
        disk: drive,
        writes,
    };
    let (kept_in, recorded) = (args.overlay.clone(), export.recorded());
    let starter = MachineStarter::new(hardware, vec![drive], kept_in, recorded, nbd_settings())?;
    starter.warn_of_sectors();
    Ok(starter)
}

/// Returns what the edition says about the machine of its disk. Without it the disk is started all
/// the same.
fn described_machine(disk: &PublishedDisk) -> MachineDescription {
    let Some(part) = &disk.image().machine else { return MachineDescription::default() };
    let reason = match published_machine(disk.source(), part) {
        Ok(Ok(machine)) => return machine,
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    warning!("the description of the machine is not used: {reason}");
    MachineDescription::default()
}

/// Returns the hardware that the edition describes, overridden by the arguments. The publisher
/// cannot take more than half of the memory of this machine.
fn hardware(args: &AttachArgs, described: &MachineDescription, disk: &Arc<PublishedDisk>) -> Hardware {
    let memory = described.memory.map(|memory| bounded_memory(memory, memory_of_this_machine()));
    if args.machine_memory.is_none() && memory < described.memory {
        warning!(
            "the machine had {} of memory, and gets half of that of this one; --machine-memory gives it more",
            show::bytes(described.memory.unwrap_or_default())
        );
    }
    let machine = Machine {
        memory: memory.unwrap_or(LEAST_MACHINE_MEMORY),
        cpu_count: described.cpu_count.unwrap_or(1),
        firmware: match described.firmware {
            None => Firmware::Unknown,
            Some(DescribedFirmware::Bios) => Firmware::Bios,
            Some(DescribedFirmware::Uefi) => Firmware::Uefi,
        },
        board: match described.board {
            None => String::new(),
            Some(DescribedBoard::Pc) => "pc".into(),
            Some(DescribedBoard::Q35) => "q35".into(),
        },
        ..Machine::default()
    };
    machine_run::hardware(&args.machine, args.machine_memory, Some(&machine), Arc::clone(disk) as _)
}

/// Returns the described memory, but at most half of that of this machine, or 2 GiB.
fn bounded_memory(described: u64, own: u64) -> u64 {
    described.min((own / 2).max(LEAST_MACHINE_MEMORY))
}

fn described_bus(described: &MachineDescription) -> Bus {
    match described.bus {
        None | Some(DescribedBus::Virtio) => Bus::Virtio,
        Some(DescribedBus::Ide) => Bus::Ide,
        Some(DescribedBus::Sata) => Bus::Sata,
        Some(DescribedBus::Scsi) => Bus::Scsi,
        Some(DescribedBus::Nvme) => Bus::Nvme,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publisher_cannot_take_all_memory() {
        const GIB: u64 = 1 << 30;
        assert_eq!(bounded_memory(GIB, 64 * GIB), GIB);
        assert_eq!(bounded_memory(16 << 40, 64 * GIB), 32 * GIB);
        assert_eq!(bounded_memory(16 << 40, GIB), LEAST_MACHINE_MEMORY);
    }
}
