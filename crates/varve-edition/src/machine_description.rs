//! The description of the machine that starts from a published disk. It is the content of a stored
//! block, as text.
//!
//! ```text
//! varve machine 1
//! memory = BYTES                                         (64 MiB to 16 TiB)
//! cpus = COUNT                                           (1 to 64)
//! firmware = bios | uefi
//! board = pc | q35
//! bus = virtio | ide | sata | scsi | nvme                (of the disk)
//! ```
//!
//! Each line but the first may be missing. Lines with unknown keys are skipped. A reader does not
//! trust the publisher with its own machine, so a description consists of these numbers and words:
//! no paths, no devices, no arguments.

use varve_block::has_kind;

use crate::first_line::later_version;
use crate::head_lines::{decode_number, pairs};

const FIRST_LINE: &str = "varve machine 1";
const MEMORY_BYTES_MIN: u64 = 64 << 20;
const MEMORY_BYTES_MAX: u64 = 16 << 40;
const CPU_COUNT_MAX: u64 = 64;
/// A longer description is not read.
pub const MACHINE_DESCRIPTION_BYTES_MAX: usize = 4096;

/// The firmware of a described machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DescribedFirmware {
    Bios,
    Uefi,
}

/// The board of a described machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DescribedBoard {
    Pc,
    /// With PCI Express.
    Q35,
}

/// The bus of the disk of a described machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DescribedBus {
    Virtio,
    Ide,
    Sata,
    Scsi,
    Nvme,
}

const FIRMWARES: [(DescribedFirmware, &str); 2] =
    [(DescribedFirmware::Bios, "bios"), (DescribedFirmware::Uefi, "uefi")];
const BOARDS: [(DescribedBoard, &str); 2] = [(DescribedBoard::Pc, "pc"), (DescribedBoard::Q35, "q35")];
const BUSES: [(DescribedBus, &str); 5] = [
    (DescribedBus::Virtio, "virtio"),
    (DescribedBus::Ide, "ide"),
    (DescribedBus::Sata, "sata"),
    (DescribedBus::Scsi, "scsi"),
    (DescribedBus::Nvme, "nvme"),
];

/// A machine, as far as its description says anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MachineDescription {
    /// In bytes.
    pub memory: Option<u64>,
    pub cpu_count: Option<u64>,
    pub firmware: Option<DescribedFirmware>,
    pub board: Option<DescribedBoard>,
    pub bus: Option<DescribedBus>,
}

/// The reason why a text is not the description of a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MachineDescriptionError {
    #[error("it does not begin with {FIRST_LINE:?}: it describes no machine")]
    FirstLine,
    #[error("it has version {version}, which is newer than this program: use a newer one")]
    NewerVersion { version: u32 },
    #[error("it is longer than {MACHINE_DESCRIPTION_BYTES_MAX} bytes")]
    TooLong,
    #[error("line {line} is invalid: {reason}")]
    Line { line: usize, reason: &'static str },
}

has_kind!(MachineDescriptionError: Self::NewerVersion { .. } => NewerVersion);

impl MachineDescription {
    /// Returns the description with its numbers in the bounds of the format.
    #[must_use]
    pub fn bounded(self) -> Self {
        let memory = self.memory.map(|bytes| bytes.clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX));
        let cpu_count = self.cpu_count.map(|count| count.clamp(1, CPU_COUNT_MAX));
        Self { memory, cpu_count, ..self }
    }

    /// Writes the description.
    #[must_use]
    pub fn to_text(&self) -> String {
        let number = |number: u64| number.to_string();
        let lines = [
            ("memory", self.memory.map(number)),
            ("cpus", self.cpu_count.map(number)),
            ("firmware", word_of(&FIRMWARES, self.firmware)),
            ("board", word_of(&BOARDS, self.board)),
            ("bus", word_of(&BUSES, self.bus)),
        ];
        let known = lines.into_iter().filter_map(|(key, value)| Some(format!("{key} = {}\n", value?)));
        [format!("{FIRST_LINE}\n")].into_iter().chain(known).collect()
    }

    /// Reads a description.
    ///
    /// # Errors
    /// [`MachineDescriptionError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, MachineDescriptionError> {
        if bytes.len() > MACHINE_DESCRIPTION_BYTES_MAX {
            return Err(MachineDescriptionError::TooLong);
        }
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.ends_with('\n'));
        let rest = text.and_then(|text| text.strip_prefix(FIRST_LINE)?.strip_prefix('\n'));
        let rest = rest.ok_or_else(|| match text.and_then(|text| later_version(text, FIRST_LINE)) {
            Some(version) => MachineDescriptionError::NewerVersion { version },
            None => MachineDescriptionError::FirstLine,
        })?;
        let mut found = Self::default();
        for (line, pair) in (2..).zip(pairs(rest)) {
            let wrong = |reason| MachineDescriptionError::Line { line, reason };
            let (key, value) = pair.ok_or(wrong("it has no \" = \""))?;
            let is_new = match key {
                "memory" => {
                    let bytes = decode_number(value)
                        .filter(|bytes| (MEMORY_BYTES_MIN..=MEMORY_BYTES_MAX).contains(bytes));
                    set(
                        &mut found.memory,
                        bytes.ok_or(wrong("a machine has 67108864 to 17592186044416 bytes"))?,
                    )
                }
                "cpus" => {
                    let count = decode_number(value).filter(|count| (1..=CPU_COUNT_MAX).contains(count));
                    set(&mut found.cpu_count, count.ok_or(wrong("a machine has 1 to 64 processors"))?)
                }
                "firmware" => set(
                    &mut found.firmware,
                    known(&FIRMWARES, value).ok_or(wrong("a firmware is bios or uefi"))?,
                ),
                "board" => set(&mut found.board, known(&BOARDS, value).ok_or(wrong("a board is pc or q35"))?),
                "bus" => {
                    let bus =
                        known(&BUSES, value).ok_or(wrong("a bus is virtio, ide, sata, scsi or nvme"))?;
                    set(&mut found.bus, bus)
                }
                _ => true,
            };
            if !is_new {
                return Err(wrong("an earlier line has this key"));
            }
        }
        Ok(found)
    }
}

