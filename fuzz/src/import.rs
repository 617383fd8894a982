//! Files of other programs whose snapshots are imported.

use std::io::Write;

use varve_content::NodeKind;
use varve_content::folder::TreeStep;
use varve_import::borg::BorgItems;
use varve_import::restic::{KeyFile, parse_index, parse_pack_header, parse_tree, unquote};
use varve_import::tar::{TarEntries, TarPiece};
use varve_import::zip::ZipFile;
use varve_import::{ForeignArchive, ForeignStep};
use varve_world::Timestamp;

/// Entries and pieces that a target reads at most. A header of 512 bytes can claim a huge hole.
const STEPS_MAX: usize = 10_000;

/// The items of an archive of borg.
pub fn borg_items(bytes: &[u8]) {
    let mut items = BorgItems::new(bytes);
    while let Ok(Some(item)) = items.next_item() {
        assert!(item.path.len() <= bytes.len(), "memory is bounded");
        assert!(item.content.is_none_or(|content| content.bytes > 0), "an empty file has no content");
    }
}

/// A file with a chunk, an access list and an attribute, and another name of it.
#[must_use]
pub fn borg_items_seeds() -> Vec<Vec<u8>> {
    let chunk = [&b"\xa6chunks\x91\x93\xc4\x20"[..], &[7; 32], b"\x05\x2e"].concat();
    let list = b"\xaaacl_access\xd9\x3buser::rw-\nuser:daemon:r--:1\ngroup::r--\nmask::rwx\nother::r--";
    let file =
        [&b"\x85\xa4path\xa1a\xa4mode\xcd\x81\xa4"[..], &chunk, list, b"\xa6xattrs\x81\xa6user.x\xa1y"]
            .concat();
    let link = b"\x83\xa4path\xa1b\xa4mode\xcd\x81\xa4\xa6source\xa1a".to_vec();
    vec![[file, link].concat()]
}

/// A file of restic's index, decrypted.
pub fn restic_index(bytes: &[u8]) {
    let Ok(packs) = parse_index(bytes) else { return };
    for blob in packs.iter().flat_map(|(_, blobs)| blobs) {
        assert!(blob.length >= 32, "the code and the counter are in it");
        assert!(blob.plain_bytes() <= 1 << 30, "memory is bounded");
    }
}

/// An index of one pack.
#[must_use]
pub fn restic_index_seeds() -> Vec<Vec<u8>> {
    let id = "9f5115b517cea09d92bb4ba1273dcefa0a04be1335532a2af61a86649658a193";
    let text = format!(
        r#"{{"packs":[{{"id":"{id}","blobs":[{{"id":"{id}","type":"data","offset":46,"length":42,"uncompressed_length":1}},{{"id":"{id}","type":"tree","offset":0,"length":46}}]}}]}}"#
    );
    vec![text.into_bytes()]
}

/// The header of a pack of restic, decrypted.
pub fn restic_pack_header(bytes: &[u8]) {
    let Ok(blobs) = parse_pack_header(bytes) else { return };
    let mut end = 0;
    for blob in blobs {
        assert_eq!(u64::from(blob.offset), end, "blobs lie one behind the other");
        end += u64::from(blob.length);
    }
}

/// A header of two blobs.
#[must_use]
pub fn restic_pack_header_seeds() -> Vec<Vec<u8>> {
    let plain = [&[0, 40, 0, 0, 0][..], &[1; 32]].concat();
    let packed = [&[3, 50, 0, 0, 0, 200, 0, 0, 0][..], &[2; 32]].concat();
    vec![[plain, packed].concat()]
}

/// A tree of restic, decrypted.
pub fn restic_tree(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        drop(unquote(text));
    }
    let Ok(nodes) = parse_tree(bytes) else { return };
    let good: Vec<_> = nodes.iter().filter(|node| node.problem.is_none()).collect();
    assert!(good.is_sorted_by(|one, next| one.node.name < next.node.name), "names are sorted and unique");
    for node in good {
        let name = &node.node.name;
        assert!(
            !name.is_empty() && !name.contains(&b'/') && !name.contains(&0),
            "a name stays in its folder"
        );
    }
}

