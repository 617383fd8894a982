//! What of a disk is not kept, and what is though it was asked to be left out.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;

use crate::ranges::Ranges;
use crate::volume::Volume;

/// One thing that is left out, or kept though it was asked to be left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOutPart {
    /// The volume.
    pub volume: String,
    /// Which part of it: `swap`, `free blocks`, or the path of a file.
    pub what: String,
    /// How many bytes of it are left out.
    pub bytes: u64,
    /// Why none are.
    pub kept_because: Option<String>,
}

/// The bytes of a disk that are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    ranges: Ranges,
    parts: Vec<LeftOutPart>,
}

impl LeftOut {
    /// Adds places in a volume.
    pub(crate) fn add(&mut self, volume: &Volume, what: &str, places: impl IntoIterator<Item = Range<u64>>) {
        let before = self.ranges.total();
        for place in places {
            self.ranges.extend(volume.on_disk(place));
        }
        let bytes = self.ranges.total().saturating_sub(before);
        let (volume, what) = (volume.name().into(), what.into());
        self.parts.push(LeftOutPart { volume, what, bytes, kept_because: None });
    }

    /// Remembers what could not be left out.
    pub(crate) fn keep(&mut self, volume: &Volume, what: &str, because: &str) {
        let (volume, what) = (volume.name().into(), what.into());
        self.parts.push(LeftOutPart { volume, what, bytes: 0, kept_because: Some(because.into()) });
    }

    /// Where on the disk, in bytes.
    #[must_use]
    pub fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    /// All that was found.
    #[must_use]
    pub fn parts(&self) -> &[LeftOutPart] {
        &self.parts
    }
}
