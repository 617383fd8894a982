//! The headers of a tar file in the `pax` form (POSIX.1-2001). Pure.
//!
//! A header of 512 bytes comes before the content of each file. A value that does not fit into it
//! comes in a record of an extended header before it.

use varve_content::{Node, NodeKind};

/// Everything in a tar file begins at a multiple of this.
pub(crate) const TAR_BLOCK_BYTES: usize = 512;

const NAME_BYTES: usize = 100;
/// The largest size in eleven octal digits.
const SIZE_MAX: u64 = (1 << 33) - 1;
/// The largest number in seven octal digits.
const ID_MAX: u64 = (1 << 21) - 1;

/// The bytes before the content of a file, folder or link. `path` has no slash at its ends.
/// `linked` is the path of an earlier file that is the same file. `None` for a kind of file that
/// tar does not have: a socket.
pub(crate) fn header(path: &[u8], node: &Node, linked: Option<&[u8]>) -> Option<Vec<u8>> {
    let kind = match node.kind {
        _ if linked.is_some() => b'1',
        NodeKind::File => b'0',
        NodeKind::SymbolicLink => b'2',
        NodeKind::CharacterDevice => b'3',
        NodeKind::BlockDevice => b'4',
        NodeKind::Folder => b'5',
        NodeKind::Fifo => b'6',
        NodeKind::Socket => return None,
    };
    let slash: &[u8] = if node.kind == NodeKind::Folder { b"/" } else { b"" };
    let path = [path, slash].concat();
    let target = linked.unwrap_or(&node.target);
    let size = if kind == b'0' { node.size } else { 0 };
    let mut records = Vec::new();
    if path.len() > NAME_BYTES || !path.is_ascii() {
        push_record(&mut records, b"path", &path);
    }
    if target.len() > NAME_BYTES || !target.is_ascii() {
        push_record(&mut records, b"linkpath", target);
    }
    if size > SIZE_MAX {
        push_record(&mut records, b"size", size.to_string().as_bytes());
    }
    for (name, id) in [(&b"uid"[..], node.uid), (b"gid", node.gid)] {
        if u64::from(id) > ID_MAX {
            push_record(&mut records, name, id.to_string().as_bytes());
        }
    }
    let seconds = node.mtime.seconds();
    if !(0..=SIZE_MAX.cast_signed()).contains(&seconds) || node.mtime.subsecond_nanoseconds() != 0 {
        let time = decimal_time(seconds, node.mtime.subsecond_nanoseconds());
        push_record(&mut records, b"mtime", time.as_bytes());
    }
    for xattr in &node.xattrs {
        if !xattr.name.contains(&b'=') && !xattr.name.is_empty() {
            push_record(&mut records, &[b"SCHILY.xattr.", &xattr.name[..]].concat(), &xattr.value);
        }
    }
    let mut bytes = Vec::new();
    if !records.is_empty() {
        let about = Fields {
            name: b"pax",
            link: b"",
            kind: b'x',
            mode: 0o644,
            size: records.len() as u64,
            ..Fields::NONE
        };
        bytes.extend_from_slice(&about.block());
        bytes.extend_from_slice(&records);
        bytes.resize(bytes.len().next_multiple_of(TAR_BLOCK_BYTES), 0);
    }
    let device = node.device.filter(|_| node.kind != NodeKind::File);
    let fields = Fields {
        name: &path,
        link: target,
        kind,
        mode: node.mode.into(),
        uid: node.uid.into(),
        gid: node.gid.into(),
        size,
        seconds: u64::try_from(seconds).unwrap_or(0),
        device: device.map_or((0, 0), |device| (device.major.into(), device.minor.into())),
    };
    bytes.extend_from_slice(&fields.block());
    Some(bytes)
}

/// A record of an extended header: its own length in decimal, a space, `KEY=VALUE` and a newline.
fn push_record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(format!("{length} ").as_bytes());
    records.extend_from_slice(key);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// Seconds with their fraction. Nanoseconds count forward, also before 1970.
fn decimal_time(seconds: i64, nanoseconds: u32) -> String {
    match (seconds, nanoseconds) {
        (seconds, 0) => seconds.to_string(),
        (0.., _) => format!("{seconds}.{nanoseconds:09}"),
        _ => {
            let sign = "-";
            let (whole, fraction) = (seconds.saturating_add(1).unsigned_abs(), 1_000_000_000 - nanoseconds);
            format!("{sign}{whole}.{fraction:09}")
        }
    }
}

struct Fields<'a> {
    name: &'a [u8],
    link: &'a [u8],
    kind: u8,
    mode: u64,
    uid: u64,
    gid: u64,
    size: u64,
    seconds: u64,
    device: (u64, u64),
}

impl Fields<'_> {
    const NONE: Self =
        Self { name: b"", link: b"", kind: 0, mode: 0, uid: 0, gid: 0, size: 0, seconds: 0, device: (0, 0) };

    /// The header block.
    fn block(&self) -> [u8; TAR_BLOCK_BYTES] {
        let mut block = [0; TAR_BLOCK_BYTES];
        let mut put = |at: usize, room: usize, bytes: &[u8]| {
            let length = bytes.len().min(room);
            block[at..at + length].copy_from_slice(&bytes[..length]);
        };
        // Numbers end with a zero byte. One that does not fit is in the extended header.
        let octal = |value: u64, digits: usize| {
            let max = (1 << (3 * digits)) - 1;
            format!("{:0digits$o}\0", if value > max { 0 } else { value }).into_bytes()
        };
        put(0, NAME_BYTES, self.name);
        put(100, 8, &octal(self.mode, 7));
        put(108, 8, &octal(self.uid, 7));
        put(116, 8, &octal(self.gid, 7));
        put(124, 12, &octal(self.size, 11));
        put(136, 12, &octal(self.seconds, 11));
        put(148, 8, b"        ");
        put(156, 1, &[self.kind]);
        put(157, NAME_BYTES, self.link);
        put(257, 8, b"ustar\x0000");
        put(329, 8, &octal(self.device.0, 7));
        put(337, 8, &octal(self.device.1, 7));
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_its_own_length() {
        let record = |value: &str| {
            let mut records = Vec::new();
            push_record(&mut records, b"path", value.as_bytes());
            String::from_utf8(records).unwrap()
        };
        assert_eq!(record("x"), "9 path=x\n");
        assert_eq!(record("xx"), "11 path=xx\n");
        assert_eq!(record(&"x".repeat(90)).len(), 99);
        assert_eq!(record(&"x".repeat(91)).len(), 101);
        assert!(record(&"x".repeat(91)).starts_with("101 path="));
    }

    #[test]
    fn times_before_1970_count_backwards() {
        assert_eq!(decimal_time(5, 250_000_000), "5.250000000");
        assert_eq!(decimal_time(-1, 750_000_000), "-0.250000000");
        assert_eq!(decimal_time(-3, 0), "-3");
    }

    #[test]
    fn a_socket_has_no_header() {
        assert!(header(b"a", &Node::new(b"a".to_vec(), NodeKind::Socket), None).is_none());
        let file = header(b"a", &Node::new(b"a".to_vec(), NodeKind::File), None).unwrap();
        assert_eq!(file.len(), TAR_BLOCK_BYTES);
        let long = header(&[b'a'; 200], &Node::new(b"a".to_vec(), NodeKind::File), None).unwrap();
        assert_eq!(long.len(), 3 * TAR_BLOCK_BYTES);
    }
}
