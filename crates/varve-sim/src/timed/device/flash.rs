//! Flash: pages are read and written fast, but a page is written again only after all of its erase
//! block was erased.

use std::ops::Range;

use serde::Deserialize;

use super::page_map::PageMap;
use crate::timed::access::{AccessKind, ServiceTime, float, nanoseconds};

/// The figures of a flash device. Consecutive pages lie on its channels in turns.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashDisk {
    pub bytes: u64,
    pub page_bytes: u64,
    pub erase_block_bytes: u64,
    pub channels: u64,
    /// The number of commands that it performs at the same time.
    pub queue: usize,
    /// Microseconds from a command to the start of its work.
    pub command_us: f64,
    /// Microseconds that a command takes longer if it does not start where the one before ended.
    pub lookup_us: f64,
    /// Microseconds to read a page, to write one, and to copy one within its chip.
    pub read_page_us: f64,
    pub program_page_us: f64,
    pub copy_page_us: f64,
    pub erase_us: f64,
    /// The rates between the device and the computer.
    pub read_bytes_per_second: f64,
    pub write_bytes_per_second: f64,
    pub mapping: FlashMapping,
    /// The flash beyond `bytes`, as a share of it.
    pub spare_share: f64,
}

/// The unit that a device moves when data is written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlashMapping {
    /// Any page lies anywhere. Erase blocks are cleaned greedily.
    Page,
    /// An erase block of each channel is one unit. A write elsewhere than behind the last one
    /// copies the rest of the unit that was open, and the start of the next one. All units have
    /// data from the beginning, as on a card that knows of no removals.
    Block,
}

impl FlashDisk {
    pub(super) fn figures(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("command_us", self.command_us),
            ("lookup_us", self.lookup_us),
            ("read_page_us", self.read_page_us),
            ("program_page_us", self.program_page_us),
            ("copy_page_us", self.copy_page_us),
            ("erase_us", self.erase_us),
            ("read_bytes_per_second", self.read_bytes_per_second),
            ("write_bytes_per_second", self.write_bytes_per_second),
            ("spare_share", self.spare_share),
        ]
    }

    pub(super) fn problem(&self) -> Option<&'static str> {
        if self.page_bytes == 0 || self.channels == 0 || self.queue == 0 {
            return Some("page_bytes, channels and queue must be at least 1");
        }
        if self.erase_block_bytes < self.page_bytes || !self.erase_block_bytes.is_multiple_of(self.page_bytes)
        {
            return Some("erase_block_bytes must be a multiple of page_bytes");
        }
        if self.spare_share > 10.0 || self.channels > 1024 {
            return Some("spare_share is at most 10, and channels at most 1024");
        }
        let blocks = self.bytes / self.channels.saturating_mul(self.erase_block_bytes).max(1);
        (!(4..=1 << 22).contains(&blocks)).then_some("a channel has from 4 to 4 million erase blocks")
    }

    fn pages_per_block(&self) -> u64 {
        self.erase_block_bytes / self.page_bytes
    }
}

/// A flash device at work.
#[derive(Debug, Clone)]
pub(in crate::timed) struct FlashState {
    disk: FlashDisk,
    head: Option<u64>,
    last: Option<AccessKind>,
    channels: Vec<FlashChannel>,
    /// The place behind the last write, with a mapping by blocks.
    open_end: Option<u64>,
}

#[derive(Debug, Clone)]
struct FlashChannel {
    /// The moment at which it ends its work, in nanoseconds.
    free_at: u64,
    map: PageMap,
}

