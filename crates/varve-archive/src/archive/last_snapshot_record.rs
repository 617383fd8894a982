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
//! |      0 |     8 | magic    | `varveLS2`                                                                       |
//! |      8 |    32 | hash_key | random                                                                           |
//! |     40 |       | layers   | which arenas hold the contents, as in `record_layers.rs`                         |
//! |        |       | rows     | in ascending order: hash (16 bytes), layer (`u16`), length (`u32`), a node with size, content, xattrs and inode_flags only |
//!
//! A row counts only while all arenas of its layer are as they were. So an arena that is rewritten
//! or gone voids the contents that may lie in it, and no others. Builds before layers wrote records
//! of another form; these count as absent.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use varve_block::to_usize;
use varve_content::folder::{ContentOrigin, RememberedFiles};
use varve_content::{Node, NodeKind};
use varve_store::{ArenaExtent, PrivateFileError, Store};
use zeroize::Zeroizing;

use crate::archive::record_layers::{NextLayers, RecordLayers};

const MAGIC: [u8; 8] = *b"varveLS2";

/// Upper bound on the size of the rows. Files beyond it are read again the next time. Some millions
/// of files fit.
const ROWS_BYTES_MAX: usize = 256 << 20;
const HASH_BYTES: usize = 16;
const HASH_KEY_BYTES: usize = 32;
/// The length of a row without its node.
const ROW_HEAD_BYTES: usize = HASH_BYTES + 2 + 4;

type FileHash = [u8; HASH_BYTES];

/// The record of the last snapshot, and the record that is being made of this one.
pub struct LastSnapshotRecord {
    store: Arc<Store>,
    /// Names the source.
    about: Vec<u8>,
    last: Option<ReadSnapshotRecord>,
    hash_key: [u8; HASH_KEY_BYTES],
    next: Mutex<NextSnapshotRecord>,
}

#[derive(Default)]
struct NextSnapshotRecord {
    /// Each with the layer of the last record that holds its content; `None` for this session's.
    rows: Vec<(FileHash, Option<u16>, Box<[u8]>)>,
    bytes: usize,
}

/// The record of the last snapshot.
struct ReadSnapshotRecord {
    hash_key: [u8; HASH_KEY_BYTES],
    layers: RecordLayers,
    contents: Zeroizing<Vec<u8>>,
    rows: Vec<RecordRow>,
    score_bytes: usize,
}

/// A row of the record of the last snapshot.
struct RecordRow {
    hash: FileHash,
    layer: u16,
    node: Range<usize>,
}

/// Why a record was not saved. The next snapshot reads every file again, and is otherwise as good.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SaveSnapshotRecordError {
    #[error("the state of the store cannot be read")]
    Mark(#[from] io::Error),
    /// A store that compares by value has no write-only keys.
    #[error("it is not known where the contents lie")]
    Unplaced,
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
    pub(super) fn load(store: &Arc<Store>, about: &[u8], is_used: bool) -> io::Result<Self> {
        let mut hash_key = [0; HASH_KEY_BYTES];
        store.world().random.fill(&mut hash_key)?;
        let last = is_used.then(|| ReadSnapshotRecord::load(store, about)).flatten();
        let (store, about) = (Arc::clone(store), about.to_vec());
        Ok(Self { store, about, last, hash_key, next: Mutex::default() })
    }

    /// Saves the record for the next snapshot. Everything that it leads to must be durable.
    ///
    /// # Errors
    /// [`SaveSnapshotRecordError`].
    pub(crate) fn save(&self) -> Result<(), SaveSnapshotRecordError> {
        let arenas = self.store.data_arenas().ok_or(SaveSnapshotRecordError::Unplaced)?;
        let mut next = self.next.lock();
        next.rows.sort_unstable();
        let used: BTreeSet<u16> = next.rows.iter().filter_map(|(_, layer, _)| *layer).collect();
        let layers = NextLayers::new(self.last.as_ref().map(|last| &last.layers), &used, arenas);
        let mut contents = Zeroizing::new(Vec::with_capacity(next.bytes));
        contents.extend_from_slice(&MAGIC);
        contents.extend_from_slice(&self.hash_key);
        layers.encode(&mut contents, &mut |arena| self.store.vault().mark_arena(arena))?;
        for (hash, layer, row) in &next.rows {
            let Some(layer) = layers.number(*layer) else { continue };
            push_row(&mut contents, hash, layer, row);
        }
        Ok(self.store.vault().write_own(&self.about, &contents)?)
    }
}

impl RememberedFiles for LastSnapshotRecord {
    fn recall(&self, path: &[u8], node: &Node) -> Option<Node> {
        let (_, known) = self.last.as_ref()?.find_file(path, node)?;
        let Node { content, xattrs, inode_flags, .. } = known;
        Some(Node { content, xattrs, inode_flags, ..node.clone() })
    }

