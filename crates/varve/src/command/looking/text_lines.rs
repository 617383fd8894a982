//! The lines in which two versions of a text differ.

use anyhow::Result;
use varve_block::{to_usize, visible};
use varve_content::{LineKind, NodeKind, Tree, as_text, text_difference, without_line_end};

use crate::colour::{Tone, paint};

/// Larger files are not compared line by line.
const COMPARED_BYTES_MAX: u64 = 1 << 20;
/// More lines than this are not printed of one file.
const PRINTED_BYTES_MAX: usize = 1 << 20;

/// Prints the lines in which two files differ. Reports false if one of them is no text, or too
/// large.
pub fn print(old: Tree<'_>, new: Tree<'_>) -> Result<bool> {
    let (Some(old), Some(new)) = (text_of(old)?, text_of(new)?) else { return Ok(false) };
    let (lines, is_cut) = text_difference(&old, &new, PRINTED_BYTES_MAX, &shown);
    for line in lines {
        let text = line.text;
        match line.kind {
            LineKind::Same => list!("   {text}"),
            LineKind::Removed => list!("  {}", paint(&format!("-{text}"), Tone::Bad)),
            LineKind::Added => list!("  {}", paint(&format!("+{text}"), Tone::Good)),
            LineKind::Gap => list!("  ~"),
        }
    }
    if is_cut {
        list!("  ~ there are more");
    }
    Ok(true)
}

/// Returns a line of a text without its end. Tabs stay.
fn shown(line: &str) -> String {
    without_line_end(line).split('\t').map(visible).collect::<Vec<_>>().join("\t")
}

fn text_of(file: Tree<'_>) -> Result<Option<String>> {
    if file.root.kind != NodeKind::File || file.root.size > COMPARED_BYTES_MAX {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    // Holes are zeros, and a file with zeros is no text.
    file.files.read(file.root, 0..file.root.size, &mut |offset, part| {
        bytes.resize(to_usize(offset.min(COMPARED_BYTES_MAX)), 0);
        bytes.extend_from_slice(part);
        Ok(())
    })?;
    let is_whole = bytes.len() as u64 == file.root.size;
    Ok(as_text(&bytes).filter(|_| is_whole).map(str::to_owned))
}
