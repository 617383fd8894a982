//! The words that the program understands. `--help`, the man pages and the completions are all made from here.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "these lines are printed on a terminal: `[:PATH]` is no link"
)]

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum, ValueHint};
use varve_log::{ArenaMap, ClumpBytes, CompressionLevel, ParityPercent};
use varve_store::{AuditShare, StoreConfig};
use varve_world::Timestamp;

use crate::moment;

/// Keeps every day of every disk and folder in one append-only, content-addressed log.
///
/// Each night's snapshot of a disk image, a block device or a folder goes into a store. Every duplicate block is stored once, so a
/// night costs what changed. Any past day can be listed, looked into, compared, verified and restored.
#[derive(Debug, Clone, Parser)]
#[command(name = "varve", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Arguments {
    /// The store's folder, or a replica of it (a folder or a URL) to read from
    #[arg(short, long, global = true, env = "VARVE_STORE", value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub store: Option<PathBuf>,

    /// A file whose contents open the store, instead of a passphrase (at least 32 random bytes)
    ///
    /// Without it the passphrase is taken from VARVE_PASSPHRASE, or asked for.
    #[arg(long, global = true, env = "VARVE_KEY_FILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub key_file: Option<PathBuf>,

    /// Where to keep what was read from replicas, and what was seen of them [default: ~/.cache/varve]
    #[arg(long, global = true, env = "VARVE_CACHE", value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub cache: Option<PathBuf>,

    /// How much is kept there of each store's replicas
    #[arg(long, global = true, value_name = "BYTES", default_value = "1G", value_parser = parse_size)]
    pub cache_size: u64,

    /// Print results as JSON, for programs to read
    #[arg(long, global = true)]
    pub json: bool,

    /// Print only results and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,

    /// Say more about what is done; twice: much more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,

    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

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

A snapshot is named by its name (the newest of that name), NAME@2026-05-01 (the newest on or before that day),
@2026-05-01, latest, or the first digits of its id. Exit status: 0 done, 1 failed or damage found, 2 wrong words.";

const INSIDE_HELP: &str = "\
Inside a disk image, paths begin with the name of a volume, as `ls NAME` lists them: web@2026-05-01:p1/etc/fstab.
disk.raw is the whole disk, and p1.raw the bytes of p1, whatever they are.";

const DIFF_HELP: &str = "\
+ only in the later one, - only in the earlier one, M changed, m changed in nothing but owner, mode, times or attributes.
Disk images are compared by the files of their volumes. Of images without such, of NAME:disk.raw and of NAME:p1.raw the ranges of bytes are
shown that differ.";

const REPLICATE_HELP: &str = "\
A replica holds the whole log, encrypted as it is here, with keys and settings. Only what is new is uploaded, and nothing at the
target is ever changed or removed unless one of the options says so: object lock and write-once buckets work. It may be
stopped at any moment; the same command goes on. Whoever holds the store's key can use the replica: read it in place
(varve -s TARGET ls ...), check it (varve verify --replica TARGET) and bring the store back (varve clone TARGET DIR).

Two copies of a store never mix in one replica: if both are written, each needs a target of its own.

Examples:
  varve -s /backup/store replicate /mnt/usb/replica --remember    make one, and remember where
  varve -s /backup/store replicate                                each night: all that are remembered
  varve -s /backup/store replicate /mnt/usb/replica --dry-run     what would be uploaded";

const CLONE_HELP: &str = "\
Every record is checked with the store's key before it comes into place, and the folder becomes a store only when all of it
is there. If it is interrupted, the same command goes on where it stopped.

Examples:
  varve clone /mnt/usb/replica /backup/store    my disk died; this is a new one";

/// What to do.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Make a store in an empty or new folder
    Init(Init),
    /// Archive disk images, block devices or folders
    Snapshot(TakeSnapshot),
    /// List what was archived
    Snapshots(Snapshots),
    /// Show what the store holds and what it costs
    Stats,
    /// List the files of a snapshot, or the volumes of a disk image
    #[command(after_help = INSIDE_HELP)]
    Ls(Ls),
    /// Write a file of a snapshot, or a whole image, to standard output
    #[command(after_help = INSIDE_HELP)]
    Cat(Cat),
    /// Show what differs between two snapshots
    #[command(after_help = DIFF_HELP)]
    Diff(Diff),
    /// Find files by name in snapshots, inside disk images too
    Find(Find),
    /// Take an image, a folder or a part of it out of the archive
    #[command(after_help = INSIDE_HELP)]
    Restore(Restore),
    /// Check that everything is there and undamaged, here or at a replica
    Verify(Verify),
    /// Make, list, change and remove the keys that open the store
    #[command(subcommand)]
    Key(Key),
    /// Mend what is damaged, as far as it can be
    ///
    /// Checks every byte. Blocks that snapshots have lost are fetched from the stores named with --from. Damaged files of the log are
    /// written anew with all that is still good in them; what they were stays in the store's folder `quarantine`. What is still
    /// lost then comes back when the same data is archived again.
    Repair(Repair),
    /// Bring replicas of the store up to date
    #[command(after_help = REPLICATE_HELP)]
    Replicate(Replicate),
    /// Bring a whole store back from a replica
    #[command(after_help = CLONE_HELP)]
    Clone(CloneStore),
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

