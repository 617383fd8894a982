//! Folders in file systems that a program mounts (FUSE). They lack abilities that the kernel's own
//! have, such as a rename that never replaces, and the kernel answers some calls in their place.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tempfile::TempDir;
use varve_remote::{FolderTarget, PutMode, Target, TargetError, contract, open};
use varve_world::FileName;

use crate::kinds::{self, Kind, who_i_am};
use crate::lonely_server::program;

/// A mounted file system. It is unmounted when this is dropped.
struct Mount {
    folder: TempDir,
    loop_device: Option<String>,
    /// The server behind it, which ends after the unmounting.
    server: Option<Kind>,
}

impl Mount {
    /// Runs the command that `make` returns for a folder of its own, with the mount point as its
    /// last argument. Returns `None` and prints the reason if nothing can be mounted here.
    fn make(name: &str, make: impl FnOnce(&mut Self, &Path) -> Option<Command>) -> Option<Self> {
        let mut mount = Self { folder: tempfile::tempdir().unwrap(), loop_device: None, server: None };
        fs::create_dir(mount.point()).unwrap();
        let folder = mount.folder.path().to_owned();
        let mut command = make(&mut mount, &folder)?;
        let output = command.arg(mount.point()).stdin(Stdio::null()).output().unwrap();
        let started = Instant::now();
        while !mount.is_mounted() {
            if !output.status.success() || started.elapsed() > Duration::from_secs(10) {
                println!("skipped: {name} cannot be mounted: {}", String::from_utf8_lossy(&output.stderr));
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(mount)
    }

    fn point(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let point = self.point();
        mounts.lines().any(|line| line.split(' ').nth(1).is_some_and(|field| Path::new(field) == point))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.is_mounted() {
            let unmount = |program: &str, flags: &[&str]| {
                Command::new(program)
                    .args(flags)
                    .arg(self.point())
                    .status()
                    .is_ok_and(|status| status.success())
            };
            let _ = unmount("umount", &[]) || unmount("fusermount3", &["-u"]) || unmount("umount", &["-l"]);
        }
        if let Some(device) = &self.loop_device {
            drop(Command::new("losetup").args(["-d", device]).status());
        }
    }
}

/// Makes a file of 64 MiB, and a file system in it.
fn image(folder: &Path, mkfs: &Path, flags: &[&str]) -> PathBuf {
    let image = folder.join("image");
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let made =
        Command::new(mkfs).args(flags).arg(&image).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(made.unwrap().success());
    image
}

fn bindfs() -> Option<Mount> {
    let program = program("bindfs")?;
    Mount::make("bindfs", |_, folder| {
        fs::create_dir(folder.join("under")).unwrap();
        let mut command = Command::new(program);
        command.arg(folder.join("under"));
        Some(command)
    })
}

fn ntfs() -> Option<Mount> {
    let (mkfs, program) = (program("mkfs.ntfs")?, program("ntfs-3g")?);
    Mount::make("ntfs-3g", |_, folder| {
        let mut command = Command::new(program);
        command.arg(image(folder, &mkfs, &["-Q", "-q", "-F"]));
        Some(command)
    })
}

/// The program for exFAT mounts block devices only.
fn exfat() -> Option<Mount> {
    let (mkfs, program) = (program("mkfs.exfat")?, program("mount.exfat-fuse")?);
    Mount::make("exfat", |mount, folder| {
        let image = image(folder, &mkfs, &[]);
        let output = Command::new("losetup").args(["-f", "--show"]).arg(image).output();
        let Some(output) = output.ok().filter(|output| output.status.success()) else {
            println!("skipped: exfat needs a loop device");
            return None;
        };
        let device = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        let mut command = Command::new(program);
        command.arg(&device);
        mount.loop_device = Some(device);
        Some(command)
    })
}

fn rclone() -> Option<Mount> {
    let program = program("rclone")?;
    Mount::make("rclone", |_, folder| {
        fs::create_dir(folder.join("under")).unwrap();
        let mut command = Command::new(program);
        command.args(["--config", "/dev/null", "mount", "--daemon", "--vfs-cache-mode", "writes"]);
        command.args(["--cache-dir"]).arg(folder.join("cache")).arg(folder.join("under"));
        Some(command)
    })
}

fn sshfs() -> Option<Mount> {
    let (program, server) = (program("sshfs")?, kinds::sftp()?);
    Mount::make("sshfs", |mount, _| {
        let folder = server.server.folder.path();
        let (identity, known) = (folder.join("user"), folder.join("known_hosts"));
        let mut command = Command::new(program);
        command.arg("-p").arg(server.server.port.to_string());
        command.arg("-o").arg(format!(
            "IdentityFile={},UserKnownHostsFile={}",
            identity.display(),
            known.display()
        ));
        command.arg(format!("{}@127.0.0.1:{}/files", who_i_am(), folder.display()));
        mount.server = Some(server);
        Some(command)
    })
}

/// `is_exclusive` is what the file system can do: with a hard link it can.
fn keeps_the_contract(mount: Option<Mount>, is_exclusive: bool) {
    let Some(mount) = mount else { return };
    let mut count = 0;
    let mut fresh = || {
        count += 1;
        FolderTarget::new(&mount.point().join(format!("place {count}")))
    };
    contract::check(&mut || Box::new(fresh()));
    let target = fresh();
    assert_eq!(target.capabilities().create_is_exclusive, is_exclusive);
    contract::check_many(&target);
    assert_eq!(fresh().capabilities().create_is_exclusive, is_exclusive);
    // FUSE learns late that a file was closed. One that is removed before that has a hidden name
    // until then.
    let hidden = || {
        let names = fs::read_dir(mount.point()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with('.')).collect::<Vec<_>>()
    };
    let begun = Instant::now();
    while !hidden().is_empty() && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(hidden().is_empty(), "trials stay behind: {:?}", hidden());
}

#[test]
fn bindfs_keeps_the_contract() {
    keeps_the_contract(bindfs(), true);
}

#[test]
fn ntfs_keeps_the_contract() {
    keeps_the_contract(ntfs(), true);
}

#[test]
fn exfat_keeps_the_contract() {
    keeps_the_contract(exfat(), false);
}

#[test]
fn sshfs_keeps_the_contract() {
    keeps_the_contract(sshfs(), true);
}

#[test]
fn rclone_keeps_the_contract() {
    keeps_the_contract(rclone(), false);
}

/// The server announces hard links, and refuses each one. Then a writer checks and renames.
#[test]
fn sftp_over_a_disk_without_hard_links_keeps_the_contract() {
    let (Some(mount), Some(kind)) = (exfat(), kinds::sftp()) else { return };
    let place = format!("sftp://{}@127.0.0.1:{}{}", who_i_am(), kind.server.port, mount.point().display());
    let mut count = 0;
    let mut fresh = || {
        count += 1;
        open(&format!("{place}/place{count}"), &kind.options).unwrap()
    };
    contract::check(&mut fresh);
    let target = fresh();
    assert!(!target.capabilities().create_is_exclusive);

    // The protocol has no word for a full disk.
    let half = || Bytes::from(vec![7; 36 << 20]);
    let name = |text: &str| FileName::new(text).unwrap();
    target.put(&name("first"), half(), PutMode::Create).unwrap();
    for mode in [PutMode::Create, PutMode::Replace] {
        let Err(TargetError::Refused { source, .. }) = target.put(&name("second"), half(), mode) else {
            panic!("the disk is full")
        };
        assert_eq!(source.kind(), std::io::ErrorKind::StorageFull, "{source}");
        assert!(source.to_string().starts_with("No space left on the server's disk"), "{source}");
    }
    assert_eq!(target.list("").unwrap().len(), 1);
    target.put(&name("small"), Bytes::from_static(b"x"), PutMode::Create).unwrap();
    let left: Vec<_> = fs::read_dir(mount.point().join(format!("place{count}"))).unwrap().collect();
    assert_eq!(left.len(), 2, "no trial and no part stays behind: {left:?}");
}

/// The server says that it has made a hard link, and has made none.
#[test]
fn sftp_by_rclone_keeps_the_contract() {
    let Some(kind) = kinds::rclone_sftp() else { return };
    contract::check(&mut || kind.fresh());
    let target = kind.fresh();
    assert!(!target.capabilities().create_is_exclusive);
    contract::check_many(&*target);
}
