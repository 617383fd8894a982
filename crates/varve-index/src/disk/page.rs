//! A page of the file of entries: 4096 bytes, little-endian.
//!
//! | offset | bytes | field         | meaning                                                                       |
//! |-------:|------:|---------------|-------------------------------------------------------------------------------|
//! |      0 |     8 | code          | `XXH3(bytes 8..4096)`, seeded by the file's seed and the page's number        |
//! |      8 |     2 | entry_count   | at least 1                                                                    |
//! |     10 |     1 | key_bytes     | 0 to 8                                                                        |
//! |     11 |     1 | address_bytes | 0 to 5                                                                        |
//! |     12 |     4 | zero          |                                                                               |
//! |     16 |     8 | first_key     | the key of the first entry                                                    |
//! |     24 |       | entries       | key less `first_key`, without the unused low bits: `key_bytes`; address: `address_bytes` |
//!
//! Entries ascend. Each is as wide as the widest entry of the page, so that no bits of a key are
//! lost. The last 8 bytes are zeros.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::LogAddress;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::IndexEntry;

/// The length of a page in bytes.
pub(super) const PAGE_BYTES: usize = 4096;
const HEADER_BYTES: usize = 24;
const TAIL_BYTES: usize = 8;
/// An entry is written as one word of this length.
const WORD_BYTES: usize = 16;
/// The room for entries.
const ENTRIES_BYTES: usize = PAGE_BYTES - HEADER_BYTES - TAIL_BYTES;

/// The parameters of the codes of one file's pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageCodes {
    pub(super) seed: u64,
    /// The number of leading bits that keys have; the others are zeros.
    pub(super) key_bits: u32,
}

impl PageCodes {
    fn code(self, number: u64, page: &[u8; PAGE_BYTES]) -> u64 {
        let (_, rest) = page.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
        xxh3_64_with_seed(rest, self.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    fn unused_bits(self) -> u32 {
        u64::BITS.saturating_sub(self.key_bits)
    }
}

/// The largest number of entries in one page: all entries differ, so more than 256 of them take two
/// bytes each.
pub(super) const PAGE_ENTRIES_MAX: u64 = ENTRIES_BYTES as u64 / 2;

/// Collects the entries of a page.
#[derive(Debug)]
pub(super) struct RunPageBuilder {
    codes: PageCodes,
    first_key: u64,
    /// Keys less the first one, and addresses.
    entries: Vec<(u64, u64)>,
    key_bytes: usize,
    address_bytes: usize,
}

impl RunPageBuilder {
    pub(super) fn new(codes: PageCodes) -> Self {
        Self { codes, first_key: 0, entries: Vec::new(), key_bytes: 0, address_bytes: 0 }
    }

    pub(super) fn first_key(&self) -> Option<u64> {
        (!self.entries.is_empty()).then_some(self.first_key)
    }

    /// Adds an entry that is not before the last one. Returns false if there is no room for it.
    pub(super) fn push(&mut self, entry: IndexEntry) -> bool {
        if self.entries.is_empty() {
            self.first_key = entry.key;
        }
        let rest = entry.key.wrapping_sub(self.first_key) >> self.codes.unused_bits().min(63);
        let key_bytes = self.key_bytes.max(width(rest));
        let address_bytes = self.address_bytes.max(width(entry.address.granule()));
        let count = self.entries.len().saturating_add(1);
        let fits = key_bytes.saturating_add(address_bytes).saturating_mul(count) <= ENTRIES_BYTES;
        // Entries of width zero would have no other limit.
        if !fits || count > usize::from(u16::MAX) {
            return false;
        }
        (self.key_bytes, self.address_bytes) = (key_bytes, address_bytes);
        self.entries.push((rest, entry.address.granule()));
        true
    }

    /// Returns page `number` with the pushed entries, and begins the next page.
    pub(super) fn finish(&mut self, number: u64) -> [u8; PAGE_BYTES] {
        let mut page = [0; PAGE_BYTES + WORD_BYTES];
        let mut write = |at: usize, word: u128| {
            if let Some(place) = page.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
                *place = word.to_le_bytes();
            }
        };
        let count = u128::from(u16::try_from(self.entries.len()).unwrap_or(u16::MAX));
        let widths = u128::from(narrow(self.key_bytes)) << 16 | u128::from(narrow(self.address_bytes)) << 24;
        write(8, u128::from(self.first_key) << 64 | widths | count);
        let key_bits = self.key_bytes.saturating_mul(8).min(64);
        let mut at = HEADER_BYTES;
        for (key, granule) in self.entries.drain(..) {
            // The excess bytes are zeros, and the next entry overwrites them.
            write(at, u128::from(granule) << key_bits | u128::from(key));
            at = at.saturating_add(self.key_bytes).saturating_add(self.address_bytes);
        }
        (self.key_bytes, self.address_bytes) = (0, 0);
        let mut page = page.first_chunk().copied().unwrap_or([0; PAGE_BYTES]);
        let code = self.codes.code(number, &page);
        if let Some(place) = page.first_chunk_mut() {
            *place = code.to_le_bytes();
        }
        page
    }
}

fn narrow(bytes: usize) -> u8 {
    u8::try_from(bytes).unwrap_or(u8::MAX)
}

/// Returns the mask of a number with `bytes` bytes.
fn mask(bytes: usize) -> u64 {
    let unwanted = 8_usize.saturating_sub(bytes).saturating_mul(8);
    if unwanted == 64 { 0 } else { u64::MAX >> unwanted }
}

/// Returns the number of bytes that a number needs.
fn width(number: u64) -> usize {
    (u64::BITS.saturating_sub(number.leading_zeros())).div_ceil(8) as usize
}

/// A page whose code has been checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunPage<'a> {
    entries: &'a [u8],
    entry_count: usize,
    key_bytes: usize,
    address_bytes: usize,
    first_key: u64,
    unused_bits: u32,
}

