//! What of a disk is not kept, and what is though it was asked to be left out.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;

use crate::bytes::ranges::Ranges;
use crate::disks::volume::Volume;

/// One thing that is left out, or kept though it was asked to be left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOutPart {
    /// The volume.
    pub volume: String,
    /// Which part of it: `swap`, `free blocks`, or the path of a file.
    pub what: String,
    /// How many bytes of it are left out.
    pub bytes: u64,
    /// What proves that nobody misses them; empty if it is kept.
    pub why: String,
    /// What contradicts, so that none are left out.
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
    /// Adds places in a volume.
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

    /// Remembers what could not be left out.
    pub(crate) fn keep(&mut self, volume: &Volume, what: &str, because: &str) {
        let (volume, what) = (volume.name().into(), what.into());
        let (why, kept_because) = (String::new(), Some(because.into()));
        self.parts.push(LeftOutPart { volume, what, bytes: 0, why, kept_because });
    }

    /// Remembers a volume whose newest changes no reader here shows.
    pub(crate) fn add_fast_commits(&mut self, volume: &Volume) {
        self.fast_commits.push(volume.name().into());
    }

    /// Where on the disk, in bytes.
    #[must_use]
    pub fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    /// Volumes whose newest changes are in the fast-commit area of their journal: a mount of the restored disk makes them, and no
    /// reader here shows them.
    #[must_use]
    pub fn fast_commits(&self) -> &[String] {
        &self.fast_commits
    }

    /// All that was found.
    #[must_use]
    pub fn parts(&self) -> &[LeftOutPart] {
        &self.parts
    }
}
