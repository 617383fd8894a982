//! The arguments of the program. `--help`, the man pages and the completions are generated from
//! these types.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "these lines are printed on a terminal: `[:PATH]` is no link"
)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum, ValueHint};
use varve_log::{ArenaMap, ClumpBytes, CompressionLevel, ParityPercent};
use varve_machine::ImageFormat;
use varve_world::Timestamp;

mod bench;
mod boot;
mod command_line;
mod plan;
mod restore;
mod serve;
mod snapshots;
mod value;
mod venti;
mod verify;
mod what_goes_in;
mod which;

pub use bench::{ActionChoice, Bench, BenchDevice, BenchVenti, OrderChoice};
pub use boot::{Boot, BusChoice, FirmwareChoice};
pub use plan::{MakePlan, Sizes};
pub use restore::Restore;
pub use serve::{Serve, TlsFiles};
pub use snapshots::{AsChoice, GroupBy, Snapshots, Tag};
pub use value::parse_name;
use value::{
    parse_arena_size, parse_block_size, parse_blocks, parse_clump_size, parse_comment, parse_compression,
    parse_duration, parse_format, parse_index_memory, parse_parity, parse_size, parse_tag, parse_time,
};
pub use venti::{Copy, Import, Venti};
pub use verify::{Repair, Verify};
pub use what_goes_in::WhatGoesIn;
pub use which::Which;

/// Keeps every day of every disk and folder in one append-only, content-addressed log.
///
/// Each night's snapshot of a disk image, a block device or a folder goes into a store. Every
/// duplicate block is stored once, so a night costs what changed. Any past day can be listed,
/// looked into, compared, verified and restored.
#[derive(Debug, Clone, Parser)]
#[command(name = "varve", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Arguments {
    /// The store's folder, a replica of it (a folder or a URL) to read from, or a Venti server
    /// (venti://HOST, tcp!HOST!PORT, '$venti')
    #[arg(short, long, global = true, help_heading = EVERYWHERE, env = "VARVE_STORE", value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub store: Option<PathBuf>,

    /// A file whose contents open the store, instead of a passphrase (at least 32 random bytes)
    ///
    /// Without any of these three the passphrase is taken from VARVE_PASSPHRASE, or asked for. A
    /// file of your own that others may read is refused.
    #[arg(long, global = true, help_heading = EVERYWHERE, env = "VARVE_KEY_FILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub key_file: Option<PathBuf>,

    /// A file with the passphrase, in one line
    #[arg(long, global = true, help_heading = EVERYWHERE, env = "VARVE_PASSPHRASE_FILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub passphrase_file: Option<PathBuf>,

    /// A program that prints the passphrase, with its arguments, such as 'pass show varve'; it is
    /// started without a shell
    #[arg(long, global = true, help_heading = EVERYWHERE, env = "VARVE_PASSPHRASE_COMMAND", value_name = "COMMAND", value_hint = ValueHint::CommandString)]
    pub passphrase_command: Option<String>,

    /// Wait so long for another writer, such as 30s, 10m or 2h, instead of failing at once
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "DURATION", value_parser = parse_duration)]
    pub wait: Option<Duration>,

    /// Where to keep what was read from replicas, and what was seen of them [default:
    /// ~/.cache/varve]
    #[arg(long, global = true, help_heading = EVERYWHERE, env = "VARVE_CACHE", value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub cache: Option<PathBuf>,

    /// How much is kept there of each store's replicas
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "BYTES", default_value = "1G", value_parser = parse_size)]
    pub cache_size: u64,

    /// Where the roots of the catalog at a Venti server are noted [default: a file for each server
    /// in ~/.local/state/varve/roots]
    #[arg(long, global = true, help_heading = EVERYWHERE, env = "VARVE_ROOTS", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub roots: Option<PathBuf>,

    /// Print results as JSON, for programs to read
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub json: bool,

    /// Print only results and errors
    #[arg(short, long, global = true, help_heading = EVERYWHERE)]
    pub quiet: bool,

    /// List more, such as the files that are new or changed; twice: print the log, too; more: much
    /// of it
    #[arg(short, long, global = true, help_heading = EVERYWHERE, action = ArgAction::Count)]
    pub verbose: u8,

    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The heading of the options that all commands share.
const EVERYWHERE: &str = "Options of every command";

