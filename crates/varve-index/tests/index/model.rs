//! The index against a map, with tiny pages and clustered fingerprints: slots overflow their pages,
//! and segments grow, shrink, split and are widened.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};

use proptest::prelude::*;
use varve_block::{Fingerprint, LogAddress};
use varve_index::{FINGERPRINT_BITS_MIN, MemoryIndex};

const PAGE_SLOTS_TINY: usize = 4;
const KEY: [u8; 32] = [1; 32];

/// Blocks that follow each other in the log.
#[derive(Debug, Clone, Copy)]
struct Run {
    first_granule: u64,
    count: u64,
}

#[derive(Debug, Clone)]
enum Operation {
    Insert(Run),
    Remove(Run),
    Lookup(Run),
    CheckpointRoundTrip { note: Vec<u8> },
}

type Model = BTreeMap<Fingerprint, BTreeSet<LogAddress>>;

impl Run {
    fn pairs(self) -> impl Iterator<Item = (Fingerprint, LogAddress)> {
        let granules = self.first_granule..(self.first_granule + self.count).min(LogAddress::END);
        granules.map(|granule| (fingerprint_at(granule), LogAddress::new(granule).unwrap()))
    }
}

/// An address has one fingerprint. A fingerprint may belong to several addresses. The place in the
/// log decides the kind of fingerprint.
fn fingerprint_at(granule: u64) -> Fingerprint {
    Fingerprint(match granule / 512 % 4 {
        // Like those of real scores.
        0 => granule.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        // Nearly the same, so that all share one home place, until they differ in no bit that is
        // kept.
        1 => (0x5555 << 48) + ((granule % 512) << 18),
        // At the end of the last segment.
        2 => u64::MAX - ((granule % 512) << 18),
        // Three fingerprints for all blocks.
        _ => (granule % 3).wrapping_mul(0x5555_5555_5555_5555),
    })
}

/// Runs lie around a few points of the log, near and far, so that operations meet each other's
/// addresses.
fn runs() -> impl Strategy<Value = Run> {
    let log_bits = prop_oneof![8 => 12..16u32, 1 => 16..=LogAddress::BITS];
    (log_bits, 0..2048u64, 1..400u64)
        .prop_map(|(log_bits, back, count)| Run { first_granule: (1 << log_bits) - 1 - back, count })
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        5 => runs().prop_map(Operation::Insert),
        3 => runs().prop_map(Operation::Remove),
        2 => runs().prop_map(Operation::Lookup),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(|note| Operation::CheckpointRoundTrip { note }),
    ];
    prop::collection::vec(operation, 1..30)
}

fn check_candidates(index: &MemoryIndex<PAGE_SLOTS_TINY>, model: &Model, fingerprint: Fingerprint) {
    let candidates: BTreeSet<LogAddress> = index.candidates(fingerprint).collect();
    assert_eq!(candidates.len(), index.candidates(fingerprint).count(), "a candidate is offered once");
    let expected = model.get(&fingerprint).cloned().unwrap_or_default();
    assert!(
        candidates.is_superset(&expected),
        "{fingerprint:x?}: {expected:?} inserted, {candidates:?} found"
    );

    let alike_bits = u64::BITS - FINGERPRINT_BITS_MIN;
    let first = fingerprint.0 >> alike_bits << alike_bits;
    let last = first | ((1 << alike_bits) - 1);
    let alike = model.range(Fingerprint(first)..=Fingerprint(last)).flat_map(|(_, addresses)| addresses);
    let alike: BTreeSet<LogAddress> = alike.copied().collect();
    assert!(candidates.is_subset(&alike), "{fingerprint:x?}: candidates that agree in too few bits");
}

fn round_trip(index: &MemoryIndex<PAGE_SLOTS_TINY>, note: &[u8]) -> MemoryIndex<PAGE_SLOTS_TINY> {
    let mut bytes = Vec::new();
    index.write_checkpoint(note, &KEY, &mut |piece| bytes.write_all(piece)).unwrap();
    let mut rest = bytes.as_slice();
    let mut read = |into: &mut [u8]| rest.read_exact(into);
    let (read_back, note_read) = MemoryIndex::read_checkpoint(&KEY, bytes.len() as u64, &mut read).unwrap();
    assert_eq!(note_read, note);
    let mut bytes_again = Vec::new();
    read_back.write_checkpoint(note, &KEY, &mut |piece| bytes_again.write_all(piece)).unwrap();
    assert_eq!(bytes, bytes_again);
    read_back
}

proptest! {
    #[test]
    fn index_agrees_with_a_map(operations in operations()) {
        let (mut index, mut model) = (MemoryIndex::<PAGE_SLOTS_TINY>::default(), Model::new());
        for operation in operations {
            match operation {
                Operation::Insert(run) => for (fingerprint, address) in run.pairs() {
                    let is_new = model.entry(fingerprint).or_default().insert(address);
                    assert_eq!(index.insert(fingerprint, address), Ok(is_new));
                },
                Operation::Remove(run) => for (fingerprint, address) in run.pairs() {
                    let was_there = model.get_mut(&fingerprint).is_some_and(|addresses| addresses.remove(&address));
                    assert_eq!(index.remove(fingerprint, address), was_there);
                },
                Operation::Lookup(run) => for (fingerprint, _) in run.pairs() {
                    check_candidates(&index, &model, fingerprint);
                },
                Operation::CheckpointRoundTrip { note } => index = round_trip(&index, &note),
            }
            assert_eq!(index.len(), model.values().map(|addresses| addresses.len() as u64).sum::<u64>());
        }
        for fingerprint in model.keys() {
            check_candidates(&index, &model, *fingerprint);
        }
    }
}
