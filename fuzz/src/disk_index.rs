//! The files of the index on disk: the summary, the filter in it, and the pages of entries.

use std::sync::{Arc, LazyLock};

use varve_block::{Fingerprint, LogAddress};
use varve_index::{DiskIndex, DiskIndexSettings, NearAddresses};
use varve_world::{FileName, MemoryStorage};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::input::Input;

const KEY: [u8; 32] = [5; 32];
const SESSION: [u8; 16] = [6; 16];
const SETTINGS: DiskIndexSettings =
    DiskIndexSettings { memory_bytes: 16 << 10, expected_blocks: 1000, fingerprint_bits: 48 };
const PAGE_BYTES: usize = 4096;
const HEADER_BYTES: usize = 80;
const CODE_BYTES: usize = 32;
/// The number of entries in the good index. They fill several pages.
const COUNT: u64 = 1500;
const NOTE: &[u8] = b"note";

fn summary_file() -> FileName {
    FileName::new("index/disk").expect("a plain name")
}

fn run_file(generation: u64) -> FileName {
    FileName::new(&format!("index/disk-{generation:010}")).expect("a plain name")
}

fn entry(number: u64) -> (Fingerprint, LogAddress) {
    let fingerprint = Fingerprint(number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    (fingerprint, LogAddress::new(number * 1000).expect("small"))
}

/// The parts of a good index.
struct Parts {
    /// The seven numbers of the header: the generation, the bits of a key, the number of pages, the
    /// number of entries, two numbers of the filter, and the length of the note.
    numbers: [u64; 7],
    fences: Vec<u64>,
    filter: Vec<u8>,
    pages: Vec<[u8; PAGE_BYTES]>,
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes))
}

static GOOD: LazyLock<Parts> = LazyLock::new(|| {
    let storage = MemoryStorage::new();
    let index = DiskIndex::new(Arc::new(storage.clone()), KEY, SETTINGS, Some(SESSION));
    index.insert_all(&(0..COUNT).map(entry).collect::<Vec<_>>());
    index.save(NOTE.to_vec()).expect("in memory");
    let summary = storage.contents(&summary_file()).expect("it was saved");
    let header: Vec<_> = words(&summary[8..16]).chain(words(&summary[32..HEADER_BYTES])).collect();
    let numbers: [u64; 7] = header.try_into().expect("seven");
    let fences_at = HEADER_BYTES + NOTE.len();
    let fences_end = fences_at + usize::try_from(numbers[2]).expect("small") * 8;
    let run = storage.contents(&run_file(numbers[0])).expect("it was saved");
    Parts {
        numbers,
        fences: words(&summary[fences_at..fences_end]).collect(),
        filter: summary[fences_end + CODE_BYTES..summary.len() - CODE_BYTES].to_vec(),
        pages: run.as_chunks().0.to_vec(),
    }
});

impl Parts {
    /// Writes files with these parts and with good codes.
    fn write(&self) -> MemoryStorage {
        let mut summary = b"varveID1".to_vec();
        summary.extend(self.numbers[0].to_le_bytes());
        summary.extend(SESSION);
        summary.extend(self.numbers[1..].iter().flat_map(|number| number.to_le_bytes()));
        summary.extend(NOTE);
        summary.extend(self.fences.iter().flat_map(|fence| fence.to_le_bytes()));
        let code = blake3::keyed_hash(&KEY, &summary);
        summary.extend(code.as_bytes());
        summary.extend(&self.filter);
        let code = blake3::Hasher::new_keyed(&KEY).update(code.as_bytes()).update(&self.filter).finalize();
        summary.extend(code.as_bytes());
        let hash = blake3::Hasher::new_keyed(&KEY)
            .update(&SESSION)
            .update(&self.numbers[0].to_le_bytes())
            .finalize();
        let seed = words(hash.as_bytes()).next().expect("four words");
        let mut run = Vec::new();
        for (number, page) in (0_u64..).zip(&self.pages) {
            let page_seed = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            run.extend(xxh3_64_with_seed(&page[8..], page_seed).to_le_bytes());
            run.extend(&page[8..]);
        }
        let storage = MemoryStorage::new();
        storage.set_contents(&summary_file(), summary);
        storage.set_contents(&run_file(self.numbers[0]), run);
        storage
    }

    fn copy(&self) -> Self {
        let Self { numbers, fences, filter, pages } = self;
        Self { numbers: *numbers, fences: fences.clone(), filter: filter.clone(), pages: pages.clone() }
    }
}

