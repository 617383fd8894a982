//! Replays the log, as a mount does before it shows anything. Nothing is written: the sectors that
//! would change are kept in memory, and read from there.
//!
//! | kind of item | replayed as                                                                |
//! |--------------|----------------------------------------------------------------------------|
//! | buffer       | pieces of 128 bytes of a part of the volume, according to a bitmap         |
//! | inode        | its fields, in the byte order of the machine, and its forks                |
//! | new inodes   | empty inodes                                                               |
//! | intent, done | nothing: an intent without its end is an operation that a mount finishes   |
//!
//! A buffer that a later transaction cancels is not replayed: its blocks may have become those of a
//! file. In version 5, metadata that is newer than a transaction is left as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use varve_block::to_usize;

use super::damaged;
use super::inode::{FIELDS_BYTES, INODE_CHECKSUM_AT, OLD_FIELDS_BYTES};
use super::log::{XfsLog, XfsLogState};
use super::log_items::{XfsLogItem, XfsTransaction, for_each_transaction};
use super::seal::{XfsSeal, set_checksum};
use super::superblock::XfsSuperblock;
use crate::bytes::fields::{array_at, be16_at, be32_at, be64_at, has_at, put, u8_at, u16_at, u32_at, u64_at};
use crate::bytes::overlaid::OverlaidBytes;
use crate::bytes::read_at::ReadAt;
use crate::file_systems::file_system::FileSystemError;

const SECTOR_BYTES: usize = 512;
/// A bit of a buffer's bitmap stands for this number of bytes.
const PIECE_BYTES: usize = 128;
/// The limit on changed sectors, because they are kept in memory.
const SECTORS_MAX: usize = 1 << 20;
/// No buffer is longer: a block of a folder, or a cluster of inodes.
const BUFFER_BYTES_MAX: u64 = 128 << 10;
const BUFFER_PIECES_MAX: usize = 1024;
/// The limit on bytes that are written in the course of a replay. No log is longer than 2 GiB.
const REPLAYED_BYTES_MAX: u64 = 8 << 30;

/// Kinds of items.
mod kind {
    pub(super) const FREE_INTENT: u16 = 0x1236;
    pub(super) const INODE: u16 = 0x123b;
    pub(super) const BUFFER: u16 = 0x123c;
    pub(super) const QUOTA: u16 = 0x123d;
    pub(super) const QUOTA_OFF: u16 = 0x123e;
    pub(super) const NEW_INODES: u16 = 0x123f;
    pub(super) const REVERSE_MAP_INTENT: u16 = 0x1240;
    pub(super) const SHARE_INTENT: u16 = 0x1242;
    pub(super) const MAP_INTENT: u16 = 0x1244;
    pub(super) const ATTRIBUTE_INTENT: u16 = 0x1246;
    pub(super) const EXCHANGE_INTENT: u16 = 0x1248;
    /// Those that change what a file holds. (The end of an operation is the next number.)
    pub(super) const VISIBLE_INTENTS: [u16; 3] = [MAP_INTENT, ATTRIBUTE_INTENT, EXCHANGE_INTENT];
    pub(super) const HIDDEN_INTENTS: [u16; 3] = [FREE_INTENT, REVERSE_MAP_INTENT, SHARE_INTENT];
}

mod buffer_flag {
    pub(super) const INODES: u16 = 0x1;
    pub(super) const CANCEL: u16 = 0x2;
    pub(super) const QUOTA: u16 = 0x1c;
}

mod inode_field {
    pub(super) const CONTENT: [u32; 3] = [0x2, 0x4, 0x8];
    pub(super) const CONTENT_ROOT: u32 = 0x8;
    pub(super) const DEVICE: u32 = 0x10;
    pub(super) const ATTRIBUTES: [u32; 3] = [0x40, 0x80, 0x100];
    pub(super) const ATTRIBUTES_ROOT: u32 = 0x100;
}

