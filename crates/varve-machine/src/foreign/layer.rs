//! Finds an image and all its backing files, checks them against the folders that the user allows,
//! and describes them for QEMU.
//!
//! An image names other files, and may have been written by someone who must not read them: a guest
//! that writes a qcow2 header to its raw disk, or the author of a downloaded image. So no other
//! file is opened unless it lies in a folder that the user has named. QEMU is told the path and
//! format of each file, so that it looks for none by itself.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use varve_archive::LeftOutRecord;
use varve_block::visible;

use super::header::ImageFormat;
use super::header_fields::NamedFile;
use crate::image_file;
use crate::visible::visible_path;

/// The largest number of images in a backing chain.
const LAYERS_MAX: usize = 64;

/// The reason why an image cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// It cannot be opened, or is invalid.
    #[error("{path}: cannot be read as {}", format.name(), path = visible_path(path))]
    Read {
        path: PathBuf,
        /// The expected format.
        format: ImageFormat,
        source: io::Error,
    },
    /// It names another file, which the user has not allowed.
    #[error(
        "{path} needs {named}, a name that the owner of the image may have chosen: if you trust it, allow its folder with --allow-backing", path = visible_path(path)
    )]
    NotAllowed {
        path: PathBuf,
        /// The name of the other file.
        named: String,
    },
    /// It names a path that is not a file.
    #[error("{path} needs {named}, which is not a file on this machine", path = visible_path(path))]
    NoFile {
        path: PathBuf,
        /// The name of the other file.
        named: String,
    },
    /// Its backing image has an unknown format.
    #[error("{path} has a backing image in the unknown format {format}", path = visible_path(path))]
    Format {
        path: PathBuf,
        /// The name of the format in the header.
        format: String,
    },
    /// It is its own backing image, or the chain is too long.
    #[error("{path} has more than {LAYERS_MAX} backing images, or is its own", path = visible_path(path))]
    Endless {
        /// The first image.
        path: PathBuf,
    },
    /// It is truncated.
    #[error(
        "{path} is cut short: it has {actual} of {needed} bytes, and the missing part would be archived as zeros; --format raw archives the file as it is", path = visible_path(path)
    )]
    Short {
        /// The image, or another file that it needs.
        path: PathBuf,
        /// The length of the file.
        actual: u64,
        /// The length according to the image.
        needed: u64,
    },
    /// Its path cannot be passed to QEMU.
    #[error("{path}: QEMU cannot open a path that is not UTF-8", path = visible_path(path))]
    Path { path: PathBuf },
}

/// An image with its backing chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layers {
    /// The block node that QEMU must open.
    pub node: Value,
    /// The images from the top down, and for each the block node without its backing image.
    pub alone: Vec<(PathBuf, ImageFormat, Value)>,
    /// All files.
    pub files: Vec<PathBuf>,
    /// The size of the disk, if the header of the top image states it.
    pub disk_bytes: Option<u64>,
    /// The snapshots inside the images, which are not part of the disk.
    pub inner_snapshots: Vec<InnerSnapshots>,
}

/// The snapshots inside one image (qcow2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InnerSnapshots {
    /// The image.
    pub path: PathBuf,
    count: u32,
    /// The names of the first ones.
    names: Vec<String>,
}

impl InnerSnapshots {
    pub(super) fn as_left_out(&self) -> LeftOutRecord {
        let mut names = self.names.clone();
        let more = u64::from(self.count).saturating_sub(names.len() as u64);
        if more > 0 {
            names.push(format!("{more} more"));
        }
        let snapshots = if self.count == 1 { "1 snapshot" } else { &format!("{} snapshots", self.count) };
        let what = format!("{snapshots} inside {}: {}", visible_path(&self.path), names.join(", "));
        LeftOutRecord::beside_the_disk(&what, "only the current state of the disk is archived")
    }
}

