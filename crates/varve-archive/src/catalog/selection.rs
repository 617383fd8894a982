//! Selects a snapshot by text: `NAME`, `HOST:NAME`, `latest`, any of them with `@WHEN`, `@WHEN`
//! alone, or the first digits of an id. Pure.
//!
//! A path within the snapshot may follow after a colon. The existing snapshots decide which colon
//! begins it: `HOST:NAME` is recognised if a snapshot of that host has that name, and no snapshot
//! is itself called HOST. A snapshot's own name takes precedence, and a host takes precedence over
//! an id. A new snapshot therefore changes the meaning of a text only if the new snapshot has that
//! name.

use std::path::Path;

use varve_block::has_kind;
use varve_world::Timestamp;

use crate::catalog::snapshot::Snapshot;
use crate::catalog::snapshot_filter::source_path;
use crate::catalog::snapshot_id::{ID_DIGITS_MIN, SnapshotId};

/// Upper bound on the similar names that an error lists.
const NEAR_MAX: usize = 5;
/// The minimum similarity of a name that an error lists.
const ALIKE_MIN: f64 = 0.6;

/// Why a text selects no snapshot.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SelectError {
    /// The archive has no snapshot.
    #[error("the store has no snapshots yet")]
    Empty,
    /// The filter removed all snapshots.
    #[error("no snapshot of the store matches the conditions")]
    NoneLeft,
    #[error("no snapshot is called {text:?}{}", near_text(text, near, meant.as_deref()))]
    Unknown {
        text: String,
        /// Similar names.
        near: Vec<String>,
        /// The text for the path that it names.
        meant: Option<String>,
    },
    /// Several ids begin with these digits.
    #[error("{text:?} could be {}", candidates.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or "))]
    Ambiguous { text: String, candidates: Vec<SnapshotId> },
    /// The series exists, but all of its snapshots are younger.
    #[error("{text:?}: no snapshot is that old; the oldest is {oldest}")]
    TooOld {
        text: String,
        /// The id of the oldest snapshot of the series.
        oldest: SnapshotId,
    },
    /// The text after the `@` is no date.
    #[error("{text:?} is not a time: write 2026-05-01, 2026-05-01T23:15, yesterday or 3d")]
    NotAMoment { text: String },
}

has_kind!(SelectError: Self::NotAMoment { .. } => Usage);

fn near_text(text: &str, near: &[String], meant: Option<&str>) -> String {
    let is_hexadecimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match meant {
        Some(meant) => format!("; a path follows after a colon: {meant:?}"),
        None if near.is_empty() && is_hexadecimal && text.len() < ID_DIGITS_MIN => {
            format!("; an id needs at least {ID_DIGITS_MIN} digits")
        }
        None if near.is_empty() => String::new(),
        None => format!("; similar names: {}", near.join(", ")),
    }
}

/// A selected snapshot, and the other snapshots that the text may have meant.
#[derive(Debug, Clone, PartialEq)]
pub struct Selected<'a> {
    /// The newest snapshot that matches the text.
    pub snapshot: &'a Snapshot,
    /// The newest snapshot of each other host, path and key with the same name.
    pub passed_over: Vec<&'a Snapshot>,
}

/// Finds the snapshot that `text` selects. `moment` parses a date or a time, and returns the last
/// moment that it covers.
///
/// # Errors
/// [`SelectError`].
pub fn select<'a>(
    snapshots: &[&'a Snapshot],
    text: &str,
    moment: &dyn Fn(&str) -> Option<Timestamp>,
) -> Result<Selected<'a>, SelectError> {
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
    let named = if is_any(name) { snapshots.to_vec() } else { series(snapshots, name) };
    if named.is_empty() {
        return by_id(snapshots, text);
    }
    let young: Vec<_> =
        named.iter().copied().filter(|snapshot| when.is_none_or(|when| snapshot.time <= when)).collect();
    let Some(snapshot) = newest(&young) else {
        let oldest = named.iter().min_by_key(|snapshot| snapshot.time);
        let oldest = oldest.map_or(SnapshotId([0; 16]), |oldest| oldest.id);
        return Err(SelectError::TooOld { text: text.into(), oldest });
    };
    let passed_over = if is_any(name) { Vec::new() } else { other_origins(&young, snapshot) };
    Ok(Selected { snapshot, passed_over })
}

