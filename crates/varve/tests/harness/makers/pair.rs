//! One content made over another, on a disk that is archived and restored.
//!
//! Every byte must come back unchanged, except swap and free blocks that are proven to be so. The
//! proof here is independent of the program: the makers' own tools name those blocks, and must find
//! no error on the restored disk.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use parking_lot::Mutex;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use serde_json::Value;
use varve_image::Ranges;

use super::{LVM_SWAP, Maker, VOLUME_BYTES, output};
use crate::sandbox::{Sandbox, noise, tool};

const MIB: u64 = 1 << 20;
/// Bytes are compared in steps of this size: the smallest block of any maker.
const STEP: u64 = 1024;

/// The place of a volume: the whole disk (`None`), or the only partition of a disk, as the kind of
/// the partition table and the type of the partition.
pub type Place = Option<(&'static str, &'static str)>;

pub const PLACES: [Place; 8] = [
    None,
    Some(("dos", "82")),
    Some(("dos", "83")),
    Some(("dos", "7")),
    Some(("dos", "8e")),
    Some(("gpt", "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F")),
    Some(("gpt", "0FC63DAF-8483-4772-8E79-3D69D8477DE4")),
    Some(("gpt", "6A898CC3-1DD2-11B2-99A6-080020736631")),
];
const SWAP_TYPES: [&str; 2] = ["82", "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F"];
const LINUX_TYPES: [&str; 2] = ["83", "0FC63DAF-8483-4772-8E79-3D69D8477DE4"];
const WINDOWS_TYPES: [&str; 1] = ["7"];
const LVM_TYPES: [&str; 1] = ["8e"];

/// The counts of all rounds together.
#[derive(Default)]
pub struct Sweep {
    pairs: u64,
    disks: u64,
    restored: u64,
    /// The disks with swap or free blocks that their partition types do not contradict, and those
    /// of them from which these bytes were left out.
    provable: u64,
    proven: u64,
    faults: Vec<String>,
    /// The successes of each maker.
    made: BTreeMap<&'static str, u64>,
    /// The failures of each maker, with the content below and the reason.
    failed: BTreeMap<&'static str, Vec<String>>,
}

impl Sweep {
    /// Records that a maker cannot be used here.
    pub fn leave_out(&mut self, maker: &Maker, reason: String) {
        self.failed.entry(maker.name).or_default().push(reason);
    }

    fn make(sweep: &Mutex<Self>, maker: &Maker, over: &str, volume: &Path, work: &Path) -> bool {
        let made = maker.make(volume, work);
        let mut sweep = sweep.lock();
        match &made {
            Ok(()) => *sweep.made.entry(maker.name).or_default() += 1,
            Err(reason) => {
                eprintln!("{} over {over} was not made: {}", maker.name, reason.trim());
                sweep.leave_out(maker, format!("over {over}: {}", reason.trim()));
            }
        }
        made.is_ok()
    }

    fn report(&mut self, fault: String) {
        // The fault is also printed at once, because a sweep over all pairs takes long.
        eprintln!("{fault}");
        self.faults.push(fault);
    }

    pub fn disks(&self) -> u64 {
        self.disks
    }

    /// Returns all faults. A maker that succeeds over one content must succeed over each, so that
    /// no pair is missing.
    pub fn faults(&self) -> Vec<String> {
        let failed = self.failed.iter().filter(|(name, _)| self.made.contains_key(*name));
        let failed =
            failed.flat_map(|(name, reasons)| reasons.iter().map(move |why| format!("{name} {why}")));
        self.faults.iter().cloned().chain(failed).collect()
    }

    /// Returns the makers that cannot be used here, with the reason.
    pub fn skipped(&self) -> Vec<String> {
        let failed = self.failed.iter().filter(|(name, _)| !self.made.contains_key(*name));
        failed.map(|(name, reasons)| format!("skipped: all pairs with {name}: {}", reasons[0])).collect()
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pairs, disks, restored, provable, proven, made, .. } = self;
        write!(f, "{} makers, {pairs} pairs, {disks} disks, {restored} snapshots restored; ", made.len())?;
        write!(f, "{proven} of {provable} were left out in part where their types allow it; ")?;
        write!(f, "{} faults", self.faults().len())
    }
}

/// An old content, the contents that are made over it, and the places of both.
#[derive(Clone)]
pub struct Round {
    pub old: &'static Maker,
    pub news: Vec<&'static Maker>,
    pub places: &'static [Place],
}

