//! The arguments of the program. `--help`, the man pages and the completions are generated from
//! these types.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "these lines are printed on a terminal: `[:PATH]` is no link"
)]

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use varve_log::{ArenaMap, ClumpBytes, CompressionLevel, ParityPercent};
use varve_machine::ImageFormat;
use varve_world::Timestamp;

mod attach;
mod bench;
mod boot;
mod command_line;
mod command_needs;
mod daily;
mod drill;
mod first_screen;
mod forgetting;
mod global;
mod groups;
mod moving;
mod optimize;
mod ordered_job;
mod plan;
mod planning;
mod publish;
mod reclaiming;
mod replicas;
mod restore;
mod retention;
mod selection;
mod serve;
mod snapshot_filter;
mod snapshots;
mod stats;
mod trace;
mod value;
mod venti;
mod verify;

pub use attach::AttachArgs;
pub use bench::{ActionChoice, BenchChunksArgs, BenchCommand, BenchDeviceArgs, BenchVentiArgs, OrderChoice};
pub use boot::{BootArgs, BusChoice, FirmwareChoice, MachineArgs};
pub use command_line::ProgramArguments;
pub use command_needs::CommandNeeds;
pub use daily::{
    ConfigCheckArgs, ConfigCommand, ExplainArgs, LogArgs, NotifyArgs, PauseArgs, RunArgs, SetupArgs,
    StatusArgs,
};
pub use drill::DrillArgs;
pub use first_screen::GROUPS;
pub use forgetting::{ForgetArgs, HoldArgs, ReleaseArgs};
pub use global::GlobalArgs;
pub use groups::{DailyCommand, DiskCommand, MarkCommand, StoreCommand, ToolsCommand};
pub use moving::{
    ImportArgs, ImportBorgArgs, ImportCommand, ImportImagesArgs, ImportLinkTreesArgs, ImportResticArgs,
    ImportTarArgs, ImportZipArgs, ImportedArgs,
};
pub use optimize::OptimizeArgs;
pub use ordered_job::JobArgs;
pub use plan::PlanArgs;
pub use planning::{PlanningArguments, PlanningCommand};
pub use publish::{LayoutChoice, MachineChoice, ProfileChoice, ProfileCommand, PublishArgs};
pub use reclaiming::{CollectArgs, GcArgs, PruneArgs};
pub use replicas::{CloneArgs, ReplicateArgs};
pub use restore::{OUTPUT, RestoreArgs};
pub use selection::SelectionArgs;
pub use serve::{ServeArgs, TlsFiles, WebPasswordArgs};
pub use snapshot_filter::SnapshotFilterArgs;
pub use snapshots::{AsChoice, CutChoice, GroupBy, ListSnapshotsArgs, TagArgs};
pub use stats::StatsArgs;
pub use trace::{StoreTraceArgs, TraceCommand, TraceFileArgs, TraceProfileArgs, TraceWorkloadArgs};
pub use value::parse_name;
use value::{
    parse_arena_size, parse_block_size, parse_blocks, parse_clump_size, parse_comment, parse_compression,
    parse_format, parse_index_memory, parse_parity, parse_size, parse_tag, parse_time,
};
pub use venti::{CopyArgs, VentiCommand};
pub use verify::{RepairArgs, VerifyArgs};

/// Keeps every day of every disk and folder in one content-addressed log.
///
/// Each snapshot of a disk image, a block device or a folder goes into a store. Every duplicate
/// block is stored once, so a snapshot costs only what has changed. Any past day can be listed,
/// browsed, compared, verified and restored.
#[derive(Debug, Clone, Parser)]
#[command(name = "varve", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    pub global: GlobalArgs,

    /// The command
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  varve -s /backup/store init                  make a store; asks for a passphrase
  varve -s /backup/store snapshot /dev/vda     archive a disk
  varve -s /backup/store snapshot ~/work       archive a folder
  varve -s /backup/store snapshots             list the snapshots
  varve -s /backup/store ls work@2026-05-01    list the files of a past day
  varve -s /backup/store restore work:src out  restore a folder
  varve -s /backup/store cat vda:p1/etc/fstab  print a file inside a disk
  varve -s /backup/store replicate /mnt/usb    keep a second copy of the store
  varve clone /mnt/usb /backup/store           restore the store from it

