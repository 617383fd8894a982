//! Describes a running machine, so that it can be booted again from its snapshots.

use serde_json::{Value, json};
use varve_archive::{Firmware, Machine, MachineDrive};
use varve_content::image::SectorSizes;

use crate::drives::RunningDrive;
use crate::qmp::{Qmp, QmpError};

/// Parts of the name of a firmware file that identify UEFI.
const UEFI_WORDS: [&str; 4] = ["ovmf", "edk2", "aavmf", "efi"];

/// The names of the first PCI bus of a machine.
const FIRST_BUSES: [&str; 2] = ["pcie.0", "pci.0"];

/// Describes a machine. Facts that QEMU does not report stay empty.
pub(crate) fn describe(qmp: &mut Qmp, drives: &[RunningDrive]) -> Result<Machine, QmpError> {
    let [name, uuid, target, memory, cpus] = qmp.execute_together([
        ("query-name", json!({})),
        ("query-uuid", json!({})),
        ("query-target", json!({})),
        ("query-memory-size-summary", json!({})),
        ("query-cpus-fast", json!({})),
    ])?;
    let (name, uuid, target) = (known(name)?, known(uuid)?, known(target)?);
    let (memory, cpus) = (known(memory)?, known(cpus)?);
    let cpus = cpus.as_array().cloned().unwrap_or_default();
    let cpu_path = cpus.first().and_then(|cpu| cpu["qom-path"].as_str()).unwrap_or_default();
    let machine = "/machine";
    let asked = [(machine, "type"), (machine, "pflash0"), (machine, "firmware"), (cpu_path, "type")];
    let [board, flash, firmware_file, processor] = texts(qmp, asked)?;
    let architecture = text(&target["arch"]);
    let bytes = |key: &str| memory[key].as_u64().unwrap_or(0);
    Ok(Machine {
        name: text(&name["name"]),
        uuid: parse_uuid(&text(&uuid["UUID"])),
        processor: without_ending(&processor, &format!("-{architecture}-cpu")),
        board: without_ending(&board, "-machine"),
        cpu_count: cpus.len() as u64,
        memory: bytes("base-memory").saturating_add(bytes("plugged-memory")),
        firmware: firmware(&architecture, &flash, &firmware_file),
        drives: describe_drives(qmp, drives)?,
        architecture,
        ..Machine::default()
    })
}

fn describe_drives(qmp: &mut Qmp, drives: &[RunningDrive]) -> Result<Vec<MachineDrive>, QmpError> {
    let path = |drive: &RunningDrive| drive.device_path.clone().unwrap_or_default();
    let of_each = |name| drives.iter().map(move |drive| (path(drive), name));
    let asked: Vec<_> = of_each("type")
        .chain(of_each("bootindex"))
        .chain(of_each("parent_bus"))
        .chain(of_each("addr"))
        .collect();
    let answers = properties(qmp, &asked)?;
    let answer = |which: usize, number: usize| answers.get(which * drives.len() + number);
    let mut described = Vec::with_capacity(drives.len());
    // For a drive on a bus, the path of the bus controller; empty for others.
    let mut controllers = Vec::with_capacity(drives.len());
    for (number, drive) in drives.iter().enumerate() {
        let device = answer(0, number).map(text).unwrap_or_default();
        let bus = answer(2, number).map(text).unwrap_or_default();
        let is_on_bus = drive.device_path.is_some() && !device.starts_with("virtio-blk");
        controllers.push((if is_on_bus { above(&bus) } else { String::new() }, "type"));
        described.push(MachineDrive {
            name: drive.name.clone(),
            size: drive.size,
            file: drive.file.clone(),
            format: drive.format.clone(),
            pci_address: pci_address(&bus, answer(3, number)),
            boot_index: answer(1, number).and_then(Value::as_i64).and_then(|index| u64::try_from(index).ok()),
            device,
            ..MachineDrive::default()
        });
    }
    for (drive, controller) in described.iter_mut().zip(properties(qmp, &controllers)?) {
        drive.controller = text(&controller);
    }
    Ok(described)
}

/// Returns the address of a device on this bus, if it is the first one of the machine.
fn pci_address(bus: &str, address: Option<&Value>) -> Option<u8> {
    let is_first = FIRST_BUSES.iter().any(|first| bus.rsplit('/').next() == Some(first));
    address.filter(|_| is_first)?.as_u64().and_then(|address| u8::try_from(address).ok())
}