fn open(storage: &MemoryStorage, session: Option<[u8; 16]>) -> Option<DiskIndex> {
    DiskIndex::open(Arc::new(storage.clone()), KEY, SETTINGS, session).ok().map(|(index, _)| index)
}

/// True if the index proposes the place, or reports that it may have omitted some.
fn is_known(index: &DiskIndex, number: u64) -> bool {
    let (fingerprint, address) = entry(number);
    let near = match index.near(fingerprint) {
        NearAddresses::All(places) => places.contains(&address),
        NearAddresses::Some(_) => true,
    };
    let found = index.candidates(fingerprint);
    near && (found.addresses.contains(&address) || !found.is_complete)
}

/// If the files open, the index is queried, filled, saved and opened again. An entry that was
/// inserted is found from then on, whatever the files held before.
fn exercise(storage: &MemoryStorage) {
    if let Some(reader) = open(storage, None) {
        let known = (0..64).filter(|number| is_known(&reader, *number)).count();
        assert!(known <= 64 && reader.memory_bytes() < 1 << 24, "{:?}", reader.stats());
    }
    let Some(writer) = open(storage, Some([7; 16])) else { return };
    let more: Vec<_> = (5000..5600).map(entry).collect();
    for page in more.chunks(100) {
        writer.insert_all(page);
        if writer.is_due() {
            writer.begin(None);
        }
        assert!(writer.unsaved() <= writer.len());
    }
    let is_all_known = |index: &DiskIndex| (5000..5600).all(|number| is_known(index, number));
    assert!(is_all_known(&writer), "what was inserted is known");
    let is_saved = writer.save(NOTE.to_vec()).is_ok();
    assert!(is_all_known(&writer), "what was saved is known");
    assert!(writer.memory_bytes() < 1 << 24, "{:?}", writer.stats());
    drop(writer);
    if is_saved {
        let again = open(storage, None).expect("what was saved can be opened");
        assert!(is_all_known(&again), "what was saved is known when it is opened again");
    }
}

/// Two summaries beside good pages: the input unchanged, and one with good codes whose numbers and
/// fences come from the input.
pub fn disk_index_summary(bytes: &[u8]) {
    let storage = GOOD.write();
    storage.set_contents(&summary_file(), bytes.to_vec());
    exercise(&storage);
    exercise(&forged_summary(bytes).write());
}

/// Reads from the input, for each of the seven numbers, if it is replaced and by which value. Then
/// reads if the fences are replaced, and by which ones.
fn forged_summary(bytes: &[u8]) -> Parts {
    let mut input = Input(bytes);
    let mut parts = GOOD.copy();
    for number in &mut parts.numbers {
        if input.byte() % 4 == 1 {
            *number = u64::from_le_bytes(input.array());
        }
    }
    if input.byte() % 2 == 1 {
        let fence_count = input.below(300);
        parts.fences = (0..fence_count).map(|_| u64::from_le_bytes(input.array())).collect();
        if input.byte().is_multiple_of(2) {
            parts.fences.sort_unstable();
        }
        if input.byte().is_multiple_of(2) {
            parts.numbers[2] = parts.fences.len() as u64;
            parts.pages = GOOD.pages.iter().copied().cycle().take(parts.fences.len()).collect();
        }
    }
    parts
}

/// Pages of entries with good codes, in an index whose other parts are good. The input overwrites
/// bytes of the good pages.
pub fn disk_index_page(bytes: &[u8]) {
    exercise(&forged_pages(bytes).write());
}

/// Reads for each change the page, the place, the number of bytes, and the bytes. The first eight
/// bytes of a page are its code.
fn forged_pages(bytes: &[u8]) -> Parts {
    let mut input = Input(bytes);
    let mut parts = GOOD.copy();
    while !input.is_empty() {
        let page = input.below(parts.pages.len());
        // Half of the changes are in the header.
        let at = input.below(PAGE_BYTES);
        let at = if at.is_multiple_of(2) { 8 + at / 2 % 24 } else { at };
        let length = usize::from(input.byte()) % 64 + 1;
        let from = input.take(length.min(PAGE_BYTES - at));
        parts.pages[page][at..at + from.len()].copy_from_slice(from);
    }
    parts
}