A snapshot is named by its name (the newest of that name), HOST:NAME (the newest of that name from that host), NAME@2026-05-01 \
(the newest on or before that day), NAME@yesterday, NAME@3d (as it was three days ago), @2026-05-01, latest, or the first digits of its id. Exit status: 0 done, 1 failed, 2 usage \
error, 3 done with gaps (some files could not be read), 4 a promise is broken, 5 damage found, 6 nothing was done, 10 no store there, 11 another writer holds the store, 12 \
wrong key or passphrase, 13 a newer version is needed, 130 interrupted.";

const INSIDE_HELP: &str = "\
Inside a disk image, paths begin with the name of a volume, as `ls NAME` lists them: web@2026-05-01:p1/etc/fstab. disk.raw is the \
whole disk, and p1.raw the raw bytes of p1.

File names are bytes, and may be given as such. A byte that is not part of UTF-8 text is shown as \\xe9, a control character as \
\\n or \\u{1b}, and a backslash as \\\\. With --json, the field path_bytes has all bytes of such a name, in hexadecimal.";

const RESTORE_USAGE: &str = "varve restore [OPTIONS] <SNAPSHOT[:PATH]>... <DEST>\n       varve restore [OPTIONS] --in-place <SNAPSHOT[:PATH]>...";

const DIFF_HELP: &str = "\
+ only in the later one, - only in the earlier one, M changed, m only owner, mode, times or attributes changed.

Disk images are compared by the files of their volumes. For images without files, for NAME:disk.raw and for NAME:p1.raw, the \
differing ranges of bytes are shown. The exit status does not depend on the result: it is 0.";

const VERSIONS_HELP: &str = "\
A version is the same content in consecutive snapshots of a name on a host. With NAME@WHEN, later snapshots are left out. A file of \
a disk is named by its volume: vm:p1/etc/fstab.

Examples:
  varve versions home:anna/thesis.txt            first and last day of each version
  varve versions home:anna/thesis.txt --diff     and the lines that have changed
  varve versions home:anna/thesis.txt --since 3w";

const MOUNT_HELP: &str = "\
Runs until it is interrupted. A snapshot is in the folder of its day: DIR/2026/05/01/NAME holds the files of a folder. For a disk, \
p1, p2, ... in it hold the files of its volumes, and disk.raw is the whole disk. If a day has several snapshots of one name, the \
newest has the name, and the others are NAME.HHMMSS. DIR/latest/NAME leads to the newest, DIR/by-id/ID to the snapshot with that \
id. Days are those of the local time zone. New snapshots appear by themselves.

Without --allow-other only you have access, and you can read all files, independent of their owner.

Examples:
  mkdir days; varve -s /backup/store mount days    and in another terminal: ls days/latest
  varve -s sftp://host/replica mount days          a replica, without copying it";