/// All snapshots that match `NAME` or `HOST:NAME`; may be empty.
#[must_use]
pub fn series<'a>(snapshots: &[&'a Snapshot], name: &str) -> Vec<&'a Snapshot> {
    let named: Vec<_> = snapshots.iter().copied().filter(|snapshot| snapshot.name == name).collect();
    match name.split_once(':') {
        Some((host, name)) if named.is_empty() && is_host(snapshots, host.as_bytes()) => {
            snapshots.iter().copied().filter(|one| one.host == host && one.name == name).collect()
        }
        _ => named,
    }
}

/// Splits `SNAPSHOT[:PATH]` into the text that selects the snapshot, and the path.
#[must_use]
pub fn split_place<'t>(snapshots: &[&Snapshot], text: &'t [u8]) -> (&'t [u8], &'t [u8]) {
    let Some(at) = path_at(text, 0) else { return (text, b"") };
    let (first, rest) = (&text[..at], &text[at + 1..]);
    if is_host(snapshots, first) {
        let end = path_at(text, at + 1).unwrap_or(text.len());
        let name = text[at + 1..end].split(|byte| *byte == b'@').next().unwrap_or_default();
        let is_of_host = |one: &&Snapshot| one.host.as_bytes() == first && one.name.as_bytes() == name;
        if snapshots.iter().any(is_of_host) {
            return (&text[..end], text.get(end + 1..).unwrap_or_default());
        }
    }
    (first, rest)
}

/// Returns whether a text matches every snapshot.
fn is_any(name: &str) -> bool {
    name.is_empty() || name == "latest"
}

/// Returns whether the text before a colon is a host, and not the name of a snapshot.
fn is_host(snapshots: &[&Snapshot], text: &[u8]) -> bool {
    let is_name = text.is_empty()
        || text == b"latest"
        || snapshots.iter().any(|snapshot| snapshot.name.as_bytes() == text);
    !is_name && snapshots.iter().any(|snapshot| snapshot.host.as_bytes() == text)
}

/// The position of the first colon at or after `start` that is not part of a time of day.
fn path_at(text: &[u8], start: usize) -> Option<usize> {
    (start..text.len()).find(|at| text[*at] == b':' && !is_in_time(text, *at))
}

/// Returns whether the colon at `at` is between two digits, after an `@`.
fn is_in_time(text: &[u8], at: usize) -> bool {
    let digit =
        |place: Option<usize>| place.and_then(|place| text.get(place)).is_some_and(u8::is_ascii_digit);
    text[..at].contains(&b'@') && digit(at.checked_sub(1)) && digit(Some(at + 1))
}

/// The newest of these snapshots. If two have the same time, the one that was finished later.
fn newest<'a>(snapshots: &[&'a Snapshot]) -> Option<&'a Snapshot> {
    snapshots.iter().copied().max_by_key(|snapshot| snapshot.time)
}

/// The newest snapshot of each host, path and key other than those of `chosen`.
fn other_origins<'a>(snapshots: &[&'a Snapshot], chosen: &Snapshot) -> Vec<&'a Snapshot> {
    let mut others: Vec<&Snapshot> = Vec::new();
    for snapshot in snapshots.iter().copied().filter(|snapshot| !has_same_origin(snapshot, chosen)) {
        match others.iter_mut().find(|other| has_same_origin(other, snapshot)) {
            Some(other) if other.time <= snapshot.time => *other = snapshot,
            Some(_) => {}
            None => others.push(snapshot),
        }
    }
    others.sort_by_key(|other| std::cmp::Reverse(other.time));
    others
}

