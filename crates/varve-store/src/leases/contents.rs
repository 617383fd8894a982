//! The contents of a lease: lines of text. Written whole, while the file is locked.
//!
//! ```text
//! varve lease 1
//! host backup.example.org
//! process 4711
//! started 1767225600000000000      nanoseconds since 1970
//! snapshot 00112233445566778899aabbccddeeff      one line for each, ascending; or the line `all`
//! end
//! ```
//!
//! A reader of another version, or with half of the lines, does not know what is protected, so
//! nothing is skipped: a text is understood as a whole, or not at all.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeSet;
use std::fmt::Write;

use varve_block::{from_hex, to_hex};
use varve_world::Timestamp;

const FIRST_LINE: &str = "varve lease 1";
const LAST_LINE: &str = "end";
/// A lease on more snapshots is a lease on all.
const IDS_IN_LEASE_MAX: usize = 100_000;
/// Larger files are not read.
pub(super) const LEASE_BYTES_MAX: u64 = 8 << 20;
const HOST_BYTES_MAX: usize = 255;

/// The process that holds a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseHolder {
    host: String,
    process: u32,
}

impl LeaseHolder {
    /// Names a process. Characters that no host name has are replaced.
    #[must_use]
    pub fn new(host: &str, process: u32) -> Self {
        let plain = |c: char| if c.is_ascii_graphic() { c } else { '_' };
        let host: String = host.chars().take(HOST_BYTES_MAX).map(plain).collect();
        Self { host: if host.is_empty() { "_".into() } else { host }, process }
    }

    /// Returns the name of the host, in printable ASCII.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the number of the process on its host.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process
    }
}

impl std::fmt::Display for LeaseHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} on {}", self.process, self.host)
    }
}

/// The snapshots that a reader uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeasedSnapshots {
    All,
    Ids(BTreeSet<[u8; 16]>),
}

impl LeasedSnapshots {
    /// Returns a lease on these snapshots; on all, if they are too many to be listed.
    #[must_use]
    pub fn of(ids: impl IntoIterator<Item = [u8; 16]>) -> Self {
        let ids: BTreeSet<_> = ids.into_iter().collect();
        if ids.len() > IDS_IN_LEASE_MAX { Self::All } else { Self::Ids(ids) }
    }

    /// Returns true if the snapshot must stay.
    #[must_use]
    pub fn protects(&self, id: &[u8; 16]) -> bool {
        match self {
            Self::All => true,
            Self::Ids(ids) => ids.contains(id),
        }
    }

    pub(super) fn id_count(&self) -> usize {
        match self {
            Self::All => 0,
            Self::Ids(ids) => ids.len(),
        }
    }
}

/// The contents of a lease's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaseContents {
    pub(super) holder: LeaseHolder,
    pub(super) started: Timestamp,
    pub(super) snapshots: LeasedSnapshots,
}

impl LeaseContents {
    pub(super) fn encode(&self) -> String {
        let LeaseHolder { host, process } = &self.holder;
        let started = self.started.0;
        let mut text = format!("{FIRST_LINE}\nhost {host}\nprocess {process}\nstarted {started}\n");
        match &self.snapshots {
            LeasedSnapshots::All => text.push_str("all\n"),
            LeasedSnapshots::Ids(ids) => {
                for id in ids {
                    // Writing to a string does not fail.
                    let _ = writeln!(text, "snapshot {}", to_hex(id));
                }
            }
        }
        text.push_str(LAST_LINE);
        text.push('\n');
        text
    }

    /// Reads the contents of a file; `None` unless every byte is as [`encode`](Self::encode) writes
    /// it.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.strip_suffix('\n')?.split('\n');
        if lines.next()? != FIRST_LINE {
            return None;
        }
        let host = lines.next()?.strip_prefix("host ")?;
        let process = lines.next()?.strip_prefix("process ")?.parse().ok()?;
        let started = Timestamp(lines.next()?.strip_prefix("started ")?.parse().ok()?);
        let holder = LeaseHolder::new(host, process);
        let mut ids = BTreeSet::new();
        let mut has_all = false;
        let mut line = lines.next()?;
        while line != LAST_LINE {
            if line == "all" {
                has_all = true;
            } else {
                ids.insert(from_hex(line.strip_prefix("snapshot ")?).ok()?.try_into().ok()?);
                if ids.len() > IDS_IN_LEASE_MAX {
                    return None;
                }
            }
            line = lines.next()?;
        }
        let snapshots = if has_all { LeasedSnapshots::All } else { LeasedSnapshots::Ids(ids) };
        let read = Self { holder, started, snapshots };
        // Nothing follows, nothing is twice, and each number is written in one way.
        (lines.next().is_none() && read.encode() == text).then_some(read)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_contents() -> impl Strategy<Value = LeaseContents> {
        let ids = proptest::collection::btree_set(any::<[u8; 16]>(), 0..5).prop_map(LeasedSnapshots::Ids);
        let snapshots = prop_oneof![Just(LeasedSnapshots::All), ids];
        (any::<String>(), any::<u32>(), any::<i64>(), snapshots).prop_map(
            |(host, process, started, snapshots)| LeaseContents {
                holder: LeaseHolder::new(&host, process),
                started: Timestamp(started),
                snapshots,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(contents in any_contents()) {
            prop_assert_eq!(LeaseContents::parse(contents.encode().as_bytes()), Some(contents));
        }

        #[test]
        fn a_part_or_a_changed_line_is_not_understood(
            contents in any_contents(),
            cut in any::<prop::sample::Index>(),
            bit in 0..8_u32,
        ) {
            let text = contents.encode();
            let at = cut.index(text.len());
            prop_assert_eq!(LeaseContents::parse(&text.as_bytes()[..at]), None);
            let mut changed = text.clone().into_bytes();
            changed[at] ^= 1_u8 << bit;
            let read = LeaseContents::parse(&changed);
            prop_assert!(read.is_none_or(|read| read != contents && read.encode().into_bytes() == changed));
        }

        #[test]
        fn arbitrary_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(LeaseContents::parse(&bytes), None);
        }
    }

    #[test]
    fn too_many_snapshots_are_all() {
        let id = |number: usize| {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&number.to_le_bytes());
            id
        };
        let most = LeasedSnapshots::of((0..IDS_IN_LEASE_MAX).map(id));
        assert_eq!(most.id_count(), IDS_IN_LEASE_MAX);
        assert!(most.protects(&id(5)) && !most.protects(&id(IDS_IN_LEASE_MAX)));
        let contents =
            LeaseContents { holder: LeaseHolder::new("h", 1), started: Timestamp(0), snapshots: most };
        let text = contents.encode();
        assert!(text.len() as u64 <= LEASE_BYTES_MAX);
        assert_eq!(LeaseContents::parse(text.as_bytes()), Some(contents));
        assert_eq!(LeasedSnapshots::of((0..=IDS_IN_LEASE_MAX).map(id)), LeasedSnapshots::All);
    }
}