impl Round {
    /// Tries all pairs of the round in one store.
    pub fn run(&self, sandbox: &Sandbox, sweep: &Mutex<Sweep>) {
        let (work, base) = (sandbox.path("work"), sandbox.path("base"));
        fs::create_dir_all(&work).unwrap();
        create(&base, VOLUME_BYTES);
        if self.old.name != "nothing" {
            for (seed, mib) in [(4, 20), (5, 44), (6, 62)] {
                write(&base, mib * MIB, &noise(seed, 1 << 20));
            }
        }
        if !Sweep::make(sweep, self.old, "remains", &base, &work) {
            return;
        }
        for new in &self.news {
            let volume = sandbox.path("volume");
            copy_data(&File::open(&base).unwrap(), 0..VOLUME_BYTES, &create(&volume, VOLUME_BYTES), 0);
            if !Sweep::make(sweep, new, self.old.name, &volume, &work) {
                continue;
            }
            if new.name != "nothing" && !new.name.starts_with("ext") {
                add_data(&volume);
            }
            let pairs: Vec<_> =
                self.places.iter().map(|place| Pair::new(sandbox, self.old, new, *place, &volume)).collect();
            for is_free_asked in [false, true] {
                archive_and_compare(sandbox, &pairs, is_free_asked, sweep);
            }
            let mut sweep = sweep.lock();
            sweep.pairs += 1;
            sweep.disks += pairs.len() as u64;
        }
    }
}

/// Writes data where a maker has put nothing, as the new content's owner would.
fn add_data(volume: &Path) {
    for (seed, mib) in [(1, 10), (2, 40), (3, 58)] {
        let is_zero = read(volume, mib * MIB, 256 << 10).iter().all(|byte| *byte == 0);
        if is_zero {
            write(volume, mib * MIB, &noise(seed, 256 << 10));
        }
    }
}

/// Returns an empty disk with a partition for the volume. Each kind of disk is made once.
fn with_table(sandbox: &Sandbox, (label, kind): (&str, &str), size: u64) -> File {
    let disk = sandbox.path(&format!("empty {kind}"));
    if !disk.exists() {
        create(&disk, size);
        let table = format!("label: {label}\nstart=2048, size={}, type={kind}\n", VOLUME_BYTES / 512);
        fs::write(sandbox.path("table"), table).unwrap();
        let line = format!("sfdisk -q '{}' < '{}'", disk.display(), sandbox.path("table").display());
        tool("sh", ["-c", &line]);
    }
    File::open(disk).unwrap()
}

/// A content that was made over another, on a disk.
struct Pair {
    name: String,
    is_over_nothing: bool,
    /// The name of the present content.
    content: &'static str,
    place: Place,
    volume: PathBuf,
    disk: PathBuf,
    volume_at: u64,
}

impl Pair {
    fn new(sandbox: &Sandbox, old: &Maker, new: &Maker, place: Place, volume: &Path) -> Self {
        let kind = place.map_or("no table", |place| place.1);
        let disk = sandbox.path(&format!("disk {kind}"));
        let (size, volume_at) = match place {
            None => (VOLUME_BYTES, 0),
            Some(_) => (VOLUME_BYTES + 2 * MIB, MIB),
        };
        let file = create(&disk, size);
        if let Some(place) = place {
            copy_data(&with_table(sandbox, place, size), 0..size, &file, 0);
        }
        copy_data(&File::open(volume).unwrap(), 0..VOLUME_BYTES, &file, volume_at);
        Self {
            name: format!("{} over {}, in {kind}", new.name, old.name),
            is_over_nothing: old.name == "nothing",
            content: if new.name == "nothing" { old.name } else { new.name },
            place,
            volume: volume.into(),
            disk,
            volume_at,
        }
    }

    /// Returns true if bytes may be left out: there are some, the options ask for it, and the
    /// partition type does not contradict it.
    fn is_provable(&self, is_free_asked: bool) -> bool {
        let agrees = |types: &[&str]| self.place.is_none_or(|place| types.contains(&place.1));
        match self.content {
            "swap" => agrees(&SWAP_TYPES),
            "ext4" => agrees(&LINUX_TYPES),
            "ext2" | "ext3" | "btrfs" | "xfs" => is_free_asked && agrees(&LINUX_TYPES),
            "ntfs" => agrees(&WINDOWS_TYPES),
            "LVM" => agrees(&LVM_TYPES),
            _ => false,
        }
    }

