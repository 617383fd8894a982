//! Reads a restored image back, and compares it.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::Path;

use rustix::fs::{Advice, fadvise};
use varve_block::BlockStore;

use super::part::ImagePart;
use crate::browsing::reading_content::ReadContentError;
use crate::progress::Progress;
use crate::restoring::comparison::{ReadBackDifference, compare_bytes, compare_zeros};

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
    // This drops synced data from the page cache, so that it is read from the disk.
    let _ = fadvise(&file, 0, None, Advice::DontNeed);
    let mut passed = 0;
    let mut unlike = None;
    let mut take = |offset: u64, bytes: &[u8]| {
        if progress.is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let found = compare_zeros(&file, passed..offset).and_then(|()| compare_bytes(&file, offset, bytes));
        passed = offset + bytes.len() as u64;
        found.map_err(|found| {
            unlike = Some(found);
            io::ErrorKind::Other.into()
        })
    };
    let mut lost = |_, damage| if keeps_damaged { Ok(()) } else { Err(damage) };
    let read = image.read_with(blocks, 0..image.size(), &mut take, &mut lost);
    match (unlike, read) {
        (Some(unlike), _) => Err(unlike),
        (None, Ok(())) => compare_zeros(&file, passed..image.size()),
        (None, Err(ReadContentError::Take(error))) => Err(ReadBackDifference::Read(error)),
        (None, Err(error)) => Err(ReadBackDifference::Content(Box::new(error))),
    }
}
