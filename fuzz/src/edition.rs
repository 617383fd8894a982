//! Publications: signed heads, pages of a disk's map, profiles and stored blocks; and the records
//! that their readers keep.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use varve_edition::{
    BlockForm, CACHE_RECORD_HEADER_BYTES, CacheRecordHeader, CheckedBlock, DiskProfile, DiskShape,
    EditionContentKey, EditionFields, EditionHead, EditionSigner, ImageCipher, MachineDescription, MapEntry,
    MapLevel, MapPage, ObjectName, ObjectPart, ProfileRead, PublishedBlockBytes, PublishedImage, SeenEdition,
    StoredCompression, StoredPart, TrustRecord, parse_blkparse,
};
use varve_world::Timestamp;

use crate::input::Input;

/// The largest content that a stored block of an input may have.
const CONTENT_BYTES_MAX: usize = 64 << 10;

fn signer() -> EditionSigner {
    EditionSigner::from_seed([7; 32])
}

fn shape(size: u64) -> DiskShape {
    let block_bytes = PublishedBlockBytes::new(CONTENT_BYTES_MAX as u64).expect("the smallest");
    DiskShape { size, block_bytes }
}

/// A head as a server sends it, and the same lines with a good signature.
pub fn edition_head(bytes: &[u8]) {
    let trusted = [signer().key()];
    let signed = {
        let at = bytes.windows(12).position(|window| window == b"signature = ").unwrap_or(bytes.len());
        sign(&bytes[..at])
    };
    for bytes in [bytes, &signed] {
        let Ok(opened) = EditionHead::open(bytes, &trusted) else { continue };
        let written = opened.head.sign(&[signer()]).expect("it was as long before");
        assert_eq!(EditionHead::open(&written, &trusted).expect("it was written just now").head, opened.head);
    }
}

/// Adds a good signature to any lines. The library signs only valid heads.
fn sign(lines: &[u8]) -> Vec<u8> {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("any 32 bytes are a seed");
    let line = format!(
        "signature = {} {}\n",
        STANDARD.encode(pair.public_key().as_ref()),
        STANDARD.encode(pair.sign(lines).as_ref())
    );
    [lines, line.as_bytes()].concat()
}

/// Heads with and without images.
#[must_use]
pub fn edition_head_seeds() -> Vec<Vec<u8>> {
    let part = |text: &str| StoredPart { name: ObjectName::of(text.as_bytes()), bytes: 9 };
    let image = PublishedImage {
        name: "day 1".into(),
        time: Timestamp(1_777_669_200_000_000_000),
        shape: shape(1 << 30),
        root: part("root"),
        cipher: ImageCipher::Aes256Gcm,
        profile: Some(part("profile")),
        machine: Some(part("machine")),
    };
    let fields = |images| EditionFields {
        id: [9; 16],
        serial: 1,
        time: Timestamp(0),
        expires: Timestamp(1),
        mirrors: vec!["https://a.example".into()],
        keys: vec![signer().key()],
        images,
        trees: [(ObjectName::of(b"root"), ObjectName::of(b"tree"))].into(),
    };
    let head = |images| EditionHead::new(fields(images)).expect("valid").sign(&[signer()]).expect("one key");
    vec![head(Vec::new()), head(vec![image])]
}

/// A page of either level. The first byte chooses the level, the next two the size of the disk.
pub fn map_page(bytes: &[u8]) {
    let mut input = Input(bytes);
    let level = if input.byte() & 1 == 0 { MapLevel::Blocks { page: 0 } } else { MapLevel::Root };
    let shape = shape(u64::from(u16::from_le_bytes(input.array())) << 10);
    let bytes = input.0;
    if let Ok(page) = MapPage::decode(bytes, &shape, level) {
        assert_eq!(page.encode(level), bytes, "one page has one spelling");
        for entry in page.entries() {
            if let MapEntry::Stored(part) = entry {
                assert!(part.bytes > 0 && u64::from(part.offset) + u64::from(part.bytes) <= 16 << 20);
            }
        }
    }
}