    /// Returns the ranges of the volume that may come back as zeros: swap, by its header; swap
    /// files, where their tools place them; and blocks that e2fsprogs, btrfs-progs or xfsprogs
    /// report as free.
    fn droppable(&self) -> Vec<Range<u64>> {
        match self.content {
            "swap" => vec![pages_of_swap(&self.volume, 0)],
            "LVM" => {
                let pages = pages_of_swap(&self.volume, LVM_SWAP.start);
                assert_eq!(pages.end, LVM_SWAP.end);
                vec![pages]
            }
            "ntfs" => page_file_of_ntfs(&self.volume),
            "ext2" | "ext3" => free_of_ext(&self.volume),
            "btrfs" => free_of_btrfs(&self.volume),
            "xfs" => free_of_xfs(&self.volume),
            "ext4" => {
                let mut found = free_of_ext(&self.volume);
                found.extend(swap_file_of_ext(&self.volume));
                found
            }
            _ => Vec::new(),
        }
    }

    /// Compares the restored disk with the original. Returns the number of bytes that are zeros
    /// instead.
    fn compare(&self, restored: &Path) -> Result<u64, String> {
        let (before, after) = (File::open(&self.disk).unwrap(), File::open(restored).unwrap());
        let size = before.metadata().unwrap().len();
        if after.metadata().unwrap().len() != size {
            return Err(format!("{}: the size differs", self.name));
        }
        let mut changed = Vec::new();
        for range in data_of(&before, size).into_iter().chain(data_of(&after, size)) {
            for at in range.clone().step_by(1 << 20) {
                let length = (range.end - at).min(1 << 20);
                let (one, other) = (read_open(&before, at, length), read_open(&after, at, length));
                let pieces = one.chunks(1024).zip(other.chunks(1024)).zip((at..).step_by(1024));
                for ((_, other), place) in pieces.filter(|((one, other), _)| one != other) {
                    changed.push((place, other.iter().all(|byte| *byte == 0)));
                }
            }
        }
        changed.sort_unstable();
        changed.dedup();
        let droppable = if changed.is_empty() { Vec::new() } else { self.droppable() };
        for (place, is_zero) in &changed {
            let inside = place.checked_sub(self.volume_at);
            let is_droppable = inside.is_some_and(|inside| {
                droppable.iter().any(|range| range.start <= inside && inside + STEP <= range.end)
            });
            if !is_zero || !is_droppable {
                return Err(format!("{}: byte {place} of the disk was lost", self.name));
            }
        }
        if !changed.is_empty() {
            self.check_with_own_tools(&after)?;
        }
        Ok(changed.len() as u64 * STEP)
    }

    /// Checks that the tools of a content recognise it as before, and find nothing to repair.
    fn check_with_own_tools(&self, restored: &File) -> Result<(), String> {
        let part = |name: &str, from: u64, length: u64| {
            let path = self.volume.with_file_name(name);
            let from = self.volume_at + from;
            copy_data(restored, from..from + length, &create(&path, length), 0);
            path.to_str().unwrap().to_owned()
        };
        let volume = part("restored volume", 0, VOLUME_BYTES);
        let identity = |path: &str| {
            let lines = said("blkid", &["-p", "-o", "export", path]).1;
            lines.lines().filter(|line| !line.starts_with("DEVNAME")).map(str::to_owned).collect::<Vec<_>>()
        };
        let (before, after) = (identity(self.volume.to_str().unwrap()), identity(&volume));
        if before != after {
            return Err(format!("{}: blkid finds {after:?}, and found {before:?}", self.name));
        }
        let (is_in_order, text) = match self.content {
            "swap" => said("swaplabel", &[&volume]),
            "LVM" => {
                let length = LVM_SWAP.end - LVM_SWAP.start;
                said("swaplabel", &[&part("restored swap", LVM_SWAP.start, length)])
            }
            "ntfs" => said("ntfsfix", &["--no-action", &volume]),
            "btrfs" => said("btrfs", &["check", &volume]),
            "xfs" => said("xfs_repair", &["-n", "-f", &volume]),
            _ => said("e2fsck", &["-f", "-n", &volume]),
        };
        if is_in_order { Ok(()) } else { Err(format!("{}: its own tool complains: {text}", self.name)) }
    }
}

