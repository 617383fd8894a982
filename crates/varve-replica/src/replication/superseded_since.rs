//! The earlier generations that this machine knows at a target: since when each is not needed any
//! more, and when it was removed. A hint like all of `index/`: one file for each target,
//! `index/superseded-…`. Without it, the time begins anew.
//!
//! | offset | bytes | field      | meaning                                                              |
//! |-------:|------:|------------|----------------------------------------------------------------------|
//! |      0 |       | rows       | see below                                                            |
//! |        |    32 | mac        | `BLAKE3(a key of the store's own, rows)`                             |
//!
//! A row, 28 bytes, in ascending order of arenas and generations:
//!
//! | offset | bytes | field      | meaning                                                              |
//! |-------:|------:|------------|----------------------------------------------------------------------|
//! |      0 |     8 | arena      | the number of the arena                                              |
//! |      8 |     4 | generation | the earlier generation                                               |
//! |     12 |     8 | since      | when a later generation was first seen whole there, in nanoseconds   |
//! |     20 |     8 | removed    | when its last object was removed, in nanoseconds; 0: not yet         |

use std::collections::BTreeMap;
use std::io;

use varve_log::{ArenaId, LogKeys};
use varve_remote::Target;
use varve_world::{FileName, Storage, Timestamp};

use crate::objects::listing::{ArenaAssembly, ReplicaListing};
use crate::replication::replica_end::name_for_notes;

const ROW_BYTES: usize = 28;
const MAC_BYTES: usize = 32;
/// More rows are not recorded.
const ROW_COUNT_MAX: usize = 1 << 16;

/// When a generation was superseded, and when it was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SupersededRow {
    since: Timestamp,
    removed: Option<Timestamp>,
}

/// The earlier generations at one target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SupersededSince {
    rows: BTreeMap<(ArenaId, u32), SupersededRow>,
}

fn file(target: &dyn Target) -> FileName {
    FileName::new(&format!("index/superseded-{}", name_for_notes(target))).expect("digits make a good name")
}

fn mac(keys: &LogKeys, rows: &[u8]) -> blake3::Hash {
    blake3::keyed_hash(&keys.derive("varve 1 superseded generations"), rows)
}

impl SupersededSince {
    /// Reads the record of a target; an empty one if there is no authentic record.
    pub(crate) fn read(storage: &dyn Storage, keys: &LogKeys, target: &dyn Target) -> Self {
        let bytes_max = (ROW_COUNT_MAX * ROW_BYTES + MAC_BYTES) as u64;
        let contents = storage.read_whole(&file(target), bytes_max).unwrap_or_default();
        match contents.split_last_chunk::<MAC_BYTES>() {
            Some((rows, code)) if mac(keys, rows).as_bytes() == code => {
                Self::decode(rows).unwrap_or_default()
            }
            _ => Self::default(),
        }
    }

    pub(crate) fn write(&self, storage: &dyn Storage, keys: &LogKeys, target: &dyn Target) -> io::Result<()> {
        let mut contents = self.encode();
        let code = mac(keys, &contents);
        contents.extend_from_slice(code.as_bytes());
        let file = file(target);
        if storage.read_whole(&file, contents.len() as u64).is_ok_and(|now| now == contents) {
            return Ok(());
        }
        storage.replace(&file, &contents)
    }

    /// Records the generations in a listing that are earlier than a whole one. Returns true if
    /// there are new ones.
    pub(crate) fn note_listed(&mut self, listing: &ReplicaListing, now: Timestamp) -> bool {
        let mut is_any_new = false;
        for (arena, generations) in &listing.arenas {
            let newest = ArenaAssembly::newest(generations);
            if !newest.is_whole() {
                continue;
            }
            for (generation, _) in generations.range(..newest.generation) {
                let key = (*arena, *generation);
                // A removed generation that is there again was put back by somebody.
                let is_known = self.rows.get(&key).is_some_and(|row| row.removed.is_none());
                if !is_known && (self.rows.len() < ROW_COUNT_MAX || self.rows.contains_key(&key)) {
                    self.rows.insert(key, SupersededRow { since: now, removed: None });
                    is_any_new = true;
                }
            }
        }
        is_any_new
    }

    pub(crate) fn note_removed(&mut self, arena: ArenaId, generation: u32, now: Timestamp) {
        if let Some(row) = self.rows.get_mut(&(arena, generation)) {
            row.removed = Some(now);
        }
    }

    /// Returns the time since which a generation is not needed; `None` if that is not known.
    pub(crate) fn since(&self, arena: ArenaId, generation: u32) -> Option<Timestamp> {
        self.rows.get(&(arena, generation)).filter(|row| row.removed.is_none()).map(|row| row.since)
    }

    fn encode(&self) -> Vec<u8> {
        let mut rows = Vec::with_capacity(self.rows.len() * ROW_BYTES + MAC_BYTES);
        for ((arena, generation), row) in &self.rows {
            rows.extend_from_slice(&arena.0.to_le_bytes());
            rows.extend_from_slice(&generation.to_le_bytes());
            rows.extend_from_slice(&row.since.0.to_le_bytes());
            rows.extend_from_slice(&row.removed.map_or(0, |time| time.0).to_le_bytes());
        }
        rows
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (rows, []) = bytes.as_chunks::<ROW_BYTES>() else { return None };
        let mut found = Self::default();
        for row in rows {
            let (arena, rest) = row.split_first_chunk()?;
            let (generation, rest) = rest.split_first_chunk()?;
            let (since, removed) = rest.split_first_chunk()?;
            let removed = i64::from_le_bytes(removed.try_into().ok()?);
            let key = (ArenaId(u64::from_le_bytes(*arena)), u32::from_le_bytes(*generation));
            let since = Timestamp(i64::from_le_bytes(*since));
            let removed = (removed != 0).then_some(Timestamp(removed));
            found.rows.insert(key, SupersededRow { since, removed });
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_record_survives_the_round_trip(
            rows in prop::collection::btree_map((any::<u64>(), any::<u32>()), (any::<i64>(), any::<i64>()), 0..20),
        ) {
            let row = |(since, removed): (i64, i64)| SupersededRow {
                since: Timestamp(since),
                removed: (removed != 0).then_some(Timestamp(removed)),
            };
            let rows = rows.into_iter().map(|((arena, of), times)| ((ArenaId(arena), of), row(times))).collect();
            let record = SupersededSince { rows };
            prop_assert_eq!(SupersededSince::decode(&record.encode()), Some(record));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let is_whole = bytes.len().is_multiple_of(ROW_BYTES);
            prop_assert_eq!(SupersededSince::decode(&bytes).is_some(), is_whole);
        }
    }
}
