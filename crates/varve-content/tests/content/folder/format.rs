//! The bytes of nodes.

use proptest::prelude::{Strategy, any, prop_assert_eq, proptest};
use varve_block::{BlockKind, MemoryBlockStore};
use varve_content::{
    DecodeNodeError, FieldReader, FieldWriter, InodeFlags, MODE_MASK, Node, NodeKind, NodeList,
    NodeListWriter, NodeProblem, WriteNodeError,
};
use varve_image::{DeviceNumber, FileTime, Xattr};
use varve_tree::{Cutting, Entry, put_whole};

fn entry(kind: BlockKind, size: usize) -> Entry {
    let blocks = MemoryBlockStore::new();
    put_whole(&blocks, kind, Cutting::FILE, &[vec![7; size].as_slice()]).unwrap()[0]
}

const KINDS: [NodeKind; 7] = [
    NodeKind::File,
    NodeKind::Folder,
    NodeKind::SymbolicLink,
    NodeKind::CharacterDevice,
    NodeKind::BlockDevice,
    NodeKind::Fifo,
    NodeKind::Socket,
];
const PROBLEMS: [Option<NodeProblem>; 4] =
    [None, Some(NodeProblem::Unreadable), Some(NodeProblem::Changed), Some(NodeProblem::Vanished)];

fn bytes_but(refused: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("a byte that is refused", |byte| !refused.contains(byte));
    proptest::collection::vec(byte, 1..40)
}

/// Times of all widths: some fit into one field, and the others need two.
fn file_times() -> impl Strategy<Value = FileTime> {
    (any::<i64>(), 0u32..1_000_000_000, 0u32..64)
        .prop_map(|(seconds, nanoseconds, shift)| FileTime::new(seconds >> shift, nanoseconds))
}

fn nodes() -> impl Strategy<Value = Node> {
    let name = bytes_but(b"/\0").prop_filter("no name", |name| !matches!(name.as_slice(), b"." | b".."));
    let xattr = (bytes_but(b"\0"), proptest::collection::vec(any::<u8>(), 0..300));
    let xattrs = proptest::collection::vec(xattr.prop_map(|(name, value)| Xattr { name, value }), 0..4);
    let numbers = (any::<u32>(), any::<u32>(), any::<u64>(), any::<Option<u64>>());
    let times = (file_times(), proptest::option::of(file_times()));
    let what = (0usize..7, 0usize..4, (0..=MODE_MASK, any::<u32>()), bytes_but(b"\0"), 0usize..5000);
    (name, xattrs, numbers, times, what).prop_map(
        |(
            name,
            xattrs,
            (uid, gid, inode, link_group),
            (mtime, ctime),
            (kind, problem, (mode, flags), target, size),
        )| {
            let mut node = Node::new(name, KINDS[kind]);
            (node.uid, node.gid, node.inode, node.link_group) = (uid, gid, inode, link_group);
            (node.mtime, node.ctime) = (mtime, ctime);
            (node.mode, node.xattrs, node.problem) = (mode, xattrs, PROBLEMS[problem]);
            node.inode_flags = InodeFlags::from_bits(flags & (flags << 16));
            match node.kind {
                NodeKind::File if size > 0 => {
                    node.size = size as u64;
                    node.content = Some(entry(BlockKind::Data, size));
                }
                NodeKind::Folder if size > 0 => node.content = Some(entry(BlockKind::Directory, size)),
                NodeKind::SymbolicLink => node.target = target,
                NodeKind::CharacterDevice | NodeKind::BlockDevice => {
                    node.device = Some(DeviceNumber { major: uid, minor: gid });
                }
                _ => {}
            }
            node
        },
    )
}

/// Any bytes, and often those that names and targets must not have.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let special = proptest::sample::select(vec![&b""[..], b".", b"..", b"/", b"\0", b"a\0b", b"a"]);
    let special = special.prop_map(<[u8]>::to_vec);
    proptest::prop_oneof![special, proptest::collection::vec(any::<u8>(), 0..6)]
}