const EXAMPLES: &str = "\
Examples:
  varve -s /backup/store init                  make a store; asks for a passphrase
  varve -s /backup/store snapshot /dev/vda     archive a disk
  varve -s /backup/store snapshot ~/work       archive a folder
  varve -s /backup/store snapshots             what is there
  varve -s /backup/store ls work@2026-05-01    look into a past day
  varve -s /backup/store restore work:src out  take something out
  varve -s /backup/store cat vda:p1/etc/fstab  and out of the inside of a disk
  varve -s /backup/store replicate /mnt/usb    keep all of it a second time
  varve clone /mnt/usb /backup/store           and bring it back

A snapshot is named by its name (the newest of that name), HOST:NAME (the newest of that name from that host), \
NAME@2026-05-01 (the newest on or before that day), @2026-05-01, latest, or the first digits of its id. Exit status: 0 done, 1 failed, 2 usage error, \
3 done with gaps (some files could not be read), 5 damage found, 10 no store there, 11 another writer holds the store, \
12 wrong key or passphrase, 130 interrupted.";

const INSIDE_HELP: &str = "\
Inside a disk image, paths begin with the name of a volume, as `ls NAME` lists them: web@2026-05-01:p1/etc/fstab. \
disk.raw is the whole disk, and p1.raw the bytes of p1, whatever they are.

Names of files are bytes, and may be given as they are. A byte that is no part of UTF-8 text is shown as \\xe9, a control character as \\n or \\u{1b}, and a \
backslash as \\\\. With --json such a name has all its bytes beside it, in hexadecimal: path_bytes.";

const DIFF_HELP: &str = "\
+ only in the later one, - only in the earlier one, M changed, m changed in nothing but owner, mode, times or attributes.

Disk images are compared by the files of their volumes. Of images without such, of NAME:disk.raw and of NAME:p1.raw the ranges of bytes are \
shown that differ. The exit status is 0 whether or not anything differs.";

const REPLICATE_HELP: &str = "\
A replica holds the whole log, encrypted as it is here, with keys and settings. Only what is new is uploaded, and nothing at the \
target is ever changed or removed unless one of the options says so: object lock and write-once buckets work. It may be \
stopped at any moment; the same command goes on. Whoever holds the store's key can use the replica: read it in place \
(varve -s TARGET ls ...), check it (varve verify --replica TARGET) and bring the store back (varve clone TARGET DIR).

Two copies of a store never mix in one replica: if both are written, each needs a target of its own.

Examples:
  varve -s /backup/store replicate /mnt/usb/replica --remember    make one, and remember where
  varve -s /backup/store replicate                                each night: all remembered
  varve -s /backup/store replicate /mnt/usb/replica --dry-run     what would be uploaded";

const CLONE_HELP: &str = "\
Every record is checked with the store's key before it comes into place, and the folder becomes a store only when all of it \
is there. If it is interrupted, the same command goes on where it stopped.

Examples:
  varve clone /mnt/usb/replica /backup/store    my disk died; this is a new one";

const MOUNT_HELP: &str = "\
Runs until it is interrupted. A snapshot lies below the day that it shows: DIR/2026/05/01/NAME holds the files of a folder; of a \
disk p1, p2, ... hold the files of its volumes, and disk.raw is the whole disk. If a day has several of one name, the newest has the \
name, and the others are NAME.HHMMSS. DIR/latest/NAME leads to the newest, DIR/by-id/ID to that one. Days are those of the local \
time zone. New snapshots appear by themselves.

Without --allow-other only you can look into it, and can read everything in it, whoever owned it.

Examples:
  mkdir days; varve -s /backup/store mount days    and in another terminal: ls days/latest
  varve -s sftp://host/replica mount days          a replica, where it is";

