//! An open disk image: its volumes and their file systems.

use std::ops::Range;
use std::sync::Arc;

use varve_block::to_usize;
use varve_content::image::{CachedBlocks, ImageReader};
use varve_image::{Disk, FileSystem, ReadAt};
use varve_tree::{Entry, ReadTreeError};

/// The name of the file that shows the whole disk.
const WHOLE: &[u8] = b"disk.raw";

/// A disk image of a snapshot. It holds the tables of its file systems in memory, so only a few are
/// open at a time.
pub(super) struct OpenDisk {
    pub(super) image: Arc<ImageReader>,
    parts: Vec<DiskVolume>,
}

/// A volume. It is shown as files if its file system can be read, otherwise as raw bytes.
struct DiskVolume {
    name: Vec<u8>,
    raw_name: Vec<u8>,
    bytes: Arc<dyn ReadAt>,
    /// The ranges of the image that make up the volume, in the volume's order.
    pieces: Vec<Range<u64>>,
    files: Option<Arc<dyn FileSystem>>,
}

/// An entry in the folder of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DiskChild {
    /// The file system of the volume with this number.
    Files(u32),
    /// The raw bytes of the volume with this number.
    Raw(u32),
    /// The bytes of the whole disk.
    Whole,
}

impl OpenDisk {
    pub(super) fn open(snapshot: &str, blocks: &Arc<CachedBlocks>, entry: &Entry) -> Self {
        let image = Arc::new(ImageReader::new(Arc::clone(blocks), entry));
        let disk = Disk::open(Arc::clone(&image) as Arc<dyn ReadAt>);
        for problem in disk.problems() {
            tracing::warn!(snapshot, %problem, "a disk has a problem");
        }
        let parts = disk.volumes().iter().map(|volume| {
            let files = volume.open_file_system();
            let name = safe_name(volume.name());
            if let Err(error) = &files {
                tracing::info!(snapshot, volume = volume.name(), %error, "a volume is shown as raw bytes");
            }
            if let Some(warning) = files.as_ref().ok().and_then(|files| files.warning()) {
                tracing::warn!(snapshot, volume = volume.name(), "{warning}");
            }
            let (raw_name, pieces) = ([&name, &b".raw"[..]].concat(), volume.pieces().to_vec());
            DiskVolume { raw_name, name, bytes: volume.read(), pieces, files: files.ok() }
        });
        Self { parts: parts.collect(), image }
    }

    /// The entries of the disk's folder, in order.
    pub(super) fn children(&self) -> impl Iterator<Item = (&[u8], DiskChild)> {
        let shown = (0u32..).zip(&self.parts).map(|(number, part)| match part.files {
            Some(_) => (part.name.as_slice(), DiskChild::Files(number)),
            None => (part.raw_name.as_slice(), DiskChild::Raw(number)),
        });
        shown.chain(std::iter::once((WHOLE, DiskChild::Whole)))
    }

    fn part(&self, number: u32) -> Option<&DiskVolume> {
        self.parts.get(to_usize(number))
    }

    /// The file system of a volume, if it can be read.
    pub(super) fn files(&self, part: u32) -> Option<&Arc<dyn FileSystem>> {
        self.part(part)?.files.as_ref()
    }

    /// The name of a volume, for messages.
    pub(super) fn name(&self, part: u32) -> String {
        self.part(part).map_or_else(String::new, |part| String::from_utf8_lossy(&part.name).into_owned())
    }

    /// The raw bytes of a volume.
    pub(super) fn bytes(&self, part: u32) -> Option<&Arc<dyn ReadAt>> {
        Some(&self.part(part)?.bytes)
    }

    /// The ranges of the image that make up a volume, in the volume's order.
    pub(super) fn pieces(&self, part: u32) -> Option<&[Range<u64>]> {
        Some(&self.part(part)?.pieces)
    }

    /// The first range of data (not a hole) at or after `offset`, in offsets of the volume.
    pub(super) fn next_data(&self, part: u32, offset: u64) -> Result<Option<Range<u64>>, ReadTreeError> {
        let mut before = 0_u64;
        for piece in self.pieces(part).unwrap_or_default() {
            let end = before.saturating_add(piece.end.saturating_sub(piece.start));
            if offset < end {
                let from = piece.start.saturating_add(offset.saturating_sub(before));
                if let Some(data) = self.image.next_data_in(from..piece.end)? {
                    let inside = |at: u64| at.saturating_sub(piece.start).saturating_add(before);
                    return Ok(Some(inside(data.start)..inside(data.end)));
                }
            }
            before = end;
        }
        Ok(None)
    }
}

/// Turns a volume's name into a single path component. The name may not be a valid component: a
/// hostile disk can hold any bytes.
pub(crate) fn safe_name(name: &str) -> Vec<u8> {
    let safe: Vec<u8> = name.bytes().map(|byte| if matches!(byte, b'/' | 0) { b'_' } else { byte }).collect();
    if matches!(safe.as_slice(), b"" | b"." | b"..") { b"_".to_vec() } else { safe }
}