/// The commands.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Make a store in an empty or new folder
    Init(InitArgs),
    /// Archive disks, folders, files, or the output of a program
    #[command(after_help = snapshots::SNAPSHOT_HELP)]
    Snapshot(Box<TakeSnapshotArgs>),
    /// List the snapshots
    Snapshots(ListSnapshotsArgs),
    /// Forget snapshots, and bring forgotten ones back
    #[command(after_help = forgetting::FORGET_HELP)]
    Forget(ForgetArgs),
    /// Forget snapshots by rules, and free what no snapshot needs
    #[command(after_help = reclaiming::PRUNE_HELP)]
    Prune(Box<PruneArgs>),
    /// List the files of a snapshot, or the volumes of a disk image
    #[command(after_help = INSIDE_HELP)]
    Ls(LsArgs),
    /// Write a file of a snapshot, or a whole image, to standard output
    #[command(after_help = INSIDE_HELP)]
    Cat(CatArgs),
    /// Mount all snapshots as a folder of days, for any program to read
    #[command(after_help = MOUNT_HELP)]
    Mount(MountArgs),
    /// Show the differences between two snapshots
    #[command(after_help = DIFF_HELP)]
    Diff(DiffArgs),
    /// List the versions of a file in all snapshots of its series
    #[command(after_help = VERSIONS_HELP)]
    Versions(VersionsArgs),
    /// Find files by name in snapshots, inside disk images too
    Find(FindArgs),
    /// Restore an image, a folder or a part of it from the archive
    ///
    /// A new destination appears when it is complete. If a restore is interrupted, or the disk is
    /// full, the same command continues it.
    #[command(after_help = INSIDE_HELP, override_usage = RESTORE_USAGE)]
    Restore(RestoreArgs),
    /// Check that all data is present and undamaged, here or at a replica
    Verify(VerifyArgs),
    /// Make, list, change and remove the keys that open the store
    #[command(subcommand)]
    Key(KeyCommand),
    /// Repair damage as far as possible
    ///
    /// Repairs known damage: missing files of the log, reads that failed, and the findings of
    /// `verify`. If no damage is known, or with --data, every byte is read first. Missing arenas
    /// are taken from the stores named with --from, or mended from their parity. Lost blocks of
    /// snapshots are fetched from the stores named with --from. Damaged arenas are rewritten with
    /// all of their good data; the old files stay in the store's folder `quarantine`. Data that is
    /// still lost comes back when it is archived again.
    ///
    /// Blocks that cannot be brought back are recorded in the log, even if no snapshot needs them.
    /// `verify` reports them until their bytes are stored again, or until --accept-loss.
    Repair(RepairArgs),
    /// Bring replicas of the store up to date
    #[command(after_help = replicas::REPLICATE_HELP)]
    Replicate(ReplicateArgs),
    /// Import from restic, borg, rsnapshot, tar, zip, images or Venti
    #[command(after_help = moving::IMPORT_HELP)]
    Import(ImportArgs),
    /// Start a machine from its disk on any day, without changing it
    #[command(after_help = boot::BOOT_HELP)]
    Boot(BootArgs),
    /// Serve snapshots or blocks to other programs, until interrupted
    #[command(after_help = serve::SERVE_HELP)]
    Serve(Box<ServeArgs>),
    /// Ask five questions, write a configuration, and make its store
    #[command(after_help = daily::SETUP_HELP)]
    Setup(SetupArgs),
    /// Do what is due: snapshots, replicas, verification, retention
    #[command(after_help = daily::RUN_HELP)]
    Run(RunArgs),
    /// Do a job of `varve run`, which starts this
    #[command(hide = true)]
    Job(JobArgs),
    /// Judge the promises of the configuration
    #[command(after_help = daily::STATUS_HELP)]
    Status(StatusArgs),
    /// More of daily work: log, config, explain, notify, pause, drill
    #[command(subcommand)]
    Daily(DailyCommand),
    #[command(flatten)]
    DailyByName(DailyCommand),
    /// Mark snapshots: tag, hold, release
    #[command(subcommand)]
    Mark(MarkCommand),
    #[command(flatten)]
    MarkByName(MarkCommand),
    /// Look after a store: stats, gc, reindex, clone, copy, venti
    #[command(subcommand)]
    Store(StoreCommand),
    #[command(flatten)]
    StoreByName(StoreCommand),
    /// Publish disks, and use them: publish, attach, profile, optimize
    #[command(subcommand)]
    Disk(DiskCommand),
    #[command(flatten)]
    DiskByName(DiskCommand),
    /// Make files for other programs: web-password, completions, man
    #[command(subcommand)]
    Tools(ToolsCommand),
    #[command(flatten)]
    ToolsByName(ToolsCommand),
}

/// The hash that names blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScoreChoice {
    /// BLAKE3 of 256 bits
    Blake3,
    /// SHA-1, for Venti clients
    Sha1,
}

/// The way to recognise duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompareChoice {
    /// By its hash, which is its name
    Hash,
    /// Byte by byte; its name is its place in the log
    Value,
}

#[derive(Debug, Clone, Args)]
pub struct InitArgs {
    /// Do not encrypt: anybody with access to the disk can read the store
    #[arg(long)]
    pub plaintext: bool,

    /// The hash that names blocks [default: blake3]
    #[arg(long, value_enum)]
    pub score: Option<ScoreChoice>,

    /// The way to recognise duplicate blocks: by their hash, or by comparing all bytes
    ///
    /// With value, a block is a duplicate only if it was read and compared, so no hash needs to be
    /// free of collisions, and reading needs no index. Blocks are named by their place. Such a
    /// store cannot have write-only keys, cannot serve Venti clients, and does not heal by
    /// archiving again: docs/guide/by-value.md.
    #[arg(long, value_enum, default_value = "hash")]
    pub compare: CompareChoice,

    /// The block size of disk images: a power of two from 512 to 64K
    #[arg(long, value_name = "BYTES", default_value = "16K", value_parser = parse_block_size)]
    pub block_size: u32,