/// Returns the sizes of the sectors that the guest sees on each drive.
pub(crate) fn sector_sizes(
    qmp: &mut Qmp,
    drives: &[RunningDrive],
) -> Result<Vec<Option<SectorSizes>>, QmpError> {
    let path = |drive: &RunningDrive| drive.device_path.clone().unwrap_or_default();
    let of_each = |name| drives.iter().map(move |drive| (path(drive), name));
    let asked: Vec<_> = of_each("logical_block_size").chain(of_each("physical_block_size")).collect();
    let answers: Vec<u64> =
        properties(qmp, &asked)?.iter().map(|answer| answer.as_u64().unwrap_or(0)).collect();
    let (logical, physical) = answers.split_at(drives.len());
    Ok(logical
        .iter()
        .zip(physical)
        .map(|(logical, physical)| SectorSizes::new(*logical, *physical))
        .collect())
}

/// Returns true if an I/O thread serves the drive.
pub(crate) fn has_thread(qmp: &mut Qmp, drive: &RunningDrive) -> Result<bool, QmpError> {
    let Some(path) = &drive.device_path else { return Ok(false) };
    let [bus, own] = texts(qmp, [(path, "parent_bus"), (path, "iothread")])?;
    // On a SCSI bus, the controller has the thread.
    let controller = above(&bus);
    let backend_of = controller.strip_suffix("/virtio-backend").unwrap_or_default();
    let above = texts(qmp, [(controller.as_str(), "iothread"), (backend_of, "iothread")])?;
    Ok(!own.is_empty() || above.iter().any(|thread| !thread.is_empty()))
}

/// Returns the parent of a path.
fn above(path: &str) -> String {
    path.rsplit_once('/').map_or_else(String::new, |(above, _)| above.to_owned())
}

fn firmware(architecture: &str, flash: &str, file: &str) -> Firmware {
    let file = file.to_lowercase();
    let is_uefi = !flash.is_empty() || UEFI_WORDS.iter().any(|word| file.contains(word));
    let is_x86 = matches!(architecture, "x86_64" | "i386");
    match is_uefi {
        true => Firmware::Uefi,
        false if is_x86 => Firmware::Bios,
        false => Firmware::Unknown,
    }
}

/// Returns an answer, or null if this QEMU does not know the command.
fn known(answer: Result<Value, QmpError>) -> Result<Value, QmpError> {
    match answer {
        Err(QmpError::Refused { .. }) => Ok(Value::Null),
        answer => answer,
    }
}

/// Reads properties of QEMU's objects, given as path and name. An empty path is not queried and
/// gives null.
fn properties(qmp: &mut Qmp, of: &[(String, &str)]) -> Result<Vec<Value>, QmpError> {
    let is_asked = |(path, _): &&(String, &str)| !path.is_empty();
    let question = |(path, name): &(String, &str)| ("qom-get", json!({ "path": path, "property": name }));
    let questions: Vec<_> = of.iter().filter(is_asked).map(question).collect();
    let mut answers = qmp.execute_all(&questions)?.into_iter();
    of.iter()
        .map(|of| if is_asked(&of) { answers.next().map_or(Ok(Value::Null), known) } else { Ok(Value::Null) })
        .collect()
}

/// Reads properties that are text.
fn texts<const COUNT: usize>(qmp: &mut Qmp, of: [(&str, &str); COUNT]) -> Result<[String; COUNT], QmpError> {
    let of = of.map(|(path, name)| (path.to_owned(), name));
    let answers: Vec<String> = properties(qmp, &of)?.iter().map(text).collect();
    Ok(answers.try_into().expect("there is an answer to each question"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn without_ending(text: &str, ending: &str) -> String {
    text.strip_suffix(ending).unwrap_or(text).to_owned()
}

/// Returns `None` also for the UUID of all zeros, which QEMU reports if it has none.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|digit| *digit != '-').collect();
    if digits.len() != 32 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    Some(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes()).filter(|uuid| *uuid != [0; 16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_on_the_first_bus_are_kept() {
        let on = |bus: &str, address: Value| pci_address(bus, Some(&address));
        assert_eq!(on("/machine/q35/pcie.0", json!(8)), Some(8));
        assert_eq!(on("/machine/i440fx/pci.0", json!(216)), Some(216));
        assert_eq!(on("/machine/peripheral/port/pci.3", json!(0)), None);
        assert_eq!(on("/machine/q35/pcie.0", json!(256)), None);
        assert_eq!(on("/machine/q35/pcie.0", json!(-1)), None);
        assert_eq!(pci_address("", None), None);
    }

    #[test]
    fn uuids_are_read() {
        let text = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
        assert_eq!(parse_uuid(text).map(|uuid| (uuid[0], uuid[15])), Some((0x6b, 0xc8)));
        for none in
            ["", "00000000-0000-0000-0000-000000000000", "6ba7b810", "+ba7b8109dad11d180b400c04fd430c8"]
        {
            assert_eq!(parse_uuid(none), None, "{none}");
        }
    }
}