/// A damaged filter in a summary that is otherwise unchanged. The index builds the filter anew and
/// finds every entry.
pub fn disk_index_filter(bytes: &[u8]) {
    let storage = GOOD.write();
    let whole = storage.contents(&summary_file()).expect("it was written");
    let filter_at = whole.len() - CODE_BYTES - GOOD.filter.len();
    let mut harmed = whole;
    let mut input = Input(bytes);
    let kept = usize::from(u16::from_le_bytes(input.array()));
    if kept % 4 == 1 {
        harmed.truncate(filter_at + kept % (GOOD.filter.len() + CODE_BYTES));
    }
    while !input.is_empty() {
        let place = input.below(GOOD.filter.len() + CODE_BYTES) + filter_at;
        let changed = input.byte();
        match harmed.get_mut(place) {
            Some(byte) => *byte ^= changed,
            None => harmed.push(changed),
        }
    }
    storage.set_contents(&summary_file(), harmed);
    for session in [None, Some([7; 16])] {
        let index = open(&storage, session).expect("the filter is not needed");
        for number in 0..COUNT {
            let (fingerprint, address) = entry(number);
            let found = index.candidates(fingerprint);
            assert!(found.addresses.contains(&address) && found.is_complete, "entry {number}");
        }
    }
    exercise(&storage);
}

/// The good summary; each number at its limits; and fences that are absent, few or unsorted.
#[must_use]
pub fn disk_index_summary_seeds() -> Vec<Vec<u8>> {
    let as_it_was = GOOD.write().contents(&summary_file()).expect("it was written");
    let mut seeds = vec![as_it_was, vec![0; 10]];
    for number in 0..7 {
        for value in [0, 1, 33, 1 << 32, u64::MAX / 2, u64::MAX] {
            let mut seed = vec![0; number];
            seed.push(1);
            seed.extend(u64::to_le_bytes(value));
            seed.extend([0; 8]);
            seeds.push(seed);
        }
    }
    for (is_sorted, fences) in [(0, vec![]), (0, vec![7, 1 << 63]), (1, vec![u64::MAX, 3, 3, 1 << 40])] {
        let mut seed = vec![0, 0, 0, 0, 0, 0, 0, 1, u8::try_from(fences.len()).expect("few"), 0];
        seed.extend(fences.into_iter().flat_map(u64::to_le_bytes));
        seed.extend([is_sorted, 0]);
        seeds.push(seed);
    }
    seeds
}

/// No change; each field of the header at its limits; and entries that are all equal.
#[must_use]
pub fn disk_index_page_seeds() -> Vec<Vec<u8>> {
    let change = |page: u8, at: u16, bytes: &[u8]| {
        let length = u8::try_from(bytes.len() - 1).expect("few");
        [&[page, 0][..], &at.to_le_bytes(), &[length], bytes].concat()
    };
    // Place 2 n in the input means byte 8 + n of the page.
    let mut seeds = vec![Vec::new()];
    for page in 0..2 {
        for count in [0_u16, 1, 500, u16::MAX] {
            for widths in [[0, 0], [8, 5], [1, 1], [9, 5], [5, 6], [0, 5]] {
                seeds.push([change(page, 0, &count.to_le_bytes()), change(page, 4, &widths)].concat());
            }
        }
        seeds.push(change(page, 16, &u64::MAX.to_le_bytes()));
        seeds.push(change(page, 16, &0_u64.to_le_bytes()));
        seeds.push(change(page, 1001, &[0; 64]));
    }
    seeds
}

/// No change; one changed bit at two places; and the filter cut at two places.
#[must_use]
pub fn disk_index_filter_seeds() -> Vec<Vec<u8>> {
    vec![Vec::new(), vec![0, 0, 100, 0, 1], vec![1, 0], vec![0xF1, 0x07], vec![0, 0, 0xF0, 0x07, 0x80]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_whole(parts: &Parts) -> bool {
        let index = open(&parts.write(), None).unwrap();
        (0..COUNT).all(|number| {
            let (fingerprint, address) = entry(number);
            index.candidates(fingerprint).addresses.contains(&address)
        })
    }

    #[test]
    fn the_index_believes_the_forger() {
        assert!(GOOD.pages.len() > 2, "{}", GOOD.pages.len());
        assert!(is_whole(&GOOD) && is_whole(&forged_summary(&[])) && is_whole(&forged_pages(&[])));
    }

    #[test]
    fn what_is_changed_gets_past_the_codes() {
        // The last seed sets 64 bytes among the entries of the second page to zero.
        let seeds = disk_index_page_seeds();
        let changed = forged_pages(seeds.last().unwrap());
        assert!(!is_whole(&changed));
        assert_eq!(open(&changed.write(), None).unwrap().failure(), None);
    }
}
