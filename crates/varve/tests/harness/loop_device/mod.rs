//! Loop devices over images, and mounts of them. Both are removed at the end of the test, even if
//! it fails.
#![allow(dead_code, reason = "each test uses its own part of this")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sandbox::tool;

/// A device that shows an image from an offset on.
pub struct LoopDevice {
    path: String,
}

impl LoopDevice {
    pub fn read_only(image: &Path, offset: u64) -> Self {
        Self::attach(image, offset, &["--read-only"])
    }

    pub fn writable(image: &Path, offset: u64) -> Self {
        Self::attach(image, offset, &[])
    }

    /// A device with sectors of this size.
    pub fn with_sectors(image: &Path, sector_bytes: u32) -> Self {
        Self::attach(image, 0, &["--sector-size", &sector_bytes.to_string()])
    }

    fn attach(image: &Path, offset: u64, more: &[&str]) -> Self {
        let words = ["--find", "--show", "--offset", &offset.to_string()].map(str::to_owned);
        let output = program("losetup").args(words).args(more).arg(image).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { path: String::from_utf8(output.stdout).unwrap().trim().to_owned() }
    }

    pub fn path(&self) -> &str {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = program("losetup").args(["--detach", &self.path]).status();
    }
}

/// A file system that is mounted from an image.
pub struct LoopMount {
    pub at: PathBuf,
    /// Detached after the mount is gone.
    _device: LoopDevice,
}

impl LoopMount {
    /// Mounts the file system at `offset`. The image is not written to, not even to replay its
    /// journal.
    pub fn read_only(image: &Path, offset: u64, at: &Path) -> Self {
        Self::mount(LoopDevice::read_only(image, offset), "ro,noload,noatime", at)
    }

    pub fn writable(image: &Path, offset: u64, at: &Path) -> Self {
        Self::mount(LoopDevice::writable(image, offset), "rw", at)
    }

    fn mount(device: LoopDevice, options: &str, at: &Path) -> Self {
        fs::create_dir_all(at).unwrap();
        tool("mount", ["-o".as_ref(), options.as_ref(), device.path().as_ref(), at.as_os_str()]);
        Self { at: at.to_path_buf(), _device: device }
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        let _ = program("umount").arg(&self.at).status();
    }
}

fn program(name: &str) -> Command {
    let path = format!("{}:/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(name);
    command.env("PATH", path);
    command
}
