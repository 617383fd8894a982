//! The seal of a block of metadata: checksum, position and UUID. Each kind of block has it in
//! another place. Only version 5 has seals.

use crate::bytes::crc::crc32c_from;
use crate::bytes::fields::{array_at, be16_at, be32_at, be64_at, put, u32_at};

/// The places of the fields of a seal in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct XfsSeal {
    pub(super) checksum_at: usize,
    uuid_at: usize,
    /// The block's position, in units of 512 bytes.
    position_at: Option<usize>,
    /// The position in the log of the block's last change.
    change_at: usize,
}

/// A kind of metadata block: its name, and its magic numbers with and without a seal.
#[derive(Debug, Clone, Copy)]
pub(super) struct XfsBlockKind {
    pub(super) name: &'static str,
    pub(super) magics: [u32; 2],
}

/// The magic numbers of the trees with short pointers, which lie in one group.
const SHORT_TREES: [&[u8; 4]; 6] = [b"AB3B", b"AB3C", b"IAB3", b"FIB3", b"RMB3", b"R3FC"];
/// The magic numbers of indexes of folders and attributes, which lie in the middle of their header.
const INDEXES: [u16; 4] = [0x3df1, 0x3dff, 0x3bee, 0x3ebe];
const INDEX_MAGIC_AT: usize = 8;

impl XfsSeal {
    /// Returns the seal of a block by its magic number; `None` if this kind of block has none.
    pub(super) fn of(block: &[u8]) -> Option<Self> {
        let seal = |checksum_at, uuid_at, position_at, change_at| {
            Some(Self { checksum_at, uuid_at, position_at, change_at })
        };
        let magic = array_at::<4>(block, 0);
        match &magic {
            b"XFSB" => seal(224, 32, None, 240),
            b"XAGF" => seal(216, 64, None, 208),
            b"XAGI" => seal(312, 296, None, 320),
            b"XAFL" => seal(32, 8, None, 24),
            b"BMA3" => seal(64, 40, Some(24), 32),
            b"XDB3" | b"XDD3" | b"XDF3" => seal(4, 24, Some(8), 16),
            b"XSLM" | b"XARM" => seal(12, 16, Some(40), 48),
            magic if SHORT_TREES.contains(&magic) => seal(52, 32, Some(16), 24),
            _ if INDEXES.contains(&be16_at(block, INDEX_MAGIC_AT)) => seal(12, 32, Some(16), 24),
            _ => None,
        }
    }

    /// Checks a block that was read from a position, in bytes.
    pub(super) fn check(self, block: &[u8], uuid: [u8; 16], position: u64) -> Result<(), &'static str> {
        if !matches_checksum(block, self.checksum_at) {
            return Err("it does not match its checksum");
        }
        if array_at::<16>(block, self.uuid_at) != uuid {
            return Err("it belongs to another file system");
        }
        if self.position_at.is_some_and(|at| be64_at(block, at) != position >> 9) {
            return Err("it belongs to another place");
        }
        Ok(())
    }

    /// Returns the UUID of a block.
    pub(super) fn uuid(self, block: &[u8]) -> [u8; 16] {
        array_at(block, self.uuid_at)
    }

    /// Returns the position in the log of a block's last change.
    pub(super) fn change(self, block: &[u8]) -> u64 {
        be64_at(block, self.change_at)
    }
}

impl XfsBlockKind {
    /// Returns true if a block has the magic number of this kind.
    pub(super) fn is_of(&self, block: &[u8], is_sealed: bool) -> bool {
        let [plain, sealed] = self.magics;
        let expected = if is_sealed { sealed } else { plain };
        match u16::try_from(expected) {
            Ok(short) => be16_at(block, INDEX_MAGIC_AT) == short,
            Err(_) => be32_at(block, 0) == expected,
        }
    }
}

/// Computes the checksum of a block, for which its own bytes count as zeros.
pub(super) fn checksum(block: &[u8], at: usize) -> u32 {
    let (before, rest) = block.split_at_checked(at).unwrap_or((block, &[]));
    let code = crc32c_from(crc32c_from(!0, before), &[0; 4]);
    !crc32c_from(code, rest.get(4..).unwrap_or_default())
}

/// Returns true if a block matches its checksum at `at`.
pub(super) fn matches_checksum(block: &[u8], at: usize) -> bool {
    checksum(block, at) == u32_at(block, at)
}

/// Sets the checksum of a block that was changed.
pub(super) fn set_checksum(block: &mut [u8], at: usize) {
    let code = checksum(block, at);
    put(block, at, &code.to_le_bytes());
}
