//! Numbers of files. Each subvolume numbers its inodes by itself, so a file's number has both: the
//! subvolume and the inode. Numbers use 56 bits, as those of all file systems here.
//!
//! | bits 53..56 | bits of the subvolume | bits of the inode              |
//! |------------:|----------------------:|--------------------------------|
//! |           0 |                    12 | 41                             |
//! |           1 |                    18 | 35                             |
//! |           2 |                    26 | 27                             |
//! |           3 |                    33 | 20                             |
//! |           4 |                    26 | 27: the subvolume of a stand-in |
//!
//! The first form that fits is used. The top subvolume counts as 0, so its files have the numbers
//! of their inodes.

use super::key::object::TOP_SUBVOLUME;
use crate::file_systems::file_system::{FileId, FileSystemError};
use varve_block::to_usize;

const FORM_SHIFT: u32 = 53;
/// The bits of the inode in each form.
const INODE_BITS: [u32; 4] = [41, 35, 27, 20];
const STAND_IN_FORM: u64 = 4;
const STAND_IN_BITS: u32 = 27;

/// A file, in the terms of Btrfs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BtrfsFile {
    Inode {
        subvolume: u64,
        inode: u64,
    },
    /// The empty folder in a snapshot where the original has another subvolume.
    StandIn {
        subvolume: u64,
        /// The subvolume that is not in the snapshot.
        absent: u64,
    },
}

/// Puts two numbers into a form, if they fit.
fn pack(form: u64, low_bits: u32, high: u64, low: u64) -> Option<FileId> {
    let fits = |number: u64, bits: u32| number.checked_shr(bits) == Some(0);
    let high_bits = FORM_SHIFT.checked_sub(low_bits)?;
    let is_fit = fits(high, high_bits) && fits(low, low_bits);
    is_fit.then_some(FileId(form << FORM_SHIFT | high << low_bits | low))
}

impl BtrfsFile {
    /// Returns the number of a file.
    ///
    /// # Errors
    /// [`FileSystemError::Unsupported`] if the number has no form.
    pub(super) fn id(self) -> Result<FileId, FileSystemError> {
        let high = |subvolume| if subvolume == TOP_SUBVOLUME { 0 } else { subvolume };
        let (found, what, number) = match self {
            Self::Inode { subvolume, inode } => {
                let mut forms = (0..).zip(INODE_BITS);
                let found = forms.find_map(|(form, bits)| pack(form, bits, high(subvolume), inode));
                // These numbers are no subvolumes, and 0 stands for the top.
                let found = found.filter(|_| subvolume >= TOP_SUBVOLUME);
                (found, format!("inode {inode} of subvolume {subvolume}"), inode)
            }
            Self::StandIn { subvolume, absent } => {
                let found = pack(STAND_IN_FORM, STAND_IN_BITS, high(subvolume), absent);
                (found, format!("subvolume {absent} in subvolume {subvolume}"), absent)
            }
        };
        found.ok_or_else(|| FileSystemError::Unsupported { what, feature: format!("a number like {number}") })
    }

    /// Returns the file with this number; `None` if the number has no form.
    pub(super) fn of(id: FileId) -> Option<Self> {
        let form = id.0 >> FORM_SHIFT;
        let pair = |bits: u32| {
            let low = id.0 & (1_u64 << bits).checked_sub(1)?;
            let high = (id.0 & (1_u64 << FORM_SHIFT).checked_sub(1)?) >> bits;
            Some((if high == 0 { TOP_SUBVOLUME } else { high }, low))
        };
        if form == STAND_IN_FORM {
            let (subvolume, absent) = pair(STAND_IN_BITS)?;
            return Some(Self::StandIn { subvolume, absent });
        }
        let (subvolume, inode) = pair(*INODE_BITS.get(to_usize(form))?)?;
        Some(Self::Inode { subvolume, inode })
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_are_unique_and_lead_back() {
        let near = |bits: u32| [(1_u64 << bits) - 1, 1 << bits, (1 << bits) + 1];
        let inodes: Vec<u64> = [20, 27, 35, 41].into_iter().flat_map(near).chain([256, 257]).collect();
        let subvolumes: Vec<u64> = [12, 18, 26, 33].into_iter().flat_map(near).chain([5, 256, 257]).collect();
        let mut seen = BTreeSet::new();
        for subvolume in subvolumes {
            for number in &inodes {
                let inode = BtrfsFile::Inode { subvolume, inode: *number };
                let stand_in = BtrfsFile::StandIn { subvolume, absent: *number };
                for file in [inode, stand_in] {
                    let Ok(id) = file.id() else { continue };
                    assert!(id.0 < 1 << 56 && seen.insert(id), "{file:?}");
                    assert_eq!(BtrfsFile::of(id), Some(file));
                }
            }
        }
        assert!(seen.len() > 80, "{}", seen.len());
        let top = BtrfsFile::Inode { subvolume: 5, inode: 256 };
        assert_eq!(top.id().unwrap(), FileId(256));
        assert!(BtrfsFile::Inode { subvolume: 5, inode: 1 << 41 }.id().is_err());
        assert!(BtrfsFile::Inode { subvolume: 1 << 40, inode: 256 }.id().is_err());
        assert!(BtrfsFile::Inode { subvolume: 0, inode: 256 }.id().is_err());
        assert_eq!(BtrfsFile::of(FileId(u64::MAX)), None);
    }
}
