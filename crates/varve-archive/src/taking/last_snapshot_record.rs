//! The record of the last snapshot, kept on a machine whose key may not read the store. It lists
//! the files of the snapshot, so that unchanged files are not read again.
//!
//! It is in a file that only the holder of this machine's key can read, and it holds as little as
//! possible. For each file of the snapshot, it has a hash of the path, size, times and inode, and
//! the entry of the content. The hashes are keyed with a new random key for each snapshot, so that
//! two records cannot be compared.
//!
//! | offset | bytes | field    | meaning                                                                          |
//! |-------:|------:|----------|----------------------------------------------------------------------------------|
//! |      0 |    48 | mark     | valid as long as the log still has everything that it had then                   |
//! |     48 |    32 | hash_key | random                                                                           |
//! |     80 |       | rows     | in ascending order: hash (16 bytes), length (`u32`), a node with size, content, xattrs and inode_flags only |
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use varve_store::{LogExtent, PrivateFileError, Store};
use zeroize::Zeroizing;

use crate::records::node::{Node, NodeKind};

/// Upper bound on the size of the rows. Files beyond it are read again the next time. Some millions
/// of files fit.
const ROWS_BYTES_MAX: usize = 256 << 20;
const HASH_BYTES: usize = 16;
const HASH_KEY_BYTES: usize = 32;
const HEAD_BYTES: usize = LogExtent::BYTES + HASH_KEY_BYTES;

type FileHash = [u8; HASH_BYTES];

/// The record of the last snapshot, and the record that is being made of this one.
#[derive(Clone)]
pub(crate) struct LastSnapshotRecord(Arc<SnapshotRecords>);

struct SnapshotRecords {
    last: Option<ReadSnapshotRecord>,
    hash_key: [u8; HASH_KEY_BYTES],
    next: Mutex<NextSnapshotRecord>,
}

#[derive(Default)]
struct NextSnapshotRecord {
    rows: Vec<(FileHash, Box<[u8]>)>,
    bytes: usize,
}

/// The record of the last snapshot.
struct ReadSnapshotRecord {
    hash_key: [u8; HASH_KEY_BYTES],
    contents: Zeroizing<Vec<u8>>,
    rows: Vec<(FileHash, Range<usize>)>,
    score_bytes: usize,
}

/// Why a record was not saved. The next snapshot reads every file again, and is otherwise as good.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SaveSnapshotRecordError {
    #[error("the state of the store cannot be read")]
    Mark(#[from] io::Error),
    #[error("{0}")]
    Write(#[from] PrivateFileError),
}

impl std::fmt::Debug for LastSnapshotRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LastSnapshotRecord").finish_non_exhaustive()
    }
}

impl LastSnapshotRecord {
    /// Loads the record for the source `about`. It is empty if there is none, or if it is no longer
    /// valid.
    ///
    /// # Errors
    /// [`io::Error`] if there are no random bytes.
    pub(crate) fn load(store: &Store, about: &[u8], is_wanted: bool) -> io::Result<Self> {
        let mut hash_key = [0; HASH_KEY_BYTES];
        store.world().random.fill(&mut hash_key)?;
        let last = is_wanted.then(|| ReadSnapshotRecord::load(store, about)).flatten();
        Ok(Self(Arc::new(SnapshotRecords { last, hash_key, next: Mutex::default() })))
    }

    /// Returns the node with its recorded content, if the file is unchanged.
    pub(crate) fn recall(&self, path: &[u8], node: &Node) -> Option<Node> {
        let last = self.0.last.as_ref()?;
        let known = last.find(&hash(&last.hash_key, path, node)?)?;
        if known.size != node.size {
            return None;
        }
        let Node { content, xattrs, inode_flags, .. } = known;
        Some(Node { content, xattrs, inode_flags, ..node.clone() })
    }

    /// Records a file of this snapshot.
    pub(crate) fn remember(&self, path: &[u8], node: &Node) {
        let Some(hash) = hash(&self.0.hash_key, path, node) else { return };
        let mut kept = Node::new(Vec::new(), NodeKind::File);
        kept.content = node.content;
        kept.size = node.size;
        kept.xattrs.clone_from(&node.xattrs);
        kept.inode_flags = node.inode_flags;
        let row = kept.encode().into_boxed_slice();
        let mut next = self.0.next.lock();
        let bytes = next.bytes.saturating_add(row.len()).saturating_add(HASH_BYTES + 4);
        if bytes <= ROWS_BYTES_MAX {
            next.bytes = bytes;
            next.rows.push((hash, row));
        }
    }

    /// Saves the record for the next snapshot. Everything that it leads to must be durable.
    ///
    /// # Errors
    /// [`SaveSnapshotRecordError`].
    pub(crate) fn save(&self, store: &Store, about: &[u8]) -> Result<(), SaveSnapshotRecordError> {
        let mark = store.vault().mark()?;
        let mut next = self.0.next.lock();
        next.rows.sort_unstable();
        let mut contents = Zeroizing::new(Vec::with_capacity(next.bytes.saturating_add(HEAD_BYTES)));
        contents.extend_from_slice(mark.as_bytes());
        contents.extend_from_slice(&self.0.hash_key);
        for (hash, row) in &next.rows {
            contents.extend_from_slice(hash);
            contents.extend_from_slice(&u32::try_from(row.len()).unwrap_or(u32::MAX).to_le_bytes());
            contents.extend_from_slice(row);
        }
        Ok(store.vault().write_own(about, &contents)?)
    }
}

