//! The files of content keys.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use varve_edition::{BlockForm, EditionContentKey};
use zeroize::Zeroizing;

/// The longest file of a key that is read, in bytes.
pub const KEY_FILE_BYTES_MAX: u64 = 4096;

/// Reads a content key. As with the key file of a store, a file of the user that others may read is
/// refused.
pub fn read_content_key(file: &Path) -> Result<EditionContentKey> {
    let opened = varve_session::open_secret_file(file, "content key")?;
    let context = || format!("cannot read the content key {}", file.display());
    let mut text = Zeroizing::new(Vec::new());
    opened.take(KEY_FILE_BYTES_MAX + 1).read_to_end(&mut text).with_context(context)?;
    if text.len() as u64 > KEY_FILE_BYTES_MAX {
        bail!("{}: it is too long for a content key", file.display());
    }
    // The error of a text that is not UTF-8 would show it.
    EditionContentKey::from_text(std::str::from_utf8(&text).unwrap_or_default()).with_context(context)
}

/// Reads content keys, and returns the forms of the blocks that they open.
pub fn block_forms(files: &[PathBuf]) -> Result<Vec<BlockForm>> {
    files.iter().map(|file| read_content_key(file).map(|key| key.form())).collect()
}