/// The result of reading a log.
pub(super) struct XfsReplay {
    /// The volume as it would be after a mount.
    pub(super) volume: Arc<dyn ReadAt>,
    /// The position of the newest record, if it is that of an unmount: there was nothing to replay.
    pub(super) unmounted_at: Option<u64>,
    /// The reason why files may differ from those that a mount shows.
    pub(super) problem: Option<String>,
}

/// A buffer on the volume: its first sector, and their number.
type BufferPlace = (u64, u64);

/// The volume, with the sectors that have changed.
struct XfsOverlay {
    volume: Arc<dyn ReadAt>,
    sectors: BTreeMap<u64, [u8; SECTOR_BYTES]>,
    written_bytes: u64,
}

impl XfsOverlay {
    fn read(&self, at: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.volume.read_at(at, &mut bytes)?;
        let end = at.saturating_add(length as u64);
        for (number, sector) in self.sectors.range(at >> 9..end.div_ceil(SECTOR_BYTES as u64)) {
            let start = number << 9;
            let skipped = to_usize(at.saturating_sub(start));
            let place = to_usize(start.saturating_sub(at));
            put(&mut bytes, place, sector.get(skipped..).unwrap_or_default());
        }
        Ok(bytes)
    }

    /// Counts work, of which a damaged log may ask for any amount.
    fn count(&mut self, bytes: u64) -> Result<(), FileSystemError> {
        self.written_bytes = self.written_bytes.saturating_add(bytes);
        if self.written_bytes > REPLAYED_BYTES_MAX {
            return Err(wrong("it changes an impossible number of bytes"));
        }
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), FileSystemError> {
        self.count(bytes.len() as u64)?;
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let number = at >> 9;
            if !self.sectors.contains_key(&number) {
                if self.sectors.len() >= SECTORS_MAX {
                    return Err(damaged("log", "it changes an impossible number of blocks"));
                }
                let mut sector = [0; SECTOR_BYTES];
                self.volume.read_at(number << 9, &mut sector).map_err(unreadable)?;
                self.sectors.insert(number, sector);
            }
            let inside = to_usize(at & 511);
            let (now, later) = rest.split_at(rest.len().min(SECTOR_BYTES.saturating_sub(inside)));
            if let Some(sector) = self.sectors.get_mut(&number) {
                put(sector, inside, now);
            }
            at = at.saturating_add(now.len() as u64);
            rest = later;
        }
        Ok(())
    }

    /// Returns the volume with the changed sectors.
    fn show(self) -> Arc<dyn ReadAt> {
        let mut shown = OverlaidBytes::new(self.volume);
        let mut ranges: Vec<std::ops::Range<u64>> = Vec::new();
        for start in self.sectors.keys().map(|number| number << 9) {
            let end = start.saturating_add(SECTOR_BYTES as u64);
            match ranges.last_mut().filter(|last| last.end == start) {
                Some(last) => last.end = end,
                None => ranges.push(start..end),
            }
        }
        let source: Arc<dyn ReadAt> = Arc::new(self.sectors.into_values().flatten().collect::<Vec<u8>>());
        let mut at = 0_u64;
        for range in ranges {
            let length = range.end.saturating_sub(range.start);
            shown.show(range, Arc::clone(&source), at);
            at = at.saturating_add(length);
        }
        Arc::new(shown)
    }
}

fn unreadable(source: io::Error) -> FileSystemError {
    FileSystemError::Read { what: "part of the volume that the log changes".into(), source }
}

fn wrong(problem: &str) -> FileSystemError {
    damaged("log", problem)
}

/// Replays transactions.
struct XfsReplayer<'a> {
    superblock: &'a XfsSuperblock,
    overlay: XfsOverlay,
    /// How often later transactions cancel a buffer.
    cancelled: BTreeMap<BufferPlace, u32>,
    /// The buffers that have changed.
    changed: BTreeSet<BufferPlace>,
    problem: Option<String>,
}