/// What to do.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Make a store in an empty or new folder
    Init(Init),
    /// Archive disk images, block devices, folders, files, or what a program writes
    #[command(visible_alias = "backup", after_help = snapshots::SNAPSHOT_HELP)]
    Snapshot(Box<TakeSnapshot>),
    /// List what was archived
    #[command(visible_alias = "list")]
    Snapshots(Snapshots),
    /// Change the tags and the comments of snapshots
    #[command(after_help = snapshots::TAG_HELP)]
    Tag(Tag),
    /// Show what the store holds and what it costs
    Stats,
    /// List the files of a snapshot, or the volumes of a disk image
    #[command(after_help = INSIDE_HELP)]
    Ls(Ls),
    /// Write a file of a snapshot, or a whole image, to standard output
    #[command(after_help = INSIDE_HELP)]
    Cat(Cat),
    /// Mount all snapshots as a folder of days, to be looked at with any program
    #[command(after_help = MOUNT_HELP)]
    Mount(Mount),
    /// Show what differs between two snapshots
    #[command(after_help = DIFF_HELP)]
    Diff(Diff),
    /// Find files by name in snapshots, inside disk images too
    Find(Find),
    /// Take an image, a folder or a part of it out of the archive
    ///
    /// A new destination appears when it is whole. If a restore is interrupted, or the disk is
    /// full, the same command goes on with it.
    #[command(after_help = INSIDE_HELP)]
    Restore(Restore),
    /// Check that everything is there and undamaged, here or at a replica
    #[command(visible_alias = "check")]
    Verify(Verify),
    /// Make, list, change and remove the keys that open the store
    #[command(subcommand)]
    Key(Key),
    /// Mend what is damaged, as far as it can be
    ///
    /// Looks where damage is known: by what the log's files show, by reads that failed, and by what
    /// `verify` has found. If nothing is known, or with --data, every byte is read first. Files of
    /// the log that are gone are taken from the stores named with
    /// --from, or mended from their parity; blocks that snapshots have lost are fetched from the
    /// stores named with --from. Damaged files of the log are written anew with all that is still
    /// good in them; what they were stays in the store's folder `quarantine`. What is still lost
    /// then comes back when the same data is archived again.
    ///
    /// Blocks that cannot be brought back are noted in the log, whether or not a snapshot needs
    /// them. `verify` reports them until their bytes are stored again, or until --accept-loss.
    Repair(Repair),
    /// Make the index anew from the log, and choose where it is kept
    ///
    /// The log is not touched, and nothing in it depends on the index. If this is interrupted, the
    /// next opening makes the index.
    Reindex(Reindex),
    /// Bring replicas of the store up to date
    #[command(after_help = REPLICATE_HELP)]
    Replicate(Replicate),
    /// Store the blocks of another program's files
    #[command(after_help = venti::IMPORT_HELP)]
    Import(Import),
    /// Copy snapshots to a store of another kind, or what vac or vbackup has archived
    #[command(after_help = venti::COPY_HELP)]
    Copy(Copy),
    /// Bring a whole store back from a replica
    #[command(after_help = CLONE_HELP)]
    Clone(CloneStore),
    /// Start a machine from a disk image of any day, without changing what is archived
    #[command(after_help = boot::BOOT_HELP)]
    Boot(Boot),
    /// Serve disk images to other programs and machines until ended
    #[command(after_help = serve::SERVE_HELP)]
    Serve(Box<Serve>),
    /// List which clients of the Venti door wrote, and set aside what one of them wrote
    #[command(subcommand)]
    Venti(Venti),
    /// Foretell what each kind of store would need on a disk, and how fast it would be, and choose
    /// one
    #[command(after_help = plan::PLAN_HELP)]
    Plan(MakePlan),
    /// Measure how fast a server or a disk is
    #[command(subcommand)]
    Bench(Bench),
    /// Print a script that completes this program's words in a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a folder
    Man {
        /// Where to
        #[arg(value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
}

impl Command {
    /// Reports whether the command writes the content of a file, or a script, to standard output.
    pub fn writes_content(&self) -> bool {
        match self {
            Self::Cat(_) | Self::Completions { .. } => true,
            Self::Restore(words) => words.destination.as_os_str() == "-",
            _ => false,
        }
    }
}

/// How blocks are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScoreChoice {
    /// BLAKE3 of 256 bits
    Blake3,
    /// SHA-1, for Venti clients
    Sha1,
}

/// How a duplicate is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompareChoice {
    /// By the hash that is its name
    Hash,
    /// Byte by byte; its name is its place in the log
    Value,
}

#[derive(Debug, Clone, Args)]
pub struct Init {
    /// Do not encrypt: anybody who holds the disk can read it
    #[arg(long)]
    pub plaintext: bool,

    /// What hash blocks are named by [default: blake3]
    #[arg(long, value_enum)]
    pub score: Option<ScoreChoice>,

    /// How it is told that a block is there already: by its hash; or byte by byte, where no hash is
    /// believed and blocks are named by their place
    ///
    /// By value, nothing is taken for a duplicate before it has been read and compared, so nothing
    /// depends on a hash having no collisions, and reading asks no index. It cannot have write-only
    /// keys, cannot speak to Venti's clients, and does not heal by archiving again:
    /// docs/guide/by-value.md.
    #[arg(long, value_enum, default_value = "hash")]
    pub compare: CompareChoice,

