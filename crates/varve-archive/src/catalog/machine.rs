//! The description of the machine whose disk an image holds: enough to start the machine again.
//! Pure.
//!
//! | number | field        | value                                                                                      |
//! |-------:|--------------|--------------------------------------------------------------------------------------------|
//! |      1 | name         | UTF-8: the owner's name for it                                                             |
//! |      2 | uuid         | 16 bytes; absent if it has none                                                            |
//! |      3 | architecture | UTF-8, as QEMU says: `x86_64`, `aarch64`                                                   |
//! |      4 | board        | UTF-8, as QEMU says: `pc-i440fx-7.2`, `pc-q35-8.0`                                         |
//! |      5 | processor    | UTF-8, as QEMU says: `qemu64`                                                              |
//! |      6 | cpu_count    |                                                                                            |
//! |      7 | memory       | bytes                                                                                      |
//! |      8 | firmware     | 1 BIOS, 2 UEFI; 0 is not known                                                             |
//! |      9 | drive *      | the fields of a drive, in the order in which the machine has them                          |
//!
//! The fields of a drive:
//!
//! | number | field        | value                                                                                      |
//! |-------:|--------------|--------------------------------------------------------------------------------------------|
//! |      1 | name         | UTF-8: its place in the machine, the same from start to start                              |
//! |      2 | device       | UTF-8, as QEMU says: `virtio-blk-pci`, `ide-hd`, `scsi-hd`, `nvme`, `cfi.pflash01`         |
//! |      3 | controller   | UTF-8, its controller: `virtio-scsi-pci`, `ich9-ahci`; empty if it needs none              |
//! |      4 | boot_index   | 1 more than its place in the order of booting; 0 if it has none                            |
//! |      5 | size         | bytes                                                                                      |
//! |      6 | file         | UTF-8: where the machine keeps it                                                          |
//! |      7 | format       | UTF-8: how, as QEMU says: `raw`, `qcow2`                                                   |
//! |      8 | snapshot     | 16 bytes: the id of the snapshot of the same moment; absent if none was to be taken        |
//! |      9 | pci_address  | device · 8 + function of its device on the first PCI bus; absent if it is elsewhere         |
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_content::{Field, FieldError, FieldReader, FieldWriter, UnknownFields};

use crate::catalog::snapshot_id::SnapshotId;

/// Upper bound on the drives of one machine.
const DRIVE_COUNT_MAX: usize = 4096;
/// The devices of QEMU that are flash memory.
const FLASH_DEVICES: [&str; 2] = ["cfi.pflash01", "cfi.pflash02"];

/// A machine and its drives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    /// The name that its owner gave it; may be empty.
    pub name: String,
    pub uuid: Option<[u8; 16]>,
    /// In QEMU's words: `x86_64`.
    pub architecture: String,
    /// In QEMU's words: `pc-q35-8.0`.
    pub board: String,
    /// In QEMU's words: `qemu64`.
    pub processor: String,
    pub cpu_count: u64,
    /// Bytes.
    pub memory: u64,
    pub firmware: Firmware,
    /// The drives, in the order in which the machine has them.
    pub drives: Vec<MachineDrive>,
    /// Fields that this version does not know.
    pub unknown: UnknownFields,
}

/// The firmware that starts a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Firmware {
    #[default]
    Unknown = 0,
    /// A traditional PC BIOS.
    Bios = 1,
    Uefi = 2,
}

/// A drive of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineDrive {
    /// Its position in the machine, which stays the same from start to start.
    pub name: String,
    /// In QEMU's words: `virtio-blk-pci`.
    pub device: String,
    /// The controller to which it is attached; may be empty.
    pub controller: String,
    /// Its position in the boot order.
    pub boot_index: Option<u64>,
    /// Bytes.
    pub size: u64,
    /// The file in which the machine keeps it.
    pub file: String,
    /// The format of that file: `qcow2`.
    pub format: String,
    /// The snapshot of the same time, if one was requested. It is in the catalog unless it has
    /// failed.
    pub snapshot: Option<SnapshotId>,
    /// The place of its device on the first PCI bus: 8 times the device number, plus the function.
    /// `None` if it is elsewhere.
    pub pci_address: Option<u8>,
    /// Fields that this version does not know.
    pub unknown: UnknownFields,
}

impl Machine {
    /// Returns the drive whose content is in this snapshot.
    #[must_use]
    pub fn drive_in(&self, snapshot: SnapshotId) -> Option<&MachineDrive> {
        self.drives.iter().find(|drive| drive.snapshot == Some(snapshot))
    }

    /// Returns the snapshot of the same moment with the variables of the firmware, if there is one.
    #[must_use]
    pub fn firmware_variables(&self) -> Option<SnapshotId> {
        self.drives.iter().filter(|drive| drive.is_firmware()).find_map(|drive| drive.snapshot)
    }

