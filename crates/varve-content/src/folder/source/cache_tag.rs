//! Detects folders that are marked as caches.

use std::io;
use std::os::fd::AsFd;

use super::status::open_file;

/// The name of the file that marks a folder as a cache: <https://bford.info/cachedir/>.
pub(super) const CACHE_TAG_NAME: &[u8] = b"CACHEDIR.TAG";
/// The first bytes of that file.
const CACHE_TAG_SIGNATURE: &[u8; 43] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// Returns whether the tag file in this folder is valid: it begins with the signature.
pub(super) fn is_cache(folder: impl AsFd) -> bool {
    let read = || -> io::Result<bool> {
        let tag = open_file(folder, CACHE_TAG_NAME)?;
        let mut start = [0; CACHE_TAG_SIGNATURE.len()];
        Ok(rustix::io::pread(tag, &mut start, 0)? == start.len() && start == *CACHE_TAG_SIGNATURE)
    };
    // An unreadable tag does not count. The error is reported when the tag is archived.
    read().unwrap_or(false)
}
