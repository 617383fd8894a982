//! What a block is for. The type is part of a block's name: the same bytes under two types are two blocks.
//!
//! Stored as one byte: the kind in the upper three bits, the depth in the lower five. Venti's types are the same pairs
//! with another numbering (venti(7)).

/// What a block holds, pointer depth aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum BlockKind {
    /// Bytes of a file or an image. Venti's `VtDataType`.
    Data = 0,
    /// Entries of a folder. Venti's `VtDirType`.
    Directory = 1,
    /// The root of an archive that another program wrote. Venti's `VtRootType`.
    Root = 2,
    /// The root of a catalog: the last such block in a log leads to everything.
    Catalog = 3,
}

/// A block's kind, and how many levels of pointer blocks lie between it and what it leads to.
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
    /// The deepest pointer block. A tree of 512-byte blocks this deep holds more than any disk.
    pub const DEPTH_MAX: u8 = 31;

    /// A block that holds the thing itself.
    #[must_use]
    pub const fn leaf(kind: BlockKind) -> Self {
        Self((kind as u8) << 5)
    }

    /// A pointer block, `depth` levels above the leaves; `None` beyond [`Self::DEPTH_MAX`]. Depth 0 is the leaf itself.
    #[must_use]
    pub fn at_depth(kind: BlockKind, depth: u8) -> Option<Self> {
        (depth <= Self::DEPTH_MAX).then_some(Self((kind as u8) << 5 | depth))
    }

    /// The kind.
    #[must_use]
    pub fn kind(self) -> BlockKind {
        match self.0 >> 5 {
            0 => BlockKind::Data,
            1 => BlockKind::Directory,
            2 => BlockKind::Root,
            _ => BlockKind::Catalog,
        }
    }

    /// How many levels of pointers lie below this block: 0 for a leaf.
    #[must_use]
    pub fn depth(self) -> u8 {
        self.0 & Self::DEPTH_MAX
    }

    /// The byte that stands for this type in every format.
    #[must_use]
    pub fn to_byte(self) -> u8 {
        self.0
    }

    /// The type that a stored byte stands for; `None` where no version knows such a type.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        (byte >> 5 <= BlockKind::Catalog as u8).then_some(Self(byte))
    }
}

impl std::fmt::Display for BlockType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind() {
            BlockKind::Data => "data",
            BlockKind::Directory => "directory",
            BlockKind::Root => "root",
            BlockKind::Catalog => "catalog",
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
        for byte in 0..=127 {
            let block_type = BlockType::from_byte(byte).unwrap();
            assert_eq!(block_type.to_byte(), byte);
            assert_eq!(BlockType::at_depth(block_type.kind(), block_type.depth()), Some(block_type));
        }
        assert_eq!(BlockType::from_byte(128), None);
        assert_eq!(BlockType::at_depth(BlockKind::Data, 32), None);
    }
}
