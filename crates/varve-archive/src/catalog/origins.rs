//! Settles the origins of the snapshots in a catalog, for a key that can read.
//!
//! A record claims its origin, and its code proves it. Only keys that can read write final roots,
//! so a final list states the origin of a snapshot for ever. A root in an arena of a write-only key
//! states only what the code in the record proves: every other snapshot in it is of an early
//! write-only key. A snapshot that a final root lists without an origin was listed by an earlier
//! version of this program, and nothing is known about it.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;

use varve_store::{Origin, Role, Vault};
use varve_world::Timestamp;

use crate::catalog::known_snapshots::KnownSnapshots;
use crate::catalog::origin_record::OriginRecord;
use crate::catalog::snapshot::Snapshot;

/// Replaces the claimed origin of each snapshot by the proven one. Snapshots that only the roots of
/// write-only keys list get the origin, and the mark of a backdated one, that the next final root
/// will state.
pub(crate) fn settle_origins(known: &mut KnownSnapshots, vault: &Vault) {
    // Without encryption, everybody has the same key.
    if vault.key_id().is_none() {
        return known.state_origins(|_, _| None);
    }
    let mut arrived = ArrivedSeries { now: vault.world().clock.now(), latest: BTreeMap::new() };
    known.state_origins(|snapshot, is_added| {
        let claimed = snapshot.origin.as_ref();
        let proven = claimed.filter(|record| record.is_proven(vault, snapshot.id)).cloned();
        if proven.is_none() && claimed.is_some() {
            tracing::warn!(id = %snapshot.id, "a snapshot claims an origin that it does not prove");
        }
        let stated = if is_added { added_origin(vault, snapshot, proven, &arrived) } else { proven };
        arrived.add(snapshot, stated.as_ref().map(|record| &record.origin));
        stated
    });
}

fn added_origin(
    vault: &Vault,
    snapshot: &Snapshot,
    proven: Option<OriginRecord>,
    arrived: &ArrivedSeries,
) -> Option<OriginRecord> {
    let early = || Origin::new(Role::WriteOnly, "");
    let origin = proven.as_ref().map_or_else(early, |record| record.origin.clone());
    match (proven, arrived.later_than(snapshot, &origin)) {
        (Some(record), later) if record.later.is_some() || later.is_none() => Some(record),
        (_, later) => OriginRecord::prove(vault, snapshot.id, origin, later),
    }
}

/// The origin of a snapshot that this session is about to add. `None` if its key proves none.
pub(crate) fn own_origin(known: &KnownSnapshots, vault: &Vault, snapshot: &Snapshot) -> Option<OriginRecord> {
    let origin = vault.own_origin()?;
    let later = if origin.is_full() {
        None
    } else {
        let mut arrived = ArrivedSeries { now: vault.world().clock.now(), latest: BTreeMap::new() };
        known.in_order().for_each(|other| arrived.add(other, other.added_with()));
        arrived.later_than(snapshot, &origin)
    };
    OriginRecord::prove(vault, snapshot.id, origin, later)
}

/// The latest time of each series, separately for each origin, among the snapshots that have
/// arrived so far. Times after now are left out: a clock that was ahead for one night makes no
/// later night a backdated one.
struct ArrivedSeries {
    now: Timestamp,
    latest: BTreeMap<(String, String, Option<Origin>), Timestamp>,
}

impl ArrivedSeries {
    fn add(&mut self, snapshot: &Snapshot, origin: Option<&Origin>) {
        if snapshot.time > self.now {
            return;
        }
        let series = (snapshot.host.clone(), snapshot.name.clone(), origin.cloned());
        let latest = self.latest.entry(series).or_insert(snapshot.time);
        *latest = snapshot.time.max(*latest);
    }

    /// The latest time in the series of a snapshot, if it is later than the snapshot. Another key's
    /// snapshots do not count, and those of an unknown origin do.
    fn later_than(&self, snapshot: &Snapshot, origin: &Origin) -> Option<Timestamp> {
        let (host, name) = (&snapshot.host, &snapshot.name);
        let of = |origin| self.latest.get(&(host.clone(), name.clone(), origin)).copied();
        of(Some(origin.clone())).max(of(None)).filter(|latest| *latest > snapshot.time)
    }
}
