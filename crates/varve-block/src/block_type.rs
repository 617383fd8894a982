//! The type of a block. It is part of the block's name: the same bytes under two types are two
//! blocks.
//!
//! It is stored as one byte: the kind in the upper three bits, the depth in the lower five. Venti's
//! types are the same pairs with another numbering (venti(7)).

/// The kind of content below a block, without the depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum BlockKind {
    /// Bytes of a file or an image. Venti's `VtDataType`.
    Data = 0,
    /// Entries of a folder. Venti's `VtDirType`.
    Directory = 1,
    /// The root of an archive of another program. Venti's `VtRootType`.
    Root = 2,
    /// The root of a catalog. The last such block in a log leads to the whole archive.
    Catalog = 3,
    /// A note of the store about its own log, such as the replacement of arenas.
    Note = 4,
}

/// The kind of a block, and the number of levels of pointer blocks between it and its leaves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockType(u8);

impl BlockType {
    /// Bytes of a file or an image.
    pub const DATA: Self = Self::leaf(BlockKind::Data);
    /// Entries of a folder.
    pub const DIRECTORY: Self = Self::leaf(BlockKind::Directory);
    /// The root of a foreign archive.
    pub const ROOT: Self = Self::leaf(BlockKind::Root);
    /// The root of a catalog.
    pub const CATALOG: Self = Self::leaf(BlockKind::Catalog);
    /// A note of the store about its own log.
    pub const NOTE: Self = Self::leaf(BlockKind::Note);
    /// The largest depth of a pointer block. A tree of 512-byte blocks of this depth holds more
    /// than any disk.
    pub const DEPTH_MAX: u8 = 31;

    /// Makes the type of a leaf.
    #[must_use]
    pub const fn leaf(kind: BlockKind) -> Self {
        Self((kind as u8) << 5)
    }

    /// Makes the type of a pointer block, `depth` levels above the leaves; `None` beyond
    /// [`Self::DEPTH_MAX`]. Depth 0 is a leaf.
    #[must_use]
    pub fn at_depth(kind: BlockKind, depth: u8) -> Option<Self> {
        (depth <= Self::DEPTH_MAX).then_some(Self((kind as u8) << 5 | depth))
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(self) -> BlockKind {
        match self.0 >> 5 {
            0 => BlockKind::Data,
            1 => BlockKind::Directory,
            2 => BlockKind::Root,
            3 => BlockKind::Catalog,
            _ => BlockKind::Note,
        }
    }

    /// Returns the number of levels of pointers below this block: 0 for a leaf.
    #[must_use]
    pub fn depth(self) -> u8 {
        self.0 & Self::DEPTH_MAX
    }

    /// Returns the byte for this type, which is the same in every format.
    #[must_use]
    pub fn to_byte(self) -> u8 {
        self.0
    }

    /// Returns the type of a stored byte; `None` if no version has such a type.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        (byte >> 5 <= BlockKind::Note as u8).then_some(Self(byte))
    }
}

impl std::fmt::Display for BlockType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind() {
            BlockKind::Data => "data",
            BlockKind::Directory => "directory",
            BlockKind::Root => "root",
            BlockKind::Catalog => "catalog",
            BlockKind::Note => "note",
        };
        match self.depth() {
            0 => f.write_str(kind),
            depth => write!(f, "{kind} pointer {depth}"),
        }
    }
}

impl std::fmt::Debug for BlockType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockType({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_byte_survives_the_round_trip() {
        for byte in 0..=159 {
            let block_type = BlockType::from_byte(byte).unwrap();
            assert_eq!(block_type.to_byte(), byte);
            assert_eq!(BlockType::at_depth(block_type.kind(), block_type.depth()), Some(block_type));
        }
        assert_eq!(BlockType::from_byte(160), None);
        assert_eq!(BlockType::at_depth(BlockKind::Data, 32), None);
    }
}
