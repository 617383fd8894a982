//! The index on disk against a list of all entries that were inserted. It has so little memory that
//! passes run all the time. A crash may come between any two operations.

use std::collections::BTreeSet;
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
    /// All entries that were inserted, in order. A note holds the number of these in a run.
    inserted: Vec<(Fingerprint, LogAddress)>,
    model: BTreeSet<(u64, LogAddress)>,
    session: u8,
    /// The number of entries that were inserted before the notes were forgotten.
    noted_since: usize,
    /// True if it works like Venti's own index.
    is_plain: bool,
}

impl Tested {
    fn new(is_plain: bool) -> Self {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let index = DiskIndex::new(Arc::clone(&storage), KEY, SETTINGS, Some([0; 16]));
        let index = if is_plain { index.plain() } else { index };
        Self {
            storage,
            index,
            inserted: Vec::new(),
            model: BTreeSet::new(),
            session: 0,
            noted_since: 0,
            is_plain,
        }
    }

    fn note(&self) -> Vec<u8> {
        (self.inserted.len() as u64).to_le_bytes().to_vec()
    }

    fn apply(&mut self, operation: &Operation) {
        let entries = |first: u64, count: u64| (first..first + count).map(entry).collect::<Vec<_>>();
        match *operation {
            Operation::Insert { first, count } => {
                let entries = entries(first, count);
                self.index.insert_all(&entries);
                self.model.extend(entries.iter().map(|(fingerprint, address)| (fingerprint.0, *address)));
                self.inserted.extend(entries);
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
                    let covered = usize::try_from(u64::from_le_bytes(note.try_into().unwrap())).unwrap();
                    assert!(covered >= self.noted_since, "noted before notes were forgotten");
                }
            }
            Operation::Save => {
                self.index.save(self.note()).unwrap();
                assert_eq!(self.index.unsaved(), 0);
            }
            Operation::ForgetNotes => {
                self.index.forget_notes();
                self.noted_since = self.inserted.len();
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
            Ok((index, note)) => (index, u64::from_le_bytes(note.try_into().unwrap())),
            Err(OpenDiskIndexError::Missing) => (DiskIndex::new(storage, KEY, SETTINGS, session), 0),
            Err(error) => panic!("{error}"),
        };
        let index = if self.is_plain { index.plain() } else { index };
        for page in self.inserted[usize::try_from(covered).unwrap()..].chunks(400) {
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
        if found.is_complete {
            assert_eq!(all, expected, "{fingerprint:?}");
        } else {
            assert!(all.is_subset(&expected) && expected.len() > 5000, "{fingerprint:?}");
        }
        match near {
            NearAddresses::All(near) => assert_eq!(near.into_iter().collect::<BTreeSet<_>>(), expected),
            NearAddresses::Some(near) => assert!(near.iter().all(|place| expected.contains(place))),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn it_agrees_with_a_list(operations in operations(), is_plain in any::<bool>()) {
        let mut tested = Tested::new(is_plain);
        for operation in &operations {
            tested.apply(operation);
            prop_assert_eq!(tested.index.failure(), None);
        }
        (0..20_600).step_by(11).for_each(|number| tested.check(&tested.index, entry(number).0));
    }
}

/// Venti's way: no filter, no buffer except for entries that find no room, and a page read and
/// written for nearly every entry.
#[test]
fn a_plain_index_reads_and_writes_a_page_for_each_entry() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let index = DiskIndex::new(Arc::clone(&storage), KEY, SETTINGS, Some([0; 16])).plain();
    let spread = |number: u64| {
        let fingerprint = Fingerprint(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16 << 16);
        (fingerprint, LogAddress::new(number).unwrap())
    };
    let count = 30_000;
    let all: Vec<_> = (0..count).map(spread).collect();
    for page in all.chunks(500) {
        for (fingerprint, _) in page {
            assert!(index.candidates(*fingerprint).addresses.is_empty());
        }
        assert_eq!(index.insert_all(page), page.len() as u64);
        assert_eq!(index.insert_all(&page[..7]), 0, "they are there");
        if index.is_due() {
            index.begin(None);
        }
    }
    assert_eq!((index.len(), index.failure()), (count, None));
    let stats = index.stats();
    assert!(stats.page_writes > count * 9 / 10 && stats.page_writes <= count, "{stats:?}");
    assert!(stats.page_reads > count * 9 / 10, "no look-up was spared: {stats:?}");
    assert_eq!(stats.filtered, 0);
    for (fingerprint, address) in &all {
        assert_eq!(index.candidates(*fingerprint).addresses, [*address]);
    }
}