/// Nodes of any fields, of which most contradict each other.
fn any_nodes() -> impl Strategy<Value = Node> {
    let xattr = (any_bytes(), any_bytes()).prop_map(|(name, value)| Xattr { name, value });
    let xattrs = proptest::collection::vec(xattr, 0..2);
    let content = proptest::option::of((any::<bool>(), 1usize..3));
    let what = (0usize..7, 0usize..4, any::<u16>(), 0u32..2, any::<Option<u32>>());
    (nodes(), any_bytes(), any_bytes(), xattrs, content, what, 0u64..3, any::<[bool; 5]>()).prop_map(
        |(good, name, target, xattrs, content, (kind, problem, mode, rare, device), size, changes)| {
            let mut node = good;
            let [has_name, has_target, has_xattrs, has_content, has_kind] = changes;
            if has_name {
                node.name = name
            }
            if has_target {
                node.target = target
            }
            if has_xattrs {
                node.xattrs = xattrs
            }
            if has_content {
                let kind = |is_data| if is_data { BlockKind::Data } else { BlockKind::Directory };
                (node.content, node.size) = (content.map(|(is_data, size)| entry(kind(is_data), size)), size);
            }
            if has_kind {
                (node.kind, node.problem) = (KINDS[kind], PROBLEMS[problem])
            }
            if rare > 0 {
                node.mode = mode
            }
            node.device = node.device.or(device.map(|major| DeviceNumber { major, minor: 1 }));
            node
        },
    )
}

/// Writes the nodes that the list takes, and returns them with the whole folder.
fn written(blocks: &MemoryBlockStore, nodes: &[Node]) -> (Vec<Node>, Node) {
    let mut list = NodeListWriter::new(blocks);
    let mut taken = Vec::new();
    for node in nodes {
        match list.push(node) {
            Ok(()) => taken.push(node.clone()),
            Err(WriteNodeError::Put(error)) => panic!("{error}"),
            Err(_) => {}
        }
    }
    let content = list.finish().unwrap();
    (taken, Node { content, ..Node::new(Vec::new(), NodeKind::Folder) })
}

