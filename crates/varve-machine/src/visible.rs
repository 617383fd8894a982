//! Text from outside, with everything that could mislead a terminal made visible: what an image names, what QEMU or a guest's agent says. It goes
//! into errors, and these to a terminal.

use std::path::Path;

/// The text, in one line.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

/// A path, in one line.
pub(crate) fn visible_path(path: &Path) -> String {
    visible(&path.display().to_string())
}
