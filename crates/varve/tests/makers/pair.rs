//! One content made over another, on a disk that is archived and restored.
//!
//! Every byte must come back as it was, except swap and free blocks that are proven to be so. The proof here is another than the
//! program's: the makers' own tools say which blocks those are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use serde_json::Value;

use super::{Maker, VOLUME_BYTES, output};
use crate::sandbox::{Sandbox, noise, tool};

const MIB: u64 = 1 << 20;
/// Bytes are compared in pieces of this size: the smallest block of any maker.
const STEP: u64 = 1024;

/// Where a volume lies: it is the disk, or the one partition of a disk with a table of this kind, of this type.
pub type Place = Option<(&'static str, &'static str)>;

pub const PLACES: [Place; 6] = [
    None,
    Some(("dos", "82")),
    Some(("dos", "83")),
    Some(("gpt", "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F")),
    Some(("gpt", "0FC63DAF-8483-4772-8E79-3D69D8477DE4")),
    Some(("gpt", "6A898CC3-1DD2-11B2-99A6-080020736631")),
];
const SWAP_TYPES: [&str; 2] = ["82", "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F"];
const LINUX_TYPES: [&str; 2] = ["83", "0FC63DAF-8483-4772-8E79-3D69D8477DE4"];

/// What all rounds together have seen.
#[derive(Default)]
pub struct Sweep {
    disks: u64,
    restored: u64,
    /// How many disks have swap or free blocks that their partition types do not contradict, and of how many those were left out.
    provable: u64,
    proven: u64,
    lost: Vec<String>,
    skipped: BTreeMap<String, BTreeSet<String>>,
}

impl Sweep {
    pub fn skip(&mut self, reason: String, what: &str) {
        self.skipped.entry(reason).or_default().insert(what.into());
    }

    pub fn disks(&self) -> u64 {
        self.disks
    }

    /// Each fault.
    pub fn lost(&self) -> &[String] {
        &self.lost
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { disks, restored, provable, proven, lost, skipped } = self;
        write!(f, "{disks} disks, {restored} snapshots restored, {} faults; ", lost.len())?;
        write!(f, "{proven} of {provable} were left out in part where that is right")?;
        for (reason, pairs) in skipped {
            let pairs: Vec<_> = pairs.iter().map(String::as_str).collect();
            write!(f, "\nskipped: {}: {reason}", pairs.join(", "))?;
        }
        Ok(())
    }
}

/// An old content, some that are made over it, and the places of both.
#[derive(Clone)]
pub struct Round {
    pub old: &'static Maker,
    pub news: Vec<&'static Maker>,
    pub places: &'static [Place],
}

impl Round {
    /// Tries all of its pairs in one store.
    pub fn run(&self, sandbox: &Sandbox, sweep: &Mutex<Sweep>) {
        let (work, base) = (sandbox.path("work"), sandbox.path("base"));
        fs::create_dir_all(&work).unwrap();
        File::create(&base).unwrap().set_len(VOLUME_BYTES).unwrap();
        if self.old.name != "nothing" {
            for (seed, mib) in [(4, 20), (5, 44), (6, 62)] {
                write(&base, mib * MIB, &noise(seed, 1 << 20));
            }
        }
        if let Err(reason) = self.old.make(&base, &work) {
            sweep.lock().unwrap().skip(reason, &format!("all over {}", self.old.name));
            return;
        }
        for new in &self.news {
            let volume = sandbox.path("volume");
            copy_data(&base, &File::create(&volume).unwrap(), 0, VOLUME_BYTES);
            if let Err(reason) = new.make(&volume, &work) {
                sweep.lock().unwrap().skip(reason, &format!("{} over {}", new.name, self.old.name));
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
            sweep.lock().unwrap().disks += pairs.len() as u64;
        }
    }
}

/// Writes data where a maker has put nothing: the new content's owner has it now.
fn add_data(volume: &Path) {
    for (seed, mib) in [(1, 10), (2, 40), (3, 58)] {
        let is_zero = read(volume, mib * MIB, 256 << 10).iter().all(|byte| *byte == 0);
        if is_zero {
            write(volume, mib * MIB, &noise(seed, 256 << 10));
        }
    }
}

/// A content that was made over another, on a disk.
struct Pair {
    name: String,
    is_over_nothing: bool,
    /// What is in it now.
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
        let file = File::create(&disk).unwrap();
        file.set_len(size).unwrap();
        if let Some((label, kind)) = place {
            let table = format!("label: {label}\nstart=2048, size={}, type={kind}\n", VOLUME_BYTES / 512);
            fs::write(sandbox.path("table"), table).unwrap();
            let line = format!("sfdisk -q '{}' < '{}'", disk.display(), sandbox.path("table").display());
            tool("sh", ["-c", &line]);
        }
        copy_data(volume, &file, volume_at, size);
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

    /// Whether something may be left out: it is there, it is asked for, and the partition type does not contradict.
    fn is_provable(&self, is_free_asked: bool) -> bool {
        let agrees = |types: &[&str]| self.place.is_none_or(|place| types.contains(&place.1));
        match self.content {
            "swap" => agrees(&SWAP_TYPES),
            "ext4" => agrees(&LINUX_TYPES),
            "ext2" | "ext3" => is_free_asked && agrees(&LINUX_TYPES),
            _ => false,
        }
    }

    /// Bytes of the volume that may come back as zeros: swap, by its header, and blocks that e2fsprogs calls free.
    fn droppable(&self) -> Vec<Range<u64>> {
        match self.content {
            "swap" => {
                let header = read(&self.volume, 0, 4096);
                assert_eq!((&header[4086..], &header[1024..1028]), (&b"SWAPSPACE2"[..], &[1, 0, 0, 0][..]));
                let last = u64::from(u32::from_le_bytes(header[1028..1032].try_into().unwrap()));
                std::iter::once(4096..(last + 1) * 4096).collect()
            }
            "ext2" | "ext3" => free_of_ext(&self.volume),
            "ext4" => {
                let mut found = free_of_ext(&self.volume);
                found.extend(swap_file_of_ext(&self.volume));
                found
            }
            _ => Vec::new(),
        }
    }

    /// Compares what came back. Returns the bytes that are zeros instead.
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
        Ok(changed.len() as u64 * STEP)
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
            // Where nothing was before, real proof is not doubted; elsewhere remains may contradict.
            Ok(_) if left_out == 0 && is_provable && pair.is_over_nothing => {
                Some(format!("{}: nothing was left out", pair.name))
            }
            Ok(_) => None,
        };
        let mut sweep = sweep.lock().unwrap();
        sweep.lost.extend(fault.map(|fault| format!("{fault} {asked:?}: {}", line["left_out"])));
        sweep.restored += 1;
        sweep.provable += u64::from(is_provable);
        sweep.proven += u64::from(is_provable && left_out > 0);
    }
}

/// What `dumpe2fs` calls free, in bytes.
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

/// The blocks of `/swapfile` behind its first page, as `debugfs` says.
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

/// The parts of a file that are no holes, in whole steps. Holes are zeros, and most of each disk: to read them took most of the time.
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

/// Writes what is no hole of a file into another, `offset` bytes later, and gives that one its size.
fn copy_data(from: &Path, to: &File, offset: u64, size: u64) {
    to.set_len(size).unwrap();
    let from = File::open(from).unwrap();
    for range in data_of(&from, from.metadata().unwrap().len()) {
        for at in range.clone().step_by(1 << 20) {
            let bytes = read_open(&from, at, (range.end - at).min(1 << 20));
            to.write_all_at(&bytes, offset + at).unwrap();
        }
    }
}
