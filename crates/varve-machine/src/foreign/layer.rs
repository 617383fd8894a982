//! An image and all the files that it stands on: found, held against what the user allows, and put in words for QEMU.
//!
//! An image names other files, and may have been filled by somebody who should not read them: a guest that writes the header of a
//! qcow2 to its raw disk, an image that was downloaded. So no other file is opened unless it lies in a folder that the user has named, and
//! QEMU is told of each file by its path and format, so that it looks for none by itself.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use varve_block::visible;

use super::header::{ImageFormat, NamedFile};
use crate::image_file;
use crate::visible::visible_path;

/// How many images may stand on each other.
const LAYERS_MAX: usize = 64;

/// Why an image cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// It cannot be opened, or makes no sense.
    #[error("{path}: cannot be read as {}", format.name(), path = visible_path(path))]
    Read {
        /// The image.
        path: PathBuf,
        /// What it was taken for.
        format: ImageFormat,
        /// What went wrong below.
        source: io::Error,
    },
    /// It names another file, and nobody has allowed that.
    #[error(
        "{path} needs {named}, and whoever filled the image may have chosen that: if it is as it should be, allow its folder with --allow-backing", path = visible_path(path)
    )]
    NotAllowed {
        /// The image.
        path: PathBuf,
        /// What it names.
        named: String,
    },
    /// It names something that is no file.
    #[error("{path} needs {named}, which is no file on this machine", path = visible_path(path))]
    NoFile {
        /// The image.
        path: PathBuf,
        /// What it names.
        named: String,
    },
    /// It stands on an image in a format that is not known.
    #[error("{path} stands on an image in the format {format}, which is not known here", path = visible_path(path))]
    Format {
        /// The image.
        path: PathBuf,
        /// What it says.
        format: String,
    },
    /// It stands on itself, or on too many.
    #[error("{path} stands on more than {LAYERS_MAX} images, or on itself", path = visible_path(path))]
    Endless {
        /// The first image.
        path: PathBuf,
    },
    /// It is cut short.
    #[error(
        "{path} has {actual} bytes of the {needed} that it should have, and what is missing would be archived as zeros: --format raw archives the file as it is", path = visible_path(path)
    )]
    Short {
        /// The image, or another file that it needs.
        path: PathBuf,
        /// How long it is.
        actual: u64,
        /// How long it is, by what the image says.
        needed: u64,
    },
    /// Its path cannot be told to QEMU.
    #[error("{path}: QEMU takes no path that is not UTF-8", path = visible_path(path))]
    Path {
        /// The image.
        path: PathBuf,
    },
}

/// An image with all that it stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layers {
    /// What QEMU is to open.
    pub node: Value,
    /// The images from the top down, and what QEMU is to open to see one of them without what it stands on.
    pub alone: Vec<(PathBuf, ImageFormat, Value)>,
    /// All the files.
    pub files: Vec<PathBuf>,
}

/// Finds all the files of an image. Those that it names must lie in one of the folders `allowed`.
pub(super) fn layers(path: &Path, format: ImageFormat, allowed: &[PathBuf]) -> Result<Layers, LayerError> {
    let allowed: Vec<_> = allowed.iter().filter_map(|folder| folder.canonicalize().ok()).collect();
    let mut files = Vec::new();
    // From the top down; the words for QEMU are put together from the bottom up.
    let mut alone: Vec<(PathBuf, ImageFormat, Value)> = Vec::new();
    let mut next = Some((path.to_owned(), format));
    while let Some((path, format)) = next.take() {
        if alone.len() == LAYERS_MAX || files.contains(&path) {
            return Err(LayerError::Endless { path: files.swap_remove(0) });
        }
        let failed = |source| LayerError::Read { path: path.clone(), format, source };
        let file = image_file::open(&path).map_err(failed)?;
        let header = format.header(&file).map_err(failed)?;
        not_shorter(&path, &file, header.bytes_min)?;
        let mut node = json!({ "driver": format.name(), "file": protocol(&path)? });
        files.push(path.clone());
        if matches!(format, ImageFormat::Qcow2 | ImageFormat::Vmdk) {
            node["backing"] = Value::Null;
        }
        if let Some(named) = &header.data_file {
            let (data, _) = find_whole(&path, named, &allowed)?;
            node["data-file"] = protocol(&data)?;
            files.push(data);
        }
        for named in &header.extents {
            let (extent, file) = find_whole(&path, named, &allowed)?;
            let own = ImageFormat::Vmdk.header(&file);
            // A part of an image may be a list of parts itself. No program makes such.
            if own.is_ok_and(|own| !own.extents.is_empty()) {
                return Err(LayerError::NotAllowed {
                    path,
                    named: format!("{}, and that needs other files", visible(&named.name)),
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
    Ok(Layers { node: node.unwrap_or_default(), alone, files })
}

/// A file that an image names.
fn find(image: &Path, named: &str, allowed: &[PathBuf]) -> Result<PathBuf, LayerError> {
    let no_file = || LayerError::NoFile { path: image.into(), named: visible(named) };
    // What has a colon before any slash is no path for QEMU, but a protocol.
    let path = named.strip_prefix("file:").unwrap_or(named);
    if path.split('/').next().is_some_and(|start| start.contains(':')) {
        return Err(no_file());
    }
    let folder = image.canonicalize().ok().and_then(|image| image.parent().map(Path::to_owned));
    let whole = folder.unwrap_or_default().join(path);
    // Before it is looked at: that it is there is nobody's business either.
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

/// A file that an image names, as long as it should be.
fn find_whole(image: &Path, named: &NamedFile, allowed: &[PathBuf]) -> Result<(PathBuf, File), LayerError> {
    let path = find(image, &named.name, allowed)?;
    let failed = |source| LayerError::Read { path: path.clone(), format: ImageFormat::Raw, source };
    let file = image_file::open(&path).map_err(failed)?;
    not_shorter(&path, &file, named.bytes_min)?;
    Ok((path, file))
}

fn not_shorter(path: &Path, mut file: &File, needed: u64) -> Result<(), LayerError> {
    // Of a device too.
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

/// How QEMU is to open a file: by the path that leads through no links, since QEMU looks beside that for what the file names.
pub(super) fn protocol(path: &Path) -> Result<Value, LayerError> {
    let whole = path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.into());
    let name = whole.to_str().ok_or_else(|| LayerError::Path { path: path.into() })?;
    let kind = fs::metadata(path).map(|metadata| metadata.file_type());
    let driver = if kind.is_ok_and(|kind| kind.is_block_device()) { "host_device" } else { "file" };
    Ok(json!({ "driver": driver, "filename": name }))
}
