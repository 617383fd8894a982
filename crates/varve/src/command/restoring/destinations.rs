//! The destination of each restored place.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use varve_session::{UsageError, WithHint};

use super::hints;
use crate::arguments::RestoreArgs;
use crate::command::choosing::place_in_snapshot::{PlaceContent, PlaceInSnapshot};
use crate::show;

/// The destination that means standard output.
pub(super) const OUTPUT: &str = "-";

/// Returns the destination of each place, in order. Creates the folder if there are several.
pub(super) fn targets(
    restore: &RestoreArgs,
    places: &[(PlaceInSnapshot<'_>, PlaceContent<'_>)],
) -> Result<Vec<PathBuf>> {
    let destination = &restore.destination;
    if destination == Path::new(OUTPUT) && (restore.dry_run || restore.verify) {
        bail!(UsageError("--dry-run and --verify need a destination that can be read".into()));
    }
    if let [(place, content)] = places {
        return Ok(vec![target_of_one(destination, place, content)]);
    }
    if destination == Path::new(OUTPUT) {
        bail!(UsageError("only one file can be written to standard output".into()));
    }
    let mut names = BTreeSet::new();
    for (place, _) in places {
        let name = own_name(place).with_context(|| format!("{} has no name of its own", place.name()))?;
        if !names.insert(name.clone()) {
            let name = show::name(name.as_os_str().as_bytes());
            bail!(UsageError(format!("two of them are called {name}: restore them one by one")));
        }
    }
    if !restore.dry_run && !destination.is_dir() {
        fs::create_dir(destination)
            .with_hint(hints::of_missing_folder)
            .with_context(|| format!("cannot make {}", destination.display()))?;
    }
    Ok(places.iter().filter_map(|(place, _)| Some(destination.join(own_name(place)?))).collect())
}

/// Returns the destination of a single place. A destination that can only be a folder, such as `.`
/// or `there/`, receives the place under its own name. So does any existing folder, unless the
/// place is itself a folder, which is then merged into it.
fn target_of_one(destination: &Path, place: &PlaceInSnapshot<'_>, content: &PlaceContent<'_>) -> PathBuf {
    if destination == Path::new(OUTPUT) {
        return destination.to_owned();
    }
    let is_written_as_folder =
        destination.file_name().is_none() || destination.as_os_str().as_bytes().ends_with(b"/");
    let goes_into = is_written_as_folder || (!content.is_folder() && destination.is_dir());
    match own_name(place).filter(|_| goes_into) {
        Some(own) => destination.join(own),
        None => destination.to_owned(),
    }
}

fn own_name(place: &PlaceInSnapshot<'_>) -> Option<PathBuf> {
    let name = place.name();
    place.path.file_name().or_else(|| Path::new(&name).file_name()).map(PathBuf::from)
}