fn word_of<T: Copy + PartialEq>(words: &[(T, &str)], value: Option<T>) -> Option<String> {
    words.iter().find(|(known, _)| Some(*known) == value).map(|(_, word)| (*word).to_owned())
}

fn known<T: Copy>(words: &[(T, &str)], word: &str) -> Option<T> {
    words.iter().find(|(_, known)| *known == word).map(|(value, _)| *value)
}

/// Returns false if there is a value already.
fn set<T>(found: &mut Option<T>, value: T) -> bool {
    found.replace(value).is_none()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_description_is_the_documented_text() {
        let whole = MachineDescription {
            memory: Some(1 << 30),
            cpu_count: Some(2),
            firmware: Some(DescribedFirmware::Uefi),
            board: Some(DescribedBoard::Q35),
            bus: Some(DescribedBus::Nvme),
        };
        let text =
            "varve machine 1\nmemory = 1073741824\ncpus = 2\nfirmware = uefi\nboard = q35\nbus = nvme\n";
        assert_eq!(whole.to_text(), text);
        assert_eq!(MachineDescription::parse(text.as_bytes()), Ok(whole));
        let later = MachineDescription::parse(b"varve machine 1\nsound = on\ncpus = 2\n").unwrap();
        assert_eq!(later, MachineDescription { cpu_count: Some(2), ..MachineDescription::default() });
    }

    #[test]
    fn anything_else_is_refused() {
        for (text, says) in [
            ("", "varve machine 1"),
            ("varve machine 1", "varve machine 1"),
            ("varve machine 2\n", "newer than this program"),
            ("varve machine 1\nmemory\n", "line 2 is invalid: it has no"),
            ("varve machine 1\nmemory = 0\n", "67108864"),
            ("varve machine 1\nmemory = 17592186044417\n", "67108864"),
            ("varve machine 1\nmemory = 1G\n", "67108864"),
            ("varve machine 1\ncpus = 65\n", "1 to 64"),
            ("varve machine 1\ncpus = 2,maxcpus=255\n", "1 to 64"),
            ("varve machine 1\nfirmware = /etc/passwd\n", "bios or uefi"),
            ("varve machine 1\nboard = q35,dump-guest-core=on\n", "pc or q35"),
            ("varve machine 1\nbus = virtio -drive file=/etc/shadow\n", "a bus is"),
            ("varve machine 1\ncpus = 1\ncpus = 1\n", "line 3 is invalid: an earlier line"),
        ] {
            let error = MachineDescription::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(says), "{error} is not {says}");
        }
        let long = [b' '; MACHINE_DESCRIPTION_BYTES_MAX + 1];
        assert_eq!(MachineDescription::parse(&long), Err(MachineDescriptionError::TooLong));
    }

    proptest! {
        #[test]
        fn a_description_is_read_as_it_was_written(
            memory: Option<u64>, cpu_count: Option<u64>, firmware in 0..3_usize, board in 0..3_usize, bus in 0..6_usize,
        ) {
            let description = MachineDescription {
                memory,
                cpu_count,
                firmware: FIRMWARES.get(firmware).map(|(value, _)| *value),
                board: BOARDS.get(board).map(|(value, _)| *value),
                bus: BUSES.get(bus).map(|(value, _)| *value),
            }
            .bounded();
            prop_assert_eq!(MachineDescription::parse(description.to_text().as_bytes()), Ok(description));
        }

        #[test]
        fn no_bytes_panic(text in "((memory|cpus|firmware|board|bus)? ?=? ?[0-9a-z]{0,9}\n){0,9}") {
            if let Ok(found) = MachineDescription::parse(format!("varve machine 1\n{text}").as_bytes()) {
                prop_assert_eq!(found.bounded(), found);
            }
        }
    }
}