    /// The maximum size of the log's files, from 1M to 16G
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = parse_arena_size)]
    pub arena_size: ArenaMap,

    /// The amount of data that is compressed together, from 4K to 2M
    ///
    /// More takes less space on the disk; less is faster to read at random.
    #[arg(long, value_name = "BYTES", default_value = "1536K", value_parser = parse_clump_size)]
    pub clump_size: ClumpBytes,

    /// The compression level of zstd, from 1 (fast) to 19 (small)
    #[arg(long, value_name = "LEVEL", default_value = "3", value_parser = parse_compression)]
    pub compression: CompressionLevel,

    /// The size of the recovery data beside the log, as a share of the log (0% to 100%)
    ///
    /// Recovery data mends damaged places of the disk without a replica.
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = parse_parity)]
    pub parity: Parity,

    /// Store a block of a disk or a database that differs little from the one before it as a delta
    ///
    /// Databases take a fraction of the space. A single block of a later day needs one more read.
    /// Versions of this program that do not know deltas cannot read the store.
    #[arg(long)]
    pub deltas: bool,

    /// The place of the index: in memory, nine bytes a block; or on disk, with a fixed amount of
    /// memory and two bytes a block
    #[arg(long, value_enum, default_value = "memory")]
    pub index: IndexChoice,

    #[command(flatten)]
    pub disk_index: DiskIndexArgs,

    #[command(flatten)]
    pub cost: PassphraseCostArgs,
}

/// The place of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IndexChoice {
    /// In memory, about nine bytes a block
    Memory,
    /// On disk
    Disk,
}

/// The read-ahead after a look-up on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PrefetchChoice {
    /// Its neighbours in the arena's directory, as soon as another look-up leads near it; more with
    /// each further one
    Arena,
    /// The whole directory of an arena, after four look-ups in a row that led to it, as Venti does
    Four,
    /// Nothing, for blocks that are requested one by one, far from each other
    None,
}

/// The settings of an index on disk.
#[derive(Debug, Clone, Args)]
pub struct DiskIndexArgs {
    /// With --index disk: the maximum memory of the index beside its filter, at least 1M [default:
    /// 192M]
    #[arg(long, value_name = "BYTES", value_parser = parse_index_memory)]
    pub index_memory: Option<u64>,

    /// With --index disk: the initial number of blocks for its filter, such as 500000 or 100M; it
    /// grows by itself [default: 1M]
    #[arg(long, value_name = "BLOCKS", value_parser = parse_blocks)]
    pub index_size: Option<u64>,

    /// With --index disk: the bits of a fingerprint, from 32 to 64; more bits make fewer look-ups
    /// find a wrong place [default: 48]
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u32).range(32..=64))]
    pub index_fingerprint: Option<u32>,

    /// With --index disk: the read-ahead after a look-up on disk [default: arena]
    #[arg(long, value_enum)]
    pub index_prefetch: Option<PrefetchChoice>,

    /// With --index disk: a folder for its entries, on another disk; may be given several times
    /// [default: store]
    ///
    /// The entries are spread over all of these folders. `store` is the store's own folder.
    #[arg(long, value_name = "DIR")]
    pub index_path: Vec<PathBuf>,
}

/// `varve reindex`
#[derive(Debug, Clone, Args)]
pub struct ReindexArgs {
    /// The new place of the index [default: its present place]
    #[arg(long, value_enum)]
    pub index: Option<IndexChoice>,

    #[command(flatten)]
    pub disk_index: DiskIndexArgs,
}

/// The cost of an attempt at a passphrase, for its owner and for an attacker.
#[derive(Debug, Clone, Args)]
pub struct PassphraseCostArgs {
    /// The memory that each attempt at the new passphrase takes, from 8M to 4G
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = parse_size)]
    pub memory: u64,

    /// The number of passes over that memory, from 1 to 64
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    pub passes: u32,
}

/// The operations on keys. Stored data is never rewritten: a key only wraps the store's own keys.
#[derive(Debug, Clone, Subcommand)]
pub enum KeyCommand {
    /// Make another key; opening the store needs one of its present keys
    Add(AddKeyArgs),
    /// List the keys, without opening any
    List,
    /// Replace the given passphrase or key file with a new one
    Change(NewSecretArgs),
    /// Remove a key; the last full key cannot be removed
    ///
    /// Anybody with a copy of the key's file and its secret can still open the store.
    Remove {
        /// The key's id, or its first digits: `varve key list` shows it
        id: String,
    },
    /// Print a paper key: a page that opens everything, to be kept away from any computer
    Export {
        /// Print an SVG drawing instead of text
        #[arg(long)]
        svg: bool,
    },
    /// Make a new key from a paper key that is typed in
    Import {
        /// A file with the text on the paper [default: standard input]
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,

        #[command(flatten)]
        secret: NewSecretArgs,

        /// The label of the new key
        #[arg(long, default_value = "")]
        label: String,
    },
}