impl<'a> RunPage<'a> {
    /// Opens bytes as page `number` of a file; `None` if they are not that page.
    pub(super) fn open(bytes: &'a [u8; PAGE_BYTES], number: u64, codes: PageCodes) -> Option<Self> {
        if u64::from_le_bytes(*bytes.first_chunk()?) != codes.code(number, bytes) {
            return None;
        }
        let entry_count = usize::from(u16::from_le_bytes(*bytes.get(8..)?.first_chunk()?));
        let key_bytes = usize::from(*bytes.get(10)?);
        let address_bytes = usize::from(*bytes.get(11)?);
        let first_key = u64::from_le_bytes(*bytes.get(16..)?.first_chunk()?);
        let entries = bytes.get(HEADER_BYTES..)?;
        let taken = key_bytes.checked_add(address_bytes)?.checked_mul(entry_count)?;
        let is_sound = entry_count > 0 && key_bytes <= 8 && address_bytes <= 5 && taken <= ENTRIES_BYTES;
        let unused_bits = codes.unused_bits().min(63);
        is_sound.then_some(Self { entries, entry_count, key_bytes, address_bytes, first_key, unused_bits })
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entry_count
    }

    /// Returns entry `number`, counted from 0.
    pub(super) fn entry(&self, number: usize) -> Option<IndexEntry> {
        let at = self.key_bytes.checked_add(self.address_bytes)?.checked_mul(number)?;
        if number >= self.entry_count {
            return None;
        }
        let address_at = at.checked_add(self.key_bytes)?;
        let rest = self.word(at, self.key_bytes)?;
        let granule = self.word(address_at, self.address_bytes)?;
        let key = self.first_key.wrapping_add(rest << self.unused_bits);
        Some(IndexEntry { key, address: LogAddress::new(granule)? })
    }

    /// Replaces the contents of `into` by all entries; `None` if one of them is invalid.
    pub(super) fn read_all(&self, into: &mut Vec<IndexEntry>) -> Option<()> {
        into.clear();
        let width = self.key_bytes.checked_add(self.address_bytes)?;
        let (key_mask, granule_mask) = (mask(self.key_bytes), mask(self.address_bytes));
        let mut rest = self.entries;
        while into.len() < self.entry_count {
            // If the last entries are narrow, fewer bytes than a word follow them.
            let (Some(word), Some(granule)) =
                (rest.first_chunk(), rest.get(self.key_bytes..).and_then(|rest| rest.first_chunk()))
            else {
                break;
            };
            let key = self.first_key.wrapping_add((u64::from_le_bytes(*word) & key_mask) << self.unused_bits);
            let address = LogAddress::new(u64::from_le_bytes(*granule) & granule_mask)?;
            into.push(IndexEntry { key, address });
            rest = rest.get(width..)?;
        }
        for number in into.len()..self.entry_count {
            into.push(self.entry(number)?);
        }
        Some(())
    }