    /// The block size of disk images: a power of two from 512 to 64K
    #[arg(long, value_name = "BYTES", default_value = "16K", value_parser = parse_block_size)]
    pub block_size: u32,

    /// How large the files of the log become, from 1M to 16G
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = parse_arena_size)]
    pub arena_size: ArenaMap,

    /// How much is compressed together, from 4K to 2M: more is smaller on disk, less is faster to
    /// read at random
    #[arg(long, value_name = "BYTES", default_value = "1536K", value_parser = parse_clump_size)]
    pub clump_size: ClumpBytes,

    /// How hard to compress: zstd's level, 1 (fast) to 19 (small)
    #[arg(long, value_name = "LEVEL", default_value = "3", value_parser = parse_compression)]
    pub compression: CompressionLevel,

    /// Keep recovery data beside the log, this share of its size (0% to 100%): mends damaged places
    /// of the disk without a replica
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = parse_parity)]
    pub parity: Parity,

    /// Where the index is kept: in memory, nine bytes a block; or on disk, in a fixed amount of
    /// memory and two bytes a block
    #[arg(long, value_enum, default_value = "memory")]
    pub index: IndexChoice,

    #[command(flatten)]
    pub disk_index: DiskIndex,

    #[command(flatten)]
    pub cost: Cost,
}

/// Where the index is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IndexChoice {
    /// In memory, about nine bytes a block
    Memory,
    /// On disk
    Disk,
}

/// What is read ahead after a look-up on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PrefetchChoice {
    /// What stands beside it in the directory of the arena that it led to, as soon as another one
    /// leads near it; more and more while they lead on
    Arena,
    /// All of that at once, when four in a row have led to one arena, as Venti does
    Four,
    /// Nothing, for blocks that are asked for one by one, nowhere near each other
    None,
}

/// How an index on disk is kept.
#[derive(Debug, Clone, Args)]
pub struct DiskIndex {
    /// With --index disk: the memory that the index may take beside its filter, at least 1M
    /// [default: 192M]
    #[arg(long, value_name = "BYTES", value_parser = parse_index_memory)]
    pub index_memory: Option<u64>,

    /// With --index disk: blocks that its filter is made for at first, like 500000 or 100M; it
    /// grows by itself [default: 1M]
    #[arg(long, value_name = "BLOCKS", value_parser = parse_blocks)]
    pub index_size: Option<u64>,

    /// With --index disk: bits of a fingerprint that it keeps, 32 to 64; with more, fewer look-ups
    /// find a wrong place [default: 48]
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u32).range(32..=64))]
    pub index_fingerprint: Option<u32>,

    /// With --index disk: what is read ahead after a look-up on disk [default: arena]
    #[arg(long, value_enum)]
    pub index_prefetch: Option<PrefetchChoice>,

    /// With --index disk: a folder for its entries, on another disk; said several times, they are
    /// spread over all of them.
    /// `store` is the store's own folder [default: store]
    #[arg(long, value_name = "DIR")]
    pub index_path: Vec<PathBuf>,
}

/// `varve reindex`
#[derive(Debug, Clone, Args)]
pub struct Reindex {
    /// Where the index is kept from now on; as it is now if this is not said
    #[arg(long, value_enum)]
    pub index: Option<IndexChoice>,

    #[command(flatten)]
    pub disk_index: DiskIndex,
}

/// What trying a passphrase costs, for its owner and for whoever guesses.
#[derive(Debug, Clone, Args)]
pub struct Cost {
    /// Memory that it takes to try the new passphrase, from 8M to 4G
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = parse_size)]
    pub memory: u64,

    /// How often that memory is passed over, from 1 to 64
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    pub passes: u32,
}

/// What to do with the keys. What is stored is never rewritten: a key only wraps the store's own
/// keys.
#[derive(Debug, Clone, Subcommand)]
pub enum Key {
    /// Make one more key; the store is opened with one of the keys that it has
    Add(AddKey),
    /// List the keys; opens none
    List,
    /// Put a new passphrase or key file in the place of the one that is given
    Change(NewSecret),
    /// Remove a key; the last one that opens everything stays
    ///
    /// Whoever has kept a copy of its file, and knows its secret, can still open the store with
    /// them.
    Remove {
        /// Its id, or how that begins: `varve key list` shows it
        id: String,
    },
    /// Print a paper key: a page that opens everything, to be kept where no computer is
    Export {
        /// Print it as a drawing (SVG) instead of text
        #[arg(long)]
        svg: bool,
    },
    /// Make a new key with a paper key that is typed in
    Import {
        /// A file with what is on the paper; standard input if not given
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,

        #[command(flatten)]
        secret: NewSecret,

        /// What to call the new key
        #[arg(long, default_value = "")]
        label: String,
    },
}

