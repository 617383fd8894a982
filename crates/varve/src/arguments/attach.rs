//! The arguments of `varve attach`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueHint};
use varve_edition::PublicationAddress;
use varve_serve::nbd::Endpoint;

use super::boot::{MachineArgs, parse_machine_memory};
use super::publish::{ProfileChoice, parse_profile};
use super::value::{parse_duration, parse_size};

pub const ATTACH_HELP: &str = "\
Blocks are fetched when they are read, checked with the key in the address, and kept in the cache (--cache, --cache-size) for the \
next time. Wrong bytes from a server are never used: the block is fetched from a mirror, or that one read fails. A disk stays the \
edition that it was when it was attached; a newer one is announced (--look-every). It ends at the first signal to end.

--boot starts a machine from the disk, in QEMU, while the disk is fetched. Its writes are discarded at the end, or kept in the file \
of --overlay. Without --vnc and --console it has a window; without a display, the terminal is its console. `Ctrl-]` leaves a console.

Without a server, everything that is in the cache can still be read. --fill completes the cache, and --offline asks no server at \
all.

Examples:
  varve attach 'https://host/disks/#varve1-KEY' --nbd unix:web.sock      the only image, or the newest of its name
  varve attach 'https://host/disks/#varve1-KEY' web@2026-05-01 --mount /mnt/web
                                                                   an older day, as files
  varve attach 'https://host/disks/#varve1-KEY' web --nbd 127.0.0.1:10809 --overlay changes
                                                                   writes are kept in a file
  varve attach 'https://host/disks/#varve1-KEY' web --boot --profile auto
                                                                   start the machine from it
  varve attach 'https://host/disks/#varve1-KEY' web --content-key web.content --nbd :10809
                                                                   an encrypted disk
  varve attach 'https://host/disks/#varve1-KEY' web --fill               fetch everything, and end";

const MACHINE_HEADING: &str = "Machine of --boot";

/// The arguments that make sense only with a machine.
const MACHINE: [&str; 11] = [
    "machine_memory",
    "check",
    "timeout",
    "screenshot",
    "console",
    "vnc",
    "cpus",
    "firmware",
    "bus",
    "network",
    "no_kvm",
];

#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("attach_doors").required(true).multiple(true).args(["nbd", "mount", "boot", "fill"]))]
#[command(group = ArgGroup::new("attach_disk").multiple(true).args(["nbd", "boot"]))]
#[command(group = ArgGroup::new("attach_machine").multiple(true).requires("boot").args(MACHINE))]
pub struct AttachArgs {
    /// The address of the publication, with the publisher's key: URL#varve1-KEY
    ///
    /// A folder, a web server (http:// or https://), and the kinds of targets of `publish`.
    #[arg(value_name = "ADDRESS", value_hint = ValueHint::AnyPath)]
    pub address: PublicationAddress,

    /// The image: NAME (the newest of that name), or NAME@2026-05-01 (the newest on or before that
    /// day)
    #[arg(value_name = "IMAGE")]
    pub image: Option<String>,

    /// Serve the disk as a network block device: at HOST:PORT, :PORT (on all addresses) or
    /// unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    pub nbd: Option<Endpoint>,

    /// Mount a folder with the disk (disk.raw) and the files of its volumes
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub mount: Option<PathBuf>,

    /// Start a machine from the disk, in QEMU, which must be installed
    ///
    /// Not together with --nbd.
    #[arg(long)]
    pub boot: bool,