impl FlashState {
    pub(in crate::timed) fn new(disk: &FlashDisk) -> Self {
        let block_count = match disk.mapping {
            FlashMapping::Page => {
                float(disk.bytes / disk.erase_block_bytes / disk.channels) * (1.0 + disk.spare_share)
            }
            FlashMapping::Block => 0.0,
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked figures")]
        let map = PageMap::new(block_count as usize, disk.pages_per_block() as usize);
        let channels = (0..disk.channels).map(|_| FlashChannel { free_at: 0, map: map.clone() }).collect();
        Self { disk: disk.clone(), head: None, last: None, channels, open_end: None }
    }

    pub(in crate::timed) fn queue(&self) -> usize {
        self.disk.queue
    }

    pub(in crate::timed) fn head(&self) -> Option<u64> {
        self.head
    }

    pub(in crate::timed) fn serve(&mut self, now: u64, kind: AccessKind, at: u64, bytes: u64) -> ServiceTime {
        let goes_on = self.head.replace(at + bytes) == Some(at) && self.last.replace(kind) == Some(kind);
        self.last = Some(kind);
        let lookup = if goes_on { 0.0 } else { self.disk.lookup_us };
        let started = now + microseconds(self.disk.command_us + lookup);
        let rate = match kind {
            AccessKind::Read => self.disk.read_bytes_per_second,
            AccessKind::Write => self.disk.write_bytes_per_second,
        };
        let transfer = nanoseconds(float(bytes) / rate);
        let mut pages = at / self.disk.page_bytes..(at + bytes).div_ceil(self.disk.page_bytes);
        if goes_on && !at.is_multiple_of(self.disk.page_bytes) {
            // The first page is in the register still.
            pages.start += 1;
        }
        let end = match kind {
            AccessKind::Read => self.read(started, pages, transfer),
            AccessKind::Write => self.write(started, transfer, pages, at..at + bytes),
        };
        let transfer = transfer.min(end - now);
        ServiceTime { positioning: end - now - transfer, transfer }
    }

    /// Returns the moment at which all pages have been sent.
    fn read(&mut self, started: u64, pages: Range<u64>, transfer: u64) -> u64 {
        let read = microseconds(self.disk.read_page_us);
        let of_page = transfer / (pages.end - pages.start).max(1);
        let mut first = None;
        let mut end = started + transfer;
        for page in pages {
            let channel = self.channel(page);
            channel.free_at = channel.free_at.max(started) + read;
            end = end.max(channel.free_at + of_page);
            first.get_or_insert(channel.free_at);
        }
        end.max(first.unwrap_or(started) + transfer)
    }

    /// Returns the moment at which the chips have taken all pages. They are written afterwards.
    fn write(&mut self, started: u64, transfer: u64, pages: Range<u64>, range: Range<u64>) -> u64 {
        let mut end = started + transfer;
        if self.disk.mapping == FlashMapping::Block {
            let merge = self.merge(range.start);
            for channel in &mut self.channels {
                channel.free_at = channel.free_at.max(started) + merge;
            }
            end += merge;
            self.open_end = Some(range.end);
        }
        let program = microseconds(self.disk.program_page_us);
        let [read, copy, erase] =
            [self.disk.read_page_us, self.disk.copy_page_us, self.disk.erase_us].map(microseconds);
        let page_bytes = self.disk.page_bytes;
        let by_page = self.disk.mapping == FlashMapping::Page;
        let of_page = transfer / (pages.end - pages.start).max(1);
        let mut received = started;
        for page in pages {
            received += of_page;
            let is_whole = page * page_bytes >= range.start && (page + 1) * page_bytes <= range.end;
            let channel = self.channel(page);
            let mut work = 0;
            if by_page {
                if !is_whole && channel.map.contains(page) {
                    work += read;
                }
                let cleaning = channel.map.write(page);
                work += cleaning.copied_pages * copy + cleaning.erased_blocks * erase;
            }
            let taken = channel.free_at.max(received) + work;
            channel.free_at = taken + program;
            end = end.max(taken);
        }
        end
    }

    /// Returns the time of copies and erasures before a write, with a mapping by blocks.
    fn merge(&self, at: u64) -> u64 {
        let unit = self.disk.channels * self.disk.erase_block_bytes;
        let row = self.disk.channels * self.disk.page_bytes;
        let copies = |bytes: u64| microseconds(self.disk.copy_page_us) * (bytes / row);
        match self.open_end {
            Some(end) if end == at && !at.is_multiple_of(unit) => 0,
            Some(end) if end == at => microseconds(self.disk.erase_us),
            other => {
                let rest = other.map_or(0, |end| (unit - end % unit) % unit);
                microseconds(self.disk.erase_us) + copies(rest) + copies(at % unit)
            }
        }
    }

    fn channel(&mut self, page: u64) -> &mut FlashChannel {
        #[expect(clippy::cast_possible_truncation, reason = "smaller than the number of channels")]
        let number = (page % self.disk.channels) as usize;
        &mut self.channels[number]
    }

    pub(in crate::timed) fn discard(&mut self, range: &Range<u64>) {
        let pages = range.start.div_ceil(self.disk.page_bytes)..range.end / self.disk.page_bytes;
        for page in pages {
            self.channel(page).map.discard(page);
        }
    }
}

fn microseconds(time: f64) -> u64 {
    nanoseconds(time / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(mapping: FlashMapping) -> FlashDisk {
        FlashDisk {
            bytes: 4 << 20,
            page_bytes: 2048,
            erase_block_bytes: 128 << 10,
            channels: 2,
            queue: 1,
            command_us: 10.0,
            lookup_us: 5.0,
            read_page_us: 25.0,
            program_page_us: 250.0,
            copy_page_us: 275.0,
            erase_us: 2000.0,
            read_bytes_per_second: 1e9,
            write_bytes_per_second: 1e9,
            mapping,
            spare_share: 0.25,
        }
    }

    fn writes(mapping: FlashMapping, places: impl Iterator<Item = u64>) -> u64 {
        let mut state = FlashState::new(&disk(mapping));
        let (mut now, mut count) = (0, 0);
        for place in places {
            now += state.serve(now, AccessKind::Write, place * 4096, 4096).sum();
            count += 1;
        }
        now / 1000 / count
    }

    #[test]
    fn pages_are_read_from_all_channels_at_the_same_time() {
        let mut state = FlashState::new(&disk(FlashMapping::Page));
        let one = state.serve(0, AccessKind::Read, 0, 2048).sum();
        let two = state.serve(one, AccessKind::Read, 8192, 4096).sum();
        let four = state.serve(one + two, AccessKind::Read, 16_384, 8192).sum();
        assert_eq!([one, two, four].map(|time| time / 1000), [42, 44, 67]);
    }

    #[test]
    fn the_order_of_writes_decides() {
        let in_order = || (0..4000).map(|number| number % 1000);
        let mut draw = crate::SeededDraw::new(1);
        let random: Vec<u64> = (0..4000).map(|_| draw.below(1000)).collect();
        let [page, block] =
            [FlashMapping::Page, FlashMapping::Block].map(|mapping| writes(mapping, in_order()));
        // Each channel writes a page, and erases a block every 64 pages.
        assert!((265..290).contains(&page) && (275..290).contains(&block), "{page} {block}");
        let page = writes(FlashMapping::Page, random.iter().copied());
        let block = writes(FlashMapping::Block, random.iter().copied());
        assert!((400..1000).contains(&page), "{page}");
        assert!((18_000..21_000).contains(&block), "half a block before and after, and one erased: {block}");
    }

    #[test]
    fn removed_pages_cost_no_copies() {
        let mut state = FlashState::new(&disk(FlashMapping::Page));
        let mut now = 0;
        for _ in 0..6 {
            for place in 0..1024 {
                now += state.serve(now, AccessKind::Write, place * 4096, 4096).sum();
            }
            state.discard(&(0..4 << 20));
        }
        assert!(now / 1000 / (6 * 1024) < 290, "{now}");
    }
}
