//! UEFI for QEMU as this system has it, and the variables that a machine keeps in it.
//!
//! A code image only works with variables of the size for which it was built: both are mapped at
//! the end of the first 4 GiB, one below the other.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use varve_block::to_usize;
use varve_content::{NewFile, PRIVATE};
use varve_image::ReadAt;

use super::boot_error::BootError;

/// Code, and the initial contents of the variables, at the paths of several distributions.
const INSTALLED: [(&str, &str); 8] = [
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
    ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
    ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),
    ("/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"),
    ("/usr/share/edk2-ovmf/x64/OVMF_CODE.fd", "/usr/share/edk2-ovmf/x64/OVMF_VARS.fd"),
    ("/usr/share/pve-edk2-firmware/OVMF_CODE_4M.fd", "/usr/share/pve-edk2-firmware/OVMF_VARS_4M.fd"),
    ("/usr/share/qemu/edk2-x86_64-code.fd", "/usr/share/qemu/edk2-i386-vars.fd"),
    ("/usr/share/qemu/ovmf-x86_64-code.bin", "/usr/share/qemu/ovmf-x86_64-vars.bin"),
];

/// The header of a firmware volume (UEFI Platform Initialization specification, volume 3): the GUID
/// of its kind at byte 16, its length at 32, and this mark at 40.
const VOLUME_MARK: &[u8; 4] = b"_FVH";
/// The kind of volume that has variables: fff12b8d-7696-4c8b-a985-2747075b4f50.
const VARIABLES_KIND: [u8; 16] =
    [0x8d, 0x2b, 0xf1, 0xff, 0x96, 0x76, 0x8b, 0x4c, 0xa9, 0x85, 0x27, 0x47, 0x07, 0x5b, 0x4f, 0x50];
const HEADER_BYTES: usize = 56;
/// More than any firmware of a PC has for its variables.
const VARIABLES_BYTES_MAX: u64 = 4 << 20;

/// An installed UEFI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledFirmware {
    code: PathBuf,
    /// The initial contents of the variables.
    fresh: PathBuf,
    /// The size of the variables.
    bytes: u64,
}

impl InstalledFirmware {
    /// Returns all that are installed, best first.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let found = |(code, fresh): &(&str, &str)| {
            let bytes = fs::metadata(fresh).ok().filter(fs::Metadata::is_file)?.len();
            Path::new(code).is_file().then(|| Self { code: code.into(), fresh: fresh.into(), bytes })
        };
        INSTALLED.iter().filter_map(found).collect()
    }

    /// Returns the size of the variables, in bytes.
    #[must_use]
    pub fn variables_bytes(&self) -> u64 {
        self.bytes
    }
}

/// The start of a machine with UEFI: the variables with which it begins, and the place where it
/// keeps them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StartVariables {
    /// The variables that were archived with the machine; `None` for fresh ones.
    pub archived: Option<Vec<u8>>,
    /// The file that keeps them. If it is there, the machine begins with it. Without a path, they
    /// are discarded.
    pub kept: Option<PathBuf>,
}

/// The reason why archived variables cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum VariablesError {
    #[error("they cannot be read")]
    Read(#[from] io::Error),
    /// They are those of another firmware, or were never written.
    #[error("they are not in the form of UEFI for QEMU")]
    Form,
    /// No code is installed for them.
    #[error("they have {bytes} bytes, and those of {}", installed_sizes(installed))]
    Size {
        bytes: u64,
        /// The sizes that the installed ones have.
        installed: Vec<u64>,
    },
}

fn installed_sizes(installed: &[u64]) -> String {
    let sizes: Vec<_> = installed.iter().map(u64::to_string).collect();
    format!("the UEFI for QEMU that is installed here have {}", sizes.join(" or "))
}