impl ReadSnapshotRecord {
    fn load(store: &Store, about: &[u8]) -> Option<Self> {
        let contents = store.vault().read_own(about)?;
        let (mark, _) = contents.split_first_chunk()?;
        if !store.vault().holds(&LogExtent::from_bytes(*mark)) {
            tracing::info!("the log has lost data since the last snapshot: every file is read again");
            return None;
        }
        Self::parse(contents, store.config().score_bytes())
    }

    fn parse(contents: Zeroizing<Vec<u8>>, score_bytes: usize) -> Option<Self> {
        let hash_key = *contents.get(LogExtent::BYTES..HEAD_BYTES)?.first_chunk()?;
        let mut rows = Vec::new();
        let mut place = HEAD_BYTES;
        while place < contents.len() {
            let row = contents.get(place..)?;
            let (hash, row) = row.split_first_chunk::<HASH_BYTES>()?;
            let (length, _) = row.split_first_chunk()?;
            let start = place.checked_add(HASH_BYTES + 4)?;
            let end = start.checked_add(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
            contents.get(start..end)?;
            rows.push((*hash, start..end));
            place = end;
        }
        rows.is_sorted_by(|one, next| one.0 <= next.0).then_some(Self {
            hash_key,
            contents,
            rows,
            score_bytes,
        })
    }

    fn find(&self, hash: &FileHash) -> Option<Node> {
        let place = self.rows.binary_search_by(|(known, _)| known.cmp(hash)).ok()?;
        let (_, range) = self.rows.get(place)?;
        Node::decode_root(self.contents.get(range.clone())?, self.score_bytes).ok()
    }
}

/// The hash of a file. `None` if the file cannot be recognised later: it is not a regular file, has
/// a problem, or has just changed.
fn hash(key: &[u8; HASH_KEY_BYTES], path: &[u8], node: &Node) -> Option<FileHash> {
    let ctime = node.ctime?;
    if node.kind != NodeKind::File || node.problem.is_some() {
        return None;
    }
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&node.size.to_le_bytes());
    hasher.update(&node.mtime.clamped_nanoseconds().to_le_bytes());
    hasher.update(&ctime.clamped_nanoseconds().to_le_bytes());
    hasher.update(&node.inode.to_le_bytes());
    for time in [node.mtime, ctime].into_iter().filter(|time| time.nanoseconds().is_none()) {
        // No path contains a zero byte, so these bytes never equal the start of a path.
        hasher.update(&[0]);
        hasher.update(&time.wide_nanoseconds().to_le_bytes());
    }
    // The path is last: the length of everything before it follows from its own first bytes.
    hasher.update(path);
    let mut hash = [0; HASH_BYTES];
    hasher.finalize_xof().fill(&mut hash);
    Some(hash)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use varve_image::FileTime;

    use super::*;

    fn file(inode: u64) -> Node {
        let mut node = Node::new(b"name".to_vec(), NodeKind::File);
        (node.inode, node.size, node.ctime) = (inode, 5, Some(FileTime::from_nanoseconds(7)));
        node
    }

    fn parsed(rows: &[(FileHash, &[u8])]) -> Option<ReadSnapshotRecord> {
        let mut contents = vec![0; HEAD_BYTES];
        for (hash, row) in rows {
            contents.extend_from_slice(hash);
            contents.extend_from_slice(&u32::try_from(row.len()).unwrap().to_le_bytes());
            contents.extend_from_slice(row);
        }
        ReadSnapshotRecord::parse(Zeroizing::new(contents), 32)
    }

    #[test]
    fn only_the_same_file_in_the_same_state_is_known() {
        let key = [3; 32];
        let base = hash(&key, b"a/b", &file(1)).unwrap();
        assert_eq!(hash(&key, b"a/b", &file(1)), Some(base));
        assert_ne!(hash(&key, b"a/c", &file(1)), Some(base));
        assert_ne!(hash(&key, b"a/b", &file(2)), Some(base));
        let changes: [fn(&mut Node); 6] = [
            |node| node.size = 6,
            |node| node.mtime = FileTime::from_nanoseconds(1),
            |node| node.ctime = Some(FileTime::from_nanoseconds(8)),
            |node| node.mtime = FileTime::from_nanoseconds(i64::MAX),
            |node| node.mtime = FileTime::new(1 << 40, 0),
            |node| node.mtime = FileTime::new(1 << 40, 1),
        ];
        let mut hashes = vec![base];
        for change in changes {
            let mut node = file(1);
            change(&mut node);
            let changed = hash(&key, b"a/b", &node).unwrap();
            assert!(!hashes.contains(&changed));
            hashes.push(changed);
        }
        let mut young = file(1);
        young.ctime = None;
        assert_eq!(hash(&key, b"a/b", &young), None);
    }

    #[test]
    fn rows_are_found_and_bad_ones_do_no_harm() {
        let node = Node::new(Vec::new(), NodeKind::File).encode();
        let record = parsed(&[([1; 16], &node), ([2; 16], b"\xff\xff"), ([4; 16], &node)]).unwrap();
        assert!(record.find(&[1; 16]).is_some() && record.find(&[4; 16]).is_some());
        assert!(record.find(&[2; 16]).is_none() && record.find(&[3; 16]).is_none());
        assert!(parsed(&[([2; 16], &node), ([1; 16], &node)]).is_none(), "out of order");
        let whole = record.contents.clone();
        for length in 0..whole.len() {
            drop(ReadSnapshotRecord::parse(Zeroizing::new(whole[..length].to_vec()), 32));
        }
    }
}
