//! The index on disk against a list of all entries that were inserted. It has so little memory that
//! passes run all the time. A crash may come between any two operations.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use proptest::prelude::*;
use varve_block::{Fingerprint, LogAddress};
use varve_index::{DiskIndex, DiskIndexSettings, NearAddresses, OpenDiskIndexError};
use varve_world::{MemoryStorage, Storage};

const KEY: [u8; 32] = [1; 32];
const SETTINGS: DiskIndexSettings =
    DiskIndexSettings { memory_bytes: 4096, expected_blocks: 500, fingerprint_bits: 48 };

#[derive(Debug, Clone)]
enum Operation {
    Insert {
        first: u64,
        count: u64,
    },
    Lookup {
        first: u64,
        count: u64,
    },
    Remember {
        first: u64,
        count: u64,
    },
    /// As in a sync.
    SaveReady,
    /// As in a close.
    Save,
    /// As in a repair: a pass that began earlier is not saved with its note.
    ForgetNotes,
    /// As in a collection: other entries take the place of those with some addresses, and the
    /// saved run no longer covers these places.
    Replace {
        first: u64,
        count: u64,
    },
    /// The process dies. Another one begins with the saved files, and inserts the entries that came
    /// later.
    Crash,
    /// The same, but a reader opens the files.
    Read,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let range = || (0..20_000u64, 1..600u64);
    let operation = prop_oneof![
        8 => range().prop_map(|(first, count)| Operation::Insert { first, count }),
        2 => range().prop_map(|(first, count)| Operation::Lookup { first, count }),
        1 => range().prop_map(|(first, count)| Operation::Remember { first, count }),
        2 => Just(Operation::SaveReady),
        1 => Just(Operation::Save),
        1 => Just(Operation::ForgetNotes),
        2 => (0..5003u64, 1..2000u64).prop_map(|(first, count)| Operation::Replace { first, count }),
        1 => Just(Operation::Crash),
        1 => Just(Operation::Read),
    ];
    prop::collection::vec(operation, 1..40)
}

/// Like those of real scores; nearly the same; the same for many; at the very end.
fn entry(number: u64) -> (Fingerprint, LogAddress) {
    let fingerprint = match number / 512 % 4 {
        0 => number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16 << 16,
        1 => (0x5555 << 48) + ((number % 512) << 16),
        2 => (number % 3) << 40,
        _ => u64::MAX - ((number % 512) << 16),
    };
    (Fingerprint(fingerprint), LogAddress::new(number * 977 % 5003).unwrap())
}

struct Tested {
    storage: Arc<dyn Storage>,
    index: DiskIndex,
    /// All entries that were inserted and not replaced, with the number of entries before each of
    /// them. A note holds such a number: the run has all entries before.
    inserted: Vec<(u64, (Fingerprint, LogAddress))>,
    inserted_count: u64,
    model: BTreeSet<(u64, LogAddress)>,
    /// Replaced entries that may still be found.
    outdated: BTreeSet<(u64, LogAddress)>,
    session: u8,
    /// The number of entries that were inserted before the notes were forgotten.
    noted_since: u64,
}

impl Tested {
    fn new() -> Self {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let index = DiskIndex::new(Arc::clone(&storage), KEY, SETTINGS, Some([0; 16]));
        Self {
            storage,
            index,
            inserted: Vec::new(),
            inserted_count: 0,
            model: BTreeSet::new(),
            outdated: BTreeSet::new(),
            session: 0,
            noted_since: 0,
        }
    }

    fn note(&self) -> Vec<u8> {
        SavedNote { covered: self.inserted_count, replaced: Vec::new() }.encode()
    }

    fn insert(&mut self, entries: &[(Fingerprint, LogAddress)]) {
        self.index.insert_all(entries);
        for (fingerprint, address) in entries {
            self.model.insert((fingerprint.0, *address));
            self.inserted.push((self.inserted_count, (*fingerprint, *address)));
            self.inserted_count += 1;
        }
    }

    fn replace(&mut self, places: &Range<u64>) {
        let is_there = |address: &LogAddress| places.contains(&address.granule());
        self.index.forget_notes();
        self.noted_since = self.inserted_count;
        let narrow = |note: &[u8]| {
            let mut note = SavedNote::decode(note);
            note.replaced.push(places.clone());
            Some(note.encode())
        };
        self.index.rewrite_note(narrow).unwrap();
        self.index.outdate(std::slice::from_ref(places));
        let (old, kept): (BTreeSet<_>, BTreeSet<_>) =
            self.model.iter().partition(|(_, address)| is_there(address));
        self.model = kept;
        self.inserted.retain(|(_, (_, address))| !is_there(address));
        self.outdated.extend(&old);
        let new: Vec<_> = old.iter().step_by(3).map(|(key, address)| (Fingerprint(*key), *address)).collect();
        for page in new.chunks(100) {
            self.insert(page);
            if self.index.is_due() {
                self.index.begin(None);
            }
        }
    }