/// Reads the variables from a flash memory, and checks that a firmware is installed that fits them.
/// In a flash memory that also has the code, or that is longer, only the variables are read.
///
/// # Errors
/// [`VariablesError`].
pub fn read_variables(
    flash: &dyn ReadAt,
    installed: &[InstalledFirmware],
) -> Result<Vec<u8>, VariablesError> {
    let mut header = [0; HEADER_BYTES];
    if flash.size() < header.len() as u64 {
        return Err(VariablesError::Form);
    }
    flash.read_at(0, &mut header)?;
    let has = |at: usize, expected: &[u8]| header.get(at..).is_some_and(|rest| rest.starts_with(expected));
    let bytes = header.get(32..40).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
    let is_sound = (header.len() as u64..=flash.size().min(VARIABLES_BYTES_MAX)).contains(&bytes);
    if !has(40, VOLUME_MARK) || !has(16, &VARIABLES_KIND) || !is_sound {
        return Err(VariablesError::Form);
    }
    if !installed.iter().any(|firmware| firmware.bytes == bytes) {
        let mut sizes: Vec<_> = installed.iter().map(InstalledFirmware::variables_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        return Err(VariablesError::Size { bytes, installed: sizes });
    }
    let mut variables = vec![0; to_usize(bytes)];
    flash.read_at(0, &mut variables)?;
    Ok(variables)
}

/// Returns the code of UEFI, and the file of the variables, which is made if necessary. A file that
/// is not to be kept is made in `folder`.
pub(super) fn prepare(folder: &Path, start: &StartVariables) -> Result<(PathBuf, PathBuf), BootError> {
    prepare_with(InstalledFirmware::all(), folder, start)
}

fn prepare_with(
    installed: Vec<InstalledFirmware>,
    folder: &Path,
    start: &StartVariables,
) -> Result<(PathBuf, PathBuf), BootError> {
    if installed.is_empty() {
        return Err(BootError::NoFirmware);
    }
    let of_size = |bytes: u64| installed.iter().find(|firmware| firmware.bytes == bytes);
    if let Some(path) = &start.kept {
        // The path may have been created by another user: a link would lead the guest's writes to
        // another file.
        match fs::symlink_metadata(path) {
            Ok(there) if there.is_file() => {
                let misfit = || BootError::VariablesSize { path: path.clone(), bytes: there.len() };
                let firmware = of_size(there.len()).ok_or_else(misfit)?;
                return Ok((firmware.code.clone(), path.clone()));
            }
            Ok(_) => return Err(BootError::Variables { path: path.clone() }),
            Err(_) => {}
        }
    }
    let archived = start.archived.as_deref();
    let fitting = archived.and_then(|archived| Some((of_size(archived.len() as u64)?, archived.to_vec())));
    let (firmware, contents) = match (fitting, installed.first()) {
        (Some(fitting), _) => fitting,
        (None, Some(first)) => (first, fs::read(&first.fresh).map_err(BootError::Prepare)?),
        (None, None) => return Err(BootError::NoFirmware),
    };
    let written = match &start.kept {
        Some(path) => NewFile::write(path, PRIVATE, false, &contents).map(|()| path.clone()),
        // A machine that is started again begins with the same variables again.
        None => write_again(&folder.join("variables"), &contents),
    };
    Ok((firmware.code.clone(), written.map_err(BootError::Prepare)?))
}

fn write_again(path: &Path, contents: &[u8]) -> io::Result<PathBuf> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE).open(path)?;
    io::Write::write_all(&mut file, contents)?;
    Ok(path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flash memory of `size` bytes that begins with variables of `bytes` bytes.
    fn flash(size: usize, bytes: u64) -> Vec<u8> {
        let mut flash = vec![0xff; size];
        flash[..16].fill(0);
        flash[16..32].copy_from_slice(&VARIABLES_KIND);
        flash[32..40].copy_from_slice(&bytes.to_le_bytes());
        flash[40..44].copy_from_slice(VOLUME_MARK);
        flash
    }

    /// Firmware in a folder, with variables of these sizes.
    fn installed(folder: &Path, sizes: &[u64]) -> Vec<InstalledFirmware> {
        let one = |bytes: &u64| {
            let (code, fresh) = (folder.join(format!("code{bytes}")), folder.join(format!("fresh{bytes}")));
            fs::write(&code, "code").unwrap();
            fs::write(&fresh, vec![1; to_usize(*bytes)]).unwrap();
            InstalledFirmware { code, fresh, bytes: *bytes }
        };
        sizes.iter().map(one).collect()
    }

    #[test]
    fn variables_are_read_from_each_kind_of_flash_memory() {
        let folder = tempfile::tempdir().unwrap();
        let here = installed(folder.path(), &[540_672, 131_072]);
        let read = |flash: Vec<u8>| read_variables(&flash, &here).map(|variables| variables.len());
        assert_eq!(read(flash(131_072, 131_072)).unwrap(), 131_072);
        assert_eq!(read(flash(540_672, 540_672)).unwrap(), 540_672);
        assert_eq!(read(flash(2 << 20, 131_072)).unwrap(), 131_072, "with the code behind them");
        let said = read(flash(65_536, 65_536)).unwrap_err().to_string();
        assert!(said.contains("65536 bytes") && said.ends_with("131072 or 540672"), "{said}");
        for hostile in [
            Vec::new(),
            vec![0xff; 131_072],
            flash(131_072, u64::MAX),
            flash(131_072, 131_073),
            flash(131_072, 0),
            flash(8 << 20, 8 << 20),
        ] {
            assert!(matches!(read(hostile), Err(VariablesError::Form)));
        }
        assert!(matches!(
            read_variables(&flash(131_072, 131_072), &[]),
            Err(VariablesError::Size { installed, .. }) if installed.is_empty()
        ));
    }

    #[test]
    fn the_code_is_the_one_that_fits_the_variables() {
        let folder = tempfile::tempdir().unwrap();
        let here = || installed(folder.path(), &[540_672, 131_072]);
        let archived = flash(131_072, 131_072);
        let start = |archived: Option<&Vec<u8>>, kept: Option<&str>| StartVariables {
            archived: archived.cloned(),
            kept: kept.map(|name| folder.path().join(name)),
        };
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        // Archived ones, again after the guest has changed them; then fresh ones.
        for _ in 0..2 {
            let (code, file) = prepare_with(here(), folder.path(), &start(Some(&archived), None)).unwrap();
            assert_eq!((name(&code), fs::read(&file).unwrap() == archived), ("code131072".into(), true));
            fs::write(&file, "changed").unwrap();
        }
        let (code, file) = prepare_with(here(), folder.path(), &start(None, None)).unwrap();
        assert_eq!((name(&code), fs::metadata(file).unwrap().len()), ("code540672".into(), 540_672));
        // Kept ones begin with the archived ones, and then stay as they are.
        let (_, file) = prepare_with(here(), folder.path(), &start(Some(&archived), Some("a.uefi"))).unwrap();
        assert!(fs::read(&file).unwrap() == archived);
        let changed = vec![7; 131_072];
        fs::write(&file, &changed).unwrap();
        let (code, file) =
            prepare_with(here(), folder.path(), &start(Some(&archived), Some("a.uefi"))).unwrap();
        assert_eq!((name(&code), fs::read(file).unwrap() == changed), ("code131072".into(), true));
        // A file that no code fits, a link, and no firmware at all.
        fs::write(folder.path().join("b.uefi"), "short").unwrap();
        let refused = prepare_with(here(), folder.path(), &start(None, Some("b.uefi")));
        assert!(matches!(refused, Err(BootError::VariablesSize { bytes: 5, .. })), "{refused:?}");
        std::os::unix::fs::symlink("a.uefi", folder.path().join("c.uefi")).unwrap();
        let refused = prepare_with(here(), folder.path(), &start(None, Some("c.uefi")));
        assert!(matches!(refused, Err(BootError::Variables { .. })), "{refused:?}");
        let refused = prepare_with(Vec::new(), folder.path(), &start(None, None));
        assert!(matches!(refused, Err(BootError::NoFirmware)), "{refused:?}");
    }
}