    fn remember(&self, path: &[u8], node: &Node, origin: ContentOrigin) {
        let Some(hash) = hash(&self.hash_key, path, node) else { return };
        let layer = match origin {
            ContentOrigin::Read => None,
            ContentOrigin::Earlier => {
                let known = self.last.as_ref().and_then(|last| last.find_file(path, node));
                // Of any other earlier snapshot it is not known where its contents lie.
                let Some((layer, _)) = known.filter(|(_, known)| known.content == node.content) else {
                    return;
                };
                Some(layer)
            }
        };
        let mut kept = Node::new(Vec::new(), NodeKind::File);
        kept.content = node.content;
        kept.size = node.size;
        kept.xattrs.clone_from(&node.xattrs);
        kept.inode_flags = node.inode_flags;
        let row = kept.encode().into_boxed_slice();
        let mut next = self.next.lock();
        let bytes = next.bytes.saturating_add(row.len()).saturating_add(ROW_HEAD_BYTES);
        if bytes <= ROWS_BYTES_MAX {
            next.bytes = bytes;
            next.rows.push((hash, layer, row));
        }
    }
}

fn push_row(contents: &mut Vec<u8>, hash: &FileHash, layer: u16, row: &[u8]) {
    contents.extend_from_slice(hash);
    contents.extend_from_slice(&layer.to_le_bytes());
    contents.extend_from_slice(&u32::try_from(row.len()).unwrap_or(u32::MAX).to_le_bytes());
    contents.extend_from_slice(row);
}

impl ReadSnapshotRecord {
    fn load(store: &Store, about: &[u8]) -> Option<Self> {
        let contents = store.vault().read_own(about)?;
        let mut changed_count = 0_u64;
        let mut stands = |mark: &ArenaExtent| {
            let stands = store.vault().stands(mark);
            changed_count = changed_count.saturating_add(u64::from(!stands));
            stands
        };
        let record = Self::parse(contents, store.config().score_bytes(), &mut stands);
        if changed_count > 0 {
            tracing::info!(
                arenas = changed_count,
                "parts of the log were rewritten or lost since the last snapshot: the files in them are read again"
            );
        }
        record
    }

    fn parse(
        contents: Zeroizing<Vec<u8>>,
        score_bytes: usize,
        stands: &mut dyn FnMut(&ArenaExtent) -> bool,
    ) -> Option<Self> {
        let body = contents.strip_prefix(&MAGIC)?;
        let (hash_key, body) = body.split_first_chunk()?;
        let hash_key = *hash_key;
        let (layers, body) = RecordLayers::decode(body, stands)?;
        let mut rows: Vec<RecordRow> = Vec::new();
        let mut place = contents.len().checked_sub(body.len())?;
        while place < contents.len() {
            let row = contents.get(place..)?;
            let (hash, row) = row.split_first_chunk()?;
            let (layer, row) = row.split_first_chunk()?;
            let (length, _) = row.split_first_chunk()?;
            let start = place.checked_add(ROW_HEAD_BYTES)?;
            let end = start.checked_add(to_usize(u32::from_le_bytes(*length)))?;
            contents.get(start..end)?;
            rows.push(RecordRow { hash: *hash, layer: u16::from_le_bytes(*layer), node: start..end });
            place = end;
        }
        let is_sorted = rows.is_sorted_by(|one, next| one.hash <= next.hash);
        is_sorted.then_some(Self { hash_key, layers, contents, rows, score_bytes })
    }

    /// Returns the recorded content of an unchanged file and its layer, if the content is still
    /// there.
    fn find_file(&self, path: &[u8], node: &Node) -> Option<(u16, Node)> {
        let (layer, known) = self.find(&hash(&self.hash_key, path, node)?)?;
        (known.size == node.size).then_some((layer, known))
    }

    fn find(&self, hash: &FileHash) -> Option<(u16, Node)> {
        let place = self.rows.binary_search_by(|row| row.hash.cmp(hash)).ok()?;
        let row = self.rows.get(place).filter(|row| self.layers.stands(row.layer))?;
        let node = Node::decode_root(self.contents.get(row.node.clone())?, self.score_bytes).ok()?;
        Some((row.layer, node))
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

    fn contents(rows: &[(FileHash, u16, &[u8])]) -> Vec<u8> {
        let mut contents = [&MAGIC[..], &[0; HASH_KEY_BYTES]].concat();
        let layers = NextLayers::new(None, &BTreeSet::new(), BTreeSet::new());
        layers.encode(&mut contents, &mut |_| unreachable!("there are no arenas")).unwrap();
        rows.iter().for_each(|(hash, layer, row)| push_row(&mut contents, hash, *layer, row));
        contents
    }

    fn parsed(rows: &[(FileHash, u16, &[u8])]) -> Option<ReadSnapshotRecord> {
        ReadSnapshotRecord::parse(Zeroizing::new(contents(rows)), 32, &mut |_| true)
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
        let rows: [(_, _, &[u8]); 4] =
            [([1; 16], 0, &node), ([2; 16], 0, b"\xff\xff"), ([4; 16], 0, &node), ([5; 16], 1, &node)];
        let record = parsed(&rows).unwrap();
        assert!(record.find(&[1; 16]).is_some() && record.find(&[4; 16]).is_some());
        assert!(record.find(&[2; 16]).is_none() && record.find(&[3; 16]).is_none());
        assert!(record.find(&[5; 16]).is_none(), "there is no such layer");
        assert!(parsed(&[rows[1], rows[0]]).is_none(), "out of order");
        let whole = contents(&rows);
        for length in 0..whole.len() {
            drop(ReadSnapshotRecord::parse(Zeroizing::new(whole[..length].to_vec()), 32, &mut |_| true));
        }
        let of_an_old_build = Zeroizing::new([&[0; 80][..], &whole[46..]].concat());
        assert!(ReadSnapshotRecord::parse(of_an_old_build, 32, &mut |_| true).is_none());
    }
}