/// Reads the log of a volume, and replays it if the volume was in use.
pub(super) fn replay(
    volume: &Arc<dyn ReadAt>,
    superblock: &XfsSuperblock,
) -> Result<XfsReplay, FileSystemError> {
    let unchanged = |unmounted_at, problem| XfsReplay { volume: Arc::clone(volume), unmounted_at, problem };
    let Some(log) = XfsLog::of(volume, superblock)? else {
        return Ok(unchanged(None, Some("its log is on another volume".into())));
    };
    let span = match log.state()? {
        XfsLogState::Clean(position) => return Ok(unchanged(Some(position), None)),
        XfsLogState::Records(span) => span,
    };
    let mut replayer = XfsReplayer {
        superblock,
        overlay: XfsOverlay { volume: Arc::clone(volume), sectors: BTreeMap::new(), written_bytes: 0 },
        cancelled: BTreeMap::new(),
        changed: BTreeSet::new(),
        problem: None,
    };
    let mut intents = BTreeSet::new();
    for_each_transaction(&log, &span, |transaction| {
        transaction.items.iter().try_for_each(|item| {
            note_intent(item, &mut intents)?;
            replayer.note_cancelled(item);
            Ok(())
        })
    })?;
    for_each_transaction(&log, &span, |transaction| replayer.replay(&transaction))?;
    replayer.seal()?;
    if intents.iter().any(|(kind, _)| kind::VISIBLE_INTENTS.contains(kind)) {
        replayer.problem.get_or_insert("an operation in its log is unfinished".into());
    }
    Ok(XfsReplay { volume: replayer.overlay.show(), unmounted_at: None, problem: replayer.problem })
}

/// Notes the intents that have no end. The kind of an item that is not known is an error.
fn note_intent(item: &XfsLogItem, intents: &mut BTreeSet<(u16, u64)>) -> Result<(), FileSystemError> {
    let number = item.kind();
    let id = u64_at(item.region(0), 8);
    let is_intent = |kind: &u16| kind::VISIBLE_INTENTS.contains(kind) || kind::HIDDEN_INTENTS.contains(kind);
    // Intents for a realtime device have other numbers.
    let is_realtime = |kind: &u16| (0x124a..=0x124f).contains(kind);
    match number {
        kind::INODE | kind::BUFFER | kind::QUOTA | kind::QUOTA_OFF | kind::NEW_INODES => {}
        _ if is_intent(&number) => drop(intents.insert((number, id))),
        _ if is_intent(&number.saturating_sub(1)) => {
            intents.remove(&(number.saturating_sub(1), id));
        }
        _ if is_realtime(&number) => {}
        _ => return Err(wrong(&format!("an item is of the unknown kind {number:#x}"))),
    }
    Ok(())
}

/// The place and the flags of a buffer item.
fn buffer_of(item: &XfsLogItem) -> (BufferPlace, u16) {
    let head = item.region(0);
    ((u64_at(head, 8), u16_at(head, 6).into()), u16_at(head, 4))
}