/// A page of blocks and a root.
#[must_use]
pub fn map_page_seeds() -> Vec<Vec<u8>> {
    let name = ObjectName::of(b"block");
    let packed = ObjectPart { object: ObjectName::of(b"pack"), offset: 5, bytes: 9, name };
    let entries = [ObjectPart::alone(name, 7), packed].map(MapEntry::Stored);
    let seed = |level: MapLevel, number: u8, kib: u16, entries: &[MapEntry]| {
        let page = MapPage::new(entries.to_vec(), &shape(u64::from(kib) << 10), level).expect("valid");
        [&[number][..], &kib.to_le_bytes(), &page.encode(level)].concat()
    };
    vec![
        seed(MapLevel::Blocks { page: 0 }, 0, 129, &[entries[0], MapEntry::Zeros, entries[1]]),
        seed(MapLevel::Root, 1, 64, &entries[1..]),
    ]
}

/// A profile.
pub fn disk_profile(bytes: &[u8]) {
    if let Ok(profile) = DiskProfile::parse(bytes) {
        assert_eq!(profile.to_text().as_bytes(), bytes, "one profile has one spelling");
        let merged = profile.merged_with(&profile);
        assert_eq!(merged.size(), profile.size());
        let total = |profile: &DiskProfile| {
            let lengths = profile.reads().iter().map(|read| u128::from(read.range.end - read.range.start));
            lengths.sum::<u128>()
        };
        assert_eq!(total(&merged), total(&profile), "merging adds nothing");
    }
}

/// The description of a machine.
pub fn machine_description(bytes: &[u8]) {
    if let Ok(machine) = MachineDescription::parse(bytes) {
        assert_eq!(machine.bounded(), machine);
        assert_eq!(MachineDescription::parse(machine.to_text().as_bytes()), Ok(machine));
    }
}

/// A whole description, and one with an unknown line.
#[must_use]
pub fn machine_description_seeds() -> Vec<Vec<u8>> {
    let whole = "varve machine 1\nmemory = 1073741824\ncpus = 2\nfirmware = uefi\nboard = q35\nbus = nvme\n";
    [whole, "varve machine 1\nsound = on\nbus = ide\n"].map(|text| text.as_bytes().to_vec()).to_vec()
}

/// A short profile.
#[must_use]
pub fn disk_profile_seeds() -> Vec<Vec<u8>> {
    let reads = [(0, 0..4096), (3, 8192..65_536), (9, 4096..8192)];
    let reads = reads.map(|(milliseconds, range)| ProfileRead { milliseconds, range });
    vec![DiskProfile::from_reads(1 << 20, reads).to_text().into_bytes()]
}

/// A stored block that has its name: plain, as a ciphertext that is opened, and encrypted by a
/// publisher who makes a mistake.
pub fn stored_block(bytes: &[u8]) {
    let encrypted = content_key_of_seeds().form();
    for form in [BlockForm::Plain, encrypted] {
        let checked = CheckedBlock::check(bytes, &ObjectName::of(bytes)).expect("it was named just now");
        if let Ok(content) = checked.unpack(&form, CONTENT_BYTES_MAX) {
            assert!(content.len() <= CONTENT_BYTES_MAX);
            let stored = form.store(&content, StoredCompression::Zlib(6));
            let checked = CheckedBlock::check(&stored, &ObjectName::of(&stored)).expect("named just now");
            assert_eq!(checked.unpack(&form, content.len()), Ok(content));
        }
    }
}

fn content_key_of_seeds() -> EditionContentKey {
    EditionContentKey::from_bytes([7; 32])
}

/// The file of a content key.
pub fn content_key(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(key) = EditionContentKey::from_text(text) {
        let again = EditionContentKey::from_text(&key.to_text()).expect("it was written just now");
        assert_eq!(again.name(), key.name());
        let [one, two] = [key, again].map(|key| key.form().store(b"a block", StoredCompression::None));
        assert_eq!(one, two, "one key makes one stored block");
    }
}

/// A key file with and without its name.
#[must_use]
pub fn content_key_seeds() -> Vec<Vec<u8>> {
    let text = content_key_of_seeds().to_text().to_string();
    let short = text.lines().take(2).map(|line| format!("{line}\n")).collect::<String>();
    vec![text.into_bytes(), short.into_bytes()]
}