    /// Adds the addresses of all entries with this key to `into`.
    pub(super) fn addresses_of(&self, key: u64, into: &mut Vec<LogAddress>) {
        let (mut low, mut high) = (0, self.entry_count);
        while low < high {
            let middle = low.midpoint(high);
            match self.entry(middle) {
                Some(entry) if entry.key < key => low = middle.saturating_add(1),
                _ => high = middle,
            }
        }
        let from_there = (low..self.entry_count).map_while(|number| self.entry(number));
        into.extend(from_there.take_while(|entry| entry.key == key).map(|entry| entry.address));
    }

    fn word(&self, at: usize, bytes: usize) -> Option<u64> {
        let word = u64::from_le_bytes(*self.entries.get(at..)?.first_chunk()?);
        let unwanted = u64::BITS.checked_sub(u32::try_from(bytes).ok()?.checked_mul(8)?)?;
        Some(if unwanted == u64::BITS { 0 } else { word << unwanted >> unwanted })
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    const CODES: PageCodes = PageCodes { seed: 5, key_bits: 48 };

    fn entry(key: u64, granule: u64) -> IndexEntry {
        IndexEntry { key: key << 16, address: LogAddress::new(granule).unwrap() }
    }

    fn page_of(entries: &[IndexEntry]) -> [u8; PAGE_BYTES] {
        let mut builder = RunPageBuilder::new(CODES);
        assert!(entries.iter().all(|entry| builder.push(*entry)));
        builder.finish(3)
    }

    #[test]
    fn entries_come_back_whole() {
        let last = LogAddress::END - 1;
        let cases: [&[IndexEntry]; 4] = [
            &[entry(0, 0)],
            &[entry(7, 9), entry(7, 10), entry(8, 0)],
            &[entry(0, last), entry((1 << 48) - 1, 1)],
            &[entry(1 << 40, 1 << 33), entry((1 << 40) + 5, 0), entry((1 << 40) + 5, 2), entry(1 << 41, 3)],
        ];
        for entries in cases {
            let bytes = page_of(entries);
            let page = RunPage::open(&bytes, 3, CODES).unwrap();
            assert!((0..page.len()).map(|number| page.entry(number).unwrap()).eq(entries.iter().copied()));
            assert_eq!(page.entry(page.len()), None);
            let mut all = vec![entry(1, 1)];
            page.read_all(&mut all).unwrap();
            assert_eq!(all, entries);
            for wanted in entries {
                let mut found = Vec::new();
                page.addresses_of(wanted.key, &mut found);
                let expected = entries.iter().filter(|entry| entry.key == wanted.key);
                assert!(expected.map(|entry| entry.address).eq(found));
            }
        }
    }

    #[test]
    fn a_page_of_a_large_index_takes_nine_bytes_an_entry() {
        let mut builder = RunPageBuilder::new(CODES);
        let count = (0..).take_while(|number| builder.push(entry(number << 25, number * 4_000_000))).count();
        assert!(count * 9 > ENTRIES_BYTES - 9, "{count}");
        let page = builder.finish(3);
        let mut all = Vec::new();
        RunPage::open(&page, 3, CODES).unwrap().read_all(&mut all).unwrap();
        assert!((0..).zip(&all).all(|(number, found)| *found == entry(number << 25, number * 4_000_000)));
        assert_eq!((all.len(), page[PAGE_BYTES - TAIL_BYTES..].iter().max()), (count, Some(&0)));
    }

    #[test]
    fn any_changed_bit_and_any_other_place_is_noticed() {
        let bytes = page_of(&[entry(7, 9), entry(8, 10)]);
        assert!(RunPage::open(&bytes, 3, CODES).is_some());
        assert!(RunPage::open(&bytes, 4, CODES).is_none());
        assert!(RunPage::open(&bytes, 3, PageCodes { seed: 6, ..CODES }).is_none());
        for bit in (0..PAGE_BYTES * 8).step_by(7) {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(RunPage::open(&changed, 3, CODES).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn what_has_a_right_code_and_makes_no_sense_is_refused() {
        for (at, value) in [(8, 0), (9, 255), (10, 9), (11, 6), (11, 255)] {
            let mut bytes = page_of(&[entry(7, 9), entry(8, 10)]);
            bytes[at] = value;
            let code = CODES.code(3, &bytes).to_le_bytes();
            bytes[..8].copy_from_slice(&code);
            assert!(RunPage::open(&bytes, 3, CODES).is_none(), "byte {at} is {value}");
        }
    }
}
