//! The arguments of `varve boot`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};

use super::snapshot_filter::SnapshotFilterArgs;
use super::value::parse_size;

pub const BOOT_HELP: &str = "\
The machine runs in QEMU, which must be installed. Its hardware follows the machine's description in the snapshot, if there is \
one. Otherwise its disk decides between BIOS and UEFI, and it has 2 GiB of memory. Its writes are discarded at the end, or kept in \
the file of --keep. It has no network without --network. It runs with KVM if possible; otherwise it is emulated, which is many \
times slower.

Without --vnc and --console it has a window; without a display, the terminal is its console. `Ctrl-]` leaves a console.

Examples:
  varve -s /backup/store boot vm@2026-05-01             that day, in a window
  varve -s /backup/store boot vm --console              the newest, on this terminal
  varve -s /backup/store boot vm --keep vm.qcow2        its writes are kept
  varve -s /backup/store boot --keep vm.qcow2           ... and this continues with them
  varve -s /backup/store boot vm --check                test for a login prompt; exit status 0: yes, 1: no
  varve -s /backup/store boot vm --check 'IS UP' --timeout 120 --screenshot vm.png";

#[derive(Debug, Clone, Args)]
pub struct BootArgs {
    /// The snapshot of a disk image
    #[arg(required_unless_present = "keep")]
    pub snapshot: Option<String>,

    /// Keep the machine's writes in this file, a qcow2 image over the snapshot
    ///
    /// If the file exists already, the machine continues with it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub keep: Option<PathBuf>,

    /// Record the reads of the disk in this new file, for `publish --profile`
    ///
    /// With --check they end when the text appears, otherwise with the machine.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub profile: Option<PathBuf>,

    /// The memory of the machine
    #[arg(long, value_name = "BYTES", value_parser = parse_machine_memory)]
    pub memory: Option<u64>,

    #[command(flatten)]
    pub machine: MachineArgs,

    #[command(flatten)]
    pub which: SnapshotFilterArgs,
}

/// The machine of `boot` and of `attach --boot`, and how long it runs.
#[derive(Debug, Clone, Args)]
pub struct MachineArgs {
    /// Wait until this text, or a login prompt, is on the console or the screen, and end the
    /// machine
    ///
    /// The machine has no window. The exit status is 0 if the text appeared, and 1 if not.
    #[arg(long, value_name = "TEXT", num_args = 0..=1)]
    pub check: Option<Option<String>>,

    /// The time that --check waits, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "300", requires = "check", value_parser = parse_seconds)]
    pub timeout: Duration,

    /// Save the screen in this PNG file when --check ends
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "check")]
    pub screenshot: Option<PathBuf>,

    /// Use this terminal as the machine's console, its first serial line
    #[arg(long, conflicts_with_all = ["check", "vnc"])]
    pub console: bool,

    /// Show the screen with VNC, at ADDRESS:NUMBER (port 5900 + NUMBER)
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:0,to=99", conflicts_with = "check")]
    pub vnc: Option<String>,

    /// The number of processors
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub cpus: Option<u16>,

    /// The firmware
    #[arg(long, value_enum)]
    pub firmware: Option<FirmwareChoice>,

    /// The bus of the disks
    #[arg(long, value_enum)]
    pub bus: Option<BusChoice>,

    /// Give the machine network access, behind this machine's address
    #[arg(long)]
    pub network: bool,

    /// Emulate the machine in software, even if KVM is available
    #[arg(long)]
    pub no_kvm: bool,
}

impl BootArgs {
    /// The arguments of a boot that ends as soon as the machine has started.
    pub fn to_check(snapshot: String, timeout: Duration) -> Self {
        Self {
            snapshot: Some(snapshot),
            keep: None,
            profile: None,
            memory: None,
            machine: MachineArgs {
                check: Some(None),
                timeout,
                screenshot: None,
                console: false,
                vnc: None,
                cpus: None,
                firmware: None,
                bus: None,
                network: false,
                no_kvm: false,
            },
            which: SnapshotFilterArgs::default(),
        }
    }
}

/// The firmware of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FirmwareChoice {
    /// Legacy BIOS
    Bios,
    /// UEFI
    Uefi,
}

/// The bus of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BusChoice {
    /// Paravirtual, for guests with virtio drivers
    Virtio,
    /// Parallel ATA
    Ide,
    /// AHCI
    Sata,
    /// SCSI, by virtio
    Scsi,
    /// NVM Express
    Nvme,
}

/// QEMU takes 0 as its own default, and no firmware starts with a few kilobytes.
const MACHINE_MEMORY_MIN: u64 = 4 << 20;

pub(super) fn parse_machine_memory(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes < MACHINE_MEMORY_MIN => {
            Err("a machine needs at least 4M: write a size such as 2G".into())
        }
        bytes => Ok(bytes),
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<u32> = text.strip_suffix('s').unwrap_or(text).parse().ok();
    let seconds = seconds.filter(|seconds| *seconds > 0).ok_or("write a number of seconds, such as 120")?;
    Ok(Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_memory() {
        assert_eq!((parse_machine_memory("4M"), parse_machine_memory("2G")), (Ok(4 << 20), Ok(2 << 30)));
        for small in ["0", "0G", "512", "4095K"] {
            assert!(parse_machine_memory(small).unwrap_err().contains("at least 4M"), "{small}");
        }
    }
}