/// Returns whether two snapshots are of the same path on the same host, and may have been added
/// with the same key. Full keys count as one.
fn has_same_origin(one: &Snapshot, other: &Snapshot) -> bool {
    let has_same_key = match (one.added_with(), other.added_with()) {
        (Some(one), Some(other)) => one == other || one.is_full() && other.is_full(),
        _ => true,
    };
    one.host == other.host && source_path(one) == source_path(other) && has_same_key
}

fn by_id<'a>(snapshots: &[&'a Snapshot], text: &str) -> Result<Selected<'a>, SelectError> {
    let found: Vec<_> = snapshots.iter().copied().filter(|snapshot| snapshot.id.begins_with(text)).collect();
    match found.as_slice() {
        [one] => Ok(Selected { snapshot: one, passed_over: Vec::new() }),
        [] => Err(unknown(snapshots, text)),
        several => {
            let candidates = several.iter().map(|snapshot| snapshot.id).collect();
            Err(SelectError::Ambiguous { text: text.into(), candidates })
        }
    }
}

/// The error for a name that none of these snapshots has.
#[must_use]
pub fn unknown(snapshots: &[&Snapshot], text: &str) -> SelectError {
    let (near, meant) = (near(snapshots, text), path_meant(snapshots, text));
    SelectError::Unknown { text: text.into(), near, meant }
}

/// Returns the text that selects a path, for one in the way of other programs: `home/anna`, or
/// `/home/anna` for a snapshot of `/home`.
fn path_meant(snapshots: &[&Snapshot], text: &str) -> Option<String> {
    let (path, when) = text.split_once('@').map_or((text, None), |(path, when)| (path, Some(when)));
    let selects = |name: &str, rest: &str| {
        let when = when.map(|when| format!("@{when}")).unwrap_or_default();
        if rest.is_empty() { format!("{name}{when}") } else { format!("{name}{when}:{rest}") }
    };
    if !path.starts_with('/') {
        let (name, rest) = path.split_once('/')?;
        return snapshots.iter().any(|one| one.name == name).then(|| selects(name, rest));
    }
    let below = |one: &&Snapshot| Path::new(path).strip_prefix(source_path(one)).ok().map(Path::to_owned);
    let found = snapshots.iter().filter_map(|one| Some((one, below(one)?)));
    let (nearest, rest) = found.min_by_key(|(_, rest)| rest.as_os_str().len())?;
    Some(selects(&nearest.name, rest.to_str()?))
}