/// Archives the disks of one volume, restores each, and compares.
fn archive_and_compare(sandbox: &Sandbox, pairs: &[Pair], is_free_asked: bool, sweep: &Mutex<Sweep>) {
    let asked: &[&str] = if is_free_asked { &["--skip-free"] } else { &[] };
    let disks = pairs.iter().map(|pair| pair.disk.to_str().unwrap());
    let args = ["snapshot", "--as", "image"].into_iter().chain(asked.iter().copied()).chain(disks);
    let lines: Vec<Value> = sandbox.json(args).into_iter().filter(|line| line["id"].is_string()).collect();
    assert_eq!(lines.len(), pairs.len());
    let restored = sandbox.path("restored");
    for (pair, line) in pairs.iter().zip(lines) {
        sandbox.ok(["restore", line["id"].as_str().unwrap(), restored.to_str().unwrap()]);
        let compared = pair.compare(&restored);
        fs::remove_file(&restored).unwrap();
        let left_out = line["left_out_bytes"].as_u64().unwrap();
        let is_provable = pair.is_provable(is_free_asked);
        let fault = match compared {
            Err(fault) => Some(fault),
            Ok(dropped) if dropped > left_out => {
                Some(format!("{}: {dropped} bytes are zeros, and {left_out} were left out", pair.name))
            }
            Ok(_) if left_out > 0 && !is_provable => {
                Some(format!("{}: {left_out} bytes were left out without proof", pair.name))
            }
            // Over nothing, a true proof must suffice. Over other contents, remains may contradict
            // it.
            Ok(_) if left_out == 0 && is_provable && pair.is_over_nothing => {
                Some(format!("{}: nothing was left out", pair.name))
            }
            Ok(_) => None,
        };
        let mut sweep = sweep.lock();
        if let Some(fault) = fault {
            sweep.report(format!("{fault} {asked:?}: {}", line["left_out"]));
        }
        sweep.restored += 1;
        sweep.provable += u64::from(is_provable);
        sweep.proven += u64::from(is_provable && left_out > 0);
    }
}

/// Runs a tool. Returns true if it found no error, and its output.
fn said(program: &str, args: &[&str]) -> (bool, String) {
    let path = format!("{}:/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(program).args(args).env("PATH", path).output().unwrap();
    let texts = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.success(), texts.concat())
}

/// Returns the pages of swap after its header, according to that header.
fn pages_of_swap(volume: &Path, place: u64) -> Range<u64> {
    let header = read(volume, place, 4096);
    assert_eq!((&header[4086..], &header[1024..1028]), (&b"SWAPSPACE2"[..], &[1, 0, 0, 0][..]));
    let last = u64::from(u32::from_le_bytes(header[1028..1032].try_into().unwrap()));
    place + 4096..place + (last + 1) * 4096
}

/// Returns the place of `pagefile.sys`, as `ntfsinfo` reports it.
fn page_file_of_ntfs(volume: &Path) -> Vec<Range<u64>> {
    const CLUSTER: u64 = 4096;
    let text = output("ntfsinfo", &["--verbose", "--file", "pagefile.sys", volume.to_str().unwrap()]);
    let rows = text.lines().skip_while(|line| !line.contains("LCN")).skip(1);
    let number = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let run = |line: &str| {
        let [_, first, count] = line.split_whitespace().map(number).collect::<Option<Vec<_>>>()?[..] else {
            return None;
        };
        Some(first * CLUSTER..(first + count) * CLUSTER)
    };
    let runs: Vec<_> = rows.map_while(run).collect();
    assert!(!runs.is_empty(), "{text}");
    runs
}

/// Returns the ranges in bytes that `dumpe2fs` reports as free.
fn free_of_ext(volume: &Path) -> Vec<Range<u64>> {
    let text = output("dumpe2fs", &[volume.to_str().unwrap()]);
    let block: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix("Block size:")?.trim().parse().ok())
        .expect("a size of blocks");
    let lists = text.lines().filter_map(|line| line.trim().strip_prefix("Free blocks: "));
    let ranges = lists.flat_map(|list| list.split(", ")).filter(|range| !range.is_empty());
    let bytes = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.trim().parse::<u64>().unwrap() * block..(last.trim().parse::<u64>().unwrap() + 1) * block
    };
    ranges.map(bytes).collect()
}

/// Returns the ranges in bytes that `xfs_db` reports as free. A line for each has a group, a block
/// in it and a number of blocks.
fn free_of_xfs(volume: &Path) -> Vec<Range<u64>> {
    let volume = volume.to_str().unwrap();
    let text =
        output("xfs_db", &["-r", "-c", "sb 0", "-c", "p blocksize agblocks", "-c", "freesp -d", volume]);
    let value = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_prefix('='));
        line.expect("a field of the superblock").trim().parse().unwrap()
    };
    let (block, group_blocks) = (value("blocksize"), value("agblocks"));
    let extent = |line: &str| {
        let numbers: Option<Vec<u64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        let [group, first, count] = numbers?[..] else { return None };
        let start = group * group_blocks + first;
        Some(start * block..(start + count) * block)
    };
    // A histogram follows, whose lines have more numbers.
    let found: Vec<_> = text.lines().filter_map(extent).collect();
    assert!(!found.is_empty(), "{text}");
    found
}