impl XfsReplayer<'_> {
    fn note_cancelled(&mut self, item: &XfsLogItem) {
        if item.kind() == kind::BUFFER {
            let (place, flags) = buffer_of(item);
            if flags & buffer_flag::CANCEL != 0 {
                let count = self.cancelled.entry(place).or_default();
                *count = count.saturating_add(1);
            }
        }
    }

    /// Replays a transaction: buffers first, then inodes.
    fn replay(&mut self, transaction: &XfsTransaction) -> Result<(), FileSystemError> {
        for item in &transaction.items {
            match item.kind() {
                kind::BUFFER => self.replay_buffer(item, transaction.position)?,
                kind::NEW_INODES => self.make_inodes(item.region(0))?,
                _ => {}
            }
        }
        for item in transaction.items.iter().filter(|item| item.kind() == kind::INODE) {
            self.replay_inode(item, transaction.position)?;
        }
        for item in transaction.items.iter().filter(|item| item.kind() == kind::BUFFER) {
            let (place, flags) = buffer_of(item);
            if flags & buffer_flag::CANCEL != 0
                && let Some(count) = self.cancelled.get_mut(&place)
            {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.cancelled.remove(&place);
                }
            }
        }
        Ok(())
    }

    /// Returns the offset of a buffer in bytes, and its length.
    fn bytes_of(&self, (first, count): BufferPlace) -> Result<(u64, u64), FileSystemError> {
        let (at, length) = (first.checked_mul(512), count.saturating_mul(512));
        let end = at.and_then(|at| at.checked_add(length));
        let is_inside = end.is_some_and(|end| end <= self.overlay.volume.size());
        match at.filter(|_| is_inside && length > 0 && length <= BUFFER_BYTES_MAX) {
            Some(at) => Ok((at, length)),
            None => Err(wrong("it changes a place that does not exist")),
        }
    }

    fn replay_buffer(&mut self, item: &XfsLogItem, position: u64) -> Result<(), FileSystemError> {
        let (place, flags) = buffer_of(item);
        // Of a cluster of inodes, only the list of removed files is in such items. Quotas are not
        // shown.
        let is_skipped = flags & (buffer_flag::CANCEL | buffer_flag::INODES | buffer_flag::QUOTA) != 0;
        if is_skipped || self.cancelled.contains_key(&place) {
            return Ok(());
        }
        let (at, length) = self.bytes_of(place)?;
        let head = self.overlay.read(at, SECTOR_BYTES).map_err(unreadable)?;
        if self.superblock.has_checksums && self.is_newer(&head, position) {
            return Ok(());
        }
        let map = item.region(0).get(20..).unwrap_or_default();
        let words = to_usize(u32_at(item.region(0), 16));
        let map = words.checked_mul(4).and_then(|bytes| map.get(..bytes));
        let map = map.ok_or_else(|| wrong("the bitmap of a buffer is cut off"))?;
        let is_set = |bit: usize| map.get(bit >> 3).is_some_and(|byte| byte >> (bit & 7) & 1 == 1);
        let bit_count = map.len().saturating_mul(8);
        let (mut bit, mut region) = (0, 1);
        while bit < bit_count {
            if !is_set(bit) {
                bit = bit.saturating_add(1);
                continue;
            }
            let run = (bit..bit_count).take(BUFFER_PIECES_MAX).take_while(|bit| is_set(*bit)).count();
            // A range that is not one piece of memory has a region for each piece.
            let bytes = item.region(region);
            let pieces = run.min(bytes.len().checked_div(PIECE_BYTES).unwrap_or(0));
            let bytes = bytes.get(..pieces.saturating_mul(PIECE_BYTES)).unwrap_or_default();
            let inside = (bit as u64).saturating_mul(PIECE_BYTES as u64);
            if pieces == 0 || inside.saturating_add(bytes.len() as u64) > length {
                return Err(wrong("a region of a buffer is cut off"));
            }
            self.overlay.write(at.saturating_add(inside), bytes)?;
            bit = bit.saturating_add(pieces);
            region = region.saturating_add(1);
        }
        self.changed.insert(place);
        Ok(())
    }

    /// Returns true if a block on the volume has changes that are not older than a position in the
    /// log.
    fn is_newer(&self, block: &[u8], position: u64) -> bool {
        // Blocks with values of attributes are not written through the log.
        if has_at(block, 0, b"XARM") {
            return false;
        }
        let Some(seal) = XfsSeal::of(block) else { return false };
        let is_superblock = has_at(block, 0, b"XFSB");
        if !is_superblock && seal.uuid(block) != self.superblock.uuid {
            return false;
        }
        let change = seal.change(block);
        change != 0 && change != u64::MAX && change >= position
    }

    /// Makes a chunk of empty inodes.
    fn make_inodes(&mut self, head: &[u8]) -> Result<(), FileSystemError> {
        let [group, block, count, inode_bytes, length, generation] =
            [4, 8, 12, 16, 20, 24].map(|at| be32_at(head, at));
        let superblock = self.superblock;
        let all_bytes = u64::from(length).saturating_mul(superblock.block_bytes.into());
        let position = superblock.position_in_group(group, block);
        let is_sound = inode_bytes == u32::from(superblock.inode_bytes)
            && u64::from(count).checked_mul(inode_bytes.into()) == Some(all_bytes)
            && (1..=BUFFER_BYTES_MAX).contains(&all_bytes)
            && superblock.has_checksums;
        let Some(position) = position.filter(|_| is_sound) else {
            return Err(wrong("it makes inodes of an impossible number or size"));
        };
        let at = position.saturating_mul(superblock.block_bytes.into());
        let end = at.saturating_add(all_bytes);
        if end > self.overlay.volume.size() {
            return Err(wrong("it makes inodes in a place that does not exist"));
        }
        if self.cancelled.range((at >> 9, 0)..(end >> 9, 0)).next().is_some() {
            return Ok(());
        }
        let group_bits = u32::from(superblock.group_block_bits);
        let first = u64::from(group).checked_shl(group_bits).unwrap_or(0) | u64::from(block);
        let first = first.checked_shl(superblock.inodes_per_block_bits.into()).unwrap_or(0);
        for number in 0..u64::from(count) {
            let mut inode = vec![0; usize::from(superblock.inode_bytes)];
            put(&mut inode, 0, b"IN");
            put(&mut inode, 4, &[3]);
            put(&mut inode, 92, &generation.to_be_bytes());
            put(&mut inode, 96, &[0xff; 4]);
            put(&mut inode, 152, &first.saturating_add(number).to_be_bytes());
            put(&mut inode, 160, &superblock.uuid);
            set_checksum(&mut inode, INODE_CHECKSUM_AT);
            self.overlay.write(at.saturating_add(number.saturating_mul(inode_bytes.into())), &inode)?;
        }
        Ok(())
    }

    fn replay_inode(&mut self, item: &XfsLogItem, position: u64) -> Result<(), FileSystemError> {
        let head = item.region(0);
        let fields = u32_at(head, 4);
        // Old 32-bit systems have no padding before the number.
        let shift = match head.len() {
            56 => 0,
            52 => 4,
            _ => return Err(wrong("the head of an inode is of an unknown length")),
        };
        let at = |at: usize| at.saturating_sub(shift);
        let number = u64_at(head, at(16));
        let buffer = (u64_at(head, at(40)), u32_at(head, at(48)).into());
        let inside = u64::from(u32_at(head, at(52)));
        if self.cancelled.contains_key(&buffer) {
            return Ok(());
        }
        let (start, length) = self.bytes_of(buffer)?;
        let place = start.saturating_add(inside);
        let inode_bytes = usize::from(self.superblock.inode_bytes);
        let expected = self.superblock.inode_place(number).map(|(block, inside)| {
            block.saturating_mul(self.superblock.block_bytes.into()).saturating_add(inside as u64)
        });
        if inside.saturating_add(inode_bytes as u64) > length
            || expected.is_some_and(|expected| expected != place)
        {
            return Err(wrong("an inode lies in an impossible place"));
        }
        let mut inode = self.overlay.read(place, inode_bytes).map_err(unreadable)?;
        if !has_at(&inode, 0, b"IN") {
            self.problem.get_or_insert(format!("inode {number}, which its log changes, is damaged"));
            return Ok(());
        }
        let logged = item.region(1);
        let is_new = self.superblock.has_checksums;
        let change = be64_at(&inode, 112);
        if is_new && change != 0 && change != u64::MAX && change > position {
            return Ok(());
        }
        if !is_new && !is_flushed_later(u16_at(logged, 30), be16_at(&inode, 30)) {
            return Ok(());
        }
        let logged_bytes_min = if is_new { FIELDS_BYTES } else { OLD_FIELDS_BYTES.saturating_sub(4) };
        if logged.len() < logged_bytes_min || !has_at(logged, 0, b"NI") {
            return Err(wrong("the fields of an inode are cut off"));
        }
        put_fields(&mut inode, logged, is_new, position);
        self.put_forks(&mut inode, item, fields, u32_at(head, at(24)), is_new)?;
        if is_new {
            set_checksum(&mut inode, INODE_CHECKSUM_AT);
        }
        self.overlay.write(place, &inode)
    }

    /// Copies the forks of an inode, whose fields have been copied.
    fn put_forks(
        &self,
        inode: &mut [u8],
        item: &XfsLogItem,
        fields: u32,
        device: u32,
        is_new: bool,
    ) -> Result<(), FileSystemError> {
        let has = |mask: &[u32]| mask.iter().any(|mask| fields & mask != 0);
        let split = usize::from(u8_at(inode, 82)).saturating_mul(8);
        let room = inode.get_mut(if is_new { FIELDS_BYTES } else { OLD_FIELDS_BYTES }..).unwrap_or_default();
        let split = if split == 0 { room.len() } else { split.min(room.len()) };
        let (content, attributes) = room.split_at_mut(split);
        if fields & inode_field::DEVICE != 0 {
            put(content, 0, &device.to_be_bytes());
        }
        let mut region = 2;
        let parts = [
            (content, &inode_field::CONTENT, inode_field::CONTENT_ROOT),
            (attributes, &inode_field::ATTRIBUTES, inode_field::ATTRIBUTES_ROOT),
        ];
        for (fork, mask, root) in parts {
            if !has(mask) {
                continue;
            }
            let bytes = item.region(region);
            if fields & root != 0 {
                put_root(fork, bytes, is_new)
                    .ok_or_else(|| wrong("the root of an extent tree is cut off"))?;
            } else {
                put(fork, 0, bytes);
            }
            region = region.saturating_add(1);
        }
        Ok(())
    }

    /// Sets the checksums of all buffers that were changed.
    fn seal(&mut self) -> Result<(), FileSystemError> {
        if !self.superblock.has_checksums {
            return Ok(());
        }
        for place in std::mem::take(&mut self.changed) {
            let (at, length) = self.bytes_of(place)?;
            self.overlay.count(length)?;
            let length = to_usize(length);
            let mut block = self.overlay.read(at, length).map_err(unreadable)?;
            if let Some(seal) = XfsSeal::of(&block) {
                set_checksum(&mut block, seal.checksum_at);
                let code: [u8; 4] = array_at(&block, seal.checksum_at);
                self.overlay.write(at.saturating_add(seal.checksum_at as u64), &code)?;
            }
        }
        Ok(())
    }
}

