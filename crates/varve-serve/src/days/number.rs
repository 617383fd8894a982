//! File numbers in the tree of days.

use varve_image::FileId;

pub(crate) const ROOT: FileId = FileId(1);

/// Derives a file number from the first eight bytes of a keyed hash. The result is never 0 and
/// never the number of the root.
pub(crate) fn number(key: &[u8; 32], parts: &[&[u8]]) -> FileId {
    let mut hasher = blake3::Hasher::new_keyed(key);
    for part in parts {
        hasher.update(part);
    }
    let mut number = [0; 8];
    hasher.finalize_xof().fill(&mut number);
    FileId(u64::from_le_bytes(number).max(ROOT.0 + 1))
}
