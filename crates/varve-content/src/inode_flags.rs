//! The flags that a file system keeps for a file besides its mode. `chattr` sets them and `lsattr`
//! shows them. Pure.

/// Flags of a file: those of `ioctl_iflags(2)` that a user may set, and that have the same meaning
/// on every file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct InodeFlags(u32);

/// The bits and names of the flags. The bits are those of `linux/fs.h`.
const NAMES: [(u32, &str); 16] = [
    (0x0000_0001, "secure_deletion"),
    (0x0000_0002, "undelete"),
    (0x0000_0004, "compressed"),
    (0x0000_0008, "synchronous"),
    (0x0000_0010, "immutable"),
    (0x0000_0020, "append_only"),
    (0x0000_0040, "no_dump"),
    (0x0000_0080, "no_access_time"),
    (0x0000_0400, "not_compressed"),
    (0x0000_4000, "journaled_data"),
    (0x0000_8000, "no_tail_merging"),
    (0x0001_0000, "synchronous_folder"),
    (0x0002_0000, "top_of_tree"),
    (0x0080_0000, "no_copy_on_write"),
    (0x0200_0000, "direct_access"),
    (0x2000_0000, "inherits_project"),
];

impl InodeFlags {
    /// The empty set of flags.
    pub const NONE: Self = Self(0);
    /// A file with this flag cannot be changed, renamed, linked or removed.
    pub const IMMUTABLE: Self = Self(0x10);
    /// A file with this flag can only grow.
    pub const APPEND_ONLY: Self = Self(0x20);
    /// The two flags that refuse changes. A restore sets them last.
    pub const LOCKS: Self = Self(0x30);
    /// Flags that work only if they are set before a file has content: compressed, not compressed,
    /// and not copied on write.
    pub(crate) const BEFORE_CONTENT: Self = Self(0x0080_0404);
    /// The file's data goes through the journal.
    pub(crate) const JOURNALED_DATA: Self = Self(0x4000);
    /// All flags that are archived.
    pub(crate) const KEPT: Self = Self(all());

    /// Selects the flags to keep among those that the system reports. The other flags describe how
    /// a file system stores the file, for example in extents.
    #[must_use]
    pub fn of_system(bits: u32) -> Self {
        Self(bits & Self::KEPT.0)
    }

    /// The flags as they were stored, including those that this version does not know.
    #[must_use]
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The bits as `ioctl_iflags(2)` defines them.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Returns whether no flag is set.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether all flags of `other` are set.
    pub(crate) fn contain(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags that are in both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The flags that are not in `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Each flag by itself, in the order of the bits.
    pub fn each(self) -> impl Iterator<Item = Self> {
        (0..u32::BITS).map(|place| Self(1 << place)).filter(move |flag| self.contain(*flag))
    }

    /// The names of the flags that this version knows, in the order of the bits.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().filter(move |(bit, _)| self.0 & bit != 0).map(|(_, name)| name)
    }
}

const fn all() -> u32 {
    let (mut bits, mut at) = (0, 0);
    while at < NAMES.len() {
        bits |= NAMES[at].0;
        at += 1;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_s_own_flags_are_not_kept() {
        // Extents, hashed folder, encrypted, verity, inline data.
        for own in [0x0008_0000, 0x1000, 0x0800, 0x0010_0000, 0x1000_0000] {
            assert!(InodeFlags::of_system(own).is_empty(), "{own:x}");
        }
        let flags = InodeFlags::of_system(0x0008_0030);
        assert_eq!(flags.names().collect::<Vec<_>>(), ["immutable", "append_only"]);
        assert_eq!(flags.each().collect::<Vec<_>>(), [InodeFlags::IMMUTABLE, InodeFlags::APPEND_ONLY]);
        assert!(flags.without(InodeFlags::LOCKS).is_empty());
        assert_eq!(InodeFlags::KEPT.names().count(), NAMES.len());
        assert_eq!(InodeFlags::KEPT.each().count(), NAMES.len(), "each bit once");
        assert!(InodeFlags::KEPT.contain(InodeFlags::BEFORE_CONTENT));
        assert!(InodeFlags::KEPT.contain(InodeFlags::JOURNALED_DATA));
        assert!(!flags.contain(InodeFlags::KEPT));
    }
}
