//! Makes the command line of QEMU. Pure.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;
use varve_archive::Firmware;

use super::hardware::{Bus, Hardware, USUAL_SECTOR_BYTES};
use super::setting::{Accelerator, BootDisk, Screen};

/// The number of functions in a slot of a PCI bus.
const FUNCTION_COUNT: u8 = 8;

/// The paths of QEMU's sockets and files.
pub(super) struct EmulatorPaths<'a> {
    /// The socket of its monitor, which QEMU creates.
    pub(super) monitor: &'a Path,
    /// The socket of the first serial line, on which this process already listens; `None` if the
    /// console is not read.
    pub(super) console: Option<&'a Path>,
    /// The code of UEFI, and the file of its variables, which QEMU writes.
    pub(super) firmware: Option<(&'a Path, &'a Path)>,
    /// QEMU's name for the kind of window.
    pub(super) window: &'a str,
}

/// Returns all arguments after the program's name.
pub(super) fn command_line(
    hardware: &Hardware,
    disks: &[BootDisk],
    screen: &Screen,
    accelerator: Accelerator,
    places: &EmulatorPaths<'_>,
) -> Vec<String> {
    let mut args: Vec<String> = Vec::new();
    let mut say = |option: &str, value: String| args.extend([option.to_owned(), value]);
    let (accel, processor) = match accelerator {
        // Nested KVM may refuse to pass on this feature, and QEMU then does not start.
        Accelerator::Kvm => ("kvm", "host,arch-capabilities=off"),
        Accelerator::Software => ("tcg", "max"),
    };
    let board = if hardware.is_q35 { "q35" } else { "pc" };
    say("-machine", format!("{board},accel={accel}"));
    say("-cpu", processor.into());
    say("-m", format!("size={}k", hardware.memory >> 10));
    say("-smp", hardware.cpu_count.to_string());
    say("-name", "varve boot".into());
    if let (Firmware::Uefi, Some((code, variables))) = (hardware.firmware, places.firmware) {
        let flash = |unit: u8, file: &Path, is_code: bool| {
            format!(
                "if=pflash,format=raw,unit={unit},readonly={},file={}",
                if is_code { "on" } else { "off" },
                doubled_commas(file)
            )
        };
        say("-drive", flash(0, code, true));
        say("-drive", flash(1, variables, false));
    }
    for (number, disk) in disks.iter().enumerate() {
        for node in block_nodes(number, disk) {
            say("-blockdev", node.to_string());
        }
    }
    // Devices with a place of their own come first, so that no other device gets it.
    let (placed, others) = devices(disks, hardware.is_q35);
    placed.into_iter().for_each(|device| say("-device", device));
    say("-vga", "none".into());
    say("-device", "VGA".into());
    say("-nic", "none".into());
    if hardware.network {
        let is_old = disks.iter().any(|disk| disk.bus == Bus::Ide);
        let model = if is_old { "e1000" } else { "virtio-net-pci" };
        say("-netdev", "user,id=network".into());
        say("-device", format!("{model},netdev=network"));
    }
    others.into_iter().for_each(|device| say("-device", device));
    say("-device", "virtio-rng-pci".into());
    match places.console {
        Some(socket) => {
            say("-chardev", format!("socket,id=console,path={}", doubled_commas(socket)));
            say("-serial", "chardev:console".into());
        }
        None => say("-serial", "null".into()),
    }
    say("-qmp", format!("unix:{},server=on,wait=off", doubled_commas(places.monitor)));
    match screen {
        Screen::None => say("-display", "none".into()),
        Screen::Vnc(address) => say("-display", format!("vnc={address}")),
        Screen::Window => say("-display", places.window.into()),
    }
    if *screen != Screen::None {
        // A tablet reports absolute positions, so that the guest's pointer follows the host's.
        say("-device", "qemu-xhci".into());
        say("-device", "usb-tablet".into());
    }
    if disks.iter().any(|disk| disk.kept.is_some()) {
        // The guest starts only after the kept files have been checked again.
        args.push("-S".to_owned());
    }
    args.extend(["-nodefaults".to_owned(), "-no-user-config".to_owned()]);
    args
}

