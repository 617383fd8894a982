//! Damage that a disk does to what was durable: what no sync protects from.

/// A kind of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rot {
    /// A bit is another one from now on.
    FlippedBit,
    /// A sector reads as zeros from now on.
    ZeroedSector,
    /// A sector cannot be read any more.
    UnreadableSector,
    /// The file ends earlier.
    LostEnd,
    /// The file is gone.
    LostFile,
}

impl Rot {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::FlippedBit, Self::ZeroedSector, Self::UnreadableSector, Self::LostEnd, Self::LostFile];

    /// Its name in a report.
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
