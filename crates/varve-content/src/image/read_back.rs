//! Reads a restored image back, and compares it.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use varve_block::BlockStore;

use super::part::ImagePart;
use crate::progress::Progress;
use crate::restoring::comparison::{ReadBackDifference, compare_content};

/// Reads a raw image, or a part of one, back from a file or a block device, bypassing the page
/// cache where the system allows it. With `keeps_damaged`, ranges that are unreadable in the store
/// are not compared.
///
/// # Errors
/// [`ReadBackDifference`] names the first difference.
pub fn read_back_image(
    blocks: &dyn BlockStore,
    image: &ImagePart,
    destination: &Path,
    keeps_damaged: bool,
    progress: &Progress,
) -> Result<(), ReadBackDifference> {
    let mut file = File::open(destination).map_err(ReadBackDifference::Read)?;
    let size = file.seek(SeekFrom::End(0)).map_err(ReadBackDifference::Read)?;
    let is_file = file.metadata().map_err(ReadBackDifference::Read)?.is_file();
    if size < image.size() || (is_file && size > image.size()) {
        return Err(ReadBackDifference::Status { what: "the size" });
    }
    let mut lost = |_, damage| if keeps_damaged { Ok(()) } else { Err(damage) };
    compare_content(&file, image.size(), progress, |take| {
        image.read_with(blocks, 0..image.size(), take, &mut lost)
    })
}
