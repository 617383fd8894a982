//! What QEMU is told when it starts. Pure.

use std::path::Path;

use serde_json::json;
use varve_archive::Firmware;

use super::emulator::{Accelerator, BootDisk, Screen};
use super::hardware::{Bus, Hardware};

/// Where QEMU finds what it needs, and where it is found.
pub(super) struct Places<'a> {
    /// The socket of its monitor, which it makes.
    pub(super) monitor: &'a Path,
    /// The socket of the first serial line, at which somebody listens already; `None` if nobody wants to hear it.
    pub(super) console: Option<&'a Path>,
    /// The code of UEFI, and the file of its variables, which is written to.
    pub(super) firmware: Option<(&'a Path, &'a Path)>,
}

/// Everything after the program's name.
pub(super) fn command_line(
    hardware: &Hardware,
    disk: &BootDisk,
    screen: &Screen,
    accelerator: Accelerator,
    places: &Places<'_>,
) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut say = |option: &str, value: String| words.extend([option.to_owned(), value]);
    let (accel, processor) = match accelerator {
        // Where KVM runs inside another machine it may refuse to pass this one feature on, and QEMU then does not even start.
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
    for node in block_nodes(disk) {
        say("-blockdev", node.to_string());
    }
    match hardware.bus {
        Bus::Virtio => say("-device", "virtio-blk-pci,drive=disk,bootindex=1".into()),
        Bus::Ide => say("-device", "ide-hd,drive=disk,bus=ide.0,bootindex=1".into()),
        Bus::Sata => {
            say("-device", "ich9-ahci,id=sata".into());
            say("-device", "ide-hd,drive=disk,bus=sata.0,bootindex=1".into());
        }
        Bus::Scsi => {
            say("-device", "virtio-scsi-pci,id=scsi".into());
            say("-device", "scsi-hd,drive=disk,bus=scsi.0,bootindex=1".into());
        }
        Bus::Nvme => say("-device", "nvme,drive=disk,serial=varve,bootindex=1".into()),
    }
    let model = if hardware.bus == Bus::Ide { "e1000" } else { "virtio-net-pci" };
    say("-nic", if hardware.network { format!("user,model={model}") } else { "none".into() });
    say("-vga", "std".into());
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
        // The first kind of window that QEMU has.
        Screen::Window => {}
    }
    if *screen != Screen::None {
        // A pointer that is where it is shown.
        say("-device", "qemu-xhci".into());
        say("-device", "usb-tablet".into());
    }
    words.extend(["-nodefaults".to_owned(), "-no-user-config".to_owned()]);
    words
}

/// The disk, from what lies below to what the guest sees, which is called `disk`.
fn block_nodes(disk: &BootDisk) -> Vec<serde_json::Value> {
    let server = json!({ "type": "unix", "path": disk.socket.to_string_lossy() });
    let name = |node: &str| if disk.kept.is_some() { format!("archived-{node}") } else { node.to_owned() };
    let mut nodes = vec![
        json!({ "driver": "nbd", "node-name": "archive", "server": server, "export": disk.export, "discard": "unmap",
                "read-only": disk.kept.is_some() }),
        json!({ "driver": "raw", "node-name": name("disk"), "file": "archive", "discard": "unmap",
                "read-only": disk.kept.is_some() }),
    ];
    if let Some(kept) = &disk.kept {
        nodes.push(json!({ "driver": "file", "node-name": "kept", "filename": kept.to_string_lossy(), "discard": "unmap" }));
        nodes.push(json!({ "driver": "qcow2", "node-name": "disk", "file": "kept", "backing": name("disk"),
                           "discard": "unmap" }));
    }
    nodes
}

/// A path among options that are parted by commas.
fn doubled_commas(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(hardware: &Hardware, kept: Option<&str>, screen: &Screen) -> String {
        let disk = BootDisk {
            socket: "/run/a,b/nbd".into(),
            export: "0a".into(),
            kept: kept.map(|path| path.into()),
        };
        let places = Places {
            monitor: Path::new("/run/a,b/monitor"),
            console: Some(Path::new("/run/a,b/console")),
            firmware: Some((Path::new("/code"), Path::new("/run/a,b/variables"))),
        };
        command_line(hardware, &disk, screen, Accelerator::Software, &places).join(" ")
    }

    fn hardware() -> Hardware {
        Hardware {
            memory: 1 << 30,
            cpu_count: 2,
            firmware: Firmware::Bios,
            bus: Bus::Virtio,
            is_q35: false,
            network: false,
        }
    }

    #[test]
    fn a_guest_has_no_network_unless_asked_for() {
        let without = words(&hardware(), None, &Screen::None);
        assert!(without.contains("-nic none") && !without.contains("user,"), "{without}");
        let with = words(&Hardware { network: true, ..hardware() }, None, &Screen::None);
        assert!(with.contains("-nic user,model=virtio-net-pci"), "{with}");
    }

    #[test]
    fn what_is_kept_lies_over_an_archive_that_is_only_read() {
        let thrown_away = words(&hardware(), None, &Screen::None);
        assert!(!thrown_away.contains("qcow2"), "{thrown_away}");
        assert!(thrown_away.contains(r#""read-only":false"#), "the export has an overlay of its own");
        let kept = words(&hardware(), Some("/home/me/kept"), &Screen::None);
        assert!(kept.contains(r#""backing":"archived-disk""#), "{kept}");
        assert!(!kept.contains(r#""read-only":false"#), "{kept}");
    }

    #[test]
    fn commas_in_paths_are_no_options() {
        let all = words(&Hardware { firmware: Firmware::Uefi, ..hardware() }, None, &Screen::Window);
        assert!(all.contains("unix:/run/a,,b/monitor,server=on"), "{all}");
        assert!(all.contains("path=/run/a,,b/console"), "{all}");
        assert!(all.contains("unit=1,readonly=off,file=/run/a,,b/variables"), "{all}");
        assert!(all.contains("usb-tablet") && !all.contains("-display"), "{all}");
    }

    #[test]
    fn each_bus_has_its_device() {
        for (bus, device) in [
            (Bus::Virtio, "virtio-blk-pci,drive=disk"),
            (Bus::Ide, "ide-hd,drive=disk,bus=ide.0"),
            (Bus::Sata, "ide-hd,drive=disk,bus=sata.0"),
            (Bus::Scsi, "scsi-hd,drive=disk,bus=scsi.0"),
            (Bus::Nvme, "nvme,drive=disk"),
        ] {
            let all = words(&Hardware { bus, ..hardware() }, None, &Screen::Vnc("127.0.0.1:0".into()));
            assert!(all.contains(device), "{all}");
        }
    }
}