#[derive(Debug, Clone, Args)]
pub struct AddKey {
    #[command(flatten)]
    pub secret: NewSecret,

    /// What to call it, such as the name of the machine or the person that holds it
    #[arg(long, default_value = "")]
    pub label: String,

    /// It may add snapshots and read nothing, not even its own
    #[arg(long, conflicts_with = "append_only")]
    pub write_only: bool,

    /// It may read and add, and neither remove anything nor manage keys
    #[arg(long)]
    pub append_only: bool,
}

/// What is to open the new key. Without an option, a passphrase is taken from VARVE_NEW_PASSPHRASE
/// or asked for.
#[derive(Debug, Clone, Args)]
pub struct NewSecret {
    /// A file whose contents are to open the store (at least 32 random bytes)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "new_passphrase")]
    pub new_key_file: Option<PathBuf>,

    /// Ask for the new passphrase at the terminal, whatever VARVE_NEW_PASSPHRASE says
    #[arg(long)]
    pub new_passphrase: bool,

    #[command(flatten)]
    pub cost: Cost,
}

/// The amount of parity in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parity(pub Option<ParityPercent>);

#[derive(Debug, Clone, Args)]
pub struct TakeSnapshot {
    /// Disk images, block devices, folders or files; `-` archives standard input, as an image
    /// unless --as says otherwise
    #[arg(required_unless_present = "qmp", conflicts_with = "qmp", value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub sources: Vec<PathBuf>,

    /// What to call it; the source's own name if not given. A name under which something else was
    /// archived has to be given
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,

    /// The moment that it shows, such as 2026-05-01T23:15; now if not given
    #[arg(long, value_parser = parse_time)]
    pub time: Option<Timestamp>,

    /// Something to remember with it; may be given several times
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = parse_tag)]
    pub tags: Vec<String>,

    /// A line about it
    #[arg(long, value_name = "TEXT", value_parser = parse_comment)]
    pub comment: Option<String>,

    /// Archive regular files, or standard input, as this [default: what they hold decides]
    #[arg(long = "as", value_enum, value_name = "FORM", conflicts_with = "qmp")]
    pub form: Option<AsChoice>,

    /// Archive what a program writes to its standard output, as the file NAME: --command NAME --
    /// PROGRAM ARGS...
    ///
    /// If the program fails there is no snapshot.
    #[arg(long, value_name = "NAME", value_parser = parse_name, conflicts_with_all = ["qmp", "name", "vac", "format"])]
    pub command: Option<String>,

    /// Archive standard input, or the output of a program, also if nothing comes
    #[arg(long)]
    pub allow_empty: bool,

    /// Read everything, even what has not changed since the last snapshot
    #[arg(long)]
    pub reread: bool,

    /// Archive a folder so that vac's tools can read it too, and write its `vac:` line into this
    /// file; the store must have SHA-1 scores
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "qmp")]
    pub vac: Option<PathBuf>,

    /// Pack disk images as small as can be: about 4% smaller, but small reads from mounts and
    /// booted machines cost ten times as much
    #[arg(long)]
    pub compact: bool,

    /// Archive swap in disk images as it is; else swap partitions, swap files, pagefile.sys and
    /// hiberfil.sys become zeros where everything proves that they are swap
    #[arg(long)]
    pub keep_swap: bool,

    /// Archive as zeros what belongs to no file in disk images, of ext file systems that were
    /// unmounted in order and are proven to be live
    #[arg(long, conflicts_with = "qmp")]
    pub skip_free: bool,

    /// The format of the disk images [default: what their first bytes say; raw for block devices]
    ///
    /// Other formats than raw are read through QEMU's tools: the disk is archived, and not the
    /// file.
    #[arg(long, value_name = "FORMAT", value_parser = parse_format)]
    pub format: Option<ImageFormat>,

    /// A folder in which there may be other files that an image needs, such as the one that it
    /// stands on; may be given several times
    #[arg(long = "allow-backing", value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub allow_backing: Vec<PathBuf>,

    #[command(flatten)]
    pub what_goes_in: WhatGoesIn,

    #[command(flatten)]
    pub machine: RunningMachine,
}

