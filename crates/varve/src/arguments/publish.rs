//! The arguments of `varve publish`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use varve_daily::UploadRates;
use varve_edition::{PublishedBlockBytes, StoredCompression};

use super::snapshot_filter::SnapshotFilterArgs;
use super::value::{parse_age, parse_size};

pub const PUBLISH_HELP: &str = "\
Anybody with the address can read the disks from any server of static files, and check every byte with the key in the address. \
The address has no secret. The key file does: its holder can publish in your name. Publish again to add images: only blocks that \
are not at the target yet are read, compressed and uploaded. An interrupted publication leaves the edition before it whole.

To change the key, publish once with --key OLD --key NEW, and from then on with --key NEW alone.

--encrypt makes disks readable only for holders of a content key, who need it beside the address. The names, times and sizes of the disks stay visible, and so do the lengths of blocks and which of them have changed. --prune needs the content keys of all encrypted disks that are listed.

Examples:
  varve -s /backup/store publish web /srv/www/disks --key ~/publisher.key
  varve -s /backup/store publish web db s3://disks/public --key ~/publisher.key --keep 7 --prune
  varve verify --publication /srv/www/disks/#varve1-KEY";

#[derive(Debug, Clone, Args)]
pub struct PublishArgs {
    /// The snapshots of disk images
    #[arg(required = true, value_name = "SNAPSHOT")]
    pub snapshots: Vec<String>,

    /// The folder or URL to publish at, as for `replicate`
    #[arg(required = true, value_name = "TARGET", value_hint = ValueHint::AnyPath)]
    pub target: String,

    /// The file with the publisher's key, which is made if it is missing; may be given several
    /// times
    #[arg(long = "key", value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub keys: Vec<PathBuf>,

    /// The size of blocks: 64K, 128K, 256K, 512K or 1M
    #[arg(long, value_name = "BYTES", default_value = "128K", value_parser = parse_block_bytes)]
    pub block_size: PublishedBlockBytes,

    /// The compression: zstd:1 to zstd:19, zlib:1 to zlib:9, or none
    #[arg(long, value_name = "METHOD", default_value = "zstd:3")]
    pub compression: StoredCompression,

    /// Encrypt these snapshots with the content key in this file, which is made if it is missing
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub encrypt: Option<PathBuf>,

    /// A content key of other encrypted images that are there; may be given several times
    ///
    /// --prune follows their maps, --repair reads them, and their profiles can be used.
    #[arg(long = "content-key", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub content_keys: Vec<PathBuf>,

    /// Publish without encryption, or with another content key, although an image of the same name
    /// is encrypted
    #[arg(long)]
    pub change_encryption: bool,

    /// The profile of a start: its blocks are packed together, in the order of first access
    ///
    /// `boot --profile` and `serve --nbd --profile` record one. `auto` is the profile of the newest
    /// published image of the same name, and `none` packs nothing.
    #[arg(long, value_name = "FILE|auto|none", default_value = "auto", value_parser = parse_profile)]
    pub profile: ProfileChoice,

    /// The description of the machine that starts from the disk, for `attach --boot`
    ///
    /// `auto` is the memory, the number of processors, the firmware, the board and the bus that the
    /// snapshot knows, or else the description of the newest published image of the same name.
    #[arg(long, value_name = "FILE|auto|none", default_value = "auto", value_parser = parse_machine)]
    pub machine: MachineChoice,

    /// The objects of these snapshots: `packs`, or `files`, with each block in a file of its own
    ///
    /// With `files`, nothing is packed, and blocks that an earlier edition has in packs are
    /// uploaded once more. The profile is published all the same, for readers that prefetch.
    #[arg(long, value_enum, default_value = "packs")]
    pub layout: LayoutChoice,

    /// List only this number of images of each name, the newest ones [default: as before]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: Option<u32>,

    /// The time after which readers suspect that newer editions are kept from them
    #[arg(long, value_name = "AGE", default_value = "90d", value_parser = parse_lifetime)]
    pub expires: Duration,

    /// Another URL with the same files, for readers; may be given several times [default: as
    /// before]
    #[arg(long = "mirror", value_name = "URL")]
    pub mirrors: Vec<String>,

    /// Remove objects that no image has needed for the time of --grace
    ///
    /// The plan is printed first. Objects that are no longer needed are listed in the file
    /// `retired` at the target.
    #[arg(long)]
    pub prune: bool,

    /// Read everything at the target first, and upload missing and damaged objects of these
    /// snapshots again
    ///
    /// Without it, an object at the target that has the right length is not read.
    #[arg(long)]
    pub repair: bool,

    /// The time for which --prune keeps objects for readers of an older edition
    #[arg(long, value_name = "AGE", default_value = "14d", requires = "prune", value_parser = parse_age)]
    pub grace: Duration,

    /// The maximum upload rate, in bytes a second, also by times of the week
    ///
    /// Examples are 20M, and "mon..fri 08:00-18:00=2M,else=unlimited". The times are those of this
    /// machine's zone. Where periods overlap, the lowest rate holds.
    #[arg(long, value_name = "RATE")]
    pub limit_rate: Option<UploadRates>,

    /// Only print what would be uploaded and removed
    ///
    /// The plan of --prune is made for the images of the present edition.
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub which: SnapshotFilterArgs,
}

/// The layout of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LayoutChoice {
    /// The blocks of a profile lie together, in the order of first access
    Packs,
    /// Each block is a file, named by its SHA-256
    Files,
}

fn parse_lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = parse_age(text)?;
    if lifetime.is_zero() { Err("an edition lives for at least one hour: 1h".into()) } else { Ok(lifetime) }
}

/// The operations on profiles.
#[derive(Debug, Clone, Subcommand)]
pub enum ProfileCommand {
    /// Show the reads of a profile, in the order of first access
    Show {
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Merge profiles of one disk: of a range that several have, the earliest read stays
    Merge {
        #[arg(required = true, value_hint = ValueHint::FilePath)]
        files: Vec<PathBuf>,

        /// The new file
        #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        output: PathBuf,
    },
    /// Make a profile from the queued reads in the output of blkparse
    FromBlktrace {
        /// A file with the output of blkparse in its default format
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,

        /// The size of the disk
        #[arg(long, value_name = "BYTES", value_parser = parse_size)]
        size: u64,

        /// The new file
        #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        output: PathBuf,
    },
}

/// The profile that `publish --profile` and `attach --profile` name.
#[derive(Debug, Clone)]
pub enum ProfileChoice {
    Auto,
    None,
    File(PathBuf),
}

/// The machine that `publish --machine` names.
#[derive(Debug, Clone)]
pub enum MachineChoice {
    Auto,
    None,
    File(PathBuf),
}

#[expect(clippy::unnecessary_wraps, reason = "clap wants a result")]
fn parse_machine(text: &str) -> Result<MachineChoice, std::convert::Infallible> {
    Ok(match text {
        "auto" => MachineChoice::Auto,
        "none" => MachineChoice::None,
        file => MachineChoice::File(file.into()),
    })
}

#[expect(clippy::unnecessary_wraps, reason = "clap wants a result")]
pub(super) fn parse_profile(text: &str) -> Result<ProfileChoice, std::convert::Infallible> {
    Ok(match text {
        "auto" => ProfileChoice::Auto,
        "none" => ProfileChoice::None,
        file => ProfileChoice::File(file.into()),
    })
}

fn parse_block_bytes(text: &str) -> Result<PublishedBlockBytes, String> {
    PublishedBlockBytes::new(parse_size(text)?)
        .ok_or_else(|| "write a power of two from 64K to 1M, such as 128K".into())
}
