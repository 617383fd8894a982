//! Reads disk images in formats other than raw, through QEMU's NBD server.

mod convert;
mod header;
mod header_fields;
mod image_layers;
mod layer;
mod make;
mod qemu_img;
mod sound;
mod vmdk;

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use varve_archive::LeftOutRecord;
use varve_block::visible;
use varve_content::image::{ContentRun, ReadRequest, ReadRequestError, ServedImage};

pub use convert::convert_to_raw;
pub use header::ImageFormat;
pub(crate) use header::plain_qcow2_over_raw;
pub use image_layers::{ImageLayer, image_chain};
pub use layer::LayerError;
use layer::{InnerSnapshots, layers};
pub use make::{ForeignFile, RestoreForeignError, restore_foreign};
use varve_world::one_line;

use crate::companion::companion;
use crate::edge::{Deadline, sleep};
use crate::nbd_disk::{NbdDisk, NbdDiskOptions};
use crate::private_folder::PrivateFolder;
use crate::visible::visible_path;

const CONNECTION_COUNT: usize = 4;
/// The time limit for QEMU to open an image, and for each answer.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);
/// The time limit for a program that has closed a connection to end and report the reason.
const GRACE: Duration = Duration::from_secs(2);
/// The bytes of QEMU's error output that are passed on.
const COMPLAINT_BYTES_MAX: u64 = 2000;

/// The reason why an image in a foreign format cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenForeignError {
    /// It names files that are not allowed, or it is invalid.
    #[error("{0}")]
    Layer(#[from] LayerError),
    /// QEMU's tools are not installed.
    #[error(
        "{program} is not installed: images in other formats than raw are read through QEMU's tools (on Debian the package qemu-utils)"
    )]
    NotInstalled { program: &'static str },
    /// QEMU's tool cannot be started.
    #[error("cannot start {program}")]
    Start { program: &'static str, source: io::Error },
    /// QEMU cannot open the image.
    #[error("{path}: QEMU cannot open it: {said}", path = visible_path(path))]
    Refused {
        path: PathBuf,
        /// QEMU's complaint.
        said: String,
    },
    /// A part of the image is missing.
    #[error(
        "{path} is damaged or cut short, and its missing parts would be archived as zeros ({said}): try qemu-img check -r all, best on a copy; --format raw archives the file as it is", path = visible_path(path)
    )]
    Damaged {
        /// The image, or one of its backing images.
        path: PathBuf,
        /// The first complaint of QEMU.
        said: String,
    },
    /// QEMU takes the disk for smaller than the image says.
    #[error(
        "{path}: the image says that the disk has {stated} bytes, but QEMU reads only {actual}: convert it with the program that made it; --format raw archives the file as it is", path = visible_path(path)
    )]
    Smaller {
        path: PathBuf,
        /// The size in the header.
        stated: u64,
        /// The size according to QEMU.
        actual: u64,
    },
    /// The image was changed while QEMU opened it.
    #[error("{path} was changed while it was opened: make sure that no program writes to it", path = visible_path(path))]
    Changed { path: PathBuf },
    /// QEMU does not serve the image correctly.
    #[error("{path}: cannot be read through QEMU", path = visible_path(path))]
    Connect { path: PathBuf, source: io::Error },
}

/// A disk in an image of any format, served by a QEMU process. The process ends when this is
/// dropped. It also ends if this program is killed: with the last connection to it and, if the
/// system supports that, also before there was one.
pub struct ForeignImage {
    disk: NbdDisk,
    _server: QemuNbd,
    /// Each file, and its state when it was opened.
    files: Vec<(PathBuf, FileState)>,
    inner_snapshots: Vec<InnerSnapshots>,
}

type FileState = Option<(u64, i64, i64)>;

impl ForeignImage {
    /// Opens an image. Other files that it names must lie in one of the folders `allowed`.
    ///
    /// # Errors
    /// [`OpenForeignError`].
    pub fn open(path: &Path, format: ImageFormat, allowed: &[PathBuf]) -> Result<Self, OpenForeignError> {
        let found = layers(path, format, allowed)?;
        let inodes = || found.files.iter().map(|file| inode_of(file)).collect::<Vec<_>>();
        let before = inodes();
        let files = found.files.iter().map(|file| (file.clone(), state_of(file))).collect();
        for (path, format, node) in &found.alone {
            sound::check(path, *format, node)?;
        }
        let mut server = QemuNbd::start(&["--read-only".into(), format!("json:{}", found.node).into()])?;
        let disk = server.connect(path)?;
        // QEMU reads the headers again. If they were changed meanwhile, it has opened files that
        // were not checked.
        if layers(path, format, allowed)? != found || inodes() != before {
            return Err(OpenForeignError::Changed { path: path.into() });
        }
        if let Some(stated) = found.disk_bytes.filter(|stated| disk.size() < *stated) {
            return Err(OpenForeignError::Smaller { path: path.into(), stated, actual: disk.size() });
        }
        Ok(Self { disk, _server: server, files, inner_snapshots: found.inner_snapshots })
    }

