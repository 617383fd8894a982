//! File systems that are refused, and files that stay where they are.

use super::super::inode::ExtInode;
use super::super::journal;
use super::super::superblock::{SUPERBLOCK_AT, compatible, incompatible, read_only};
use super::super::{ExtFileSystem, damaged};
use super::RelocationError;
use crate::contents::swap_header;
use crate::file_systems::file_system::FileKind;

/// The inodes before it are the file system's own.
pub(super) const FIRST_INODE: u32 = 11;
const IS_IMMUTABLE: u32 = 0x10;
const HOLDS_VALUE: u32 = 0x20_0000;
/// A swap header ends within this many bytes.
const SWAP_HEAD_BYTES: usize = 64 << 10;
/// The code of a boot loader before the superblock.
const BOOT_CODE_BYTES: usize = 512;
/// Boot loaders that find the system by lists of blocks, and the place of each name in the first
/// sector. The place differs between versions of LILO. zIPL is that of S/390.
const LOADERS: [(usize, &str); 3] = [(2, "LILO"), (6, "LILO"), (0, "zIPL")];

const KNOWN_COMPATIBLE: u32 = compatible::PREALLOCATED_FOLDERS
    | compatible::JOURNAL
    | compatible::XATTRS
    | compatible::RESIZE_INODE
    | compatible::FOLDER_INDEX
    | compatible::SPARSE_SUPER2
    | compatible::FAST_COMMITS
    | compatible::STABLE_INODES
    | compatible::ORPHAN_FILE;
const KNOWN_READ_ONLY: u32 = read_only::SPARSE_SUPER
    | read_only::LARGE_FILES
    | read_only::HUGE_FILES
    | read_only::GROUP_CHECKSUM
    | read_only::MANY_FOLDERS
    | read_only::EXTRA_FIELDS
    | read_only::QUOTA
    | read_only::METADATA_CHECKSUM
    | read_only::PROJECTS;

/// Checks that every structure of a file system is understood, and that none is in motion.
pub(super) fn check(files: &ExtFileSystem) -> Result<(), RelocationError> {
    let superblock = &files.superblock;
    if files.needs_recovery {
        return Err(RelocationError::Unclean("its journal has changes that a mount would replay"));
    }
    if superblock.has_orphans() {
        return Err(RelocationError::Unclean("it has deleted files whose space is not yet freed"));
    }
    if !superblock.is_clean() {
        return Err(RelocationError::Unclean("it was not unmounted, or has recorded errors"));
    }
    let named = [
        (superblock.has(read_only::CLUSTERS), "bigalloc"),
        (superblock.needs(incompatible::META_GROUPS), "meta_bg"),
        (superblock.needs(incompatible::MULTI_MOUNT), "mmp"),
    ];
    if let Some((_, name)) = named.into_iter().find(|(is_set, _)| *is_set) {
        return Err(RelocationError::Feature(name.into()));
    }
    let unknown = [
        ("compatible", superblock.compatible & !KNOWN_COMPATIBLE),
        ("read-only compatible", superblock.read_only & !KNOWN_READ_ONLY),
    ];
    if let Some((kind, bits)) = unknown.into_iter().find(|(_, bits)| *bits != 0) {
        return Err(RelocationError::Feature(format!("{bits:#x} ({kind})")));
    }
    if superblock.creator != 0 {
        return Err(RelocationError::Feature(format!(
            "the format of operating system {}",
            superblock.creator
        )));
    }
    if !journal::is_empty(files)? {
        return Err(RelocationError::Unclean("its journal is not empty"));
    }
    files.check_live().and_then(|()| files.check_free_counts()).map_err(RelocationError::Inconsistent)?;
    let mut sector = [0; BOOT_CODE_BYTES];
    if superblock.block_count.saturating_mul(u64::from(superblock.block_bytes)) > SUPERBLOCK_AT {
        let read = files.volume.read_at(0, &mut sector);
        read.map_err(|source| crate::file_systems::file_system::FileSystemError::Read {
            what: "boot sector".into(),
            source,
        })?;
    }
    if let Some(loader) = loader_with_block_lists(&sector) {
        return Err(RelocationError::BlockLists(loader));
    }
    Ok(())
}

/// Returns the name of the boot loader in a first sector, if it finds its files by lists of blocks.
pub(crate) fn loader_with_block_lists(sector: &[u8]) -> Option<&'static str> {
    let has = |at: usize, name: &str| crate::bytes::fields::has_at(sector, at, name.as_bytes());
    LOADERS.into_iter().find(|(at, name)| has(*at, name)).map(|(_, name)| name)
}

/// Returns true for a name that boot loaders give to files that they find by lists of blocks.
pub(super) fn is_boot_name(name: &[u8]) -> bool {
    let names: [&[u8]; 5] = [b"ldlinux.sys", b"extlinux.sys", b"core.img", b"stage1", b"stage2"];
    names.contains(&name) || name.ends_with(b"stage1_5")
}

/// Returns true for a file whose content only its users read. The file system itself reads
/// journals, quotas, and values of attributes.
pub(super) fn has_plain_content(files: &ExtFileSystem, inode: &ExtInode) -> bool {
    inode.kind() == FileKind::File && !is_internal(files, inode) && inode.flags() & HOLDS_VALUE == 0
}

fn is_internal(files: &ExtFileSystem, inode: &ExtInode) -> bool {
    inode.number < FIRST_INODE || files.superblock.internal_inodes.contains(&inode.number)
}

/// Returns the reason why the blocks of a file stay where they are; `None` if they may move.
pub(super) fn reason(files: &ExtFileSystem, inode: &ExtInode, is_boot_file: bool) -> Option<&'static str> {
    if is_internal(files, inode) {
        return Some("it belongs to the file system itself");
    }
    if inode.flags() & IS_IMMUTABLE != 0 {
        return Some("it is immutable");
    }
    if inode.flags() & HOLDS_VALUE != 0 {
        return Some("it holds the value of an attribute");
    }
    if inode.is_encrypted() {
        return Some("it is encrypted, so the result cannot be compared");
    }
    if is_boot_file {
        return Some("a boot loader finds it by a list of blocks");
    }
    if inode.kind() == FileKind::File {
        let mut head = vec![0; SWAP_HEAD_BYTES];
        return match files.read_inode(inode, 0, &mut head) {
            Ok(_) if swap_header::memory_in(&head).is_some() => Some("it is a swap file"),
            Ok(_) => None,
            Err(_) => Some("it cannot be read"),
        };
    }
    None
}

/// Returns an inode that is in use.
pub(super) fn inode_of(files: &ExtFileSystem, number: u32) -> Result<ExtInode, RelocationError> {
    let inode = files.inode_if_used(number)?;
    Ok(inode.ok_or_else(|| damaged(format!("inode {number}"), "it is empty"))?)
}
