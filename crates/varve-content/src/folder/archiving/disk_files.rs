//! Recognises disk files: disks of virtual machines, and databases. They are read at random and
//! changed in place, so they are archived as images are: in blocks of one size, and packed for
//! random reads.
//!
//! A wrong guess costs a little space or time, and nothing else.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use varve_image::{Disk, FileSystemKind, ReadAt, VolumeContent};

use crate::image::SizedFile;

/// The signatures of disks in files of virtual machines, and of databases: offset and bytes.
const SIGNATURES: [(usize, &[u8]); 10] = [
    (0, b"QFI\xfb"),
    (0, b"KDMV"),
    (0, b"COWD"),
    (0, b"vhdxfile"),
    (0, b"conectix"),
    (64, b"\x7f\x10\xda\xbe"),
    (0, b"SQLite format 3\0"),
    (4, b"Standard Jet DB\0"),
    (4, b"Standard ACE DB\0"),
    // LMDB, on a machine that counts bytes from the lowest.
    (16, b"\xde\xc0\xef\xbe"),
];
/// The bytes that hold all signatures.
const HEAD_BYTES: usize = 512;

/// The place of the signature of a CD image, and the signature. It may have a partition table too.
const ISO_9660: (u64, &[u8; 5]) = (32_769, b"CD001");

/// Returns whether an open file of `size` bytes is a disk file, by its first bytes. Unreadable
/// files are not.
pub(super) fn is_disk_file(file: &OwnedFd, size: u64) -> bool {
    let Ok(file) = file.try_clone().map(|descriptor| SizedFile::new(descriptor.into(), size)) else {
        return false;
    };
    let mut head = [0; HEAD_BYTES];
    if file.read_at(0, &mut head).is_err() {
        return false;
    }
    has_signature(&head) || (!is_cd_image(&file) && is_disk(Arc::new(file)))
}

fn has_signature(head: &[u8]) -> bool {
    SIGNATURES.iter().any(|(offset, bytes)| head.get(*offset..).is_some_and(|head| head.starts_with(bytes)))
}

fn is_cd_image(file: &SizedFile) -> bool {
    let (offset, signature) = ISO_9660;
    let mut found = [0; 5];
    file.read_at(offset, &mut found).is_ok() && found == *signature
}

/// Returns whether the bytes are a disk with partitions, or a volume that is changed in place.
fn is_disk(bytes: Arc<dyn ReadAt>) -> bool {
    let disk = Disk::open(bytes);
    disk.table().is_some() || disk.volumes().iter().any(|volume| is_changed_in_place(volume.content()))
}

fn is_changed_in_place(content: VolumeContent) -> bool {
    use FileSystemKind::{CramFs, Erofs, Iso9660, SquashFs, Udf};
    match content {
        VolumeContent::Unknown | VolumeContent::Empty => false,
        VolumeContent::FileSystem(kind) => !matches!(kind, CramFs | Erofs | Iso9660 | SquashFs | Udf),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn is_disk_of(bytes: &[u8]) -> bool {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        is_disk_file(&file.into(), bytes.len() as u64)
    }

    #[test]
    fn disks_and_databases_are_recognised_and_other_files_are_not() {
        for (offset, signature) in SIGNATURES {
            let mut bytes = vec![b'x'; 9 << 20];
            assert!(!is_disk_of(&bytes));
            bytes[offset..][..signature.len()].copy_from_slice(signature);
            assert!(is_disk_of(&bytes), "{signature:?}");
        }
        let mut swap = vec![0; 9 << 20];
        assert!(!is_disk_of(&swap), "zeros");
        swap[4086..4096].copy_from_slice(b"SWAPSPACE2");
        swap[1024..1028].copy_from_slice(&1_u32.to_le_bytes());
        swap[1028..1032].copy_from_slice(&2303_u32.to_le_bytes());
        assert!(is_disk_of(&swap), "swap space");
        assert!(!is_disk_of(b"too short for a signature"));
        // A CD image with a partition table, as those of installers have.
        let mut hybrid = vec![0; 9 << 20];
        hybrid[446..462].copy_from_slice(&[0x80, 0, 1, 0, 0x17, 0, 0, 0, 0, 8, 0, 0, 0, 0x20, 0, 0]);
        hybrid[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert!(is_disk_of(&hybrid), "a partition table");
        hybrid[32_769..32_774].copy_from_slice(b"CD001");
        assert!(!is_disk_of(&hybrid), "a CD image");
    }
}
