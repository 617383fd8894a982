//! The structures of the log.

use std::sync::Arc;

use varve_log::{ArenaId, Log, LogKeys, RecoverError};

use crate::forge::{self, Arena, BLOCKS, FIRST_GRANULE, GRANULE_BYTES};

/// Reads a file as the only arena of a log: first as a reader does, then as a writer that takes it
/// over.
fn read(file: Vec<u8>) {
    let (log, storage) = forge::log(file);
    drop(forge::read_everything(&log));
    let before = storage.contents(&ArenaId(0).file_name()).expect("it is there");
    let Ok(arena) = log.open_arena(ArenaId(0)) else { return };
    let Ok(found) = log.scan(&arena) else { return };
    match log.recover(&arena, found) {
        Ok(found) => {
            let after = storage.contents(&ArenaId(0).file_name()).expect("it is still there");
            assert_eq!(after, before[..after.len()], "recovery only cuts");
            let is_said = after.len() as u64 == found.log_bytes || found.cut_bytes == 0;
            assert!(
                if found.gap.is_some() { after == before } else { is_said },
                "and says where, and nothing of what is damaged"
            );
        }
        Err(
            RecoverError::Read(_)
            | RecoverError::Cut { .. }
            | RecoverError::WriteAnew { .. }
            | RecoverError::Look { .. }
            | RecoverError::Remove { .. },
        ) => {}
        Err(error @ RecoverError::NotGiven { .. }) => panic!("memory gives all that is there: {error}"),
    }
}

/// The header of an arena: its first 480 bytes.
pub fn arena_header(bytes: &[u8]) {
    let good = forge::arena();
    read(Arena { header: forge::header(bytes), ..good }.bytes());
}

/// A good header, and one of an encrypted arena whose data key is wrapped.
#[must_use]
pub fn arena_header_seeds() -> Vec<Vec<u8>> {
    let good = forge::header_fields();
    let mut wrapped = good.clone();
    wrapped[44] = 1;
    wrapped[64] = 1;
    wrapped[68] = 48;
    vec![good, wrapped]
}

/// The part of the header that holds the sealed data key, in an arena of an encrypted store. The
/// code of the header is good.
pub fn sealed_data_key(bytes: &[u8]) {
    let keys = LogKeys::from_master(&[9; 32]);
    let names = blake3::derive_key("varve 1 names", &[9; 32]);
    let mut header = forge::header_fields();
    // The encryption is AES-256-GCM, and the data key is sealed to the write key.
    header[44] = 1;
    header[64] = 2;
    header[68] = 80;
    header.resize(480, 0);
    let taken = bytes.len().min(408);
    header[72..72 + taken].copy_from_slice(&bytes[..taken]);
    let code = blake3::keyed_hash(&blake3::derive_key("varve 1 seal", &names), &header);
    let file = [&header[..], code.as_bytes()].concat();
    let (plain, storage) = forge::log(file);
    let writer = LogKeys::from_names_and_write(&keys.names_and_write().expect("they can read"));
    for keys in [keys, writer] {
        let log = Log::new(Arc::new(storage.clone()), keys.clone(), *plain.config());
        if let Ok(arena) = log.open_arena(ArenaId(0)) {
            assert!(!keys.can_read() || bytes.len() >= 80, "nobody seals in so few bytes");
            drop(log.scan(&arena));
        }
    }
}

/// Zeros, which are a point of small order, and another point.
#[must_use]
pub fn sealed_data_key_seeds() -> Vec<Vec<u8>> {
    vec![vec![0; 80], [vec![9], vec![0; 31], vec![5; 48]].concat()]
}

/// The first 40 bytes of a record's header, and its body. A good page follows.
pub fn record_header(bytes: &[u8]) {
    let good = forge::arena();
    let mut fields = [0; 40];
    let (head, body) = bytes.split_at(bytes.len().min(40));
    fields[..head.len()].copy_from_slice(head);
    read(Arena { clump: forge::record_of(&fields, body), ..good }.bytes());
}

/// The headers of a good clump and of a good page.
#[must_use]
pub fn record_header_seeds() -> Vec<Vec<u8>> {
    let good = forge::arena();
    let body = forge::clump_body(&BLOCKS);
    let clump = forge::record_fields(*b"clmp", FIRST_GRANULE, body.len());
    let page_body = forge::page_body(&good.clump, FIRST_GRANULE, &BLOCKS);
    let page = forge::record_fields(*b"page", FIRST_GRANULE, page_body.len());
    vec![[&clump[..], &body].concat(), [&page[..], &page_body].concat()]
}

/// The body of a clump that a page names.
pub fn clump_body(bytes: &[u8]) {
    if bytes.len() > 4 << 20 {
        return;
    }
    let clump = forge::record(*b"clmp", FIRST_GRANULE, bytes);
    let next = FIRST_GRANULE + u32::try_from(clump.len() / GRANULE_BYTES).expect("small");
    let page = forge::record(*b"page", next, &forge::page_body(&clump, FIRST_GRANULE, &BLOCKS));
    read(Arena { clump, page, ..forge::arena() }.bytes());
}

