//! A second reader of checkpoints, made only from the tables in `checkpoint.rs`, finds every block.

use std::collections::BTreeSet;
use std::io::Write;

use varve_block::{Fingerprint, LogAddress};
use varve_index::MemoryIndex;

const KEY: [u8; 32] = [2; 32];
const BLOCK_COUNT: u64 = 1500;

fn fingerprint(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Takes bytes off the front, and checks codes.
struct Reader<'a> {
    rest: &'a [u8],
    code: [u8; 32],
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: u64) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(usize::try_from(count).unwrap());
        self.rest = rest;
        taken
    }

    fn check(&mut self, covered: &[u8]) {
        self.code = *blake3::keyed_hash(&KEY, covered).as_bytes();
        assert_eq!(self.bytes(32), self.code);
    }
}

fn word(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap())
}

#[test]
fn a_checkpoint_is_as_its_tables_say() {
    let mut index = MemoryIndex::<4>::default();
    for number in 0..BLOCK_COUNT {
        index.insert(Fingerprint(fingerprint(number)), LogAddress::new(number * 100).unwrap()).unwrap();
    }
    let mut checkpoint = Vec::new();
    index.write_checkpoint(b"a note", &KEY, &mut |piece| checkpoint.write_all(piece)).unwrap();

    let mut reader = Reader { rest: &checkpoint, code: [0; 32] };
    let header = reader.bytes(32);
    assert_eq!(&header[..8], b"varveIX1");
    let (segment_count, block_count, note_bytes) = (word(header, 8), word(header, 16), word(header, 24));
    assert_eq!(block_count, BLOCK_COUNT);
    assert_eq!(checkpoint.len() as u64, 96 + note_bytes + 48 * segment_count + 8 * block_count);
    reader.check(header);
    let note = reader.bytes(note_bytes);
    assert_eq!(note, b"a note");
    reader.check(&[&reader.code, note].concat());

    // The checkpoint has for each block: its segment, the remainder and its length, and the
    // address.
    let mut sections = Vec::new();
    for _ in 0..segment_count {
        let section = &reader.rest[..16 + 8 * usize::try_from(word(reader.rest, 0)).unwrap()];
        reader.bytes(section.len() as u64);
        reader.check(&[&reader.code, section].concat());
        let address_bits = word(section, 8);
        let slots: BTreeSet<(u64, u64)> = (16..section.len())
            .step_by(8)
            .map(|at| (word(section, at) >> address_bits, word(section, at) & ((1 << address_bits) - 1)))
            .collect();
        sections.push((address_bits, slots));
    }
    assert!(reader.rest.is_empty());

    let b = segment_count.ilog2();
    let m = segment_count - (1 << b);
    assert!(m > 0, "prefixes of both lengths");
    for number in 0..BLOCK_COUNT {
        let backwards = |bits| fingerprint(number).reverse_bits() & ((1u64 << bits) - 1);
        let prefix_bits = if backwards(b) < m { b + 1 } else { b };
        let segment = backwards(prefix_bits);
        let (address_bits, slots) = &sections[usize::try_from(segment).unwrap()];
        let remainder = fingerprint(number) << prefix_bits >> address_bits;
        assert!(slots.contains(&(remainder, number * 100)), "block {number}");
    }
}