/// How blocks are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScoreChoice {
    /// BLAKE3 of 256 bits
    Blake3,
    /// SHA-1, for Venti clients
    Sha1,
}

#[derive(Debug, Clone, Args)]
pub struct Init {
    /// Do not encrypt: anybody who holds the disk can read it
    #[arg(long)]
    pub plaintext: bool,

    /// How blocks are named
    #[arg(long, value_enum, default_value = "blake3")]
    pub score: ScoreChoice,

    /// The block size of disk images: a power of two from 512 to 64K
    #[arg(long, value_name = "BYTES", default_value = "16K", value_parser = parse_block_size)]
    pub block_size: u32,

    /// How large the files of the log become, from 1M to 16G
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = parse_arena_size)]
    pub arena_size: ArenaMap,

    /// How much is compressed together, from 4K to 2M: more is smaller on disk, less is faster to read at random
    #[arg(long, value_name = "BYTES", default_value = "1536K", value_parser = parse_clump_size)]
    pub clump_size: ClumpBytes,

    /// How hard to compress: zstd's level, 1 (fast) to 19 (small)
    #[arg(long, value_name = "LEVEL", default_value = "3", value_parser = parse_compression)]
    pub compression: CompressionLevel,

    /// Keep recovery data beside the log, this share of its size (0% to 100%): mends damaged places of the disk without a replica
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = parse_parity)]
    pub parity: Parity,

    #[command(flatten)]
    pub cost: Cost,
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

/// What to do with the keys. What is stored is never rewritten: a key only wraps the store's own keys.
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
    /// Whoever has kept a copy of its file, and knows its secret, can still open the store with them.
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

/// What is to open the new key. Without an option, a passphrase is taken from VARVE_NEW_PASSPHRASE or asked for.
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

/// How much parity a store is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parity(pub Option<ParityPercent>);

#[derive(Debug, Clone, Args)]
pub struct TakeSnapshot {
    /// Disk images, block devices or folders; `-` archives standard input as an image
    #[arg(required = true, value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub sources: Vec<PathBuf>,

    /// What to call it; the source's own name if not given
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,

    /// The moment that it shows, such as 2026-05-01T23:15; now if not given
    #[arg(long, value_parser = parse_time)]
    pub time: Option<Timestamp>,

    /// Something to remember with it; may be given several times
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = parse_tag)]
    pub tags: Vec<String>,

    /// Leave out what matches this pattern, as in a .gitignore file; may be given several times
    #[arg(long = "exclude", value_name = "PATTERN")]
    pub excludes: Vec<String>,

    /// Leave out what matches the patterns in this file, one a line
    #[arg(long = "exclude-file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub exclude_files: Vec<PathBuf>,

    /// Leave out folders that another program has marked as a cache (CACHEDIR.TAG)
    #[arg(long)]
    pub exclude_caches: bool,

    /// Stay on the file system that the source is on
    #[arg(long)]
    pub one_file_system: bool,

    /// Read every file, even those that have not changed since the last snapshot
    #[arg(long)]
    pub reread: bool,
}

#[derive(Debug, Clone, Args)]
pub struct Snapshots {
    /// Only those of this name
    pub name: Option<String>,

