//! The type of a block, as one byte in Venti's protocol and on its disks.

use varve_block::{BlockKind, BlockType};

/// The greatest depth of a pointer block in Venti.
const DEPTH_MAX: u8 = 7;
const ROOT: u8 = 1;
const DIRECTORY: u8 = 2;
const DATA: u8 = 13;
/// The number that Venti prints for an unknown type.
const UNKNOWN_NUMBER: u8 = 255;

/// A block's type on the wire: root 1, directory 2, pointers of depth 1 to 7 are 3 to 9, data 13.
/// Pointers to data and pointers to directories share their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireType(u8);

impl WireType {
    /// The bytes of a file.
    pub const DATA: Self = Self(DATA);
    /// Packed entries.
    pub const DIRECTORY: Self = Self(DIRECTORY);
    /// The root of a tree.
    pub const ROOT: Self = Self(ROOT);

    /// Accepts any byte.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Self {
        Self(byte)
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        self.0
    }

    /// The types that blocks of this wire type can have in a store, with the type for writing
    /// first. Empty for an unknown type.
    ///
    /// A pointer block is written as a pointer to data. A program that knows better may have stored
    /// it as a pointer to directories.
    pub fn block_types(self) -> impl Iterator<Item = BlockType> {
        let (first, second) = match self.0 {
            ROOT => (Some(BlockType::ROOT), None),
            DIRECTORY => (Some(BlockType::DIRECTORY), None),
            DATA => (Some(BlockType::DATA), None),
            3..=9 => {
                let depth = self.0.saturating_sub(2);
                (
                    BlockType::at_depth(BlockKind::Data, depth),
                    BlockType::at_depth(BlockKind::Directory, depth),
                )
            }
            _ => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// Reports whether the type is unknown.
    #[must_use]
    pub fn is_unknown(self) -> bool {
        self.block_types().next().is_none()
    }

    /// The wire type of a block of a store; `None` for pointers that are deeper than Venti's.
    ///
    /// Venti has no catalogs. The root block of a catalog travels as data, because programs expect
    /// 300 bytes in a block of type root. The same holds for notes.
    #[must_use]
    pub fn of(block_type: BlockType) -> Option<Self> {
        match (block_type.depth(), block_type.kind()) {
            (0, BlockKind::Data | BlockKind::Catalog | BlockKind::Note) => Some(Self::DATA),
            (0, BlockKind::Directory) => Some(Self::DIRECTORY),
            (0, BlockKind::Root) => Some(Self::ROOT),
            (depth @ 1..=DEPTH_MAX, _) => Some(Self(depth.saturating_add(2))),
            _ => None,
        }
    }

    /// The number that programs print and accept for this type: data 0, directory 8, pointers 9 to
    /// 15 (the same for data and directories), root 16, anything else 255.
    pub(crate) const fn program_number(self) -> u8 {
        match self.0 {
            ROOT => 16,
            DIRECTORY => 8,
            DATA => 0,
            depth @ 3..=9 => depth.saturating_add(6),
            _ => UNKNOWN_NUMBER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_a_store_comes_back_from_the_wire() {
        for byte in 0..=127 {
            let block_type = BlockType::from_byte(byte).unwrap();
            let Some(wire) = WireType::of(block_type) else {
                assert!(block_type.depth() > DEPTH_MAX, "{block_type}");
                continue;
            };
            if matches!(block_type.kind(), BlockKind::Data | BlockKind::Directory) {
                assert!(wire.block_types().any(|found| found == block_type), "{block_type}");
            }
        }
    }

    #[test]
    fn every_byte_of_the_wire_means_a_type_or_nothing() {
        for byte in 0..=255 {
            let wire = WireType::from_byte(byte);
            let known = matches!(byte, 1..=9 | 13);
            assert_eq!(!wire.is_unknown(), known, "{byte}");
            assert_eq!(wire.program_number() != UNKNOWN_NUMBER, known, "{byte}");
            for block_type in wire.block_types() {
                assert_eq!(WireType::of(block_type), Some(wire), "{block_type}");
            }
        }
    }

    #[test]
    fn programs_have_numbers_of_their_own() {
        let numbers = [13, 2, 3, 9, 1, 0, 10].map(|byte| WireType::from_byte(byte).program_number());
        assert_eq!(numbers, [0, 8, 9, 15, 16, 255, 255]);
    }
}
