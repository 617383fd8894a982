//! `index/audit`: the time when each arena was last read completely and found whole, so that an
//! audit of everything can be spread over many days. A hint like all of `index/`: arenas that are
//! not in it are checked again. An arena without a seal has `UNSEALED` in place of the code. Its
//! row counts only until it is sealed: everything that it has got since is younger than its
//! reading.
//!
//! | offset | bytes | field | meaning                                                                              |
//! |-------:|------:|-------|--------------------------------------------------------------------------------------|
//! |      0 |       | rows  | for each arena its number (8), the first half of its seal code (16), nanoseconds since 1970 (8) |
//! |        |    32 | mac   | `BLAKE3(a key of the store's own, all before)`                                       |

use std::collections::BTreeMap;

use varve_log::{ArenaId, ArenaState};
use varve_store::{HINT_MAC_BYTES, Hint};
use varve_world::Timestamp;

use super::Checker;
use crate::damage::ArenaCheck;

const ROW_BYTES: usize = 32;
/// The most arenas of a log.
const ROWS_BYTES_MAX: usize = (128 << 20) - HINT_MAC_BYTES;
/// Stands in the place of a seal code for an arena that has none.
const UNSEALED: [u8; 16] = [0xff; 16];
const AUDIT: Hint = Hint { file: "index/audit", context: "varve 1 audit" };

/// Selects the arenas that are read completely.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AuditShare {
    /// Only the arenas that were not found whole at or after this time.
    pub not_since: Option<Timestamp>,
    /// At most this share of the log, between 0 and 1. The arenas that were checked longest ago
    /// come first.
    pub share: f64,
}

impl AuditShare {
    /// All arenas.
    pub const ALL: Self = Self { not_since: None, share: 1.0 };
}

/// The times when arenas were last found whole.
#[derive(Debug, Clone, Default)]
pub struct AuditRecord {
    checked: BTreeMap<ArenaId, ([u8; 16], Timestamp)>,
}

impl Checker<'_> {
    /// Returns the record of earlier checks.
    #[must_use]
    pub fn audit(&self) -> AuditRecord {
        let rows = self.vault().read_hint(&AUDIT, ROWS_BYTES_MAX).unwrap_or_default();
        let (rows, _) = rows.as_chunks::<ROW_BYTES>();
        let checked = rows.iter().filter_map(|row| {
            let (id, rest) = row.split_first_chunk::<8>()?;
            let (code, time) = rest.split_first_chunk::<16>()?;
            let time = Timestamp(i64::from_le_bytes(*time.first_chunk()?));
            Some((ArenaId(u64::from_le_bytes(*id)), (*code, time)))
        });
        AuditRecord { checked: checked.collect() }
    }

    /// Returns the arenas of a share of `ids`.
    #[must_use]
    pub fn choose_share(&self, audit: &AuditRecord, ids: &[ArenaId], share: AuditShare) -> Vec<ArenaId> {
        let mut by_age: Vec<_> = ids
            .iter()
            .map(|id| {
                let bytes = self.vault().storage().length(&id.file_name()).unwrap_or(0);
                (self.last_audit(audit, *id), *id, bytes)
            })
            .collect();
        by_age.sort();
        let total: u64 = by_age.iter().map(|(.., bytes)| bytes).sum();
        let mut left = share.share.clamp(0.0, 1.0) * total as f64;
        let is_due = |time: Option<Timestamp>| match (time, share.not_since) {
            (Some(time), Some(since)) => time < since,
            _ => true,
        };
        let mut chosen = Vec::new();
        for (_, id, bytes) in by_age.into_iter().filter(|(time, ..)| is_due(*time)) {
            if left <= 0.0 {
                break;
            }
            left -= bytes as f64;
            chosen.push(id);
        }
        chosen.sort();
        chosen
    }

    /// Returns the oldest time at which one of the sealed arenas was last read; `None` if one of
    /// them never was.
    #[must_use]
    pub fn oldest_audit(&self, audit: &AuditRecord, ids: &[ArenaId]) -> Option<Timestamp> {
        let sealed = ids.iter().filter(|id| self.seal_code(**id).is_some());
        sealed.map(|id| self.last_audit(audit, *id)).min().flatten()
    }

    /// Returns the time when each arena was last read completely and found whole, with or without a
    /// seal; `None` if it never was.
    #[must_use]
    pub fn readings(&self, audit: &AuditRecord, ids: &[ArenaId]) -> Vec<(ArenaId, Option<Timestamp>)> {
        let now = self.store.world().clock.now();
        let unsealed = |id: &ArenaId| match audit.checked.get(id) {
            Some((UNSEALED, time)) if self.seal_code(*id).is_none() => {
                Some(*time).filter(|time| *time <= now)
            }
            _ => None,
        };
        ids.iter().map(|id| (*id, self.last_audit(audit, *id).or_else(|| unsealed(id)))).collect()
    }

    /// Returns the time when an arena was last found whole. A time in the future comes from a clock
    /// that was ahead. It would delay the next check by as much, so it is ignored.
    fn last_audit(&self, audit: &AuditRecord, id: ArenaId) -> Option<Timestamp> {
        let (code, time) = audit.checked.get(&id)?;
        if *time > self.store.world().clock.now() {
            return None;
        }
        (self.seal_code(id)?.first_chunk() == Some(code)).then_some(*time)
    }

    fn seal_code(&self, id: ArenaId) -> Option<[u8; 32]> {
        let arena = self.vault().arena(id).ok()?;
        match self.log().state(&arena).ok()? {
            ArenaState::Sealed { footer, .. } => Some(footer.seal_code),
            ArenaState::Unsealed => None,
        }
    }

    /// Records the arenas that were read completely now and found whole. If the record cannot be
    /// written, only the record is lost.
    pub fn note_audit<'a>(
        &self,
        mut audit: AuditRecord,
        read: impl Iterator<Item = (ArenaId, &'a ArenaCheck)>,
        now: Timestamp,
    ) -> AuditRecord {
        let mut is_new = false;
        for (id, check) in read {
            is_new = true;
            let code = self.seal_code(id).map(|code| code.first_chunk().copied().unwrap_or_default());
            match check.damage.iter().all(|damage| damage.kind.is_missing_parity()) {
                true => audit.checked.insert(id, (code.unwrap_or(UNSEALED), now)),
                false => audit.checked.remove(&id),
            };
        }
        if is_new {
            self.save_audit(&audit);
        }
        audit
    }

    fn save_audit(&self, audit: &AuditRecord) {
        let mut rows = Vec::with_capacity(audit.checked.len() * ROW_BYTES + HINT_MAC_BYTES);
        for (id, (code, time)) in &audit.checked {
            rows.extend_from_slice(&id.0.to_le_bytes());
            rows.extend_from_slice(code);
            rows.extend_from_slice(&time.0.to_le_bytes());
        }
        if let Err(error) = self.vault().write_hint(&AUDIT, rows) {
            tracing::info!(%error, "the record of checked arenas could not be saved");
        }
    }
}
