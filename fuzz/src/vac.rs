//! Structures that Venti's clients put in blocks, and those that Venti's server puts on disks.

use varve_tree::{MetaBlock, MetaBlockBuilder, VacMode, VacRecord, VentiEntry, VentiRoot};
use varve_venti::{ArenaHead, ArenaTrailer, CLUMP_HEADER_BYTES, ClumpHeader, PartitionHeader, unwhack};

use crate::input::Input;

/// The root of an archive.
pub fn venti_root(bytes: &[u8]) {
    if let Ok(root) = VentiRoot::decode(bytes)
        && let Some(encoded) = root.encode()
    {
        assert_eq!(VentiRoot::decode(&encoded), Ok(root));
    }
}

/// A root in each of the two forms of the block size.
#[must_use]
pub fn venti_root_seeds() -> Vec<Vec<u8>> {
    let score = [7; 20].as_slice().try_into().expect("20 bytes");
    let root = |block_bytes| VentiRoot {
        name: b"x".to_vec(),
        kind: b"vac".to_vec(),
        score,
        block_bytes,
        previous: None,
    };
    [8192, 65_536].into_iter().filter_map(|block_bytes| root(block_bytes).encode()).collect()
}

/// An entry of a directory.
pub fn venti_entry(bytes: &[u8]) {
    if let Ok(Some(entry)) = VentiEntry::decode(bytes)
        && let Some(encoded) = entry.encode(true)
    {
        assert_eq!(VentiEntry::decode(&encoded), Ok(Some(entry)));
    }
}

/// The entry of a file, of a directory, and of a large file.
#[must_use]
pub fn venti_entry_seeds() -> Vec<Vec<u8>> {
    let entry = |flags: u8, sizes: [u8; 4], size: u64| {
        let mut bytes = [&[0, 0, 0, 0][..], &sizes, &[flags, 0, 0, 0, 0, 0]].concat();
        bytes.extend_from_slice(&size.to_be_bytes()[2..]);
        bytes.extend_from_slice(&[7; 20]);
        bytes
    };
    vec![
        entry(0x21, [0x1f, 0xf4, 0x20, 0], 8000),
        entry(0x27, [0x1f, 0xf4, 0x20, 0], 16_000),
        entry(0x65, [0xea, 0x65, 0x80, 0x06], 100_000),
    ]
}

/// A block of a directory, with its records.
pub fn vac_meta_block(bytes: &[u8]) {
    let Ok(block) = MetaBlock::decode(bytes) else { return };
    let mut total = 0;
    for record in block.records() {
        let Ok(record) = record else { continue };
        total += record.name.len();
        if let Some(encoded) = record.encode() {
            let known =
                |record: VacRecord| (record.name, record.entry, record.mode, record.qid_space, record.own);
            assert_eq!(VacRecord::decode(&encoded).map(known), Ok(known(record)));
        }
    }
    assert!(total <= bytes.len(), "no byte is in two names");
}

/// A block with some records.
#[must_use]
pub fn vac_meta_block_seeds() -> Vec<Vec<u8>> {
    let mut builder = MetaBlockBuilder::new(1024).expect("a good size");
    for name in ["a", "abc", "ab"] {
        let record = VacRecord {
            name: name.into(),
            meta_entry: 1,
            mode: VacMode(0o644),
            qid_space: Some((1, 2)),
            own: Some(vec![1, 2, 3]),
            ..VacRecord::default()
        };
        let bytes = record.encode().expect("a short name");
        builder.push(name.as_bytes(), &bytes, bytes.len());
    }
    vec![builder.finish()]
}

/// A structure on a disk of Venti's server. The first byte selects the kind.
pub fn venti_arena(bytes: &[u8]) {
    let mut input = Input(bytes);
    let [kind] = input.array();
    let rest = bytes.get(1..).unwrap_or_default();
    match kind {
        0 => {
            if let Ok(header) = PartitionHeader::decode(rest) {
                let table = rest.get(512..).unwrap_or_default();
                for place in header.decode_table(table).unwrap_or_default() {
                    assert!(place.range.start >= header.arenas_at && place.range.start < place.range.end);
                }
            }
        }
        1 => {
            if let Ok(head) = ArenaHead::decode(rest) {
                assert!(head.middle().start < head.middle().end);
            }
        }
        2 => drop(ArenaTrailer::decode(rest)),
        _ => {
            if let Some(clump) = ClumpHeader::decode(rest, 0xd15c_b10c) {
                let data = rest.get(CLUMP_HEADER_BYTES..clump.clump_bytes()).unwrap_or_default();
                if let Ok(block) = clump.open(data) {
                    assert_eq!(block.len(), usize::from(clump.plain_bytes));
                }
            }
        }
    }
}

/// One structure of each kind.
#[must_use]
pub fn venti_arena_seeds() -> Vec<Vec<u8>> {
    let number = |number: u32| number.to_be_bytes();
    let mut partition =
        [&[0][..], &number(0xa9e4_a5e7), &number(3), &number(8192), &number(794_624)].concat();
    partition.resize(513, 0);
    partition.extend_from_slice(b"1\narenas0\t794624\t1843200\n");
    let name = [b'a'; 64];
    let head = [
        &[1][..],
        &number(0xd15c_4ead),
        &number(5),
        &name,
        &number(8192),
        &(1_u64 << 20).to_be_bytes(),
        &number(9),
    ];
    let mut trailer = [&[2][..], &number(0xf2a1_4ead), &number(5), &name].concat();
    trailer.resize(513, 1);
    let clump = [
        &[3][..],
        &number(0xd15c_b10c),
        &[13, 0, 3, 0, 4],
        &[7; 20],
        &[2, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0x30, 0xc0, 0],
    ];
    vec![partition, head.concat(), trailer, clump.concat()]
}

/// A compressed block: its uncompressed size in two bytes, then the data.
pub fn whack(bytes: &[u8]) {
    let mut input = Input(bytes);
    let wanted = usize::from(u16::from_be_bytes(input.array()));
    if let Ok(block) = unwhack(bytes.get(2..).unwrap_or_default(), wanted) {
        assert_eq!(block.len(), wanted);
    }
}

/// Four letters as literals, and a block with a match.
#[must_use]
pub fn whack_seeds() -> Vec<Vec<u8>> {
    vec![vec![0, 4, 0x30, 0xc0, 0], vec![0, 2, 0x30, 0x98, 0]]
}