#[derive(Debug, Clone, Args)]
pub struct AddKeyArgs {
    #[command(flatten)]
    pub secret: NewSecretArgs,

    /// A label, such as the name of the machine or the person that holds the key
    #[arg(long, default_value = "")]
    pub label: String,

    /// Let the key add snapshots, but read nothing, not even its own
    #[arg(long, conflicts_with = "append_only")]
    pub write_only: bool,

    /// Let the key read and add, but neither remove anything nor manage keys
    #[arg(long)]
    pub append_only: bool,
}

/// The secret of the new key. Without an option, a passphrase is taken from VARVE_NEW_PASSPHRASE or
/// asked for.
#[derive(Debug, Clone, Args)]
pub struct NewSecretArgs {
    /// The new key file, whose contents open the store (at least 32 random bytes)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "new_passphrase")]
    pub new_key_file: Option<PathBuf>,

    /// Ask for the new passphrase at the terminal, even if VARVE_NEW_PASSPHRASE is set
    #[arg(long)]
    pub new_passphrase: bool,

    #[command(flatten)]
    pub cost: PassphraseCostArgs,
}

/// The amount of parity in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parity(pub Option<ParityPercent>);

#[derive(Debug, Clone, Args)]
pub struct TakeSnapshotArgs {
    /// Disk images, block devices, folders or files; `-` archives standard input, as an image
    /// unless --as says otherwise
    #[arg(required_unless_present = "qmp", conflicts_with = "qmp", value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub sources: Vec<PathBuf>,

    /// The name of the snapshot [default: the name of the source]
    ///
    /// The name must be given if another source was archived under the same name before.
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,

    /// The time of the snapshot, such as 2026-05-01T23:15 [default: now]
    #[arg(long, value_parser = parse_time)]
    pub time: Option<Timestamp>,

    /// A tag for the snapshot; may be given several times
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = parse_tag)]
    pub tags: Vec<String>,

    /// A comment of one line
    #[arg(long, value_name = "TEXT", value_parser = parse_comment)]
    pub comment: Option<String>,

    /// The way to archive regular files or standard input [default: by their contents]
    #[arg(long = "as", value_enum, value_name = "FORM", conflicts_with = "qmp")]
    pub form: Option<AsChoice>,

    /// Archive the standard output of a program, as the file NAME: --command NAME -- PROGRAM
    /// ARGS...
    ///
    /// If the program fails, there is no snapshot.
    #[arg(long, value_name = "NAME", value_parser = parse_name, conflicts_with_all = ["qmp", "name", "vac", "format"])]
    pub command: Option<String>,

    /// Archive standard input, or the output of a program, even if it is empty; and a folder that
    /// is empty now, although its last snapshot has entries
    #[arg(long)]
    pub allow_empty: bool,

    /// Read the source at another path, such as a snapshot of its file system
    ///
    /// The snapshot has the name and the path of SOURCE, which patterns are relative to.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath, conflicts_with_all = ["qmp", "command", "vac", "dry_run"])]
    pub read_from: Option<PathBuf>,

    /// Read everything, even if it has not changed since the last snapshot
    #[arg(long)]
    pub reread: bool,

    /// Make the snapshot of a folder readable for vac's tools, and write its `vac:` line into this
    /// file
    ///
    /// The store must have SHA-1 scores.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "qmp")]
    pub vac: Option<PathBuf>,

    /// Record the work as a trace, in this new file
    ///
    /// A trace has the order and the sizes of all blocks, and which of them are equal, but no
    /// content and no name. `varve-plan trace show` prints it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["qmp", "dry_run"])]
    pub trace: Option<PathBuf>,

    /// Pack disks and databases as small as possible: disks about 4% smaller
    ///
    /// Small reads from mounts and booted machines then cost ten times as much.
    #[arg(long)]
    pub compact: bool,

    /// Archive the swap in disk images, too
    ///
    /// Without this, swap partitions, swap files, pagefile.sys and hiberfil.sys are archived as
    /// zeros, if all checks prove that they are swap.
    #[arg(long)]
    pub keep_swap: bool,

    /// Archive the free blocks of file systems in disk images as zeros
    ///
    /// This applies to file systems that were unmounted cleanly, and are proven to be in use.
    #[arg(long, conflicts_with = "qmp")]
    pub skip_free: bool,

    /// The places at which a disk image is cut into blocks
    #[arg(long, value_enum, default_value_t = CutChoice::Fixed, value_name = "WHERE")]
    pub cut: CutChoice,

    /// The format of the disk images [default: by their first bytes; raw for block devices]
    ///
    /// Formats other than raw are read through QEMU's tools: the disk in the file is archived, not
    /// the file.
    #[arg(long, value_name = "FORMAT", value_parser = parse_format)]
    pub format: Option<ImageFormat>,

    /// A folder for other files that an image may need, such as its backing image; may be given
    /// several times
    #[arg(long = "allow-backing", value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub allow_backing: Vec<PathBuf>,

    #[command(flatten)]
    pub what_goes_in: SelectionArgs,

    #[command(flatten)]
    pub machine: RunningMachineArgs,
}