/// Two uncompressed clumps, one of them without blocks, and one as a zstd frame.
#[must_use]
pub fn clump_body_seeds() -> Vec<Vec<u8>> {
    let stored = forge::clump_body(&BLOCKS);
    let content = &stored[8..];
    let compressed = [&1_u32.to_le_bytes()[..], &stored[4..8], &forge::raw_zstd_frame(content)].concat();
    vec![stored, forge::clump_body(&[]), compressed]
}

/// A framed clump: the length of its table (one byte), the table, and the frames.
pub fn framed_clump(bytes: &[u8]) {
    let (table_bytes, body) = bytes.split_first().unwrap_or((&0, &[]));
    let (table, frames) = body.split_at(body.len().min(usize::from(*table_bytes)));
    let clump = forge::framed_clump(table, frames);
    let next = FIRST_GRANULE + u32::try_from(clump.len() / GRANULE_BYTES).expect("small");
    let page = forge::record(*b"page", next, &forge::page_body(&clump, FIRST_GRANULE, &BLOCKS));
    read(Arena { clump, page, ..forge::arena() }.bytes());
}

/// A good framed clump, and one with a delta.
#[must_use]
pub fn framed_clump_seeds() -> Vec<Vec<u8>> {
    let seed = |(table, frames): (Vec<u8>, Vec<u8>)| {
        [&[u8::try_from(table.len()).expect("short")][..], &table, &frames].concat()
    };
    vec![seed(forge::table_and_frames(&BLOCKS)), seed(forge::table_and_delta(&BLOCKS))]
}

/// The body of a directory page.
pub fn directory_page(bytes: &[u8]) {
    if bytes.len() > 4 << 20 {
        return;
    }
    let good = forge::arena();
    let granule = FIRST_GRANULE + u32::try_from(good.clump.len() / GRANULE_BYTES).expect("small");
    read(Arena { page: forge::record(*b"page", granule, bytes), ..good }.bytes());
}

/// A good page, one without blocks, and one with a delta.
#[must_use]
pub fn directory_page_seeds() -> Vec<Vec<u8>> {
    let good = forge::arena();
    vec![
        forge::page_body(&good.clump, FIRST_GRANULE, &BLOCKS),
        forge::page_body(&good.clump, FIRST_GRANULE, &[]),
        forge::page_body_with_delta(&good.clump, FIRST_GRANULE, &BLOCKS),
    ]
}

/// The first 56 bytes of a footer, then page rows.
pub fn footer(bytes: &[u8]) {
    let good = forge::arena();
    let mut fields = [0; 56];
    let (head, rows) = bytes.split_at(bytes.len().min(56));
    fields[..head.len()].copy_from_slice(head);
    read([good.bytes(), forge::seal(&good.header, rows, &fields)].concat());
}

/// A good seal.
#[must_use]
pub fn footer_seeds() -> Vec<Vec<u8>> {
    let good = forge::arena();
    let log_bytes = good.bytes().len() as u64;
    vec![[&forge::footer_fields(1, log_bytes)[..], &good.page_row()].concat()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_believes_every_clump_among_the_seeds() {
        for body in [&clump_body_seeds()[0], &clump_body_seeds()[2]] {
            let clump = forge::record(*b"clmp", FIRST_GRANULE, body);
            let next = FIRST_GRANULE + u32::try_from(clump.len() / GRANULE_BYTES).unwrap();
            let page = forge::record(*b"page", next, &forge::page_body(&clump, FIRST_GRANULE, &BLOCKS));
            let file = Arena { clump, page, ..forge::arena() }.bytes();
            assert_eq!(forge::read_everything(&forge::log(file).0).unwrap().len(), BLOCKS.len());
        }
    }

    #[test]
    fn the_log_believes_a_forged_clump_in_frames() {
        let forms = [forge::table_and_frames(&BLOCKS), forge::table_and_delta(&BLOCKS)];
        let bodies = [forge::page_body, forge::page_body_with_delta];
        for ((table, frames), page_body) in forms.into_iter().zip(bodies) {
            let clump = forge::framed_clump(&table, &frames);
            let next = FIRST_GRANULE + u32::try_from(clump.len() / GRANULE_BYTES).unwrap();
            let page = forge::record(*b"page", next, &page_body(&clump, FIRST_GRANULE, &BLOCKS));
            let file = Arena { clump, page, ..forge::arena() }.bytes();
            let read = forge::read_everything(&forge::log(file).0).unwrap();
            assert_eq!(read.len(), BLOCKS.len());
            assert_eq!(read[0].1, BLOCKS[0].1);
        }
    }

    #[test]
    fn the_log_believes_the_forger() {
        let good = forge::arena();
        let sealed = [
            good.bytes(),
            forge::seal(&good.header, &good.page_row(), &forge::footer_fields(1, good.bytes().len() as u64)),
        ];
        for file in [good.bytes(), sealed.concat()] {
            let blocks = forge::read_everything(&forge::log(file).0).unwrap();
            assert_eq!(blocks.len(), BLOCKS.len());
            for ((name, bytes), (block_type, expected)) in blocks.iter().zip(BLOCKS) {
                assert_eq!((bytes.as_slice(), name.block_type.to_byte()), (expected, block_type));
            }
        }
    }
}