    /// Returns the parts of the image and its backing images that are no parts of the disk, such as
    /// the snapshots inside a qcow2.
    #[must_use]
    pub fn left_out(&self) -> Vec<LeftOutRecord> {
        self.inner_snapshots.iter().map(InnerSnapshots::as_left_out).collect()
    }

    /// Does the same for one of the images only.
    fn left_out_of(&self, path: &Path) -> Vec<LeftOutRecord> {
        let own = self.inner_snapshots.iter().filter(|inner| inner.path == path);
        own.map(InnerSnapshots::as_left_out).collect()
    }
}

impl ServedImage for ForeignImage {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn content_at(&self, offset: u64) -> io::Result<ContentRun> {
        self.disk.content_at(offset)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(offset, into)
    }

    fn read_all(&self, places: &mut [ReadRequest<'_>]) -> Result<(), ReadRequestError> {
        self.disk.read_all(places)
    }

    fn held_still(&self) -> io::Result<bool> {
        Ok(self.files.iter().all(|(file, before)| state_of(file) == *before))
    }
}

fn state_of(file: &Path) -> FileState {
    fs::metadata(file).ok().map(|now| (now.len(), now.mtime(), now.mtime_nsec()))
}

/// Returns values that differ after each change of a file, and that cannot be reset.
fn inode_of(file: &Path) -> Option<(u64, u64, i64, i64)> {
    fs::metadata(file).ok().map(|now| (now.dev(), now.ino(), now.ctime(), now.ctime_nsec()))
}

/// The process `qemu-nbd`, which ends with its last client.
struct QemuNbd {
    child: Child,
    complaints: File,
    folder: PrivateFolder,
}

impl QemuNbd {
    const PROGRAM: &'static str = "qemu-nbd";

    fn start(args: &[std::ffi::OsString]) -> Result<Self, OpenForeignError> {
        let failed = |source| OpenForeignError::Start { program: Self::PROGRAM, source };
        let folder = PrivateFolder::create("varve-image-").map_err(failed)?;
        let complaints = tempfile::tempfile().map_err(failed)?;
        let mut command = companion(Self::PROGRAM);
        command.arg("--socket").arg(folder.path().join("nbd")).arg(format!("--shared={CONNECTION_COUNT}"));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(complaints.try_clone().map_err(failed)?);
        match command.spawn() {
            Ok(child) => Ok(Self { child, complaints, folder }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(OpenForeignError::NotInstalled { program: Self::PROGRAM })
            }
            Err(source) => Err(failed(source)),
        }
    }

    fn connect(&mut self, path: &Path) -> Result<NbdDisk, OpenForeignError> {
        let failed = |source| OpenForeignError::Connect { path: path.into(), source };
        let options =
            NbdDiskOptions { connection_count: CONNECTION_COUNT, patience: PATIENCE, ..Default::default() };
        let deadline = Deadline::after(PATIENCE);
        loop {
            let error = match NbdDisk::connect(&self.folder.path().join("nbd"), &options) {
                Ok(disk) => return Ok(disk),
                Err(error) => error,
            };
            // It may listen before it has opened the image, and then end.
            let is_early = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
            let grace = Deadline::after(if is_early { PAUSE } else { GRACE });
            while grace.left().is_some() {
                if self.child.try_wait().map_err(failed)?.is_some() {
                    return Err(OpenForeignError::Refused { path: path.into(), said: self.complaint() });
                }
                sleep(PAUSE);
            }
            if !is_early || deadline.left().is_none() {
                return Err(failed(error));
            }
        }
    }

    /// Waits until it has ended after its last client left, and has closed the image.
    fn finish(mut self, path: &Path) -> Result<(), OpenForeignError> {
        let failed = |source| OpenForeignError::Connect { path: path.into(), source };
        let deadline = Deadline::after(PATIENCE);
        loop {
            match self.child.try_wait().map_err(failed)? {
                Some(status) if status.success() => return Ok(()),
                Some(_) => {
                    return Err(OpenForeignError::Refused { path: path.into(), said: self.complaint() });
                }
                None if deadline.left().is_some() => sleep(PAUSE),
                None => return Err(failed(io::Error::new(io::ErrorKind::TimedOut, "qemu-nbd does not end"))),
            }
        }
    }

    fn complaint(&mut self) -> String {
        let mut said = Vec::new();
        let read = self.complaints.rewind().and_then(|()| {
            Read::by_ref(&mut self.complaints).take(COMPLAINT_BYTES_MAX).read_to_end(&mut said)
        });
        match read {
            Ok(count) if count > 0 => visible(&one_line(&said)),
            _ => "it gives no reason".into(),
        }
    }
}

impl Drop for QemuNbd {
    fn drop(&mut self) {
        // It has no clients by now and may have ended. In either case it is gone afterwards.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