    /// Encodes the fields of the record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let head = FieldWriter::new()
            .bytes(1, self.name.as_bytes())
            .optional_bytes(2, self.uuid.as_ref().map(<[u8; 16]>::as_slice))
            .bytes(3, self.architecture.as_bytes())
            .bytes(4, self.board.as_bytes())
            .bytes(5, self.processor.as_bytes())
            .number(6, self.cpu_count)
            .number(7, self.memory)
            .number(8, self.firmware as u64);
        self.drives
            .iter()
            .fold(head, |fields, drive| fields.bytes(9, &drive.encode()))
            .finish_with(&self.unknown)
    }

    /// Decodes the fields of a record.
    ///
    /// # Errors
    /// [`FieldError`].
    pub fn decode(fields: &[u8]) -> Result<Self, FieldError> {
        let mut machine = Self::default();
        for field in FieldReader::new(fields) {
            let field = field?;
            match field.number {
                1 => machine.name = field.text()?.into(),
                2 => machine.uuid = Some(sixteen(&field)?),
                3 => machine.architecture = field.text()?.into(),
                4 => machine.board = field.text()?.into(),
                5 => machine.processor = field.text()?.into(),
                6 => machine.cpu_count = field.value()?,
                7 => machine.memory = field.value()?,
                8 => {
                    machine.firmware = match field.value()? {
                        1_u64 => Firmware::Bios,
                        2 => Firmware::Uefi,
                        _ => Firmware::Unknown,
                    }
                }
                9 if machine.drives.len() < DRIVE_COUNT_MAX => {
                    machine.drives.push(MachineDrive::decode(field.bytes)?);
                }
                9 => return Err(field.unexpected()),
                _ => machine.unknown.keep(&field),
            }
        }
        Ok(machine)
    }
}

impl MachineDrive {
    /// Returns true if it is no disk, but flash memory with the code or the variables of the
    /// firmware.
    #[must_use]
    pub fn is_firmware(&self) -> bool {
        FLASH_DEVICES.contains(&self.device.as_str())
    }

    fn encode(&self) -> Vec<u8> {
        FieldWriter::new()
            .bytes(1, self.name.as_bytes())
            .bytes(2, self.device.as_bytes())
            .bytes(3, self.controller.as_bytes())
            .optional_number(4, self.boot_index.map(|index| index.saturating_add(1)))
            .number(5, self.size)
            .bytes(6, self.file.as_bytes())
            .bytes(7, self.format.as_bytes())
            .optional_bytes(8, self.snapshot.as_ref().map(|id| id.0.as_slice()))
            .optional_number(9, self.pci_address.map(u64::from))
            .finish_with(&self.unknown)
    }

    fn decode(fields: &[u8]) -> Result<Self, FieldError> {
        let mut drive = Self::default();
        for field in FieldReader::new(fields) {
            let field = field?;
            match field.number {
                1 => drive.name = field.text()?.into(),
                2 => drive.device = field.text()?.into(),
                3 => drive.controller = field.text()?.into(),
                4 => drive.boot_index = field.value::<u64>()?.checked_sub(1),
                5 => drive.size = field.value()?,
                6 => drive.file = field.text()?.into(),
                7 => drive.format = field.text()?.into(),
                8 => drive.snapshot = Some(SnapshotId(sixteen(&field)?)),
                9 => drive.pci_address = Some(field.value()?),
                _ => drive.unknown.keep(&field),
            }
        }
        Ok(drive)
    }
}

fn sixteen(field: &Field<'_>) -> Result<[u8; 16], FieldError> {
    field.bytes.try_into().map_err(|_| field.unexpected())
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A machine with two drives.
    pub(crate) fn machine() -> Machine {
        let drive = |name: &str, boot_index, snapshot| MachineDrive {
            name: name.into(),
            device: "ide-hd".into(),
            controller: "ich9-ahci".into(),
            boot_index,
            size: 1 << 40,
            file: "/srv/web.qcow2".into(),
            format: "qcow2".into(),
            snapshot,
            pci_address: boot_index.map(|_| 8),
            unknown: UnknownFields::default(),
        };
        Machine {
            name: "web".into(),
            uuid: Some([7; 16]),
            architecture: "x86_64".into(),
            board: "pc-q35-7.2".into(),
            processor: "qemu64".into(),
            cpu_count: 4,
            memory: 1 << 31,
            firmware: Firmware::Uefi,
            drives: vec![drive("a", Some(0), Some(SnapshotId([9; 16]))), drive("b", None, None)],
            unknown: UnknownFields::default(),
        }
    }

    #[test]
    fn a_machine_survives_the_round_trip() {
        assert_eq!(Machine::decode(&machine().encode()), Ok(machine()));
        assert_eq!(Machine::decode(&[]), Ok(Machine::default()));
        assert!(Machine::decode(&[2, 1, 0]).is_err());
    }

    #[test]
    fn the_variables_of_the_firmware_are_found() {
        let flash = |device: &str, byte: Option<u8>| MachineDrive {
            device: device.into(),
            snapshot: byte.map(|byte| SnapshotId([byte; 16])),
            ..MachineDrive::default()
        };
        let drives =
            vec![flash("cfi.pflash01", None), flash("ide-hd", Some(1)), flash("cfi.pflash01", Some(2))];
        let machine = Machine { drives, ..Machine::default() };
        assert_eq!(machine.firmware_variables(), Some(SnapshotId([2; 16])));
        assert!(machine.drive_in(SnapshotId([2; 16])).unwrap().is_firmware());
        assert!(!machine.drive_in(SnapshotId([1; 16])).unwrap().is_firmware());
        assert_eq!(Machine::default().firmware_variables(), None);
    }

    proptest! {
        #[test]
        fn no_record_panics(place in any::<usize>(), byte in any::<u8>(), cut in any::<usize>()) {
            let mut fields = machine().encode();
            let place = place % fields.len();
            fields[place] ^= byte;
            fields.truncate(cut % (fields.len() + 1));
            let _ = Machine::decode(&fields);
        }
    }
}
