//! The bytes that the real Venti wrote on its disks.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use sha1::{Digest, Sha1};
use varve_venti::{
    ARENA_HEAD_BYTES, ArenaHead, ArenaTrailer, CLUMP_HEADER_BYTES, ClumpHeader, PARTITION_HEADER_AT,
    PartitionHeader, unwhack,
};

/// `None` if `gzip` is not installed to unpack it.
fn unpacked(name: &str) -> Option<Vec<u8>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/venti-arenas").join(name);
    let Ok(output) = Command::new("gzip").arg("-dc").arg(&file).output() else {
        eprintln!("SKIPPED {name}: there is no gzip");
        return None;
    };
    assert!(output.status.success(), "{name}");
    Some(output.stdout)
}

#[test]
fn partitions_of_both_versions_are_read_clump_by_clump() {
    for version in [4, 5] {
        let Some(disk) = unpacked(&format!("partition-v{version}.img.gz")) else { return };
        let Some(listed) = unpacked(&format!("clumps-v{version}.gz")) else { return };
        let header = &disk[usize::try_from(PARTITION_HEADER_AT).unwrap()..];
        let header = PartitionHeader::decode(header).unwrap();
        let at = |place: u64| usize::try_from(place).unwrap();
        let table = header.table();
        let arenas = header.decode_table(&disk[at(table.start)..at(table.end)]).unwrap();
        assert_eq!(arenas.len(), 2);
        let mut found = String::new();
        for (number, place) in arenas.iter().enumerate() {
            let arena = &disk[at(place.range.start)..at(place.range.end)];
            let head = ArenaHead::decode(&arena[..ARENA_HEAD_BYTES]).unwrap();
            let middle = head.middle();
            let trailer = ArenaTrailer::decode(&arena[at(middle.end)..]).unwrap();
            assert_eq!((head.version, &head.name, head.size), (version, &place.name, arena.len() as u64));
            assert_eq!((trailer.is_sealed, trailer.score.is_some()), (number == 0, number == 0));
            let mut rest = &arena[at(middle.start)..];
            let mut count = 0;
            while let Some(clump) = ClumpHeader::decode(rest, head.clump_magic) {
                let block = clump.open(&rest[CLUMP_HEADER_BYTES..clump.clump_bytes()]).unwrap();
                let score: String = clump.score.iter().map(|byte| format!("{byte:02x}")).collect();
                let (wire_type, encoding) = (clump.wire_type.to_byte(), clump.encoding);
                found += &format!("{number} {wire_type} {score} {} {encoding}\n", block.len());
                rest = &rest[clump.clump_bytes()..];
                count += 1;
            }
            assert_eq!(count, trailer.clumps);
            assert_eq!(arena.len() - at(middle.start) - rest.len(), at(trailer.used));
        }
        assert_eq!(found, String::from_utf8(listed).unwrap());
    }
}

#[test]
fn what_the_real_server_compressed_is_what_it_was() {
    let Some(vectors) = unpacked("whack.gz") else { return };
    let vectors = String::from_utf8(vectors).unwrap();
    for line in vectors.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        let (size, compressed) = (fields[0].parse().unwrap(), varve_block::from_hex(fields[2]).unwrap());
        let block = unwhack(&compressed, size).unwrap();
        assert_eq!(varve_block::to_hex(&Sha1::digest(&block)), fields[1]);
        // Any other size or length is an error.
        assert!(unwhack(&compressed, size - 1).is_err());
        assert!(unwhack(&compressed, size + 1).is_err());
        assert!(unwhack(&compressed[..compressed.len() - 2], size).is_err());
    }
    assert!(vectors.lines().count() > 30);
}

proptest! {
    #[test]
    fn no_bytes_are_too_much_for_it(compressed in prop::collection::vec(any::<u8>(), 0..200), wanted in 0_usize..70_000) {
        if let Ok(block) = unwhack(&compressed, wanted) {
            prop_assert_eq!(block.len(), wanted);
        }
    }

    /// Our decompressor restores blocks from another program's compressor.
    #[test]
    fn what_another_compressed_comes_back(seed in prop::collection::vec(any::<u8>(), 1..40), count in 4_usize..200) {
        let block = seed.repeat(count);
        if let Some(compressed) = plan9whack::whack::whackblock(&block) {
            prop_assert_eq!(unwhack(&compressed, block.len()).unwrap(), block);
        }
    }
}