/// Finds all files of an image. Those that it names must lie in one of the folders `allowed`.
pub(super) fn layers(path: &Path, format: ImageFormat, allowed: &[PathBuf]) -> Result<Layers, LayerError> {
    let allowed: Vec<_> = allowed.iter().filter_map(|folder| folder.canonicalize().ok()).collect();
    let mut files = Vec::new();
    // From the top down; the block nodes are built from the bottom up.
    let mut alone: Vec<(PathBuf, ImageFormat, Value)> = Vec::new();
    let mut next = Some((path.to_owned(), format));
    let (mut disk_bytes, mut inner_snapshots) = (None, Vec::new());
    while let Some((path, format)) = next.take() {
        if alone.len() == LAYERS_MAX || files.contains(&path) {
            return Err(LayerError::Endless { path: files.swap_remove(0) });
        }
        let failed = |source| LayerError::Read { path: path.clone(), format, source };
        let file = image_file::open(&path).map_err(failed)?;
        let header = format.header(&file).map_err(failed)?;
        not_shorter(&path, &file, header.bytes_min)?;
        if alone.is_empty() {
            disk_bytes = header.disk_bytes;
        }
        if header.snapshot_count > 0 {
            let (count, names) = (header.snapshot_count, header.snapshot_names);
            inner_snapshots.push(InnerSnapshots { path: path.clone(), count, names });
        }
        let mut node = json!({ "driver": format.name(), "file": protocol(&path)? });
        files.push(path.clone());
        match format {
            ImageFormat::Qcow2 | ImageFormat::Vmdk => node["backing"] = Value::Null,
            // A VHD has its size in bytes, and rounded down in cylinders. QEMU believes the
            // cylinders of all makers but a few.
            ImageFormat::Vpc => node["force_size_calc"] = "current_size".into(),
            _ => {}
        }
        if let Some(named) = &header.data_file {
            let (data, _) = find_whole(&path, named, &allowed)?;
            node["data-file"] = protocol(&data)?;
            files.push(data);
        }
        for named in &header.extents {
            let (extent, file) = find_whole(&path, named, &allowed)?;
            let own = ImageFormat::Vmdk.header(&file);
            // An extent may itself be a list of extents. No program makes such images.
            if own.is_ok_and(|own| !own.extents.is_empty()) {
                return Err(LayerError::NotAllowed {
                    path,
                    named: format!("{}, which needs other files", visible(&named.name)),
                });
            }
            files.push(extent);
        }
        if let Some((named, said)) = &header.backing {
            let backing = find(&path, named, &allowed)?;
            let known = match said {
                Some(name) => ImageFormat::from_name(name)
                    .ok_or_else(|| LayerError::Format { path: path.clone(), format: visible(name) })?,
                None => {
                    image_file::open(&backing).and_then(|file| ImageFormat::detect(&file)).map_err(failed)?
                }
            };
            next = Some((backing, known));
        }
        alone.push((path, format, node));
    }
    let node = alone.iter().map(|(.., node)| node.clone()).rev().reduce(|below, mut above| {
        above["backing"] = below;
        above
    });
    Ok(Layers { node: node.unwrap_or_default(), alone, files, disk_bytes, inner_snapshots })
}

/// Resolves the name of a file in an image.
fn find(image: &Path, named: &str, allowed: &[PathBuf]) -> Result<PathBuf, LayerError> {
    let no_file = || LayerError::NoFile { path: image.into(), named: visible(named) };
    // QEMU interprets a name with a colon before any slash as a protocol.
    let path = named.strip_prefix("file:").unwrap_or(named);
    if path.split('/').next().is_some_and(|start| start.contains(':')) {
        return Err(no_file());
    }
    let folder = image.canonicalize().ok().and_then(|image| image.parent().map(Path::to_owned));
    let whole = folder.unwrap_or_default().join(path);
    // Checked before the file is accessed: an image must not reveal the existence of a file either.
    let not_allowed = || LayerError::NotAllowed { path: image.into(), named: visible_path(&whole) };
    if allowed.is_empty() {
        return Err(not_allowed());
    }
    let real = whole.canonicalize().map_err(|_| no_file())?;
    if !allowed.iter().any(|folder| real.starts_with(folder)) {
        return Err(not_allowed());
    }
    Ok(real)
}

/// Opens a file that an image names, and checks its length.
fn find_whole(image: &Path, named: &NamedFile, allowed: &[PathBuf]) -> Result<(PathBuf, File), LayerError> {
    let path = find(image, &named.name, allowed)?;
    let failed = |source| LayerError::Read { path: path.clone(), format: ImageFormat::Raw, source };
    let file = image_file::open(&path).map_err(failed)?;
    not_shorter(&path, &file, named.bytes_min)?;
    Ok((path, file))
}

fn not_shorter(path: &Path, mut file: &File, needed: u64) -> Result<(), LayerError> {
    // Seeking also gives the size of a device.
    let actual = file.seek(SeekFrom::End(0)).map_err(|source| LayerError::Read {
        path: path.into(),
        format: ImageFormat::Raw,
        source,
    })?;
    if actual < needed {
        return Err(LayerError::Short { path: path.into(), actual, needed });
    }
    Ok(())
}

/// Returns the protocol node for a file. The path is without links, since QEMU resolves the names
/// in the file relative to it.
pub(super) fn protocol(path: &Path) -> Result<Value, LayerError> {
    let whole = path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.into());
    let name = whole.to_str().ok_or_else(|| LayerError::Path { path: path.into() })?;
    let kind = fs::metadata(path).map(|metadata| metadata.file_type());
    let driver = if kind.is_ok_and(|kind| kind.is_block_device()) { "host_device" } else { "file" };
    Ok(json!({ "driver": driver, "filename": name }))
}
