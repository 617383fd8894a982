//! Maps partition types to the kinds of content that they allow.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::partition::PartitionType;

/// The kinds of content that a partition type may be for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartitionPurpose {
    Swap,
    LinuxFiles,
    WindowsFiles,
    /// A member of an LVM volume group.
    Lvm,
}

impl PartitionPurpose {
    /// Returns the name for messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Swap => "swap",
            Self::LinuxFiles => "files of Linux",
            Self::WindowsFiles => "files of Windows",
            Self::Lvm => "LVM",
        }
    }

    /// Returns the types of an MBR: swap; Linux, and the extended boot partition; NTFS, and its
    /// hidden and recovery forms; LVM.
    fn of_mbr(self) -> &'static [u8] {
        match self {
            Self::Swap => &[0x82],
            Self::LinuxFiles => &[0x83, 0xea],
            Self::WindowsFiles => &[0x07, 0x17, 0x27],
            Self::Lvm => &[0x8e],
        }
    }

    /// Returns the types of a GPT as text.
    fn of_gpt(self) -> &'static [&'static str] {
        match self {
            Self::Swap => &["0657fd6d-a4ab-43c4-84e5-0933c84b4f4f"],
            Self::LinuxFiles => LINUX_FILES,
            Self::WindowsFiles => {
                &["ebd0a0a2-b9e5-4433-87c0-68b6b72699c7", "de94bba4-06d1-4d40-a16a-bfd50179d6ac"]
            }
            Self::Lvm => &["e6d6d379-f507-44c2-a23c-238f2a3df928"],
        }
    }
}

impl PartitionType {
    /// Returns true if the table marks the partition as Linux swap.
    #[must_use]
    pub fn is_swap(&self) -> bool {
        self.is_for(PartitionPurpose::Swap)
    }

    /// Returns true if the partition type allows `purpose`. A type that is unknown to this crate
    /// allows none.
    pub(crate) fn is_for(&self, purpose: PartitionPurpose) -> bool {
        match self {
            Self::Mbr(number) => purpose.of_mbr().contains(number),
            Self::Gpt(_) => purpose.of_gpt().contains(&self.to_string().as_str()),
        }
    }
}

/// Linux file systems in general, and those of the Discoverable Partitions Specification that may
/// be written to.
const LINUX_FILES: &[&str] = &[
    "0fc63daf-8483-4772-8e79-3d69d8477de4", // Linux filesystem
    "3b8f8425-20e0-4f3b-907f-1a25a76f98e8", // /srv
    "933ac7e1-2eb4-4f13-b844-0e14e2aef915", // /home
    "773f91ef-66d4-49b5-bd83-d683bf40ad16", // a user's home
    "4d21b016-b534-45c2-a9fb-5c16e091fd2d", // /var
    "7ec6f557-3bc5-4aca-b293-16ef5df639d1", // /var/tmp
    "bc13c2ff-59e6-4262-a352-b275fd6f7172", // the extended boot partition
    "44479540-f297-41b2-9af7-d131d5f0458a", // root: x86
    "4f68bce3-e8cd-4db1-96e7-fbcaf984b709", // root: x86-64
    "6523f8ae-3eb1-4e2a-a05a-18b695ae656f", // root: Alpha
    "d27f46ed-2919-4cb8-bd25-9531f3c16534", // root: ARC
    "69dad710-2ce4-4e3c-b16c-21a1d49abed3", // root: ARM
    "b921b045-1df0-41c3-af44-4c6f280d3fae", // root: ARM-64
    "993d8d3d-f80e-4225-855a-9daf8ed7ea97", // root: IA-64
    "77055800-792c-4f94-b39a-98c91b762bb6", // root: LoongArch-64
    "37c58c8a-d913-4156-a25f-48b1b64e07f0", // root: MIPS-32 LE
    "700bda43-7a34-4507-b179-eeb93d7a7ca3", // root: MIPS-64 LE
    "1de3f1ef-fa98-47b5-8dcd-4a860a654d78", // root: PPC
    "912ade1d-a839-4913-8964-a10eee08fbd2", // root: PPC64
    "c31c45e6-3f39-412e-80fb-4809c4980599", // root: PPC64LE
    "60d5a7fe-8e7d-435c-b714-3dd8162144e1", // root: RISC-V-32
    "72ec70a6-cf74-40e6-bd49-4bda08e8f224", // root: RISC-V-64
    "08a7acea-624c-4a20-91e8-6e0fa67d23f9", // root: S390
    "5eead9a9-fe09-4a1e-a1d7-520d00531306", // root: S390X
    "75250d76-8cc6-458e-bd66-bd47cc81a812", // /usr: x86
    "8484680c-9521-48c6-9c11-b0720656f69e", // /usr: x86-64
    "7d0359a3-02b3-4f0a-865c-654403e70625", // /usr: ARM
    "b0e01050-ee5f-4390-949a-9101b17104e9", // /usr: ARM-64
    "15bb03af-77e7-4d4a-b12b-c0d084f7491c", // /usr: PPC64LE
    "beaec34b-8442-439b-a40b-984381ed097d", // /usr: RISC-V-64
    "8a4f5770-50aa-4ed3-874a-99b710db6fea", // /usr: S390X
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_for_one_thing() {
        let all = [
            PartitionPurpose::Swap,
            PartitionPurpose::LinuxFiles,
            PartitionPurpose::WindowsFiles,
            PartitionPurpose::Lvm,
        ];
        let of =
            |kind: PartitionType| all.into_iter().filter(|purpose| kind.is_for(*purpose)).collect::<Vec<_>>();
        assert_eq!(of(PartitionType::Mbr(0x82)), [PartitionPurpose::Swap]);
        assert_eq!(of(PartitionType::Mbr(0x83)), [PartitionPurpose::LinuxFiles]);
        assert_eq!(of(PartitionType::Mbr(0xfd)), []);
        let swap =
            [0x6d, 0xfd, 0x57, 0x06, 0xab, 0xa4, 0xc4, 0x43, 0x84, 0xe5, 0x09, 0x33, 0xc8, 0x4b, 0x4f, 0x4f];
        assert_eq!(of(PartitionType::Gpt(swap)), [PartitionPurpose::Swap]);
        assert_eq!(of(PartitionType::Gpt([7; 16])), []);
        for purpose in all {
            for guid in purpose.of_gpt() {
                assert_eq!((guid.len(), guid.to_lowercase().as_str()), (36, *guid));
            }
        }
    }
}
