//! Opens the trees of a file system: the superblock has the chunks that hold the chunk tree, and
//! the chunk tree has all others.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use super::chunks::ChunkMap;
use super::damaged;
use super::key::{KEY_BYTES, TreeKey, kind, object};
use super::log::ReplayedLogs;
use super::logical::LogicalBytes;
use super::superblock::BtrfsSuperblock;
use super::tree_root::TreeRoot;
use super::trees::Trees;
use crate::bytes::fields::array_at;
use crate::bytes::read_at::ReadAt;
use crate::file_systems::file_system::FileSystemError;

/// The place of a device's UUID in its item.
const DEVICE_UUID_AT: usize = 66;

/// All trees, and a warning if they show less than a mount would.
pub(super) struct OpenTrees {
    pub(super) trees: Trees,
    /// The logs that were replayed and have checksums of data.
    pub(super) logged_checksums: Vec<TreeRoot>,
    pub(super) warning: Option<String>,
}

fn uuid_text(uuid: [u8; 16]) -> String {
    let mut text = String::new();
    for (place, byte) in uuid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&place) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

impl OpenTrees {
    pub(super) fn open(volume: Arc<dyn ReadAt>) -> Result<Self, FileSystemError> {
        let superblock = BtrfsSuperblock::read(&volume)?;
        let first = LogicalBytes::new(Arc::clone(&volume), first_chunks(&superblock)?, BTreeMap::new());
        let trees = Trees::new(first, superblock.clone());
        let mut warnings = Vec::new();
        if superblock.is_copy {
            warnings.push("the first superblock is damaged, and a copy of it was used".to_owned());
        }
        let mut chunks = first_chunks(&superblock)?;
        let key = |offset| TreeKey::new(object::FIRST_FREE, kind::CHUNK, offset);
        for item in trees.range(&superblock.chunk_root, key(0), key(u64::MAX)) {
            let added = item.and_then(|item| {
                let logical = item.key().offset;
                let what = || format!("chunk at the address {logical}");
                chunks.add(logical, item.data(), &superblock).map_err(|problem| damaged(what(), problem))
            });
            if let Err(error) = added {
                // The tree is whole, and on other devices.
                if matches!(error, FileSystemError::Unsupported { .. }) {
                    return Err(error);
                }
                warnings.push(error.to_string());
                // More of them say no more.
                if warnings.len() > 3 {
                    break;
                }
            }
        }
        let mut devices = BTreeMap::new();
        let key = |offset| TreeKey::new(object::DEVICES, kind::DEVICE, offset);
        for item in trees.range(&superblock.chunk_root, key(0), key(u64::MAX)).flatten() {
            if item.key().offset != superblock.device {
                devices.insert(item.key().offset, uuid_text(array_at(item.data(), DEVICE_UUID_AT)));
            }
        }
        if !devices.is_empty() {
            let names: Vec<_> = devices.iter().map(|(id, uuid)| format!("{id} ({uuid})")).collect();
            warnings.push(format!(
                "this is device {} of several, and content that only the others have cannot be read: {}",
                superblock.device,
                names.join(", ")
            ));
        }
        let bytes = LogicalBytes::new(volume, chunks, devices);
        let trees = Trees::new(bytes, superblock);
        let logs = ReplayedLogs::of(&trees);
        warnings.extend(logs.warnings);
        let warning = (!warnings.is_empty()).then(|| warnings.join("; "));
        let trees = trees.with_patches(logs.patches);
        Ok(Self { trees, logged_checksums: logs.checksums, warning })
    }
}

/// Reads the list of chunks in the superblock.
fn first_chunks(superblock: &BtrfsSuperblock) -> Result<ChunkMap, FileSystemError> {
    let wrong = |problem: &str| damaged("list of chunks in the superblock", problem);
    let mut chunks = ChunkMap::default();
    let mut rest = superblock.first_chunks.as_slice();
    while let Some((key, after)) = rest.split_at_checked(KEY_BYTES) {
        let key = TreeKey::parse(key);
        if key.kind != kind::CHUNK {
            return Err(wrong("it has another item"));
        }
        let length = chunks.add(key.offset, after, superblock).map_err(wrong)?;
        rest = after.get(length..).unwrap_or_default();
    }
    Ok(chunks)
}