    /// Only those with this tag; may be given several times
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = parse_tag)]
    pub tags: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub struct Ls {
    /// Which snapshot, and which path in it: SNAPSHOT[:PATH]
    pub snapshot: String,

    /// Show modes, owners, sizes and times
    #[arg(short, long)]
    pub long: bool,

    /// List folders within folders too
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

#[derive(Debug, Clone, Args)]
pub struct Cat {
    /// Which snapshot, and which file in it: SNAPSHOT[:PATH]
    pub snapshot: String,
}

#[derive(Debug, Clone, Args)]
pub struct Diff {
    /// The earlier snapshot: SNAPSHOT[:PATH]
    pub from: String,

    /// The later one: SNAPSHOT[:PATH]
    pub to: String,
}

#[derive(Debug, Clone, Args)]
pub struct Find {
    /// A pattern for the file's name, such as '*.conf', or for its path if it has a slash
    pub pattern: String,

    /// Where to look: one snapshot; all, newest first, if not given
    pub snapshot: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct Restore {
    /// Which snapshot, and which path in it: SNAPSHOT[:PATH]
    pub snapshot: String,

    /// Where to: a file, a block device, a folder, or `-` for standard output
    #[arg(value_hint = ValueHint::AnyPath)]
    pub destination: PathBuf,

    /// Replace what is there
    #[arg(long)]
    pub overwrite: bool,
}

#[derive(Debug, Clone, Args)]
pub struct Verify {
    /// Read and check every byte
    #[arg(long)]
    pub data: bool,

    /// Of the data read at most this share, such as 3%, and first what was read longest ago: so a full check is spread over nights
    #[arg(long, value_name = "PERCENT", value_parser = parse_share)]
    pub share: Option<f64>,

    /// Of the data read only what was not read and found whole within this time, such as 30d
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub since: Option<Duration>,

    /// Check a replica, object by object, without trusting it
    ///
    /// With --store the replica is also compared with the store that it should be of.
    #[arg(long, value_name = "TARGET", value_hint = ValueHint::AnyPath)]
    pub replica: Option<String>,

    /// Read and check this share of the replica's data, drawn at random, such as 5%
    #[arg(long, value_name = "PERCENT", requires = "replica", conflicts_with = "data", value_parser = parse_sample)]
    pub sample: Option<varve_replica::Share>,
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

    /// Put this object again in place of the one that is there, as `verify --replica` names it; may be given several times
    #[arg(long = "replace", value_name = "OBJECT")]
    pub replaced: Vec<String>,

    /// Remove keys at the target that the store no longer has: until then they still open the replica
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

    /// How many arenas are fetched at the same time
    #[arg(short, long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
}

/// A share: `5%`, `0.1%`.
fn parse_sample(text: &str) -> Result<varve_replica::Share, String> {
    let wrong = || format!("{text} is not a share: write 5% or 0.1%");
    let number = text.trim_end_matches('%');
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.chars().all(|digit| digit.is_ascii_digit());
    if whole.is_empty() || part.len() > 4 || !digits(whole) || !digits(part) {
        return Err(wrong());
    }
    let scaled: u32 = format!("{whole}{part:0<4}").parse().map_err(|_| wrong())?;
    varve_replica::Share::from_millionths(scaled).ok_or_else(wrong)
}

impl Verify {
    /// What of the data is to be read, if any.
    pub fn data_share(&self, now: Timestamp) -> Option<AuditShare> {
        if !self.data && self.share.is_none() && self.since.is_none() {
            return None;
        }
        let nanoseconds = |age: Duration| i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
        let not_since = self.since.map(|age| Timestamp(now.0.saturating_sub(nanoseconds(age))));
        Some(AuditShare { not_since, share: self.share.unwrap_or(1.0) })
    }
}

#[derive(Debug, Clone, Args)]
pub struct Repair {
    /// Fetch lost blocks from this store, a copy with the same key; may be given several times
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub from: Vec<PathBuf>,

    /// Only say what would be done
    #[arg(long)]
    pub plan: bool,
}

/// Words that are well formed one by one, and make no sense together. The exit status is then 2, as for words that no
/// command has.
#[derive(Debug)]
pub struct WrongWords(pub String);

impl std::fmt::Display for WrongWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongWords {}

/// A number of bytes: `8192`, `8K`, `64M`, `1G`.
fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) =
        match text.trim_end_matches(['b', 'B', 'i']).split_at_checked(text.len().saturating_sub(1)) {
            Some((digits, unit)) if unit.chars().all(char::is_alphabetic) => (digits, unit),
            _ => (text, ""),
        };
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(format!("{text} is not a size: write 8192, 8K or 64M")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text} is not a size: write 8192, 8K or 64M"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is too large"))
}

fn parse_block_size(text: &str) -> Result<u32, String> {
    let bytes =
        u32::try_from(parse_size(text)?).ok().filter(|bytes| StoreConfig::block_bytes_is_good(*bytes));
    bytes.ok_or_else(|| "write a power of two from 512 to 64K".into())
}

