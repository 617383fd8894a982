//! The report on the parts of a disk that are left out, and on those that were requested but are
//! kept.

use std::ops::Range;

use crate::bytes::ranges::Ranges;
use crate::disks::volume::Volume;

/// A part of a disk that is left out, or that is kept although leaving it out was requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOutPart {
    pub volume: String,
    /// The part of the volume: `swap`, `free blocks`, or the path of a file.
    pub what: String,
    /// The number of its bytes that are left out.
    pub bytes: u64,
    /// The proof that these bytes are not needed; empty if the part is kept.
    pub why: String,
    /// The contradiction because of which nothing is left out.
    pub kept_because: Option<String>,
}

/// The bytes of a disk that are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    ranges: Ranges,
    parts: Vec<LeftOutPart>,
    fast_commits: Vec<String>,
}

impl LeftOut {
    /// Adds ranges of a volume.
    pub(crate) fn add(
        &mut self,
        volume: &Volume,
        what: &str,
        places: impl IntoIterator<Item = Range<u64>>,
        why: String,
    ) {
        let before = self.ranges.total();
        for place in places {
            self.ranges.extend(volume.on_disk(place));
        }
        let bytes = self.ranges.total().saturating_sub(before);
        let (volume, what) = (volume.name().into(), what.into());
        self.parts.push(LeftOutPart { volume, what, bytes, why, kept_because: None });
    }

    /// Records a part that is kept, and the reason.
    pub(crate) fn keep(&mut self, volume: &Volume, what: &str, because: &str) {
        let (volume, what) = (volume.name().into(), what.into());
        let (why, kept_because) = (String::new(), Some(because.into()));
        self.parts.push(LeftOutPart { volume, what, bytes: 0, why, kept_because });
    }

    /// Records a volume whose newest changes this crate cannot show.
    pub(crate) fn add_fast_commits(&mut self, volume: &Volume) {
        self.fast_commits.push(volume.name().into());
    }

    /// Returns the left-out ranges of the disk, in bytes.
    #[must_use]
    pub fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    /// Returns the volumes whose newest changes are in the fast-commit area of their journal. A
    /// mount of the restored disk applies these changes; the readers of this crate do not.
    #[must_use]
    pub fn fast_commits(&self) -> &[String] {
        &self.fast_commits
    }

    /// Returns all parts that were found.
    #[must_use]
    pub fn parts(&self) -> &[LeftOutPart] {
        &self.parts
    }
}
