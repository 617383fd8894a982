//! Structures that the archive keeps in blocks: nodes, lists of nodes, snapshots, the catalog.

use varve_archive::{Catalog, Growth, LeftOutRecord, Snapshot, SnapshotContent, SnapshotId};
use varve_block::{Block, BlockKind, BlockName, BlockStore, BlockType, MemoryBlockStore};
use varve_content::image::SectorSizes;
use varve_content::{FieldWriter, Node, NodeKind, NodeList, NodeListWriter, UnknownFields, frame};
use varve_image::Xattr;
use varve_tree::{ContentWriter, Cutting, Entry};
use varve_world::Timestamp;

const SCORE_BYTES: usize = 32;

fn list(store: &MemoryBlockStore, kind: BlockKind, bytes: &[u8]) -> Entry {
    let mut writer = ContentWriter::new(store, kind, Cutting::DIRECTORY);
    writer.write(bytes).expect("in memory");
    writer.finish().expect("in memory")
}

fn good_nodes() -> Vec<Node> {
    let store = MemoryBlockStore::new();
    let mut file = Node::new(b"file".to_vec(), NodeKind::File);
    file.content = Some(list(&store, BlockKind::Data, b"what it holds"));
    file.size = 13;
    file.link_group = Some(3);
    file.xattrs = vec![Xattr { name: b"user.mood".to_vec(), value: b"fine".to_vec() }];
    let mut folder = Node::new(b"folder".to_vec(), NodeKind::Folder);
    folder.content = Some(list(&store, BlockKind::Directory, b"nodes"));
    let mut link = Node::new(b"link".to_vec(), NodeKind::SymbolicLink);
    link.target = b"file".to_vec();
    vec![file, folder, link]
}

/// A node's fields.
pub fn node(bytes: &[u8]) {
    for decoded in [Node::decode(bytes, SCORE_BYTES), Node::decode_root(bytes, SCORE_BYTES)] {
        let Ok(node) = decoded else { continue };
        assert!(!node.name.contains(&b'/') && !node.name.contains(&0), "a name never leads elsewhere");
        assert!(!matches!(node.name.as_slice(), b"." | b".."));
        let again = if node.name.is_empty() { Node::decode_root } else { Node::decode };
        assert_eq!(again(&node.encode(), SCORE_BYTES).expect("what was decoded can be encoded"), node);
        if !node.name.is_empty() {
            let store = MemoryBlockStore::new();
            NodeListWriter::new(&store).push(&node).expect("a list takes what its reader takes");
        }
    }
}

/// Nodes of several kinds, and a root.
#[must_use]
pub fn node_seeds() -> Vec<Vec<u8>> {
    let root = Node::new(Vec::new(), NodeKind::Folder);
    good_nodes().iter().chain([&root]).map(Node::encode).collect()
}

/// A folder's content.
pub fn node_list(bytes: &[u8]) {
    let store = MemoryBlockStore::new();
    let mut folder = Node::new(Vec::new(), NodeKind::Folder);
    folder.content = Some(list(&store, BlockKind::Directory, bytes));
    let mut last = Vec::new();
    for node in NodeList::new(&store, &folder) {
        let Ok(node) = node else { return };
        assert!(node.name > last, "names ascend");
        last = node.name;
    }
}

/// Three nodes.
#[must_use]
pub fn node_list_seeds() -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    for node in good_nodes() {
        frame(&node.encode(), &mut bytes);
    }
    vec![bytes, Vec::new()]
}

/// A good snapshot.
#[must_use]
pub fn good_snapshot(content: SnapshotContent) -> Snapshot {
    let is_image = matches!(content, SnapshotContent::Image(_));
    Snapshot {
        sectors: if is_image { SectorSizes::new(4096, 16_384) } else { None },
        id: SnapshotId([6; 16]),
        name: "disk".into(),
        time: Timestamp(-1),
        content,
        source: b"/dev/\xFF".to_vec(),
        host: "here".into(),
        tags: vec!["why=fuzz".into()],
        size: 13,
        file_count: 2,
        problem_count: 0,
        growth: Some(Growth { new_bytes: 13, stored_bytes: 500 }),
        elapsed: 1,
        machine: None,
        left_out: vec![LeftOutRecord {
            volume: "p2".into(),
            what: "swap".into(),
            bytes: 4096,
            why: "its header".into(),
            kept_because: Some("an md array".into()),
            unknown: UnknownFields::default(),
        }],
        comment: "a line".into(),
        holds: Vec::new(),
        keep_until: None,
        file: Some(b"hostname".to_vec()),
        origin: None,
        unknown: UnknownFields::default(),
    }
}

fn good_snapshots() -> Vec<Snapshot> {
    let store = MemoryBlockStore::new();
    let image = SnapshotContent::Image(list(&store, BlockKind::Data, b"an image"));
    let folder = SnapshotContent::Folder(Box::new(Node::new(Vec::new(), NodeKind::Folder)));
    vec![good_snapshot(image), good_snapshot(folder)]
}

/// A snapshot's fields.
pub fn snapshot(bytes: &[u8]) {
    if let Ok(snapshot) = Snapshot::decode(bytes, SCORE_BYTES) {
        let again =
            Snapshot::decode(&snapshot.encode(), SCORE_BYTES).expect("what was decoded can be encoded");
        assert_eq!(again, snapshot);
    }
}

/// An image and a folder.
#[must_use]
pub fn snapshot_seeds() -> Vec<Vec<u8>> {
    good_snapshots().iter().map(Snapshot::encode).collect()
}

fn load(store: &MemoryBlockStore, root: &[u8]) {
    let score = store.put(Block { block_type: BlockType::CATALOG, bytes: root }).expect("small");
    drop(Catalog::load(store, Some(BlockName { score, block_type: BlockType::CATALOG })));
}

/// The root of a catalog.
pub fn catalog_root(bytes: &[u8]) {
    if bytes.len() < 100_000 {
        load(&MemoryBlockStore::new(), bytes);
    }
}

/// A root whose list is not in the store, one whose list is empty, and one with two values of field
/// 3.
#[must_use]
pub fn catalog_root_seeds() -> Vec<Vec<u8>> {
    let store = MemoryBlockStore::new();
    let chained = FieldWriter::new()
        .bytes(2, &list(&store, BlockKind::Data, b"").encode())
        .bytes(3, &[7; SCORE_BYTES])
        .bytes(3, &[8; SCORE_BYTES])
        .finish_record();
    [&b"a snapshot"[..], b""]
        .map(|bytes| {
            FieldWriter::new()
                .number(1, 7)
                .bytes(2, &list(&store, BlockKind::Data, bytes).encode())
                .finish_record()
        })
        .into_iter()
        .chain([chained])
        .collect()
}

/// The list of a catalog.
pub fn catalog_list(bytes: &[u8]) {
    let store = MemoryBlockStore::new();
    let entry = list(&store, BlockKind::Data, bytes);
    load(&store, &FieldWriter::new().number(1, 1).bytes(2, &entry.encode()).finish_record());
}

/// Two snapshots.
#[must_use]
pub fn catalog_list_seeds() -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    for snapshot in good_snapshots() {
        frame(&snapshot.encode(), &mut bytes);
    }
    vec![bytes]
}
