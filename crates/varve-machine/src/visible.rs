//! Formats paths from images for errors that go to a terminal.

use std::path::Path;

use varve_block::visible;

/// Formats a path in one line, with all characters escaped that could mislead a terminal.
pub(crate) fn visible_path(path: &Path) -> String {
    visible(&path.display().to_string())
}
