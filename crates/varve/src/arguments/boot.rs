//! The arguments of `varve boot`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};

use super::value::parse_size;
use super::which::Which;

pub const BOOT_HELP: &str = "\
The machine runs in QEMU, which has to be installed. It is as the snapshot's own description says, if it has one; without, its disk \
decides between BIOS and UEFI, and it has 2 GiB of memory. What it writes is thrown away at its end, unless --keep says where to keep it. \
It has no network unless --network gives it one. KVM does its work where it can; where not, it is emulated, which is many times slower.

With neither --vnc nor --console it has a window; where there is no place for windows, the terminal is its console. `Ctrl-]` leaves a console.

Examples:
  varve -s /backup/store boot vm@2026-05-01             that day, in a window
  varve -s /backup/store boot vm --console              the newest, on this terminal
  varve -s /backup/store boot vm --keep vm.qcow2        what it writes is kept
  varve -s /backup/store boot --keep vm.qcow2           ... and this goes on with it
  varve -s /backup/store boot vm --check                does it come up to a login prompt? Exit status 0: yes, 1: no
  varve -s /backup/store boot vm --check 'IS UP' --timeout 120 --screenshot vm.png";

#[derive(Debug, Clone, Args)]
pub struct Boot {
    /// Which snapshot of a disk image
    #[arg(required_unless_present = "keep")]
    pub snapshot: Option<String>,

    /// Keep what the machine writes in this file, a qcow2 that lies over the snapshot; if it is
    /// there already, go on with it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub keep: Option<PathBuf>,

    /// Start it without a screen, wait until this text is on its console or its text screen (or a
    /// login prompt, if no text is given), say whether it came, and end it
    #[arg(long, value_name = "TEXT", num_args = 0..=1)]
    pub check: Option<Option<String>>,

    /// How long --check waits, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "300", requires = "check", value_parser = parse_seconds)]
    pub timeout: Duration,

    /// Draw the screen into this PNG file when --check ends
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "check")]
    pub screenshot: Option<PathBuf>,

    /// This terminal is the machine's console, its first serial line
    #[arg(long, conflicts_with_all = ["check", "vnc"])]
    pub console: bool,

    /// Show its screen with VNC, at ADDRESS:NUMBER (port 5900 + NUMBER)
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:0,to=99", conflicts_with = "check")]
    pub vnc: Option<String>,

    /// How much memory it has
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub memory: Option<u64>,

    /// How many processors it has
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub cpus: Option<u16>,

    /// What it starts with
    #[arg(long, value_enum)]
    pub firmware: Option<FirmwareChoice>,

    /// What its disk hangs on
    #[arg(long, value_enum)]
    pub bus: Option<BusChoice>,

    /// Let it reach the network, behind this machine's address
    #[arg(long)]
    pub network: bool,

    /// Emulate it in software, even where KVM is there
    #[arg(long)]
    pub no_kvm: bool,

    #[command(flatten)]
    pub which: Which,
}

/// What a machine starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FirmwareChoice {
    /// A BIOS of the old kind
    Bios,
    /// UEFI
    Uefi,
}

/// What a disk hangs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BusChoice {
    /// For guests that know that they are guests
    Virtio,
    /// Of the old kind
    Ide,
    /// AHCI
    Sata,
    /// SCSI, by virtio
    Scsi,
    /// NVM Express
    Nvme,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<u32> = text.strip_suffix('s').unwrap_or(text).parse().ok();
    let seconds = seconds.filter(|seconds| *seconds > 0).ok_or("write a number of seconds, such as 120")?;
    Ok(Duration::from_secs(seconds.into()))
}