/// Returns the ranges in bytes in which `btrfs inspect-internal` shows no extent, less the
/// beginning of the device and the second superblock.
fn free_of_btrfs(volume: &Path) -> Vec<Range<u64>> {
    let volume = volume.to_str().unwrap();
    let dump = |words: &[&str]| output("btrfs", &[&["inspect-internal"], words, &[volume]].concat());
    let after = |line: &str, word: &str| -> Option<u64> {
        line.split_whitespace().skip_while(|other| *other != word).nth(1)?.trim_end_matches(')').parse().ok()
    };
    let node_bytes = dump(&["dump-super"]).lines().find_map(|line| after(line, "nodesize")).unwrap();
    // The first address, the length, and the places on the device.
    let mut chunks: Vec<(u64, u64, Vec<u64>)> = Vec::new();
    for line in dump(&["dump-tree", "-t", "chunk"]).lines() {
        if let Some(start) = after(line, "CHUNK_ITEM") {
            chunks.push((start, 0, Vec::new()));
        } else if let Some(chunk) = chunks.last_mut() {
            chunk.1 = after(line, "length").unwrap_or(chunk.1);
            chunk.2.extend(after(line, "offset").filter(|_| line.contains("devid")));
        }
    }
    let (first, second) = (0..1 << 20, 64 << 20..(64 << 20) + (64 << 10));
    let mut used: Ranges = [first, second].into_iter().collect();
    for line in dump(&["dump-tree", "-t", "extent"]).lines() {
        let Some((_, key)) = line.split_once(" key (") else { continue };
        let length = after(key, "EXTENT_ITEM").or_else(|| after(key, "METADATA_ITEM").map(|_| node_bytes));
        let Some(length) = length else { continue };
        let start: u64 = key.split(' ').next().unwrap().parse().unwrap();
        let chunk = chunks.iter().find(|chunk| (chunk.0..chunk.0 + chunk.1).contains(&start)).unwrap();
        used.extend(chunk.2.iter().map(|place| place + start - chunk.0..place + start - chunk.0 + length));
    }
    let all: Ranges = std::iter::once(0..VOLUME_BYTES).collect();
    assert!(!chunks.is_empty());
    all.without(&used).into_iter().collect()
}

/// Returns the blocks of `/swapfile` after its first page, as `debugfs` reports them.
fn swap_file_of_ext(volume: &Path) -> Vec<Range<u64>> {
    let text = output("debugfs", &["-R", "stat swapfile", volume.to_str().unwrap()]);
    let is_small =
        output("dumpe2fs", &["-h", volume.to_str().unwrap()]).contains("Block size:               1024");
    let block = if is_small { 1024 } else { 4096 };
    let list = text.split("EXTENTS:\n").nth(1).unwrap_or_default();
    let ranges = list.split(", ").filter_map(|extent| {
        let (logical, physical) = extent.trim().strip_prefix('(')?.split_once("):")?;
        let first: u64 = logical.split('-').next()?.parse().ok()?;
        let (from, to) = physical.split_once('-').unwrap_or((physical, physical));
        let skipped = (4096_u64 / block).saturating_sub(first);
        Some((from.parse::<u64>().ok()? + skipped) * block..(to.trim().parse::<u64>().ok()? + 1) * block)
    });
    ranges.filter(|range| !range.is_empty()).collect()
}

fn read(path: &Path, offset: u64, length: u64) -> Vec<u8> {
    read_open(&File::open(path).unwrap(), offset, length)
}

fn read_open(file: &File, offset: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(length).unwrap()];
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

fn write(path: &Path, offset: u64, bytes: &[u8]) {
    File::options().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

/// Returns the parts of a file that are not holes, in whole steps. Holes are zeros, and most of
/// each disk: reading them would take most of the time.
fn data_of(file: &File, size: u64) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return found,
            Err(error) => panic!("where a file has holes is not known here: {error}"),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap();
        found.push(start / STEP * STEP..end.next_multiple_of(STEP).min(size));
        at = end;
    }
}

/// Copies the data of a range of a file, without its holes, to an offset in another file.
fn copy_data(from: &File, part: Range<u64>, to: &File, offset: u64) {
    for range in data_of(from, part.end) {
        for at in (range.start.max(part.start)..range.end).step_by(1 << 20) {
            let bytes = read_open(from, at, (range.end - at).min(1 << 20));
            to.write_all_at(&bytes, at - part.start + offset).unwrap();
        }
    }
}

fn create(path: &Path, size: u64) -> File {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    file
}
