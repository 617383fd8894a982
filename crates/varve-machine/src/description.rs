//! What it takes to start a machine again, as far as QEMU tells.

use serde_json::{Value, json};
use varve_archive::{Firmware, Machine, MachineDrive};

use crate::drives::Drive;
use crate::qmp::{Qmp, QmpError};

/// What pieces of the name of a firmware's file say that it is UEFI.
const UEFI_WORDS: [&str; 4] = ["ovmf", "edk2", "aavmf", "efi"];

/// Describes a machine; what QEMU does not tell stays empty.
pub(crate) fn describe(qmp: &mut Qmp, drives: &[Drive]) -> Result<Machine, QmpError> {
    let name = ask(qmp, "query-name", json!({}))?;
    let uuid = ask(qmp, "query-uuid", json!({}))?;
    let target = ask(qmp, "query-target", json!({}))?;
    let memory = ask(qmp, "query-memory-size-summary", json!({}))?;
    let cpus = ask(qmp, "query-cpus-fast", json!({}))?;
    let cpus = cpus.as_array().cloned().unwrap_or_default();
    let cpu_path = cpus.first().and_then(|cpu| cpu["qom-path"].as_str()).unwrap_or_default().to_owned();
    let board = property(qmp, "/machine", "type")?;
    let architecture = text(&target["arch"]);
    let bytes = |key: &str| memory[key].as_u64().unwrap_or(0);
    Ok(Machine {
        name: text(&name["name"]),
        uuid: parse_uuid(&text(&uuid["UUID"])),
        processor: without_ending(&property(qmp, &cpu_path, "type")?, &format!("-{architecture}-cpu")),
        board: without_ending(&board, "-machine"),
        cpu_count: cpus.len() as u64,
        memory: bytes("base-memory").saturating_add(bytes("plugged-memory")),
        firmware: firmware(qmp, &architecture)?,
        drives: drives.iter().map(|drive| describe_drive(qmp, drive)).collect::<Result<_, _>>()?,
        architecture,
    })
}

fn describe_drive(qmp: &mut Qmp, drive: &Drive) -> Result<MachineDrive, QmpError> {
    let mut described = MachineDrive {
        name: drive.name.clone(),
        size: drive.size,
        file: drive.file.clone(),
        format: drive.format.clone(),
        ..MachineDrive::default()
    };
    let Some(path) = &drive.device_path else { return Ok(described) };
    described.device = property(qmp, path, "type")?;
    let boot_index = ask(qmp, "qom-get", json!({ "path": path, "property": "bootindex" }))?;
    described.boot_index = boot_index.as_i64().and_then(|index| u64::try_from(index).ok());
    if !described.device.starts_with("virtio-blk") {
        let bus = property(qmp, path, "parent_bus")?;
        let controller = bus.rsplit_once('/').map_or("", |(controller, _)| controller);
        described.controller = property(qmp, controller, "type")?;
    }
    Ok(described)
}

/// Whether a thread of its own does the drive's reading and writing.
pub(crate) fn has_thread(qmp: &mut Qmp, drive: &Drive) -> Result<bool, QmpError> {
    let Some(path) = &drive.device_path else { return Ok(false) };
    let bus = property(qmp, path, "parent_bus")?;
    // Of a drive on a SCSI bus it is the controller that has the thread.
    let controller = bus.rsplit_once('/').map_or("", |(controller, _)| controller).to_owned();
    let above = controller.strip_suffix("/virtio-backend").unwrap_or_default().to_owned();
    for place in [path, &controller, &above] {
        if !property(qmp, place, "iothread")?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn firmware(qmp: &mut Qmp, architecture: &str) -> Result<Firmware, QmpError> {
    if !property(qmp, "/machine", "pflash0")?.is_empty() {
        return Ok(Firmware::Uefi);
    }
    let file = property(qmp, "/machine", "firmware")?.to_lowercase();
    let is_x86 = matches!(architecture, "x86_64" | "i386");
    Ok(match UEFI_WORDS.iter().any(|word| file.contains(word)) {
        true => Firmware::Uefi,
        false if is_x86 => Firmware::Bios,
        false => Firmware::Unknown,
    })
}

/// An answer, or nothing where this QEMU does not know the question.
fn ask(qmp: &mut Qmp, command: &str, arguments: Value) -> Result<Value, QmpError> {
    match qmp.execute(command, arguments) {
        Err(QmpError::Refused { .. }) => Ok(Value::Null),
        answer => answer,
    }
}

fn property(qmp: &mut Qmp, path: &str, name: &str) -> Result<String, QmpError> {
    if path.is_empty() {
        return Ok(String::new());
    }
    Ok(text(&ask(qmp, "qom-get", json!({ "path": path, "property": name }))?))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn without_ending(text: &str, ending: &str) -> String {
    text.strip_suffix(ending).unwrap_or(text).to_owned()
}

/// `None` too for the UUID of all zeros, which QEMU has when it was given none.
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
