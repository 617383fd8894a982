//! Paths that images name, in errors that go to a terminal.

use std::path::Path;

use varve_block::visible;

/// A path, in one line, with everything that could mislead a terminal made visible.
pub(crate) fn visible_path(path: &Path) -> String {
    visible(&path.display().to_string())
}
