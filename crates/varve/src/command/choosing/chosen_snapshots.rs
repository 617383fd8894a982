//! The snapshots that a command may choose from, and the lookup of those that a command line names.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Error, Result, anyhow, bail};
use varve_archive::{SelectError, Selected, Snapshot, select, series, split_place, unknown};
use varve_session::UsageError;

use super::place_in_snapshot::{NamedSource, PlaceInSnapshot, vac_place, without_slashes};
use crate::arguments::SnapshotFilterArgs;
use crate::invocation::Invocation;
use crate::{moment, show};

/// The maximum number of other origins of a name that are listed.
const ORIGINS_MAX: usize = 3;

/// The snapshots that pass the filter of a command.
pub struct ChosenSnapshots<'a> {
    snapshots: Vec<&'a Snapshot>,
    /// True if there were snapshots, but the filter left none.
    none_left: bool,
    quiet: bool,
}

impl<'a> ChosenSnapshots<'a> {
    pub fn new(invocation: &Invocation, snapshots: &'a [Snapshot], which: &SnapshotFilterArgs) -> Self {
        if !invocation.quiet {
            warn_of_unknown_names(snapshots, &which.names);
        }
        let passed = which.filter().apply(snapshots);
        let none_left = passed.is_empty() && !snapshots.is_empty();
        Self { snapshots: passed, none_left, quiet: invocation.quiet }
    }

    /// Returns all of them.
    pub fn snapshots(&self) -> &[&'a Snapshot] {
        &self.snapshots
    }

    /// Finds the snapshot of a name. Prints a remark if the name could also mean other snapshots.
    pub fn named(&self, name: &str) -> Result<&'a Snapshot> {
        refuse_empty(name)?;
        let Selected { snapshot, passed_over } =
            select(&self.snapshots, name, &moment::parse_last_past).map_err(|error| self.explained(error))?;
        if !passed_over.is_empty() && !self.quiet {
            warning!("{}", passed_over_text(snapshot, &passed_over));
        }
        Ok(snapshot)
    }

    /// Finds all snapshots of a series, or the single snapshot that is named in another way.
    pub fn series(&self, name: &str) -> Result<Vec<&'a Snapshot>> {
        refuse_empty(name)?;
        match series(&self.snapshots, name) {
            none if none.is_empty() => Ok(vec![self.named(name)?]),
            all => Ok(all),
        }
    }

    /// Finds all snapshots of these series, in the order of the archive; all of them if no series
    /// is named.
    pub fn of_series(&self, names: &[String]) -> Result<Vec<&'a Snapshot>> {
        let mut ids = BTreeSet::new();
        for name in names {
            refuse_empty(name)?;
            let found = series(&self.snapshots, name);
            if found.is_empty() {
                // The error tells similar names.
                self.named(name)?;
                bail!(UsageError(format!("{name:?} is a single snapshot: with rules, name a series")));
            }
            ids.extend(found.iter().map(|snapshot| snapshot.id));
        }
        let is_named = |snapshot: &&&Snapshot| names.is_empty() || ids.contains(&snapshot.id);
        Ok(self.snapshots.iter().filter(is_named).copied().collect())
    }

    /// Finds the place that `SNAPSHOT[:PATH]` names.
    pub fn place(&self, text: &'a OsStr) -> Result<PlaceInSnapshot<'a>> {
        if let Some((line, path)) = vac_place(text)? {
            return Ok(PlaceInSnapshot { what: NamedSource::Vac(line), path: without_slashes(path) });
        }
        let (name, path) = split_place(&self.snapshots, text.as_encoded_bytes());
        // Snapshot names are text, converted lossily from the name of the source.
        let snapshot = self.named(&String::from_utf8_lossy(name))?;
        Ok(PlaceInSnapshot { what: NamedSource::Snapshot(snapshot), path: without_slashes(path) })
    }

    /// Returns every snapshot as a whole, the newest first.
    pub fn places(&self) -> Vec<PlaceInSnapshot<'a>> {
        let mut all = self.snapshots.clone();
        all.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.time));
        all.into_iter()
            .map(|snapshot| PlaceInSnapshot { what: NamedSource::Snapshot(snapshot), path: Path::new("") })
            .collect()
    }

    fn explained(&self, error: SelectError) -> Error {
        match error {
            SelectError::Empty if self.none_left => SelectError::NoneLeft.into(),
            SelectError::TooOld { ref text, oldest } => {
                let time =
                    self.snapshots.iter().find(|one| one.id == oldest).map(|one| moment::show(one.time));
                let text = format!("{text:?}: no snapshot is that old");
                let oldest = time.map(|time| format!("; the oldest is of {time}")).unwrap_or_default();
                anyhow!("{text}{oldest}")
            }
            error => error.into(),
        }
    }
}

/// Warns of the names of a filter that no snapshot has: they are probably misspelled, and a command
/// that chooses no snapshot prints nothing else.
fn warn_of_unknown_names(snapshots: &[Snapshot], names: &[String]) {
    let all: Vec<_> = snapshots.iter().collect();
    for name in names.iter().filter(|name| all.iter().all(|snapshot| snapshot.name != **name)) {
        warning!("--name: {}", unknown(&all, name));
    }
}

/// Lists the other origins that a name could have meant.
fn passed_over_text(chosen: &Snapshot, passed_over: &[&Snapshot]) -> String {
    let has_same_source = |one: &&Snapshot| (&one.host, &one.source) == (&chosen.host, &chosen.source);
    let shows_keys = passed_over.iter().any(has_same_source);
    let origin = |snapshot: &Snapshot| {
        let key = snapshot.added_with().filter(|_| shows_keys);
        let key = key.map(|key| format!(" (added with {})", show::name(key.to_string().as_bytes())));
        let key = key.unwrap_or_default();
        format!("{}:{}{key}", show::name(snapshot.host.as_bytes()), show::name(&snapshot.source))
    };
    let others: Vec<_> = passed_over.iter().take(ORIGINS_MAX).map(|other| origin(other)).collect();
    let more = if passed_over.len() > ORIGINS_MAX { " and more" } else { "" };
    let name = show::name(chosen.name.as_bytes());
    let advice = match passed_over.iter().any(|other| other.host != chosen.host) {
        _ if shows_keys => "choose one by its id, as `varve snapshots -v` shows it".into(),
        true => format!("choose one with HOST:{name} or --host"),
        false => "choose one with --path".into(),
    };
    format!(
        "{name} is taken from {}; {}{more} has the same name: {advice}",
        origin(chosen),
        others.join(", ")
    )
}

/// Refuses an empty name: it comes from an unset variable, and must not match an arbitrary
/// snapshot.
pub fn refuse_empty(name: &str) -> Result<()> {
    if name.is_empty() {
        bail!(UsageError(
            "the name of the snapshot is empty: name one, or write latest for the newest of all".into()
        ));
    }
    Ok(())
}
