//! The destination of each restored place.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use varve_archive::SnapshotContent;
use varve_session::{UsageError, WithHint, snapshot_host};

use super::hints;
use crate::arguments::{OUTPUT, RestoreArgs};
use crate::command::choosing::place_in_snapshot::{PlaceContent, PlaceInSnapshot};
use crate::show;

/// Returns the destination of each place, in order. Creates the folder if there are several.
pub(super) fn targets(
    restore: &RestoreArgs,
    places: &[(PlaceInSnapshot<'_>, PlaceContent<'_>)],
) -> Result<Vec<PathBuf>> {
    let Some(destination) = restore.destination() else {
        return places.iter().map(|(place, content)| origin_of(place, content)).collect();
    };
    if destination == Path::new(OUTPUT) && (restore.dry_run || restore.verify) {
        bail!(UsageError("--dry-run and --verify need a destination that can be read".into()));
    }
    if let [(place, content)] = places {
        return Ok(vec![target_of_one(destination, place, content)?]);
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
fn target_of_one(
    destination: &Path,
    place: &PlaceInSnapshot<'_>,
    content: &PlaceContent<'_>,
) -> Result<PathBuf> {
    if destination == Path::new(OUTPUT) {
        return Ok(destination.to_owned());
    }
    let is_written_as_folder =
        destination.file_name().is_none() || destination.as_os_str().as_bytes().ends_with(b"/");
    let goes_into = is_written_as_folder || (!content.is_folder() && destination.is_dir());
    let Some(own) = own_name(place).filter(|_| goes_into) else { return Ok(destination.to_owned()) };
    let target = destination.join(&own);
    let would_nest = content.is_folder() && destination.file_name() == Some(own.as_os_str());
    if would_nest && destination.is_dir() && !target.is_dir() {
        // The shell adds the slash when it completes the name of a folder.
        let whole: PathBuf = destination.components().collect();
        let [whole, inner] = [whole.as_path(), &target].map(|path| show::name(path.as_os_str().as_bytes()));
        bail!(UsageError(format!(
            "with the slash at its end, this would make {inner}: write {whole} to restore into the folder \
             that is there, or {inner} to make another one in it"
        )));
    }
    Ok(target)
}

/// Returns the place from which a folder or a file was archived on this host.
fn origin_of(place: &PlaceInSnapshot<'_>, content: &PlaceContent<'_>) -> Result<PathBuf> {
    let refused = |reason: String| anyhow::Error::from(UsageError(format!("{reason}: name a destination")));
    let Some(snapshot) = place.what.snapshot() else {
        return Err(refused("an archive of vac does not say where it came from".into()));
    };
    let is_of_folder = matches!(snapshot.content, SnapshotContent::Folder(_));
    if !is_of_folder || !matches!(content, PlaceContent::Node { .. }) {
        return Err(refused("only files and folders are restored in place, and this is of a disk".into()));
    }
    let host = snapshot_host();
    if snapshot.host != host {
        let [from, host] = [&snapshot.host, &host].map(|host| show::name(host.as_bytes()));
        return Err(refused(format!("{} was archived on {from}, and this is {host}", place.name())));
    }
    let source = Path::new(OsStr::from_bytes(&snapshot.source));
    if !source.is_absolute() {
        return Err(refused(format!("{} has no path on this host", show::name(&snapshot.source))));
    }
    // The root of an archived file is the folder that it was in.
    let within = snapshot.path_within(place.path);
    let root = if snapshot.file.is_some() { source.parent().unwrap_or(source) } else { source };
    if !root.is_dir() {
        return Err(refused(format!(
            "{} is not there, so its file system may not be mounted",
            show::name(root.as_os_str().as_bytes())
        )));
    }
    Ok(if within.as_os_str().is_empty() { root.to_owned() } else { root.join(within) })
}

fn own_name(place: &PlaceInSnapshot<'_>) -> Option<PathBuf> {
    let name = place.name();
    place.path.file_name().or_else(|| Path::new(&name).file_name()).map(PathBuf::from)
}