fn parse_arena_size(text: &str) -> Result<ArenaMap, String> {
    ArenaMap::new(parse_size(text)?).ok_or_else(|| "write a multiple of 128 from 1M to 16G".into())
}

fn parse_clump_size(text: &str) -> Result<ClumpBytes, String> {
    let bytes = u32::try_from(parse_size(text)?).ok().and_then(ClumpBytes::new);
    bytes.ok_or_else(|| "write a size from 4K to 2M".into())
}

fn parse_compression(text: &str) -> Result<CompressionLevel, String> {
    text.parse().ok().and_then(CompressionLevel::new).ok_or_else(|| "write a level from 1 to 19".into())
}

fn parse_parity(text: &str) -> Result<Parity, String> {
    let number: Result<u8, _> = text.strip_suffix('%').unwrap_or(text).parse();
    match number {
        Ok(0) => Ok(Parity(None)),
        Ok(percent) => ParityPercent::new(percent).map(Some).map(Parity).ok_or(()),
        Err(_) => Err(()),
    }
    .map_err(|()| "write a share from 0% to 100%, like 5%".into())
}

/// A name that `SNAPSHOT[:PATH]` and `NAME@WHEN` can carry.
pub fn parse_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains([':', '@', '/']) || text == "latest" {
        return Err(format!("{text:?} cannot name a snapshot: no `:`, `@` or `/`, and not `latest`"));
    }
    Ok(text.into())
}

fn parse_time(text: &str) -> Result<Timestamp, String> {
    moment::parse_exact(text).ok_or_else(|| "write a moment, such as 2026-05-01 or 2026-05-01T23:15".into())
}

/// A share of the whole: `3%`.
fn parse_share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let percent = number.filter(|number| *number > 0.0 && *number <= 100.0);
    percent.map(|percent| percent / 100.0).ok_or_else(|| "write a share of the whole, such as 3%".into())
}

/// A time that has passed: `30d`, `12h`.
fn parse_age(text: &str) -> Result<Duration, String> {
    let seconds = |unit| match unit {
        "h" => Some(3600),
        "d" => Some(86_400),
        "w" => Some(7 * 86_400),
        _ => None,
    };
    let split = text.split_at_checked(text.len().saturating_sub(1));
    let age = split.and_then(|(number, unit)| number.parse::<u64>().ok()?.checked_mul(seconds(unit)?));
    age.map(Duration::from_secs).ok_or_else(|| "write a number of hours, days or weeks: 12h, 30d, 4w".into())
}

fn parse_tag(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((key, _)) if !key.is_empty() => Ok(text.into()),
        _ => Err("write KEY=VALUE".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_words_fit_together() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn shares_are_read() {
        let millionths = |number| varve_replica::Share::from_millionths(number).unwrap();
        for (text, number) in [("5%", 50_000), ("0.1%", 1000), ("100", 1_000_000), ("0.0001%", 1), ("0", 0)] {
            assert_eq!(parse_sample(text), Ok(millionths(number)), "{text}");
        }
        for bad in ["", "%", "101%", "-1%", "0.00001%", "5 %", "five"] {
            assert!(parse_sample(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse_size("8192"), Ok(8192));
        assert_eq!(parse_size("8K"), Ok(8192));
        assert_eq!(parse_size("64m"), Ok(64 << 20));
        assert_eq!(parse_size("1G"), Ok(1 << 30));
        for bad in ["", "K", "8X", "-1", "99999999999G"] {
            assert!(parse_size(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn shares_and_ages_are_read() {
        assert_eq!(parse_share("50%"), Ok(0.5));
        assert_eq!(parse_age("2d"), Ok(Duration::from_secs(172_800)));
        for bad in ["", "3", "0%", "101%", "-1%", "NaN%", "x%"] {
            assert!(parse_share(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "d", "3", "3y", "-1d", "1µ", "99999999999999999999d"] {
            assert!(parse_age(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn parity_is_read() {
        assert_eq!(parse_parity("0"), Ok(Parity(None)));
        for text in ["5", "5%", "005%"] {
            assert_eq!(parse_parity(text), Ok(Parity(ParityPercent::new(5))));
        }
        assert_eq!(parse_parity("100%"), Ok(Parity(ParityPercent::new(100))));
        for bad in ["", "%", "101", "-1", "5%%", "0.5", "5 %", "256%"] {
            assert!(parse_parity(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_must_be_speakable() {
        assert_eq!(parse_name("web-1"), Ok("web-1".into()));
        for bad in ["", "a:b", "a@b", "a/b", "latest"] {
            assert!(parse_name(bad).is_err(), "{bad:?}");
        }
    }
}