/// Returns true if an inode in the log was written after the one on the volume: the counters of
/// version 4 wrap around.
fn is_flushed_later(logged: u16, on_volume: u16) -> bool {
    logged >= on_volume || (on_volume == u16::MAX && logged < u16::MAX >> 1)
}

/// Copies the fields of an inode from the log, in which they have the same places in the byte order
/// of the machine.
fn put_fields(inode: &mut [u8], logged: &[u8], is_new: bool, position: u64) {
    const HAS_BIG_TIMES: u64 = 0x8;
    const HAS_LARGE_COUNTS: u64 = 0x10;
    let more_flags = if is_new { u64_at(logged, 120) } else { 0 };
    let mut swap = |at: usize, length: usize| {
        let mut bytes = logged.get(at..at.saturating_add(length)).unwrap_or_default().to_vec();
        bytes.reverse();
        put(inode, at, &bytes);
    };
    for (at, length) in [(0, 2), (2, 2), (4, 1), (5, 1), (8, 4), (12, 4), (16, 4), (20, 2), (22, 2)] {
        swap(at, length);
    }
    for (at, length) in [(56, 8), (64, 8), (72, 4), (82, 1), (83, 1), (84, 4), (88, 2), (90, 2), (92, 4)] {
        swap(at, length);
    }
    let times: &[usize] = if is_new { &[32, 40, 48, 144] } else { &[32, 40, 48] };
    for at in times {
        if more_flags & HAS_BIG_TIMES != 0 {
            swap(*at, 8);
        } else {
            swap(*at, 4);
            swap(at.saturating_add(4), 4);
        }
    }
    swap(76, 4);
    if more_flags & HAS_LARGE_COUNTS != 0 {
        swap(24, 8);
    } else {
        swap(80, 2);
    }
    if is_new {
        for (at, length) in [(104, 8), (120, 8), (128, 4), (152, 8)] {
            swap(at, length);
        }
        put(inode, 160, logged.get(160..176).unwrap_or_default());
        put(inode, 112, &position.to_be_bytes());
    }
    put(inode, 6, &[0; 2]);
    if more_flags & HAS_LARGE_COUNTS != 0 {
        put(inode, 80, &[0; 2]);
    } else {
        put(inode, 24, &[0; 8]);
    }
}

