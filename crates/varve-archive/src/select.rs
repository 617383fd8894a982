//! Naming a snapshot: by a prefix of its id, `latest`, `NAME`, `NAME@WHEN` or `@WHEN`.

use varve_world::Timestamp;

use crate::snapshot::Snapshot;
use crate::snapshot_id::SnapshotId;

/// The fewest digits of an id that can name a snapshot.
const ID_DIGITS_MIN: usize = 4;
/// How many near names a complaint lists.
const NEAR_MAX: usize = 5;
/// How alike a name must be to be listed.
const ALIKE_MIN: f64 = 0.6;

/// Why a text names no snapshot.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SelectError {
    /// Nothing was archived yet.
    #[error("the store has no snapshots yet")]
    Empty,
    /// No snapshot has this name or id.
    #[error("no snapshot is called {text:?}{}", near_text(near))]
    Unknown {
        /// What was asked for.
        text: String,
        /// Names that are like it.
        near: Vec<String>,
    },
    /// Several have ids that begin like this.
    #[error("{text:?} could be {}", candidates.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or "))]
    Ambiguous {
        /// What was asked for.
        text: String,
        /// Whose ids begin so.
        candidates: Vec<SnapshotId>,
    },
    /// There are such snapshots, but all are younger.
    #[error("{text:?}: nothing that old; the oldest is {oldest}")]
    TooOld {
        /// What was asked for.
        text: String,
        /// The oldest that there is.
        oldest: SnapshotId,
    },
    /// What follows the `@` is no date.
    #[error("{text:?} is not a moment: write 2026-05-01, or 2026-05-01T23:15")]
    NotAMoment {
        /// What was asked for.
        text: String,
    },
}

fn near_text(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; there is {}", near.join(", ")) }
}

/// Finds the snapshot that `text` names. `moment` reads a date or a time, and gives the last moment that it means.
///
/// # Errors
/// [`SelectError`].
pub fn select<'a>(
    snapshots: &'a [Snapshot],
    text: &str,
    moment: &dyn Fn(&str) -> Option<Timestamp>,
) -> Result<&'a Snapshot, SelectError> {
    if snapshots.is_empty() {
        return Err(SelectError::Empty);
    }
    let (name, when) = match text.rsplit_once('@') {
        Some((name, when)) => {
            let when = moment(when).ok_or_else(|| SelectError::NotAMoment { text: when.into() })?;
            (name, Some(when))
        }
        None => (text, None),
    };
    let every = name.is_empty() || name == "latest";
    let named: Vec<_> = snapshots.iter().filter(|snapshot| every || snapshot.name == name).collect();
    if named.is_empty() {
        return by_id(snapshots, text);
    }
    let young = |snapshot: &&&Snapshot| when.is_none_or(|when| snapshot.time <= when);
    // Of two that show the same moment, the one that was finished later.
    named.iter().filter(young).max_by_key(|snapshot| snapshot.time).copied().ok_or_else(|| {
        let oldest =
            named.iter().min_by_key(|snapshot| snapshot.time).map_or(snapshots[0].id, |oldest| oldest.id);
        SelectError::TooOld { text: text.into(), oldest }
    })
}

fn by_id<'a>(snapshots: &'a [Snapshot], text: &str) -> Result<&'a Snapshot, SelectError> {
    let prefix = text.to_ascii_lowercase();
    let found: Vec<_> = snapshots
        .iter()
        .filter(|snapshot| prefix.len() >= ID_DIGITS_MIN && snapshot.id.to_string().starts_with(&prefix))
        .collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(SelectError::Unknown { text: text.into(), near: near(snapshots, text) }),
        several => {
            let candidates = several.iter().map(|snapshot| snapshot.id).collect();
            Err(SelectError::Ambiguous { text: text.into(), candidates })
        }
    }
}

/// Names that somebody who wrote `text` may have meant.
fn near(snapshots: &[Snapshot], text: &str) -> Vec<String> {
    let wanted = text.split('@').next().unwrap_or(text);
    let names: std::collections::BTreeSet<&str> =
        snapshots.iter().map(|snapshot| snapshot.name.as_str()).collect();
    let mut scored: Vec<_> = names
        .into_iter()
        .map(|name| {
            (
                if name.contains(wanted) {
                    1.0
                } else {
                    strsim::normalized_damerau_levenshtein(name, wanted)
                },
                name,
            )
        })
        .filter(|(alike, _)| *alike >= ALIKE_MIN)
        .collect();
    scored.sort_by(|one, other| other.0.total_cmp(&one.0));
    scored.into_iter().take(NEAR_MAX).map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::tests::snapshot;

    fn selected(text: &str) -> Result<u8, SelectError> {
        let mut snapshots: Vec<_> =
            [(1, "web", 10), (2, "web", 20), (3, "home", 15), (4, "web", 20), (5, "deed", 1)]
                .map(|(number, name, time)| snapshot(number, name, time))
                .into();
        snapshots[1].id = SnapshotId([0x0a; 16]);
        snapshots[2].id.0[..2].copy_from_slice(&[0x0a, 0x0a]);
        select(&snapshots, text, &|when| when.parse().ok().map(Timestamp)).map(|found| {
            u8::try_from(snapshots.iter().position(|snapshot| snapshot == found).unwrap() + 1).unwrap()
        })
    }

    #[test]
    fn every_way_to_name_one() {
        for (text, expected) in [
            ("web", 4),
            ("latest", 4),
            ("web@15", 1),
            ("web@10", 1),
            ("@15", 3),
            ("latest@16", 3),
            ("home", 3),
            ("deed", 5),
            ("04040404", 4),
            ("0a0a0303", 3),
            ("0A0A0A", 2),
        ] {
            assert_eq!(selected(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn every_way_to_fail() {
        assert_eq!(select(&[], "web", &|_| None), Err(SelectError::Empty));
        let near = vec!["web".to_owned()];
        assert_eq!(selected("wbe"), Err(SelectError::Unknown { text: "wbe".into(), near }));
        assert!(
            matches!(selected("0a0a"), Err(SelectError::Ambiguous { candidates, .. }) if candidates.len() == 2)
        );
        assert!(matches!(selected("0a"), Err(SelectError::Unknown { .. })), "too short for an id");
        assert!(
            matches!(selected("web@9"), Err(SelectError::TooOld { oldest, .. }) if oldest == SnapshotId([1; 16]))
        );
        assert_eq!(selected("web@soon"), Err(SelectError::NotAMoment { text: "soon".into() }));
    }
}