/// A machine that runs in QEMU, as a source.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "A machine that runs in QEMU")]
pub struct RunningMachine {
    /// Archive the disks of the machine whose QEMU has this monitor socket, without pausing it
    ///
    /// All disks are archived as they are at one moment; each becomes a snapshot of its own, named
    /// NAME-DRIVE after the machine or --name. The first night reads everything, and each one after
    /// it only what has changed since.
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath)]
    pub qmp: Option<PathBuf>,

    /// Only this drive of the machine; may be given several times
    #[arg(long = "drive", value_name = "DRIVE", requires = "qmp")]
    pub drives: Vec<String>,

    /// Hold the guest's file systems still for the moment, through its guest agent at this socket
    #[arg(long, value_name = "SOCKET", requires = "qmp", value_hint = ValueHint::FilePath)]
    pub agent: Option<PathBuf>,

    /// Where to keep what the machine overwrites while it is archived
    #[arg(long, value_name = "FOLDER", requires = "qmp", default_value = "/var/tmp", value_hint = ValueHint::DirPath)]
    pub scratch: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub struct Ls {
    /// Which snapshot, and which path in it: SNAPSHOT[:PATH]
    pub snapshot: OsString,

    /// Show modes, owners, sizes and times
    #[arg(short, long)]
    pub long: bool,

    /// List folders within folders too
    #[arg(short = 'R', long)]
    pub recursive: bool,

    #[command(flatten)]
    pub which: Which,
}

#[derive(Debug, Clone, Args)]
pub struct Cat {
    /// Which snapshot, and which file in it: SNAPSHOT[:PATH]
    pub snapshot: OsString,

    #[command(flatten)]
    pub which: Which,
}

#[derive(Debug, Clone, Args)]
pub struct Mount {
    /// An empty folder
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,

    /// Let other users in as well, as far as modes and owners of the archived files allow it
    #[arg(long)]
    pub allow_other: bool,

    #[command(flatten)]
    pub which: Which,
}

#[derive(Debug, Clone, Args)]
pub struct Diff {
    /// The earlier snapshot: SNAPSHOT[:PATH]
    pub from: OsString,

    /// The later one: SNAPSHOT[:PATH]
    pub to: OsString,

    #[command(flatten)]
    pub which: Which,
}

#[derive(Debug, Clone, Args)]
pub struct Find {
    /// A pattern for the file's name, such as '*.conf', or for its path if it has a slash
    pub pattern: String,

    /// Where to look: one snapshot, or a path in it: SNAPSHOT[:PATH]; all snapshots, newest first,
    /// if not given
    pub snapshot: Option<OsString>,

    #[command(flatten)]
    pub which: Which,
}

#[derive(Debug, Clone, Args)]
pub struct Replicate {
    /// Where to: folders or URLs; all that are remembered if none is given
    #[arg(value_name = "TARGET", value_hint = ValueHint::AnyPath)]
    pub targets: Vec<String>,

    /// Remember these targets in the store's replicas.toml
    #[arg(long)]
    pub remember: bool,

    /// Only say what would be uploaded
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// How many objects are uploaded at the same time
    #[arg(short, long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,

    /// Upload at most so many bytes a second
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub limit_rate: Option<u64>,

    /// How large objects become, from 1M to 1G; each job holds one in memory
    #[arg(long, value_name = "BYTES", default_value = "16M", value_parser = parse_size)]
    pub segment_size: u64,

    /// Put this object again in place of the one that is there, as `verify --replica` names it; may
    /// be given several times
    #[arg(long = "replace", value_name = "OBJECT")]
    pub replaced: Vec<String>,

    /// Remove keys at the target that the store no longer has: until then they still open the
    /// replica
    #[arg(long)]
    pub delete_extra_keys: bool,
}

#[derive(Debug, Clone, Args)]
pub struct CloneStore {
    /// The replica: a folder or a URL
    #[arg(value_hint = ValueHint::AnyPath)]
    pub target: String,

    /// An empty or new folder
    #[arg(value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,

    /// Check nothing, and need no key: the copy is then as good as the target
    #[arg(long)]
    pub unchecked: bool,

    /// Take arenas that the replica has only damaged or in part as they are
    #[arg(long, conflicts_with = "unchecked")]
    pub keep_damaged: bool,

    /// How many arenas are fetched at the same time [default: 8, and 4 from an FTP server]
    #[arg(short, long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: Option<u16>,
}