    /// Let NBD clients or the machine write, and keep their writes in this file for the next time
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "attach_disk")]
    pub overlay: Option<PathBuf>,

    /// Let NBD clients write, and discard their writes at the end; a machine can always do that
    #[arg(long, requires = "attach_disk", conflicts_with = "overlay")]
    pub writable: bool,

    /// Another place with the same files; may be given several times
    ///
    /// The mirrors that the edition names are used as well.
    #[arg(long = "mirror", value_name = "URL", conflicts_with = "offline")]
    pub mirrors: Vec<String>,

    /// Fetch everything that is not in the cache; without --nbd, --mount and --boot, end after that
    #[arg(long, conflicts_with = "offline")]
    pub fill: bool,

    /// The maximum rate of --fill, in bytes a second
    #[arg(long, value_name = "BYTES", requires = "fill", value_parser = parse_size)]
    pub fill_rate: Option<u64>,

    /// Prefetch the blocks that this profile of a start lists, in the order of first access
    ///
    /// Blocks that are being read go first, and the cache keeps those of the profile longest.
    /// `auto` is the profile that the edition has, if it has one. `none` prefetches nothing.
    #[arg(long, value_name = "FILE|auto|none", default_value = "none", value_parser = parse_profile)]
    pub profile: ProfileChoice,

    /// Record the reads of NBD clients or the machine in this new file, as a profile
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "attach_disk")]
    pub record: Option<PathBuf>,

    /// Read from the cache alone
    #[arg(long)]
    pub offline: bool,

    /// The time that a read waits for a server, such as 60s or 10m, or forever
    ///
    /// After it, that read fails, and all others go on. Each server has this time for the head, and
    /// --fill ends with the first block that does not come in it. Guests may give up sooner: Linux
    /// waits 30 s for SCSI and SATA disks, and without a limit for virtio.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_patience)]
    pub patience: AttachPatience,

    /// The memory for decompressed blocks [default: an eighth of the machine's memory, from 64M to
    /// 1G]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub memory: Option<u64>,

    /// Do not keep blocks and seen editions on this machine
    #[arg(long, conflicts_with_all = ["offline", "fill"])]
    pub no_cache: bool,

    /// A file with the publisher's key (varve1-…), if the address has none; may be given several
    /// times
    #[arg(long = "publisher", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub publishers: Vec<PathBuf>,

    /// The content key of an encrypted image, from its publisher
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub content_key: Option<PathBuf>,

    /// Believe the key that has signed the edition, if none is given, and remember it
    #[arg(long)]
    pub trust_first_use: bool,

    /// Accept an older edition than one that this machine has seen
    #[arg(long)]
    pub allow_older: bool,

    /// Refuse an edition that has expired, instead of a warning
    #[arg(long)]
    pub strict: bool,

    /// Ask this often whether a newer edition is published, such as 10m or 1h, or never
    ///
    /// A newer edition is announced, in the log and the metrics as well. The disk stays the edition
    /// that it was when it was attached.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_look_every)]
    pub look_every: LookEvery,

    /// Append a line for each access to a block to this file: its origin, its bytes and its time
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,

    /// Serve metrics for Prometheus by HTTP: at IP:PORT, under /metrics
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,

    /// The memory of the machine of --boot
    #[arg(long, value_name = "BYTES", help_heading = MACHINE_HEADING, value_parser = parse_machine_memory)]
    pub machine_memory: Option<u64>,

    #[command(flatten, next_help_heading = MACHINE_HEADING)]
    pub machine: MachineArgs,
}

/// The time that a read waits; `None` is for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachPatience(pub Option<Duration>);

/// The time between two questions for a newer edition; `None` is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookEvery(pub Option<Duration>);

fn parse_look_every(text: &str) -> Result<LookEvery, String> {
    match text {
        "never" => Ok(LookEvery(None)),
        text => match parse_duration(text)? {
            // Without a pause, the servers would be asked all the time.
            Duration::ZERO => Err("write a duration of at least 1s, or `never`".into()),
            time => Ok(LookEvery(Some(time))),
        },
    }
}

fn parse_patience(text: &str) -> Result<AttachPatience, String> {
    match text {
        "forever" => Ok(AttachPatience(None)),
        text => parse_duration(text).map(|time| AttachPatience(Some(time))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_of_the_machine_needs_one() {
        let command = MachineArgs::augment_args(clap::Command::new("machine"));
        for argument in command.get_arguments() {
            assert!(MACHINE.contains(&argument.get_id().as_str()), "{argument} is allowed without --boot");
        }
    }

    #[test]
    fn servers_are_not_asked_without_a_pause() {
        assert_eq!(parse_look_every("1s"), Ok(LookEvery(Some(Duration::from_secs(1)))));
        assert_eq!(parse_look_every("never"), Ok(LookEvery(None)));
        for none in ["0", "0s", "0h"] {
            assert!(parse_look_every(none).unwrap_err().contains("never"), "{none}");
        }
        assert!(parse_look_every("soon").is_err());
    }
}