/// Returns the devices of the disks: those with a place on the first PCI bus, and the others, each
/// at the next place of its bus, with the controllers that they need.
fn devices(disks: &[BootDisk], is_q35: bool) -> (Vec<String>, Vec<String>) {
    let (mut placed, mut devices) = (Vec::new(), Vec::new());
    let mut taken = BTreeSet::new();
    for (number, disk) in disks.iter().enumerate() {
        let before = disks.iter().take(number).filter(|other| other.bus == disk.bus).count();
        let controller = match disk.bus {
            Bus::Sata => Some("ich9-ahci,id=sata"),
            Bus::Scsi => Some("virtio-scsi-pci,id=scsi"),
            Bus::Virtio | Bus::Ide | Bus::Nvme => None,
        };
        devices.extend(controller.filter(|_| before == 0).map(str::to_owned));
        let device = match disk.bus {
            Bus::Virtio => "virtio-blk-pci".into(),
            // The controller of the newer board takes one disk on each of its buses.
            Bus::Ide if is_q35 => format!("ide-hd,bus=ide.{before}"),
            Bus::Ide => format!("ide-hd,bus=ide.{},unit={}", before / 2, before % 2),
            Bus::Sata => format!("ide-hd,bus=sata.{before}"),
            Bus::Scsi => format!("scsi-hd,bus=scsi.0,scsi-id={before}"),
            Bus::Nvme => format!("nvme,serial=varve-{number}"),
        };
        let sectors = sector_options(disk);
        let device = format!("{device},drive=disk{number},bootindex={}{sectors}", disk.boot_index);
        match pci_slot(disk, is_q35).filter(|slot| taken.insert(*slot)) {
            Some(slot) => placed.push(format!("{device},addr={slot:#x}")),
            None => devices.push(device),
        }
    }
    (placed, devices)
}

/// Returns the slot on the first PCI bus in which the firmware expects a disk. `None` if that is
/// not known, or if the board has devices of its own there.
fn pci_slot(disk: &BootDisk, is_q35: bool) -> Option<u8> {
    let is_on_pci = matches!(disk.bus, Bus::Virtio | Bus::Nvme);
    let address = disk.pci_address.filter(|_| is_on_pci)?;
    // Another function than the first is a device only beside a first one.
    let slot = Some(address / FUNCTION_COUNT).filter(|_| address.is_multiple_of(FUNCTION_COUNT))?;
    let free = if is_q35 { 1..=30 } else { 2..=31 };
    free.contains(&slot).then_some(slot)
}

/// Returns the options for the sizes of a disk's sectors. The usual sizes need none.
fn sector_options(disk: &BootDisk) -> String {
    let Some(sectors) = disk.sectors.filter(|sectors| disk.bus.can_have(sectors.logical())) else {
        return String::new();
    };
    let (logical, physical) = (sectors.logical(), sectors.physical());
    if (logical, physical) == (USUAL_SECTOR_BYTES, USUAL_SECTOR_BYTES) {
        return String::new();
    }
    format!(",logical_block_size={logical},physical_block_size={physical}")
}

/// Returns the block nodes of a disk, from the lowest up to the one for the guest, which is called
/// `disk` and its number.
fn block_nodes(number: usize, disk: &BootDisk) -> Vec<serde_json::Value> {
    let server = json!({ "type": "unix", "path": disk.socket.to_string_lossy() });
    let [archive, seen, kept] = ["archive", "disk", "kept"].map(|kind| format!("{kind}{number}"));
    let archived = if disk.kept.is_some() { format!("archived-{seen}") } else { seen.clone() };
    let mut nodes = vec![
        json!({ "driver": "nbd", "node-name": archive, "server": server, "export": disk.export, "discard": "unmap",
                "read-only": disk.kept.is_some() }),
        json!({ "driver": "raw", "node-name": archived, "file": archive, "discard": "unmap",
                "read-only": disk.kept.is_some() }),
    ];
    if let Some(path) = &disk.kept {
        nodes.push(
            json!({ "driver": "file", "node-name": kept, "filename": path.to_string_lossy(), "discard": "unmap" }),
        );
        nodes.push(json!({ "driver": "qcow2", "node-name": seen, "file": kept, "backing": archived,
                           "discard": "unmap" }));
    }
    nodes
}

