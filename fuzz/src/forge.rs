//! Writes arbitrary arenas with a known key, as `docs/internals/format.md` describes them and
//! without the code of the store. They are not encrypted, so only the codes have to be right.

use std::sync::Arc;

use varve_block::{BlockName, Bytes, Score};
use varve_log::{
    ArenaId, ArenaMap, ArenaState, BaseError, DeltaBases, DirectoryPage, Log, LogConfig, LogKeys,
    OpenedArena, PageRow, ReadLogError,
};
use varve_world::MemoryStorage;
use xxhash_rust::xxh3::xxh3_64;

/// Every record begins at a multiple of this number of bytes.
pub const GRANULE_BYTES: usize = 128;
/// The length of an arena's header.
pub const HEADER_BYTES: usize = 512;
/// The size of the smallest arena.
pub const ARENA_BYTES: u64 = 1 << 20;

const BINDING: [u8; 32] = [3; 32];
const STORE_ID: [u8; 16] = [7; 16];
const UID: [u8; 16] = [9; 16];
const SESSION: [u8; 16] = [4; 16];

/// The position of the first record of an arena, in granules.
pub const FIRST_GRANULE: u32 = 4;

fn names_key() -> [u8; 32] {
    blake3::derive_key("varve 1 plain", &BINDING)
}