    fn apply(&mut self, operation: &Operation) {
        let entries = |first: u64, count: u64| (first..first + count).map(entry).collect::<Vec<_>>();
        match *operation {
            Operation::Insert { first, count } => {
                let entries = entries(first, count);
                self.insert(&entries);
                if self.index.is_due() {
                    self.index.begin(Some(self.note()));
                }
            }
            Operation::Lookup { first, count } => {
                (first..first + count).for_each(|number| self.check(&self.index, entry(number).0));
            }
            Operation::Remember { first, count } => {
                let known = |(fingerprint, address): &(Fingerprint, LogAddress)| {
                    self.model.contains(&(fingerprint.0, *address))
                };
                self.index.remember(entries(first, count).into_iter().filter(known));
            }
            Operation::SaveReady => {
                if let Some(ready) = self.index.ready() {
                    self.index.save_ready(ready).unwrap();
                    assert_eq!(self.index.ready(), None);
                    let storage = Arc::clone(&self.storage);
                    let (_, note) = DiskIndex::open(storage, KEY, SETTINGS, None).unwrap();
                    assert!(
                        SavedNote::decode(&note).covered >= self.noted_since,
                        "noted before notes were forgotten"
                    );
                }
            }
            Operation::Save => {
                self.index.save(self.note()).unwrap();
                assert_eq!(self.index.unsaved(), 0);
                self.outdated.clear();
                assert_eq!(self.index.len(), self.kept_len(), "no entry is left that was replaced");
            }
            Operation::Replace { first, count } => self.replace(&(first..first + count)),
            Operation::ForgetNotes => {
                self.index.forget_notes();
                self.noted_since = self.inserted_count;
                assert_eq!(self.index.ready(), None);
            }
            Operation::Crash => {
                self.session += 1;
                self.index = self.opened(Some([self.session; 16]));
                let files = self.storage.list("index").unwrap();
                assert!(
                    files.len() <= 4,
                    "a summary, its run, the next one, and the one after that: {files:?}"
                );
            }
            Operation::Read => {
                let reader = self.opened(None);
                (0..20_000).step_by(37).for_each(|number| self.check(&reader, entry(number).0));
            }
        }
    }

    fn opened(&self, session: Option<[u8; 16]>) -> DiskIndex {
        let storage = Arc::clone(&self.storage);
        let (index, covered) = match DiskIndex::open(Arc::clone(&storage), KEY, SETTINGS, session) {
            Ok((index, note)) => (index, SavedNote::decode(&note)),
            Err(OpenDiskIndexError::Missing) => {
                let nothing = SavedNote { covered: 0, replaced: Vec::new() };
                (DiskIndex::new(storage, KEY, SETTINGS, session), nothing)
            }
            Err(error) => panic!("{error}"),
        };
        index.outdate(&covered.replaced);
        let is_missing = |number: u64, address: LogAddress| {
            number >= covered.covered
                || covered.replaced.iter().any(|range| range.contains(&address.granule()))
        };
        let missing = self.inserted.iter().filter(|(number, (_, address))| is_missing(*number, *address));
        let missing: Vec<_> = missing.map(|(_, entry)| *entry).collect();
        for page in missing.chunks(400) {
            index.insert_all(page);
            if index.is_due() {
                index.begin(None);
            }
        }
        index
    }

    fn check(&self, index: &DiskIndex, fingerprint: Fingerprint) {
        let key = fingerprint.0 >> 16 << 16;
        let expected: BTreeSet<_> =
            self.model.iter().filter(|(of, _)| of >> 16 << 16 == key).map(|(_, at)| *at).collect();
        let near = index.near(fingerprint);
        let found = index.candidates(fingerprint);
        let all: BTreeSet<_> = found.addresses.iter().copied().collect();
        let is_outdated = |place: &LogAddress| {
            let first = LogAddress::new(0).unwrap();
            let mut same_key =
                self.outdated.range((key, first)..).take_while(|(of, _)| of >> 16 << 16 == key);
            same_key.any(|(_, address)| address == place)
        };
        let expected_or_outdated = |found: &BTreeSet<LogAddress>| {
            found.is_superset(&expected) && found.difference(&expected).all(is_outdated)
        };
        if found.is_complete {
            assert!(expected_or_outdated(&all), "{fingerprint:?}: {all:?}, {expected:?}");
        } else {
            assert!(all.is_subset(&expected) && expected.len() > 5000, "{fingerprint:?}");
        }
        match near {
            NearAddresses::All(near) => assert!(expected_or_outdated(&near.into_iter().collect())),
            NearAddresses::Some(near) => {
                assert!(near.iter().all(|place| expected.contains(place) || is_outdated(place)));
            }
        }
    }

    /// Returns the number of entries that differ in what the index keeps of them.
    fn kept_len(&self) -> u64 {
        let kept: BTreeSet<_> = self.model.iter().map(|(key, address)| (key >> 16 << 16, address)).collect();
        kept.len() as u64
    }
}

/// A note about the run.
struct SavedNote {
    /// The run has this number of first entries.
    covered: u64,
    /// The entries of the run at these places do not count.
    replaced: Vec<Range<u64>>,
}

impl SavedNote {
    fn encode(&self) -> Vec<u8> {
        let ranges = self.replaced.iter().flat_map(|range| [range.start, range.end]);
        std::iter::once(self.covered).chain(ranges).flat_map(u64::to_le_bytes).collect()
    }

    fn decode(note: &[u8]) -> Self {
        let mut numbers = note.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let covered = numbers.next().unwrap();
        let numbers: Vec<_> = numbers.collect();
        Self { covered, replaced: numbers.as_chunks::<2>().0.iter().map(|[from, to]| *from..*to).collect() }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn it_agrees_with_a_list(operations in operations()) {
        let mut tested = Tested::new();
        for operation in &operations {
            tested.apply(operation);
            prop_assert_eq!(tested.index.failure(), None);
        }
        (0..20_600).step_by(11).for_each(|number| tested.check(&tested.index, entry(number).0));
    }
}
