//! Damage to durable data, from which no sync protects.

/// A kind of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rot {
    /// A bit is flipped.
    FlippedBit,
    /// A sector reads as zeros.
    ZeroedSector,
    /// A sector is unreadable.
    UnreadableSector,
    /// The end of the file is missing.
    LostEnd,
    /// The file is missing.
    LostFile,
}

impl Rot {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::FlippedBit, Self::ZeroedSector, Self::UnreadableSector, Self::LostEnd, Self::LostFile];

    /// The name of the damage in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FlippedBit => "a durable bit flips",
            Self::ZeroedSector => "a durable sector reads as zeros",
            Self::UnreadableSector => "a durable sector cannot be read any more",
            Self::LostEnd => "a file loses its end",
            Self::LostFile => "a file is gone",
        }
    }
}
