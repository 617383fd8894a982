//! The names of a replica's objects. See `docs/internals/format.md`, section 6.
//!
//! ```text
//! arenas/0000000007.0/000000000000-77d0…-8f3c…       from offset 0 of arena 7, generation 0, to the record of the second code
//! arenas/0000000007.0/000012345600-8f3c…-seal-51aa…  from the end of that record to the arena's end; the code is its seal's
//! ```
//!
//! The first code identifies the record before the segment. So segments of two histories of one
//! arena never fit together, even if they are cut at the same offsets.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::{from_hex, to_hex};
use varve_log::ArenaId;
use varve_world::FileName;

/// The folder of all segments.
pub(crate) const ARENAS: &str = "arenas";
/// The folder of keys.
pub(crate) const KEYS: &str = "keys";
const SEAL: &str = "seal-";

/// The end of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SegmentEnd {
    /// A clump or a directory page, by the code of its header.
    Record([u8; 16]),
    /// The end of a sealed arena, by its seal code.
    Seal([u8; 32]),
}

/// The place of a segment: its arena and its part of it. The name does not contain the length,
/// which the target reports.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentName {
    pub arena: ArenaId,
    /// The number of times that the arena was rewritten.
    pub generation: u32,
    /// The offset of the segment in the arena, in bytes.
    pub offset: u64,
    /// The code of the record before it, or the arena's uid at offset 0.
    pub start: [u8; 16],
    pub end: SegmentEnd,
}

impl SegmentName {
    /// The largest offset in a name.
    pub const OFFSET_MAX: u64 = 999_999_999_999;

    /// Returns the name of the object.
    ///
    /// # Panics
    /// When the offset exceeds [`Self::OFFSET_MAX`]. No arena is that long.
    #[must_use]
    pub fn file_name(&self) -> FileName {
        let Self { arena, generation, offset, start, end } = self;
        assert!(*offset <= Self::OFFSET_MAX, "no arena is that long");
        let end = match end {
            SegmentEnd::Record(code) => to_hex(code),
            SegmentEnd::Seal(code) => format!("{SEAL}{}", to_hex(code)),
        };
        let text = format!("{}/{offset:012}-{}-{end}", folder_of(*arena, *generation), to_hex(start));
        FileName::new(&text).expect("digits make a good name")
    }

    /// Parses the name of an object; `None` if it is not a segment.
    #[must_use]
    pub fn of_file(file: &FileName) -> Option<Self> {
        let (folder, own) = file.as_str().strip_prefix(ARENAS)?.strip_prefix('/')?.split_once('/')?;
        let (arena, generation) = folder.split_once('.')?;
        let (offset, rest) = own.split_once('-')?;
        let (start, end) = rest.split_once('-')?;
        let end = match end.strip_prefix(SEAL) {
            Some(code) => SegmentEnd::Seal(code_of(code)?),
            None => SegmentEnd::Record(code_of(end)?),
        };
        let offset = offset.parse().ok().filter(|offset| *offset <= Self::OFFSET_MAX)?;
        let (arena, generation) = (ArenaId(arena.parse().ok()?), generation.parse().ok()?);
        let name = Self { arena, generation, offset, start: code_of(start)?, end };
        // A segment has exactly one name. Other spellings of the same numbers are refused.
        (name.file_name() == *file).then_some(name)
    }
}

/// Returns true if a replica has objects in a folder of this name.
pub(crate) fn is_folder(file: &FileName) -> bool {
    let name = file.as_str();
    let own = name.strip_prefix(ARENAS).and_then(|rest| rest.strip_prefix('/'));
    let numbers = own.and_then(|own| own.split_once('.'));
    let parsed = numbers
        .and_then(|(arena, generation)| Some((arena.parse::<u64>().ok()?, generation.parse::<u32>().ok()?)));
    // An arena has exactly one folder name, like a segment.
    let is_arena = parsed.is_some_and(|(arena, generation)| name == folder_of(ArenaId(arena), generation));
    [ARENAS, KEYS].contains(&name) || is_arena
}