/// Names that are similar to `text`.
fn near(snapshots: &[&Snapshot], text: &str) -> Vec<String> {
    let wanted = text.split('@').next().unwrap_or(text);
    let wanted = wanted.rsplit(':').next().unwrap_or(wanted);
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
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    use super::*;
    use crate::catalog::origin_record::tests::unproven;
    use crate::catalog::snapshot::tests::snapshot;

    fn moment(when: &str) -> Option<Timestamp> {
        when.parse().ok().map(Timestamp)
    }

    fn several() -> Vec<Snapshot> {
        let mut snapshots: Vec<_> =
            [(1, "web", 10), (2, "web", 20), (3, "home", 15), (4, "web", 20), (5, "deed", 1)]
                .map(|(number, name, time)| snapshot(number, name, time))
                .into();
        snapshots[1].id = SnapshotId([0x0a; 16]);
        snapshots[2].id.0[..2].copy_from_slice(&[0x0a, 0x0a]);
        snapshots
    }

    fn selected_of(snapshots: &[Snapshot], text: &str) -> Result<u8, SelectError> {
        let all: Vec<_> = snapshots.iter().collect();
        select(&all, text, &moment).map(|found| {
            let place = snapshots.iter().position(|snapshot| snapshot == found.snapshot).unwrap();
            u8::try_from(place + 1).unwrap()
        })
    }

    fn selected(text: &str) -> Result<u8, SelectError> {
        selected_of(&several(), text)
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
            ("here:web", 4),
            ("here:web@15", 1),
            ("here:deed", 5),
        ] {
            assert_eq!(selected(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn every_way_to_fail() {
        assert_eq!(select(&[], "web", &|_| None), Err(SelectError::Empty));
        let near = vec!["web".to_owned()];
        for text in ["wbe", "here:wbe"] {
            let near = near.clone();
            assert_eq!(selected(text), Err(SelectError::Unknown { text: text.into(), near, meant: None }));
        }
        assert!(
            matches!(selected("0a0a"), Err(SelectError::Ambiguous { candidates, .. }) if candidates.len() == 2)
        );
        assert!(matches!(selected("0a"), Err(SelectError::Unknown { .. })), "too short for an id");
        assert!(
            matches!(selected("web@9"), Err(SelectError::TooOld { oldest, .. }) if oldest == SnapshotId([1; 16]))
        );
        assert_eq!(selected("web@soon"), Err(SelectError::NotAMoment { text: "soon".into() }));
        assert!(matches!(selected("there:web"), Err(SelectError::Unknown { .. })), "no such host");
    }

    #[test]
    fn a_path_in_the_way_of_other_programs_gets_the_text_to_write() {
        let of = |number, name: &str, source: &str| Snapshot {
            source: source.into(),
            ..snapshot(number, name, 1)
        };
        let snapshots = [of(1, "home", "/home"), of(2, "anna", "/home/anna/"), of(3, "web", "/dev/vda")];
        let all: Vec<_> = snapshots.iter().collect();
        for (text, meant) in [
            ("home/anna", Some("home:anna")),
            ("home/anna/x@5", Some("home@5:anna/x")),
            ("home/", Some("home")),
            ("/home/otto/x", Some("home:otto/x")),
            ("/home/anna/x", Some("anna:x")),
            ("/home/anna", Some("anna")),
            ("/homes", None),
            ("work/x", None),
        ] {
            let Err(SelectError::Unknown { meant: found, .. }) = select(&all, text, &moment) else {
                panic!("{text}")
            };
            assert_eq!(found.as_deref(), meant, "{text}");
        }
    }

    /// Snapshots of two hosts with the same name, and of a host whose name is also the name of a
    /// snapshot.
    fn of_hosts() -> Vec<Snapshot> {
        let of = |number, host: &str, name: &str, time| Snapshot {
            host: host.into(),
            source: b"/etc".to_vec(),
            ..snapshot(number, name, time)
        };
        vec![
            of(1, "a", "etc", 1),
            of(2, "b", "etc", 2),
            of(3, "a", "etc", 3),
            of(4, "a", "b", 4),
            of(5, "cafe", "x", 5),
        ]
    }

    #[test]
    fn a_name_of_several_hosts_means_the_newest_and_says_what_else_it_could_mean() {
        let snapshots = of_hosts();
        let all: Vec<_> = snapshots.iter().collect();
        let found = select(&all, "etc", &moment).unwrap();
        assert_eq!(
            (found.snapshot.id.0[0], found.passed_over[0].id.0[0], found.passed_over.len()),
            (3, 2, 1)
        );
        let found = select(&all, "etc@2", &moment).unwrap();
        assert_eq!(
            (found.snapshot.id.0[0], found.passed_over[0].id.0[0], found.passed_over.len()),
            (2, 1, 1)
        );
        for text in ["a:etc", "latest", "@3", "01010101"] {
            assert_eq!(select(&all, text, &moment).unwrap().passed_over, Vec::<&Snapshot>::new(), "{text}");
        }
        // A path with a trailing `/` is the same path.
        let same = [&snapshots[0], &Snapshot { source: b"/etc/".to_vec(), ..snapshots[2].clone() }];
        assert_eq!(select(&same, "etc", &moment).unwrap().passed_over, Vec::<&Snapshot>::new());
    }

    #[test]
    fn a_snapshot_of_another_key_is_what_a_name_could_mean_too() {
        let of = |number, time, key: Option<&str>| Snapshot {
            origin: key.map(|key| unproven(key, None)),
            ..snapshot(number, "web", time)
        };
        let (false_one, unknown) = (of(5, 50, Some("intruder")), of(7, 20, None));
        let all = [of(1, 10, Some("web")), of(3, 30, Some("web")), unknown, false_one];
        let all: Vec<_> = all.iter().collect();
        let found = select(&all, "web", &moment).unwrap();
        let passed_over: Vec<_> = found.passed_over.iter().map(|one| one.id.0[0]).collect();
        assert_eq!((found.snapshot.id.0[0], passed_over), (5, vec![3]));
        // A series whose key is recorded only since the last version is of one origin.
        assert_eq!(select(&all[..3], "web", &moment).unwrap().passed_over, Vec::<&Snapshot>::new());
    }

    #[test]
    fn hosts_are_told_from_paths() {
        let snapshots = of_hosts();
        let all: Vec<_> = snapshots.iter().collect();
        for (text, name, path) in [
            ("a:etc", "a:etc", ""),
            ("a:etc:passwd", "a:etc", "passwd"),
            ("a:etc@2026-05-01T23:15:p1/x:y", "a:etc@2026-05-01T23:15", "p1/x:y"),
            ("a:etc@2026-05-01:p1", "a:etc@2026-05-01", "p1"),
            ("a:home", "a", "home"),
            // A snapshot has this name, which takes precedence.
            ("b:etc", "b", "etc"),
            ("b:etc:x", "b", "etc:x"),
            // A host that could be an id.
            ("cafe:x", "cafe:x", ""),
            ("etc:passwd", "etc", "passwd"),
            ("latest:etc", "latest", "etc"),
            ("@2026-05-01:etc", "@2026-05-01", "etc"),
            ("web:etc", "web", "etc"),
            ("web@2026-05-01T23:15:etc/x:y", "web@2026-05-01T23:15", "etc/x:y"),
            ("web@2026-05-01T23:15:07", "web@2026-05-01T23:15:07", ""),
            ("12:34", "12", "34"),
            ("web", "web", ""),
            (":x", "", "x"),
            ("", "", ""),
        ] {
            let split = split_place(&all, text.as_bytes());
            assert_eq!(split, (name.as_bytes(), path.as_bytes()), "{text}");
        }
    }

    proptest! {
        /// Splitting loses no byte, and never takes the name of a snapshot for a host.
        #[test]
        fn a_split_loses_nothing(text in proptest::collection::vec(
            proptest::sample::select(b"ab:@1etcx".to_vec()), 0..16)) {
            let snapshots = of_hosts();
            let all: Vec<_> = snapshots.iter().collect();
            let (name, path) = split_place(&all, &text);
            let joined = [name, b":", path].concat();
            prop_assert!(joined == text || path.is_empty() && name == text);
            if text.starts_with(b"b:") || text.starts_with(b"etc:") {
                prop_assert_eq!(name, text.split(|byte| *byte == b':').next().unwrap());
            }
        }

        /// HOST:NAME selects the same snapshot as NAME does among the snapshots of that host.
        #[test]
        fn a_host_leaves_only_its_own(host in proptest::sample::select(vec!["a", "cafe"]),
            name in "[ab]|etc|x", when in proptest::option::of(0i64..6)) {
            let snapshots = of_hosts();
            let all: Vec<_> = snapshots.iter().collect();
            let own: Vec<_> = all.iter().copied().filter(|snapshot| snapshot.host == host).collect();
            let text = |name: String| when.map_or(name.clone(), |when| format!("{name}@{when}"));
            let of_host = select(&all, &text(format!("{host}:{name}")), &moment).map(|found| found.snapshot.id);
            let alone = select(&own, &text(name), &moment).map(|found| found.snapshot.id);
            prop_assert_eq!(of_host.ok(), alone.ok());
        }
    }
}