proptest! {
    /// A node that is refused would hide the nodes behind it, in the eyes of every reader.
    #[test]
    fn a_list_takes_the_nodes_that_its_reader_takes(
        mut nodes in proptest::collection::vec(any_nodes(), 1..6), is_sorted: bool,
    ) {
        if is_sorted {
            nodes.sort_by(|one, other| one.name.cmp(&other.name));
        }
        let blocks = MemoryBlockStore::new();
        let (taken, folder) = written(&blocks, &nodes);
        let read: Vec<_> = NodeList::new(&blocks, &folder).map(Result::unwrap).collect();
        prop_assert_eq!(&read, &taken);
        // And the reader refuses what the list refuses, but for links that earlier versions wrote.
        for node in &nodes {
            let (taken, _) = written(&blocks, std::slice::from_ref(node));
            let decoded = Node::decode(&node.encode(), 32);
            prop_assert_eq!(decoded.as_ref() == Ok(node), taken.len() == 1, "{:?}", decoded);
        }
    }

    #[test]
    fn a_node_that_was_read_can_be_written(
        node in any_nodes(), place in any::<proptest::sample::Index>(), bytes in any::<[u8; 2]>(),
    ) {
        let mut fields = node.encode();
        let place = place.index(fields.len());
        for (place, byte) in (place..fields.len()).zip(bytes) {
            fields[place] = byte;
        }
        for fields in [node.encode(), fields] {
            if let Ok(read) = Node::decode(&fields, 32) {
                let (taken, _) = written(&MemoryBlockStore::new(), std::slice::from_ref(&read));
                prop_assert_eq!(taken, [read]);
            }
        }
    }

    #[test]
    fn a_node_survives_the_round_trip(node in nodes()) {
        prop_assert_eq!(Node::decode(&node.encode(), 32), Ok(node));
    }

    #[test]
    fn a_root_survives_the_round_trip(node in nodes()) {
        let root = Node { name: Vec::new(), ..node };
        prop_assert_eq!(Node::decode_root(&root.encode(), 32), Ok(root));
    }

    #[test]
    fn fields_of_later_versions_are_passed_over(node in nodes(), number in 19u8.., bytes in any::<Vec<u8>>()) {
        let fields = [node.encode(), FieldWriter::new().bytes(number, &bytes).finish()].concat();
        let read = Node::decode(&fields, 32).unwrap();
        prop_assert_eq!(read.encode(), fields);
        prop_assert_eq!(Node { unknown: node.unknown.clone(), ..read }, node);
    }

    #[test]
    fn no_bytes_panic(node in nodes(), place in any::<proptest::sample::Index>(), bytes in any::<[u8; 3]>()) {
        let mut fields = node.encode();
        let place = place.index(fields.len());
        for (place, byte) in (place..fields.len()).zip(bytes) {
            fields[place] = byte;
        }
        let _ = (Node::decode(&fields, 32), Node::decode_root(&fields, 20), Node::decode(&bytes, 32));
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for name in [b"".as_slice(), b".", b"..", b"/", b"a/b", b"../a", b"a\0", b"/etc"] {
        let node = Node::new(name.to_vec(), NodeKind::Fifo);
        assert_eq!(Node::decode(&node.encode(), 32), Err(DecodeNodeError::Name { name: name.to_vec() }));
    }
    let named = Node::new(b"name".to_vec(), NodeKind::Fifo).encode();
    assert_eq!(Node::decode_root(&named, 32), Err(DecodeNodeError::Name { name: b"name".to_vec() }));
}

#[test]
fn what_no_writer_writes_is_refused() {
    let refused = |change: &dyn Fn(&mut Node)| {
        let mut node = Node::new(b"name".to_vec(), NodeKind::File);
        change(&mut node);
        Node::decode(&node.encode(), 32).unwrap_err()
    };
    let mismatch = |kind, size| DecodeNodeError::ContentMismatch { kind, size };
    let file = mismatch(NodeKind::File, 10);
    assert_eq!(refused(&|node| node.size = 10), file);
    assert_eq!(refused(&|node| (node.size, node.content) = (10, Some(entry(BlockKind::Data, 9)))), file);
    assert_eq!(
        refused(&|node| (node.size, node.content) = (10, Some(entry(BlockKind::Directory, 10)))),
        file
    );
    let content = |kind: NodeKind, of: BlockKind| {
        refused(&|node| (node.kind, node.content) = (kind, Some(entry(of, 10))))
    };
    assert_eq!(content(NodeKind::Folder, BlockKind::Data), mismatch(NodeKind::Folder, 0));
    assert_eq!(content(NodeKind::Fifo, BlockKind::Data), mismatch(NodeKind::Fifo, 0));
    let incomplete = |kind| DecodeNodeError::Incomplete { kind };
    assert_eq!(refused(&|node| node.kind = NodeKind::SymbolicLink), incomplete(NodeKind::SymbolicLink));
    assert_eq!(refused(&|node| node.kind = NodeKind::BlockDevice), incomplete(NodeKind::BlockDevice));
    assert_eq!(refused(&|node| node.target = b"target".to_vec()), incomplete(NodeKind::File));
    let fields = |number, value| FieldWriter::new().bytes(1, b"name").number(number, value).finish();
    assert_eq!(Node::decode(&fields(3, 0o644), 32), Err(DecodeNodeError::NoKind));
    assert_eq!(refused(&|node| node.mode = 0o10000), DecodeNodeError::Mode { mode: 0o10000 });
    let xattr = |name: &[u8]| Xattr { name: name.to_vec(), value: Vec::new() };
    assert_eq!(refused(&|node| node.xattrs = vec![xattr(b"")]), DecodeNodeError::XattrName);
    assert_eq!(refused(&|node| node.xattrs = vec![xattr(b"a\0")]), DecodeNodeError::XattrName);
    for (number, value) in [(2, 0), (2, 8), (2, 258)] {
        let error = Node::decode(&fields(number, value), 32).unwrap_err();
        assert!(matches!(error, DecodeNodeError::Field(_)), "field {number}, {value}: {error}");
    }
}

/// Imports of earlier versions wrote such links. The nodes behind them are readable.
#[test]
fn a_target_with_a_zero_byte_is_a_target_that_could_not_be_read() {
    let mut link = Node::new(b"link".to_vec(), NodeKind::SymbolicLink);
    link.target = b"a\0b".to_vec();
    assert_eq!(link.check(), Err(DecodeNodeError::Target));
    let read = Node::decode(&link.encode(), 32).unwrap();
    assert_eq!((read.target.as_slice(), read.problem), (&b""[..], Some(NodeProblem::Unreadable)));
    assert_eq!(read.check(), Ok(()));
}

#[test]
fn the_bytes_are_those_of_the_format() {
    let mut node = Node::new(b"null".to_vec(), NodeKind::CharacterDevice);
    (node.mode, node.uid, node.gid, node.inode) = (0o666, 1, 300, 9);
    (node.mtime, node.ctime) = (FileTime::from_nanoseconds(-1), Some(FileTime::from_nanoseconds(1)));
    node.device = Some(DeviceNumber { major: 1, minor: 300 });
    node.xattrs.push(Xattr { name: b"user.a".to_vec(), value: b"v".to_vec() });
    node.problem = Some(NodeProblem::Changed);
    let expected: [&[u8]; 11] = [
        b"\x01\x04null",
        b"\x02\x01\x04",
        b"\x03\x02\xb6\x03",
        b"\x04\x01\x01",
        b"\x05\x02\xac\x02",
        b"\x06\x01\x01",
        b"\x07\x01\x02",
        b"\x08\x01\x09",
        b"\x0d\x03\x01\xac\x02",
        b"\x0e\x08\x06user.av",
        b"\x0f\x01\x02",
    ];
    assert_eq!(node.encode(), expected.concat());
    assert_eq!(FieldReader::new(&node.encode()).count(), expected.len());
    // The times are the first second of 2400, and five nanoseconds before the year 1. Fields 6 and
    // 7 have the nearest times that fit.
    (node.mtime, node.ctime) =
        (FileTime::new(13_569_465_600, 0), Some(FileTime::new(-62_135_596_801, 999_999_995)));
    let (max, min) =
        (b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    let wide = [
        &expected[..5].concat()[..],
        b"\x06\x0a",
        max,
        b"\x07\x0a",
        min,
        &expected[7..].concat(),
        b"\x10\x06\x80\xf4\xec\x8c\x65\x00",
        b"\x11\x0b\x81\xdc\x8f\xf9\xce\x03\xfb\x93\xeb\xdc\x03",
    ];
    assert_eq!(node.encode(), wide.concat());
    node.inode_flags = InodeFlags::LOCKS;
    assert_eq!(node.encode(), [&wide.concat()[..], b"\x12\x01\x30"].concat());
}

/// A reader that does not know wide times shows the nearest time that it can. All other times have
/// no second field.
#[test]
fn wide_times_are_there_only_where_they_are_needed() {
    let mut node = Node::new(b"name".to_vec(), NodeKind::File);
    for nanoseconds in [i64::MIN, -1, 0, i64::MAX] {
        (node.mtime, node.ctime) =
            (FileTime::from_nanoseconds(nanoseconds), Some(FileTime::from_nanoseconds(nanoseconds)));
        let last = FieldReader::new(&node.encode()).last().unwrap().unwrap().number;
        assert!(last < 16, "{nanoseconds}: field {last}");
    }
    for (seconds, nanoseconds) in [(0, 1_000_000_000_u64), (5, u64::MAX)] {
        let signed = FieldWriter::new().signed(1, seconds).finish()[2..].to_vec();
        let varint = FieldWriter::new().number(1, nanoseconds).finish()[2..].to_vec();
        for field in [16, 17] {
            let fields =
                FieldWriter::new().bytes(1, b"a").number(2, 1).bytes(field, &[&signed[..], &varint].concat());
            let refused = Node::decode(&fields.finish(), 32);
            assert!(matches!(refused, Err(DecodeNodeError::Field(_))), "{refused:?}");
        }
    }
}
