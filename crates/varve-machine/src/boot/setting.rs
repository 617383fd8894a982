//! What is chosen for one start of a machine: who does its work, where its disks are, what its screen is shown on.

use std::fs::OpenOptions;
use std::path::PathBuf;

use super::hardware::Bus;

/// Who does the guest's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor itself.
    Kvm,
    /// QEMU, in software: many times slower, and anywhere.
    Software,
}

impl Accelerator {
    /// The best that this machine has, for this user.
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

/// Where a disk of the guest's is, and where the guest has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootDisk {
    /// The socket that it is served at.
    pub socket: PathBuf,
    /// Its name there. It is written to, unless what is written is kept elsewhere.
    pub export: String,
    /// The qcow2 that is written to in its place.
    pub kept: Option<PathBuf>,
    /// What it hangs on.
    pub bus: Bus,
    /// Its place in the order in which firmware looks for something to start, from 1 on.
    pub boot_index: u64,
}

/// What the guest's screen is shown on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Screen {
    /// A window.
    Window,
    /// VNC, at `ADDRESS:NUMBER`.
    Vnc(String),
    /// Nothing.
    None,
}