/// A tree with a node of each kind.
#[must_use]
pub fn restic_tree_seeds() -> Vec<Vec<u8>> {
    let id = "d3751d33f9cd5049c4af2b462735457e4d3baf130bcbb87f389e349fbaeb20b9";
    let text = format!(
        r#"{{"nodes":[{{"name":"a\\xff","type":"file","mode":420,"mtime":"2026-11-28T10:09:49.279487532Z","uid":0,"inode":9,"device_id":65024,"size":5,"links":2,"extended_attributes":[{{"name":"user.x","value":"eQ=="}}],"content":["{id}"]}},{{"name":"d","type":"dir","mode":2147484141,"subtree":"{id}"}},{{"name":"l","type":"symlink","linktarget":"a","linktarget_raw":"/w=="}},{{"name":"c","type":"chardev","device":1048577}}]}}"#
    );
    vec![text.into_bytes()]
}

/// A key file of restic.
pub fn restic_key_file(bytes: &[u8]) {
    drop(KeyFile::parse(bytes));
}

/// A key file.
#[must_use]
pub fn restic_key_file_seeds() -> Vec<Vec<u8>> {
    vec![br#"{"kdf":"scrypt","N":32768,"r":8,"p":6,"salt":"gkX3","data":"vV4q"}"#.to_vec()]
}

/// A tar file, as it is, and with the right checksum in each header.
pub fn tar_archive(bytes: &[u8]) {
    read_tar(bytes);
    let mut forged = bytes.to_vec();
    forged.chunks_exact_mut(512).filter(|block| block[257..262] == *b"ustar").for_each(sign_header);
    read_tar(&forged);
}

fn read_tar(bytes: &[u8]) {
    read_entries(TarEntries::new(bytes));
    // A name that claims to be longer than the file is passed over.
    read_entries(TarEntries::new(bytes).of_length(bytes.len() as u64));
}

fn read_entries(mut entries: TarEntries<&[u8]>) {
    let mut steps = 0;
    while let Ok(Some(entry)) = entries.next_entry() {
        let mut size = 0_u64;
        let is_whole = loop {
            steps += 1;
            if steps > STEPS_MAX {
                return;
            }
            match entries.next_piece() {
                Ok(Some(TarPiece::Bytes(piece))) => size += piece.len() as u64,
                Ok(Some(TarPiece::Hole(hole))) => size = size.saturating_add(hole),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        if is_whole && entry.kind == varve_import::tar::TarKind::File {
            assert_eq!(size, entry.size, "a file has the size that was reported");
        }
    }
}

fn sign_header(block: &mut [u8]) {
    block[148..156].copy_from_slice(b"        ");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

fn header(name: &str, kind: u8, size: usize) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..108].copy_from_slice(b"0000644\0");
    block[108..124].copy_from_slice(b"0000000\x000000000\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[136..148].copy_from_slice(b"00000000001\0");
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    sign_header(&mut block);
    block
}

fn padded(data: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    data.resize(data.len().next_multiple_of(512), 0);
    data
}

/// Archives with long names, PAX headers and sparse files.
#[must_use]
pub fn tar_archive_seeds() -> Vec<Vec<u8>> {
    let pax = b"16 path=x/y/z z\n30 mtime=1350244992.023960108\n21 SCHILY.xattr.u=a\n\n";
    let plain = [header("x", b'x', pax.len()), padded(pax), header("a", b'0', 5), padded(b"hallo")];
    let long =
        [header("././@LongLink", b'L', 200), padded(&[b'n'; 200]), header("n", b'5', 0), vec![0; 1024]];
    let map = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n26 GNU.sparse.realsize=99\n";
    let sparse = [
        header("x", b'x', map.len()),
        padded(map),
        header("s", b'0', 517),
        padded(b"1\n10\n5\n"),
        padded(b"bytes"),
    ];
    let mut gnu = header("g", b'S', 5);
    gnu[257..265].copy_from_slice(b"ustar  \0");
    gnu[386..410].copy_from_slice(b"00000000010\x0000000000005\0");
    gnu[483..495].copy_from_slice(b"00000000100\0");
    sign_header(&mut gnu);
    let mut lying = header("././@LongLink", b'L', 0);
    lying[124..136].copy_from_slice(b"\x80\0\0\0\0\0\x01\0\0\0\0\0");
    sign_header(&mut lying);
    let pax = b"13 size=-1\n\n30 mtime=9999999999999999999999\n";
    let wrong = [lying, header("x", b'x', pax.len()), padded(pax), header("a", b'0', 5), padded(b"hallo")];
    vec![plain.concat(), long.concat(), sparse.concat(), [gnu, padded(b"bytes")].concat(), wrong.concat()]
}

/// The bytes that a zip file may decompress to while a target reads it.
const PLAIN_BYTES_MAX: u64 = 64 << 20;

/// A zip file: its tree, and the contents of its files.
pub fn zip_archive(bytes: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("a temporary file");
    let Ok(zip) = ZipFile::open(file.path(), Some(Timestamp(0)), false, "host") else { return };
    assert!(
        zip.dos_names().is_none_or(|(_, first)| std::str::from_utf8(&first).is_ok()),
        "it was read as text"
    );
    let Ok(mut tree) = zip.tree(0) else { return };
    let (mut depth, mut plain_bytes) = (0_u64, 0_u64);
    while let Ok(Some(step)) = tree.next(None) {
        match step {
            ForeignStep::Tree(TreeStep::Open(node)) => {
                assert!(depth == 0 || is_name(&node.name), "a folder has a name: {:?}", node.name);
                depth += 1;
            }
            ForeignStep::Tree(TreeStep::Close) => depth = depth.checked_sub(1).expect("a folder is open"),
            ForeignStep::Tree(TreeStep::Entry(node)) => assert!(is_name(&node.name), "{:?}", node.name),
            ForeignStep::Tree(TreeStep::File(node, _)) => {
                assert!(is_name(&node.name) && node.kind == NodeKind::File, "{:?}", node.name);
                plain_bytes = plain_bytes.saturating_add(node.size);
            }
            _ => {}
        }
    }
    if plain_bytes > PLAIN_BYTES_MAX {
        return;
    }
    let read = zip.read_contents(&mut |told, read| {
        assert!(
            read.is_err() || read.is_ok_and(|count| count == told),
            "a content has the size of its entry"
        );
    });
    assert!(read.is_ok(), "the tree was read from the same directory");
}

fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}

/// An entry of a zip file: its header with its data, and its place in the directory.
fn zip_entry(
    name: &str,
    offset: u32,
    (method, mode): (u16, u32),
    (crc, size): (u32, u32),
    data: &[u8],
) -> [Vec<u8>; 2] {
    let extra = [
        &b"UT\x05\0\x01"[..],
        &1_700_000_000_u32.to_le_bytes(),
        b"ux\x0b\0\x01\x04\xe8\x03\0\0\x04\xe8\x03\0\0",
    ]
    .concat();
    let lengths =
        |extra: &[u8]| [(name.len() as u16).to_le_bytes(), (extra.len() as u16).to_le_bytes()].concat();
    let common = [
        &[0, 0][..],
        &method.to_le_bytes(),
        &[0, 0, 0x21, 0x5a],
        &crc.to_le_bytes(),
        &(data.len() as u32).to_le_bytes(),
        &size.to_le_bytes(),
    ]
    .concat();
    let local = [b"PK\x03\x04\x14\0", &common[..], &lengths(&[]), name.as_bytes(), data].concat();
    let central = [
        b"PK\x01\x02\x1e\x03\x14\0",
        &common[..],
        &lengths(&extra),
        &[0; 6],
        &(mode << 16).to_le_bytes(),
        &offset.to_le_bytes(),
        name.as_bytes(),
        &extra,
    ]
    .concat();
    [local, central]
}

/// An archive of a folder, a stored file, a compressed one, and a link.
#[must_use]
pub fn zip_archive_seeds() -> Vec<Vec<u8>> {
    // "aaaaaaaa"
    let deflated = [0x4b, 0x4c, 0x84, 0x00, 0x00];
    let (mut local, mut central, mut count) = (Vec::new(), Vec::new(), 0_u16);
    for (name, how, sums, data) in [
        ("d/", (0, 0o040_755), (0, 0), &[][..]),
        ("d/a", (0, 0o100_644), (0xb97231d1, 5), b"hallo"),
        ("d/b", (8, 0o100_600), (0xbf848046, 8), &deflated),
        ("e/l", (0, 0o120_777), (0xb97231d1, 5), b"hallo"),
    ] {
        let [header, place] = zip_entry(name, local.len() as u32, how, sums, data);
        local.extend(header);
        central.extend(place);
        count += 1;
    }
    let end = [
        b"PK\x05\x06\0\0\0\0",
        &count.to_le_bytes()[..],
        &count.to_le_bytes(),
        &(central.len() as u32).to_le_bytes(),
        &(local.len() as u32).to_le_bytes(),
        &[0, 0],
    ]
    .concat();
    vec![[local, central, end].concat()]
}