/// Writes the root of an extent tree into a fork. In the log it has the header of a block, and room
/// for other numbers of records.
fn put_root(fork: &mut [u8], logged: &[u8], is_new: bool) -> Option<()> {
    let room = logged.get(if is_new { 72 } else { 24 }..)?;
    let count = usize::from(be16_at(logged, 6)).checked_mul(8)?;
    let firsts = room.get(..count)?;
    let logged_most = room.len().checked_div(16)?.checked_mul(8)?;
    let pointers = room.get(logged_most..logged_most.checked_add(count)?)?;
    let most = fork.len().checked_sub(4)?.checked_div(16)?.checked_mul(8)?;
    if count > most {
        return None;
    }
    put(fork, 0, logged.get(4..8)?);
    put(fork, 4, firsts);
    put(fork, most.checked_add(4)?, pointers);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(kind: u16, id: u64) -> XfsLogItem {
        let mut item = XfsLogItem::default();
        item.regions = vec![[&kind.to_le_bytes()[..], &[1, 0, 0, 0, 0, 0], &id.to_le_bytes()].concat()];
        item
    }

    #[test]
    fn an_intent_without_its_end_is_noted() {
        let mut intents = BTreeSet::new();
        for (kind, id) in
            [(0x1244, 7), (0x1244, 8), (0x1245, 7), (0x1236, 8), (0x1237, 8), (0x123c, 9), (0x124a, 9)]
        {
            note_intent(&item(kind, id), &mut intents).unwrap();
        }
        assert_eq!(intents, BTreeSet::from([(kind::MAP_INTENT, 8)]));
        assert!(note_intent(&item(0x1299, 1), &mut intents).is_err());
    }

    #[test]
    fn the_counters_of_version_4_wrap_around() {
        let cases =
            [(5, 5, true), (5, 6, false), (6, 5, true), (1, u16::MAX, true), (0x8000, u16::MAX, false)];
        for (logged, on_volume, expected) in cases {
            assert_eq!(is_flushed_later(logged, on_volume), expected, "{logged} {on_volume}");
        }
    }

    #[test]
    fn the_root_of_a_tree_gets_the_room_of_its_fork() {
        // Two records, in a block with room for three, and a fork with room for five.
        let head = [&[0, 0, 0, 0, 0, 1, 0, 2][..], &[0; 64]].concat();
        let numbers = |numbers: [u64; 3]| numbers.map(u64::to_be_bytes).concat();
        let logged = [head, numbers([10, 20, 0]), numbers([30, 40, 0])].concat();
        let mut fork = vec![0; 4 + 5 * 16];
        put_root(&mut fork, &logged, true).unwrap();
        assert_eq!(fork[..4], [0, 1, 0, 2]);
        assert_eq!([4, 12, 44, 52].map(|at| be64_at(&fork, at)), [10, 20, 30, 40]);
        assert_eq!(put_root(&mut fork[..30], &logged, true), None);
        assert_eq!(put_root(&mut fork, &logged[..80], true), None);
    }
}