fn keyed(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_keyed(key);
    for part in parts {
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

fn seal_key() -> [u8; 32] {
    blake3::derive_key("varve 1 seal", &names_key())
}

/// The header of a parity file with these first 128 bytes and a good code, and the key of the file.
#[must_use]
pub fn parity_header(fields: &[u8]) -> (Vec<u8>, [u8; 32]) {
    let mut bytes = fields.to_vec();
    bytes.resize(128, 0);
    let code = keyed(&blake3::derive_key("varve 1 parity", &seal_key()), &[&bytes]);
    let file_key = blake3::derive_key("varve 1 parity file", &[&seal_key()[..], &code].concat());
    bytes.extend(code);
    bytes.resize(4096, 0);
    (bytes, file_key)
}

/// The first 128 bytes of the header of a good parity file.
#[must_use]
pub fn parity_fields(arena_bytes: u64, shard_bytes: u32, group_count: u32, percent: u32) -> Vec<u8> {
    let mut bytes = b"varvePR1".to_vec();
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(percent.to_le_bytes());
    bytes.extend(STORE_ID);
    bytes.extend([0; 12]);
    bytes.extend(shard_bytes.to_le_bytes());
    bytes.extend(arena_bytes.to_le_bytes());
    bytes.extend(group_count.to_le_bytes());
    bytes.resize(128, 0);
    bytes
}

/// A block of a group's table with these codes and with a good code of its own.
#[must_use]
pub fn parity_block(file_key: &[u8; 32], group: u32, number: u32, codes: &[u8]) -> Vec<u8> {
    let mut block = codes.to_vec();
    block.resize(4080, 0);
    let code = keyed(file_key, &[b"table", &group.to_le_bytes(), &number.to_le_bytes(), &block]);
    block.extend(&code[..16]);
    block
}

/// The keys of the forged log, and the id of its store.
#[must_use]
pub fn keys() -> (LogKeys, [u8; 16]) {
    (LogKeys::plain(&BINDING), STORE_ID)
}

fn record_code(header: &[u8; 40], body: &[u8]) -> [u8; 16] {
    let key = blake3::derive_key("varve 1 directory", &[&names_key()[..], &UID].concat());
    let code = keyed(&key, &[header, &UID, body]);
    *code.first_chunk().expect("16 of 32 bytes")
}

/// The bytes of a good arena header without its code.
#[must_use]
pub fn header_fields() -> Vec<u8> {
    let mut bytes = b"varveAR1".to_vec();
    // It may hold deltas.
    bytes.extend(4_u32.to_le_bytes());
    bytes.extend(512_u32.to_le_bytes());
    bytes.extend(STORE_ID);
    bytes.extend(0_u64.to_le_bytes());
    bytes.extend([0; 8]);
    bytes.extend(UID);
    bytes.resize(480, 0);
    bytes
}

/// An arena header with these first 480 bytes and a good code.
#[must_use]
pub fn header(fields: &[u8]) -> Vec<u8> {
    let mut bytes = fields.to_vec();
    bytes.resize(480, 0);
    let code = keyed(&seal_key(), &[&bytes]);
    bytes.extend(code);
    bytes
}

/// The first 40 bytes of the header of a good record.
#[must_use]
pub fn record_fields(magic: [u8; 4], granule: u32, body_bytes: usize) -> [u8; 40] {
    let mut bytes = magic.to_vec();
    bytes.extend(u32::try_from(body_bytes).expect("small").to_le_bytes());
    bytes.extend(u64::from(granule).to_le_bytes());
    bytes.extend(SESSION);
    bytes.extend(granule.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.try_into().expect("40 bytes")
}

/// A record with these fields, this body, a good code and a good checksum, padded to a whole
/// granule.
#[must_use]
pub fn record_of(fields: &[u8; 40], body: &[u8]) -> Vec<u8> {
    let mut bytes = fields.to_vec();
    bytes.extend(record_code(fields, body));
    bytes.extend(xxh3_64(&bytes).to_le_bytes());
    bytes.extend(body);
    bytes.resize(bytes.len().next_multiple_of(GRANULE_BYTES), 0);
    bytes
}

/// A good record around any body.
#[must_use]
pub fn record(magic: [u8; 4], granule: u32, body: &[u8]) -> Vec<u8> {
    record_of(&record_fields(magic, granule, body.len()), body)
}

/// A framed clump with this table and these frames. The code of the table is good. The code in a
/// row of the table is good if the frame of that row is there.
#[must_use]
pub fn framed_clump(table: &[u8], frames: &[u8]) -> Vec<u8> {
    let mut fields = record_fields(*b"clmp", FIRST_GRANULE, table.len() + frames.len());
    fields[36..].copy_from_slice(&u32::try_from(table.len()).expect("small").to_le_bytes());
    let mut table = table.to_vec();
    let mut rest = frames;
    for (number, row) in (1_u32..).zip(table.get_mut(8..).unwrap_or_default().chunks_exact_mut(32)) {
        let length = u32::from_le_bytes(*row[8..].first_chunk().expect("a row")) as usize;
        let Some((frame, others)) = rest.split_at_checked(length) else { break };
        row[16..].copy_from_slice(&record_code(&fields, &[&number.to_le_bytes(), frame].concat()));
        rest = others;
    }
    let mut bytes = fields.to_vec();
    bytes.extend(record_code(&fields, &table));
    bytes.extend(xxh3_64(&bytes).to_le_bytes());
    bytes.extend(table);
    bytes.extend(frames);
    bytes.resize(bytes.len().next_multiple_of(GRANULE_BYTES), 0);
    bytes
}

/// The table and the frames of a framed clump. Each block (type and bytes) has a frame of its own.
#[must_use]
pub fn table_and_frames(blocks: &[(u8, &[u8])]) -> (Vec<u8>, Vec<u8>) {
    let block_count = u32::try_from(blocks.len()).expect("few").to_le_bytes();
    let mut table = [block_count, block_count].concat();
    let mut frames = Vec::new();
    for block in blocks {
        let content = &clump_body(&[*block])[8..];
        let length = u32::try_from(content.len()).expect("small");
        for word in [0, length, length, 1] {
            table.extend(word.to_le_bytes());
        }
        table.extend([0; 16]);
        frames.extend(content);
    }
    for (_, bytes) in blocks {
        table.extend(&blake3::hash(bytes).as_bytes()[..2]);
    }
    (table, frames)
}

/// The same with a delta for the first block.
#[must_use]
pub fn table_and_delta(blocks: &[(u8, &[u8])]) -> (Vec<u8>, Vec<u8>) {
    let (mut table, frames) = table_and_frames(blocks);
    let content = &clump_body(&blocks[..1])[8..];
    let delta = [&[5; 32][..], &raw_zstd_frame(content)].concat();
    table[8..12].copy_from_slice(&2_u32.to_le_bytes());
    table[16..20].copy_from_slice(&u32::try_from(delta.len()).expect("small").to_le_bytes());
    (table, [&delta, &frames[content.len()..]].concat())
}

/// A zstd frame of one segment with its length in one byte, and one raw block, which is the last.
#[must_use]
pub fn raw_zstd_frame(content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).expect("short");
    let head = [0x28, 0xB5, 0x2F, 0xFD, 0x20, length];
    [&head[..], &(u32::from(length) << 3 | 1).to_le_bytes()[..3], content].concat()
}

/// The seal of an arena: page rows, and a footer with these first 56 bytes and a good code.
#[must_use]
pub fn seal(header: &[u8], rows: &[u8], fields: &[u8; 56]) -> Vec<u8> {
    let header_code = &header[480..];
    let mut footer = fields.to_vec();
    footer.extend(keyed(&seal_key(), &[b"seal", header_code, rows, fields]));
    footer.extend(xxh3_64(&footer).to_le_bytes());
    [rows, &footer].concat()
}

/// The first 56 bytes of a good footer.
#[must_use]
pub fn footer_fields(page_count: u32, log_bytes: u64) -> [u8; 56] {
    let mut bytes = b"varveSL1".to_vec();
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(page_count.to_le_bytes());
    bytes.extend(log_bytes.to_le_bytes());
    bytes.resize(56, 0);
    bytes.try_into().expect("56 bytes")
}

/// The body of a clump of blocks (type and bytes), not compressed.
#[must_use]
pub fn clump_body(blocks: &[(u8, &[u8])]) -> Vec<u8> {
    let mut content = u32::try_from(blocks.len()).expect("few").to_le_bytes().to_vec();
    for (block_type, bytes) in blocks {
        content.extend(size_and_type(*block_type, bytes).to_le_bytes());
    }
    for (_, bytes) in blocks {
        content.extend(*bytes);
    }
    let length = u32::try_from(content.len()).expect("small").to_le_bytes();
    [&0_u32.to_le_bytes()[..], &length, &content].concat()
}

fn size_and_type(block_type: u8, bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("small") | u32::from(block_type) << 24
}

/// The body of a page that names these blocks of one clump.
#[must_use]
pub fn page_body(clump: &[u8], granule: u32, blocks: &[(u8, &[u8])]) -> Vec<u8> {
    let block_count = u32::try_from(blocks.len()).expect("few");
    let mut table = Vec::new();
    for word in [granule, u32::from_le_bytes(*clump[4..].first_chunk().expect("a record")), block_count] {
        table.extend(word.to_le_bytes());
    }
    for (block_type, bytes) in blocks {
        table.extend(size_and_type(*block_type, bytes).to_le_bytes());
    }
    let mut body = Vec::new();
    for word in [1, block_count, 0, 32, 0, u32::try_from(table.len()).expect("small")] {
        body.extend(word.to_le_bytes());
    }
    body.extend(0_u64.to_le_bytes());
    body.extend(keyed(&seal_key(), &[b"ledger"]));
    for (_, bytes) in blocks {
        body.extend(blake3::hash(bytes).as_bytes());
    }
    body.extend(&clump[40..56]);
    body.extend(table);
    body
}

/// The same with a delta for the first block.
#[must_use]
pub fn page_body_with_delta(clump: &[u8], granule: u32, blocks: &[(u8, &[u8])]) -> Vec<u8> {
    let mut body = page_body(clump, granule, blocks);
    body[18] = 1;
    body[20] += 4;
    let table_bytes = usize::from(body[20]) - 4;
    let table = body.split_off(body.len() - table_bytes);
    body.extend([5; 32]);
    body.extend(table);
    body.extend(0_u32.to_le_bytes());
    body
}

/// A good arena: its header, one clump and its page.
#[derive(Debug, Clone)]
pub struct Arena {
    /// The header.
    pub header: Vec<u8>,
    /// The first record.
    pub clump: Vec<u8>,
    /// The second record.
    pub page: Vec<u8>,
}

/// The blocks in it.
pub const BLOCKS: [(u8, &[u8]); 3] =
    [(0, b"the first block"), (1, b"a folder's nodes"), (0x60, b"the catalog's root")];

/// A good arena of [`BLOCKS`].
#[must_use]
pub fn arena() -> Arena {
    let clump = record(*b"clmp", FIRST_GRANULE, &clump_body(&BLOCKS));
    let next = FIRST_GRANULE + u32::try_from(clump.len() / GRANULE_BYTES).expect("small");
    let page = record(*b"page", next, &page_body(&clump, FIRST_GRANULE, &BLOCKS));
    Arena { header: header(&header_fields()), clump, page }
}

impl Arena {
    /// The bytes of the file, without a seal.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        [&self.header[..], &self.clump, &self.page].concat()
    }

    /// The row of a seal for its page.
    #[must_use]
    pub fn page_row(&self) -> Vec<u8> {
        let granule = u32::try_from((HEADER_BYTES + self.clump.len()) / GRANULE_BYTES).expect("small");
        [&granule.to_le_bytes()[..], &self.page[4..8], &self.page[40..56]].concat()
    }
}

/// The block that every score leads to, for deltas.
pub const BASE: &[u8] = b"the block that deltas are made of";

struct AnyScore;

impl DeltaBases for AnyScore {
    fn base(&self, _: &Score) -> Result<Bytes, BaseError> {
        Ok(Bytes::from_static(BASE))
    }
}

/// A log whose only arena is this file.
#[must_use]
pub fn log(file: Vec<u8>) -> (Arc<Log>, MemoryStorage) {
    let storage = MemoryStorage::new();
    storage.set_contents(&ArenaId(0).file_name(), file);
    let config = LogConfig {
        store_id: STORE_ID,
        map: ArenaMap::new(ARENA_BYTES).expect("the smallest"),
        score_bytes: 32,
    };
    (Arc::new(Log::new(Arc::new(storage.clone()), LogKeys::plain(&BINDING), config)), storage)
}

/// Reads everything in the only arena of the log, as the opening of a store and then a reader
/// would. Returns the blocks with the names that the pages give them. A forged clump may hold other
/// blocks than its page names.
///
/// # Errors
/// The first error of the log.
pub fn read_everything(log: &Log) -> Result<Vec<(BlockName, Vec<u8>)>, ReadLogError> {
    let arena = log.open_arena(ArenaId(0))?;
    let mut blocks = Vec::new();
    for (_, page) in pages(log, &arena)? {
        for clump in page.clumps() {
            assert_eq!(
                page.blocks_of(clump.granule).count(),
                clump.block_count as usize,
                "a page that agrees with itself"
            );
        }
        for block in page.blocks() {
            let (_, content) = log.window(&arena, 4096).with_bases(&AnyScore).clump(block.granule)?;
            let found = content.blocks().nth(block.ordinal as usize);
            blocks.extend(found.map(|(_, bytes)| (block.name, bytes.to_vec())));
        }
    }
    Ok(blocks)
}

fn pages(log: &Log, arena: &OpenedArena) -> Result<Vec<(PageRow, DirectoryPage)>, ReadLogError> {
    match log.state(arena)? {
        ArenaState::Sealed { pages, .. } => {
            pages.into_iter().map(|row| Ok((row, log.read_page(arena, &row)?))).collect()
        }
        ArenaState::Unsealed => {
            let found = log.scan(arena)?;
            let _ = log.end(arena, &found)?;
            Ok(found.pages)
        }
    }
}