/// Escapes a path in an option whose parts are separated by commas.
fn doubled_commas(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use varve_content::image::SectorSizes;

    use super::*;

    fn disk(bus: Bus, boot_index: u64) -> BootDisk {
        BootDisk {
            socket: "/run/a,b/nbd".into(),
            export: "0a".into(),
            kept: None,
            bus,
            pci_address: None,
            sectors: None,
            boot_index,
        }
    }

    fn words_of(hardware: &Hardware, disks: &[BootDisk], screen: &Screen) -> String {
        let places = EmulatorPaths {
            monitor: Path::new("/run/a,b/monitor"),
            console: Some(Path::new("/run/a,b/console")),
            firmware: Some((Path::new("/code"), Path::new("/run/a,b/variables"))),
            window: "gtk",
        };
        command_line(hardware, disks, screen, Accelerator::Software, &places).join(" ")
    }

    fn args(hardware: &Hardware, kept: Option<&str>, screen: &Screen) -> String {
        let disk = BootDisk { kept: kept.map(Into::into), ..disk(Bus::Virtio, 1) };
        words_of(hardware, &[disk], screen)
    }

    fn hardware() -> Hardware {
        Hardware { memory: 1 << 30, cpu_count: 2, firmware: Firmware::Bios, is_q35: false, network: false }
    }

    #[test]
    fn a_guest_has_no_network_unless_asked_for() {
        let without = args(&hardware(), None, &Screen::None);
        assert!(without.contains("-nic none") && !without.contains("user,"), "{without}");
        let with = args(&Hardware { network: true, ..hardware() }, None, &Screen::None);
        assert!(with.contains("virtio-net-pci,netdev=network"), "{with}");
        let old = words_of(&Hardware { network: true, ..hardware() }, &[disk(Bus::Ide, 1)], &Screen::None);
        assert!(old.contains("e1000,netdev=network"), "{old}");
    }

    #[test]
    fn what_is_kept_lies_over_an_archive_that_is_only_read() {
        let thrown_away = args(&hardware(), None, &Screen::None);
        assert!(!thrown_away.contains("qcow2"), "{thrown_away}");
        assert!(thrown_away.contains(r#""read-only":false"#), "the export has an overlay of its own");
        let kept = args(&hardware(), Some("/home/me/kept"), &Screen::None);
        assert!(kept.contains(r#""backing":"archived-disk0""#), "{kept}");
        assert!(!kept.contains(r#""read-only":false"#), "{kept}");
        assert!(kept.contains(" -S ") && !thrown_away.contains(" -S "), "{kept}");
    }

    #[test]
    fn commas_in_paths_are_no_options() {
        let all = args(&Hardware { firmware: Firmware::Uefi, ..hardware() }, None, &Screen::Window);
        assert!(all.contains("unix:/run/a,,b/monitor,server=on"), "{all}");
        assert!(all.contains("path=/run/a,,b/console"), "{all}");
        assert!(all.contains("unit=1,readonly=off,file=/run/a,,b/variables"), "{all}");
        assert!(all.contains("usb-tablet") && all.contains("-display gtk"), "{all}");
    }

    #[test]
    fn a_disk_is_in_the_slot_that_it_had_if_that_is_free() {
        let args = |is_q35, places: &[(Bus, u8)]| {
            let disks: Vec<_> = places
                .iter()
                .map(|(bus, address)| BootDisk { pci_address: Some(*address), ..disk(*bus, 1) })
                .collect();
            words_of(&Hardware { is_q35, network: true, ..hardware() }, &disks, &Screen::None)
        };
        let placed = args(true, &[(Bus::Virtio, 8), (Bus::Nvme, 27 * 8)]);
        assert!(placed.contains("virtio-blk-pci,drive=disk0,bootindex=1,addr=0x1"), "{placed}");
        assert!(placed.contains("drive=disk1,bootindex=1,addr=0x1b"), "{placed}");
        let at = |text: &str| placed.find(text).unwrap();
        assert!(at("addr=0x1b") < at("VGA") && at("addr=0x1b") < at("netdev=network"), "{placed}");
        // Slots of the board, functions, and a slot that another disk has.
        for (is_q35, address) in [(true, 0), (true, 31 * 8 + 2), (true, 31 * 8), (false, 8), (true, 9)] {
            let elsewhere = args(is_q35, &[(Bus::Virtio, address)]);
            assert!(!elsewhere.contains("addr="), "{elsewhere}");
        }
        assert_eq!(args(true, &[(Bus::Virtio, 16), (Bus::Virtio, 16)]).matches("addr=").count(), 1);
        for bus in [Bus::Ide, Bus::Sata, Bus::Scsi] {
            assert!(!args(true, &[(bus, 16)]).contains("addr="), "{bus:?}");
        }
    }

    #[test]
    fn a_disk_has_the_sectors_that_it_had_where_its_bus_can() {
        let args = |bus, logical, physical| {
            let disk = BootDisk { sectors: SectorSizes::new(logical, physical), ..disk(bus, 1) };
            words_of(&hardware(), &[disk], &Screen::None)
        };
        for bus in [Bus::Virtio, Bus::Scsi, Bus::Nvme] {
            let native = args(bus, 4096, 4096);
            assert!(native.contains(",logical_block_size=4096,physical_block_size=4096"), "{native}");
            assert!(!args(bus, 512, 512).contains("block_size"), "{bus:?}");
        }
        for bus in [Bus::Ide, Bus::Sata] {
            assert!(!args(bus, 4096, 4096).contains("block_size"), "QEMU would refuse it: {bus:?}");
            let emulated = args(bus, 512, 4096);
            assert!(emulated.contains(",logical_block_size=512,physical_block_size=4096"), "{emulated}");
        }
    }

    #[test]
    fn each_bus_has_its_devices() {
        for (bus, first, second) in [
            (Bus::Virtio, "virtio-blk-pci,drive=disk0,bootindex=2", "virtio-blk-pci,drive=disk1,bootindex=1"),
            (Bus::Ide, "ide-hd,bus=ide.0,unit=0,drive=disk0", "ide-hd,bus=ide.0,unit=1,drive=disk1"),
            (Bus::Sata, "ide-hd,bus=sata.0,drive=disk0", "ide-hd,bus=sata.1,drive=disk1"),
            (
                Bus::Scsi,
                "scsi-hd,bus=scsi.0,scsi-id=0,drive=disk0",
                "scsi-hd,bus=scsi.0,scsi-id=1,drive=disk1",
            ),
            (Bus::Nvme, "nvme,serial=varve-0,drive=disk0", "nvme,serial=varve-1,drive=disk1"),
        ] {
            let disks = [disk(bus, 2), disk(bus, 1)];
            let all = words_of(&hardware(), &disks, &Screen::Vnc("127.0.0.1:0".into()));
            assert!(all.contains(first) && all.contains(second), "{all}");
            assert!(all.matches(",id=").count() <= 2, "one controller, and the console: {all}");
        }
        let newer = Hardware { is_q35: true, ..hardware() };
        let all = words_of(&newer, &[disk(Bus::Ide, 1), disk(Bus::Ide, 2)], &Screen::None);
        assert!(
            all.contains("ide-hd,bus=ide.0,drive=disk0") && all.contains("ide-hd,bus=ide.1,drive=disk1"),
            "{all}"
        );
    }
}