fn folder_of(arena: ArenaId, generation: u32) -> String {
    format!("{ARENAS}/{:010}.{generation}", arena.0)
}

fn code_of<const N: usize>(digits: &str) -> Option<[u8; N]> {
    from_hex(digits).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn end() -> impl Strategy<Value = SegmentEnd> {
        prop_oneof![
            any::<[u8; 16]>().prop_map(SegmentEnd::Record),
            any::<[u8; 32]>().prop_map(SegmentEnd::Seal)
        ]
    }

    proptest! {
        #[test]
        fn every_segment_has_one_name(
            arena: u64, generation: u32, offset in 0..=SegmentName::OFFSET_MAX, start: [u8; 16], end in end()
        ) {
            let name = SegmentName { arena: ArenaId(arena), generation, offset, start, end };
            prop_assert_eq!(SegmentName::of_file(&name.file_name()), Some(name));
        }

        #[test]
        fn no_other_text_is_a_segment(text in "arenas/[0-9.]{1,14}/[0-9a-fA-F.+-]{1,60}(seal)?") {
            if let Some(name) = FileName::new(&text).ok().and_then(|file| SegmentName::of_file(&file)) {
                prop_assert_eq!(name.file_name().to_string(), text);
            }
        }

        #[test]
        fn names_sort_as_the_log_does(
            arenas in (0_u64..9_999_999_999, 0_u64..9_999_999_999),
            offsets in (0..=SegmentName::OFFSET_MAX, 0..=SegmentName::OFFSET_MAX)
        ) {
            let file = |arena, offset| {
                let end = SegmentEnd::Record([0; 16]);
                SegmentName { arena: ArenaId(arena), generation: 0, offset, start: [0; 16], end }.file_name()
            };
            let (one, other) = (file(arenas.0, offsets.0), file(arenas.1, offsets.1));
            prop_assert_eq!(one.cmp(&other), (arenas.0, offsets.0).cmp(&(arenas.1, offsets.1)));
        }
    }

    #[test]
    fn folders_of_objects_are_known() {
        for (text, expected) in [
            ("arenas", true),
            ("keys", true),
            ("arenas/0000000007.0", true),
            ("arenas/12345678901.12", true),
            ("arenas/7.0", false),
            ("arenas/0000000007.00", false),
            ("arenas/0000000007.arena", false),
            ("arenas/0000000007.0/x", false),
            ("letters", false),
        ] {
            assert_eq!(is_folder(&FileName::new(text).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn names_look_as_the_format_says() {
        let mut name = SegmentName {
            arena: ArenaId(7),
            generation: 0,
            offset: 0,
            start: [0x77; 16],
            end: SegmentEnd::Record([0x8f; 16]),
        };
        let (start, end) = ("77".repeat(16), "8f".repeat(16));
        assert_eq!(name.file_name().as_str(), format!("arenas/0000000007.0/000000000000-{start}-{end}"));
        name.offset = 12_345_600;
        name.end = SegmentEnd::Seal([0x51; 32]);
        let seal = "51".repeat(32);
        assert_eq!(
            name.file_name().as_str(),
            format!("arenas/0000000007.0/000012345600-{start}-seal-{seal}")
        );
        for foreign in [
            "arenas/0000000007.arena".to_owned(),
            format!("arenas/7.0/000000000000-{start}-{end}"),
            format!("arenas/0000000007.00/000000000000-{start}-{end}"),
            format!("arenas/0000000007.0/000000000000-{start}-{}", end.to_uppercase()),
            format!("arenas/0000000007.0/000000000000-{start}-{end}8f"),
            format!("arenas/0000000007.0/000000000000-{start}-seal-{end}"),
            format!("arenas/0000000007.0/000000000000-{end}"),
            format!("other/0000000007.0/000000000000-{start}-{end}"),
        ] {
            assert_eq!(SegmentName::of_file(&FileName::new(&foreign).unwrap()), None, "{foreign}");
        }
    }
}
