//! The settings of one boot of a machine: its accelerator, its disks, and its screen.

use std::fs::OpenOptions;
use std::path::PathBuf;

use varve_content::image::SectorSizes;

use super::hardware::Bus;

/// The way in which the guest's instructions are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// By the processor itself.
    Kvm,
    /// By QEMU in software: many times slower, but possible everywhere.
    Software,
}

impl Accelerator {
    /// Returns the best accelerator that is available to this user.
    #[must_use]
    pub fn best() -> Self {
        let is_there = OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
        if is_there { Self::Kvm } else { Self::Software }
    }
}

impl std::fmt::Display for Accelerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Kvm => "KVM",
            Self::Software => "software emulation",
        })
    }
}

/// The source of a disk of the guest, and its place in the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootDisk {
    /// The socket of the server that exports it.
    pub socket: PathBuf,
    /// The name of the export. It is written to, unless the writes are kept elsewhere.
    pub export: String,
    /// The qcow2 that receives the writes instead.
    pub kept: Option<PathBuf>,
    /// The bus to which it is attached.
    pub bus: Bus,
    /// The place of its device on the first PCI bus: 8 times the device number, plus the function.
    /// UEFI may know the disk by it.
    pub pci_address: Option<u8>,
    /// The sizes of its sectors; `None` for the usual ones.
    pub sectors: Option<SectorSizes>,
    /// Its place in the boot order of the firmware, from 1 on.
    pub boot_index: u64,
}

/// The output of the guest's screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Screen {
    Window,
    /// VNC, at `ADDRESS:NUMBER`.
    Vnc(String),
    /// No output.
    None,
}
