//! The structures of parity files.

use varve_log::{ArenaId, PARITY_HEADER_BYTES, ParityHeader};
use varve_world::InlineWorkers;

use crate::forge;

/// The first 128 bytes of a header, then a block of a table, then a shard.
pub fn parity_file(bytes: &[u8]) {
    let (keys, store_id) = forge::keys();
    let decode = |bytes: &[u8]| ParityHeader::decode(bytes, &keys, store_id, ArenaId(0), 0);
    assert!(decode(bytes).is_err(), "nobody guesses a code");
    let (fields, rest) = bytes.split_at(bytes.len().min(128));
    let (head, file_key) = forge::parity_header(fields);
    let Ok((header, key)) = decode(&head) else { return };
    assert_eq!(header.encode(&keys).0, head, "what was read is what was written");
    check_layout(&header);
    assert_eq!(key.decode_block(0, 0, rest), None, "nobody guesses a code");
    let (codes, shard) = rest.split_at(rest.len().min(4080));
    let block = forge::parity_block(&file_key, 3, 1, codes);
    let read = key.decode_block(3, 1, &block).expect("a good code");
    assert_eq!(read.concat(), block[..4080]);
    assert_eq!(key.decode_block(3, 2, &block), None);
    let known: Vec<_> = read.iter().map(|code| Some(*code)).collect();
    let good = key.good_shards(shard, 512, &known, &InlineWorkers);
    assert!(good.iter().all(|is_good| !is_good), "nobody guesses a code");
}

/// Checks that the layout of any accepted header describes a file without gaps or overlaps, whose
/// groups fit into memory.
fn check_layout(header: &ParityHeader) {
    let layout = &header.layout;
    let shard_bytes = layout.shard_bytes() as u64;
    let mut end = PARITY_HEADER_BYTES as u64;
    let mut shards = 0;
    for group in 0..layout.group_count() {
        let (data, recovery) = (layout.data_count(group), layout.recovery_count(group));
        assert!(0 < recovery && recovery <= data);
        assert!((data + recovery) as u64 * shard_bytes <= 128 << 20);
        shards += data as u64;
        assert_eq!(layout.tables(group)[0], end);
        end = layout.recovery(group) + recovery as u64 * shard_bytes;
    }
    assert_eq!(layout.tables(0)[1], end);
    assert!(end < layout.file_bytes());
    assert_eq!(shards, layout.shard_count());
    let (group, number) = layout.locate(layout.shard_count() - 1);
    assert!(number < layout.data_count(group));
}

/// The parity of a small arena, of a large one, and of one with 100 % recovery data.
#[must_use]
pub fn parity_file_seeds() -> Vec<Vec<u8>> {
    let layouts = [(1 << 20, 4096, 1, 5), (1 << 34, 16 << 10, 181, 5), (1 << 26, 16 << 10, 2, 100)];
    layouts
        .into_iter()
        .map(|(arena_bytes, shard_bytes, groups, percent)| {
            let mut bytes = forge::parity_fields(arena_bytes, shard_bytes, groups, percent);
            bytes.extend([7; 4080 + 1024]);
            bytes
        })
        .collect()
}