/// A machine that runs in QEMU, as a source.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "A machine that runs in QEMU")]
pub struct RunningMachineArgs {
    /// Archive the disks of the machine whose QEMU has this monitor socket, without pausing it
    ///
    /// All disks are archived in their state at one moment. Each becomes a snapshot of its own,
    /// named NAME-DRIVE after the machine or --name. The first run reads everything, and each later
    /// run only the changes.
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath)]
    pub qmp: Option<PathBuf>,

    /// Only this drive of the machine; may be given several times
    #[arg(long = "drive", value_name = "DRIVE", requires = "qmp")]
    pub drives: Vec<String>,

    /// Freeze the guest's file systems for that moment, through its guest agent at this socket
    #[arg(long, value_name = "SOCKET", requires = "qmp", value_hint = ValueHint::FilePath)]
    pub agent: Option<PathBuf>,

    /// The folder for data that the machine overwrites while it is archived
    #[arg(long, value_name = "FOLDER", requires = "qmp", default_value = "/var/tmp", value_hint = ValueHint::DirPath)]
    pub scratch: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub struct LsArgs {
    /// The snapshot, and a path in it
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub snapshot: OsString,

    /// Show modes, owners, sizes and times
    #[arg(short, long)]
    pub long: bool,

    /// List the folders in folders, too
    #[arg(short = 'R', long)]
    pub recursive: bool,

    #[command(flatten)]
    pub which: SnapshotFilterArgs,
}

#[derive(Debug, Clone, Args)]
pub struct CatArgs {
    /// The snapshot, and a file in it
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub snapshot: OsString,

    #[command(flatten)]
    pub which: SnapshotFilterArgs,
}

#[derive(Debug, Clone, Args)]
pub struct MountArgs {
    /// An empty folder
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,

    /// Allow access for other users, as far as modes and owners of the archived files permit it
    #[arg(long)]
    pub allow_other: bool,

    #[command(flatten)]
    pub which: SnapshotFilterArgs,
}

#[derive(Debug, Clone, Args)]
pub struct DiffArgs {
    /// The earlier snapshot, and a path in it
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub from: OsString,

    /// The later one
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub to: OsString,

    /// Print the lines in which texts of at most 1 MiB differ
    #[arg(long)]
    pub text: bool,

    #[command(flatten)]
    pub which: SnapshotFilterArgs,
}

#[derive(Debug, Clone, Args)]
pub struct VersionsArgs {
    /// A file or a folder in the newest of its snapshots
    #[arg(value_name = "SNAPSHOT:PATH")]
    pub place: OsString,

    /// Print the lines in which each version of a text differs from the one before it
    #[arg(long)]
    pub diff: bool,

    #[command(flatten)]
    pub which: SnapshotFilterArgs,
}

#[derive(Debug, Clone, Args)]
pub struct FindArgs {
    /// A pattern for the file's name, such as '*.conf', or, if it has a slash, for the end of its
    /// path, such as 'letters/*.txt'; one that begins with a slash is for the whole path
    pub pattern: String,

    /// One snapshot, or a path in it, to search [default: all snapshots, newest first]
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub snapshot: Option<OsString>,

    /// Show modes, owners, sizes and times
    #[arg(short, long)]
    pub long: bool,

    #[command(flatten)]
    pub which: SnapshotFilterArgs,
}
