//! Restores an image in a format other than raw: QEMU makes an empty one and this program fills it,
//! so it occupies only the space that it needs.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use varve_block::BlockStore;
use varve_content::image::{ImagePart, RestoreImageError, ServedImage, fill_image, make_image};
use varve_content::{DamageList, PRIVATE, Progress};
use varve_world::Workers;

use super::layer::protocol;
use super::qemu_img::{qemu_img, refused};
use super::{ImageFormat, OpenForeignError, QemuNbd};

/// The unit to which a format may round up the size of a disk: a sector.
const SECTOR_BYTES: u64 = 512;

/// The reason why an image was not restored. Existing files are unchanged.
#[derive(Debug, thiserror::Error)]
pub enum RestoreForeignError {
    /// The image could not be filled, or the destination exists.
    #[error("{0}")]
    Restore(#[from] RestoreImageError),
    /// QEMU failed.
    #[error("{0}")]
    Qemu(#[from] OpenForeignError),
    /// A block device can only hold a raw image.
    #[error("{path} is a block device: only a raw image can be written to it", path = path.display())]
    Device { path: PathBuf },
    /// The format does not support a disk of this size.
    #[error("{path}: the disk would have {actual} bytes as {format}, but the image has {needed}", path = path.display())]
    Size {
        path: PathBuf,
        /// QEMU's name for the format.
        format: &'static str,
        /// The size of the image that QEMU made.
        actual: u64,
        /// The size of the disk.
        needed: u64,
    },
}

/// A file that an image is restored to.
#[derive(Debug, Clone, Copy)]
pub struct ForeignFile<'a> {
    pub path: &'a Path,
    pub format: ImageFormat,
}

/// Restores an image to a file in a format that QEMU supports. The file appears only when it is
/// complete, and a failure leaves nothing to resume. With `damaged`, unreadable ranges become zeros
/// and are added to the list. A size that is not a multiple of a sector is rounded up.
///
/// # Errors
/// [`RestoreForeignError`].
pub fn restore_foreign(
    blocks: &dyn BlockStore,
    workers: &dyn Workers,
    image: &ImagePart,
    to: ForeignFile<'_>,
    overwrite: bool,
    damaged: Option<&DamageList>,
    progress: &Progress,
) -> Result<(), RestoreForeignError> {
    let ForeignFile { path: destination, format } = to;
    if fs::metadata(destination).is_ok_and(|existing| existing.file_type().is_block_device()) {
        return Err(RestoreForeignError::Device { path: destination.into() });
    }
    make_image(destination, overwrite, PRIVATE, |_, partial| {
        // The path is made absolute: QEMU may interpret the beginning of a relative one as
        // something other than a path.
        let partial = std::path::absolute(partial)
            .map_err(|source| RestoreImageError::Write { path: destination.into(), source })?;
        make(&partial, format, image.size())?;
        fill(blocks, workers, image, ForeignFile { path: &partial, format }, damaged, progress)
    })
}

/// Makes an empty image.
fn make(partial: &Path, format: ImageFormat, size: u64) -> Result<(), RestoreForeignError> {
    let (partial_name, size) = (partial.as_os_str(), size.to_string());
    let mut args: Vec<&OsStr> = ["create", "-q", "-f", format.name()].map(OsStr::new).to_vec();
    if format == ImageFormat::Vpc {
        // Otherwise the size is rounded up to one that cylinders and heads can express.
        args.extend(["-o", "force_size=on"].map(OsStr::new));
    }
    args.extend([partial_name, OsStr::new(&size)]);
    let ended = qemu_img(args)?;
    if ended.status.success() { Ok(()) } else { Err(refused(partial, &ended).into()) }
}

fn fill(
    blocks: &dyn BlockStore,
    workers: &dyn Workers,
    image: &ImagePart,
    to: ForeignFile<'_>,
    damaged: Option<&DamageList>,
    progress: &Progress,
) -> Result<(), RestoreForeignError> {
    let ForeignFile { path: partial, format } = to;
    let failed = |source| OpenForeignError::Connect { path: partial.into(), source };
    let file = protocol(partial).map_err(OpenForeignError::from)?;
    let node = json!({ "driver": format.name(), "file": file });
    let mut server = QemuNbd::start(&[format!("json:{node}").into()])?;
    let disk = server.connect(partial)?;
    let (actual, needed) = (disk.size(), image.size());
    if actual < needed || actual - needed >= SECTOR_BYTES {
        return Err(RestoreForeignError::Size {
            path: partial.into(),
            format: format.name(),
            actual,
            needed,
        });
    }
    fill_image(blocks, workers, image, &disk, partial, damaged, progress)?;
    disk.flush().map_err(failed)?;
    drop(disk);
    Ok(server.finish(partial)?)
}