/// One block in each codec, plain and encrypted.
#[must_use]
pub fn stored_block_seeds() -> Vec<Vec<u8>> {
    let content = b"a block of a disk ".repeat(20);
    let forms = [BlockForm::Plain, content_key_of_seeds().form()];
    let store = |form: &BlockForm| {
        ["none", "zstd", "zlib"].map(|text| form.store(&content, text.parse().expect("known")))
    };
    forms.iter().flat_map(store).collect()
}

/// The header of a record in a reader's cache: as it is, and with a good checksum.
pub fn cache_record(bytes: &[u8]) {
    let checked_bytes = CACHE_RECORD_HEADER_BYTES - 8;
    let forged = bytes.get(..checked_bytes).map(|checked| {
        let checksum = xxhash_rust::xxh3::xxh3_64(checked).to_le_bytes();
        [checked, &checksum].concat()
    });
    for bytes in [Some(bytes), forged.as_deref()].into_iter().flatten() {
        let Some(header) = CacheRecordHeader::decode(bytes) else { continue };
        assert!(bytes.starts_with(&header.encode()), "one header has one spelling");
        assert!(header.stored_bytes > 0 && header.record_bytes() <= (16 << 20) + 56);
    }
}

/// The header of a block.
#[must_use]
pub fn cache_record_seeds() -> Vec<Vec<u8>> {
    vec![CacheRecordHeader { name: ObjectName::of(b"block"), stored_bytes: 77 }.encode()]
}

/// The memory of believed heads.
pub fn trust_record(bytes: &[u8]) {
    let Ok(record) = TrustRecord::parse(&String::from_utf8_lossy(bytes)) else { return };
    let text = record.to_text();
    assert_eq!(TrustRecord::parse(&text).as_ref(), Ok(&record), "it was written just now");
    assert!(record.all_keys_after(&[signer().key()]).contains(&signer().key()));
    let mut merged = record.clone();
    merged.merge(record.clone());
    assert_eq!(merged, record, "a record adds nothing to itself");
}

/// Two publications at two places, and a key that has a successor.
#[must_use]
pub fn trust_record_seeds() -> Vec<Vec<u8>> {
    let (key, next) = (signer().key(), EditionSigner::from_seed([8; 32]).key());
    let digest = ObjectName::of(b"head");
    let mut record = TrustRecord::default();
    record.add_edition([1; 16], &SeenEdition { serial: 7, digest, keys: vec![key, next] }, &[key]);
    record.add_place("https://a.example/ b", [1; 16], key);
    record.add_edition([2; 16], &SeenEdition { serial: u64::MAX, digest, keys: vec![next] }, &[next]);
    record.add_place("/srv/www", [2; 16], next);
    let id = "01".repeat(16);
    let version_1 = format!(
        "varve trust 1\nedition = {key} {id} 7 {digest}\nnext = {key} {next}\nplace = {id} {key} www\n"
    );
    vec![record.to_text().into_bytes(), TrustRecord::default().to_text().into_bytes(), version_1.into_bytes()]
}

/// The output of blkparse, from which a profile is made.
pub fn blkparse_text(bytes: &[u8]) {
    let reads = parse_blkparse(&String::from_utf8_lossy(bytes));
    assert!(reads.iter().all(|read| read.range.start < read.range.end));
    let profile = DiskProfile::from_reads(1 << 30, reads);
    let text = profile.to_text();
    assert_eq!(DiskProfile::parse(text.as_bytes()).as_ref(), Ok(&profile), "it was written just now");
}

/// Reads, other actions, and the beginning of the summary.
#[must_use]
pub fn blkparse_text_seeds() -> Vec<Vec<u8>> {
    let text = "  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]
  8,0    3        2     0.001507758   697  Q   R 2048 + 8 [qemu-system-x86]
  8,0    3        3     1.009507758   697  Q  RA 18446744073709551615 + 8 [qemu-system-x86]
CPU3 (8,0):
 Reads Queued:           1,        4KiB\t Writes Queued:           0,        0KiB
";
    vec![text.into()]
}
