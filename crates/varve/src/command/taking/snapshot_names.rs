//! Names for the snapshots of one call.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path};

use anyhow::{Result, bail};
use varve_archive::{Archive, NameTaken, Snapshot, SnapshotHome, SnapshotRequest, default_name};
use varve_session::{Hinted, UsageError};

use crate::arguments::{TakeSnapshotArgs, parse_name};
use crate::invocation::Invocation;
use crate::show;

/// The prefix that marks the output of a program, in the place of a source path.
const COMMAND_SOURCE: &[u8] = b"command:";

/// A planned snapshot, with its possible names.
pub(super) struct PlannedSnapshot {
    pub(super) request: SnapshotRequest,
    /// The name that earlier versions gave to this source.
    older_name: Option<String>,
}

/// Plans a snapshot for each source. Two with the same name are a usage error.
pub(super) fn plan(args: &TakeSnapshotArgs) -> Result<Vec<PlannedSnapshot>> {
    let given = args.name.as_ref().or(args.command.as_ref());
    if args.name.is_some() && args.sources.len() > 1 {
        let output = format!("--name names one snapshot, but there are {} sources", args.sources.len());
        bail!(UsageError(output));
    }
    let base = SnapshotRequest {
        time: args.time,
        host: varve_session::snapshot_host(),
        tags: args.tags.clone(),
        comment: args.comment.clone().unwrap_or_default(),
        read_in_pieces: !args.compact,
        name_is_given: given.is_some(),
        ..SnapshotRequest::default()
    };
    if let (Some(name), Some(program)) = (&args.command, args.sources.first()) {
        let program = program.file_name().unwrap_or(program.as_os_str()).as_bytes();
        let source = [COMMAND_SOURCE, program].concat();
        return Ok(vec![PlannedSnapshot {
            request: SnapshotRequest { name: name.clone(), source, ..base },
            older_name: None,
        }]);
    }
    let planned = args.sources.iter().map(|source| {
        let (name, older_name) = match given {
            Some(name) => (name.clone(), None),
            None => own_names(source)?,
        };
        let source = remembered_path(source);
        Ok(PlannedSnapshot { request: SnapshotRequest { name, source, ..base.clone() }, older_name })
    });
    let planned = planned.collect::<Result<Vec<_>>>()?;
    refuse_same_names(args, &planned)?;
    Ok(planned)
}

/// Decides the names with the help of the catalog. A series that has begun continues under its
/// name. A name that belongs to another source is refused, unless the user gave it.
pub(super) fn settle(
    invocation: &Invocation,
    args: &TakeSnapshotArgs,
    planned: &mut [PlannedSnapshot],
    snapshots: &[Snapshot],
) -> Result<()> {
    for PlannedSnapshot { request, older_name } in
        planned.iter_mut().filter(|plan| !plan.request.name_is_given)
    {
        let older = older_name.as_deref();
        let name = default_name(snapshots, &request.host, &request.source, &request.name, older).to_owned();
        if name != request.name && !invocation.quiet {
            let (source, shown) = (show::name(&request.source), show::name(name.as_bytes()));
            let other = show::name(request.name.as_bytes());
            warning!("{source} continues under its earlier name {shown}; --name {other} begins a new series");
        }
        request.name = name;
    }
    refuse_same_names(args, planned)
}

/// The hint for a name that belongs to another source.
pub(super) const NAME_TAKEN: &str = "--name NAME with the same name continues that series, for example after a move; --name with another name begins a new series";

/// The error for a name that belongs to another source.
pub(super) fn taken(source: &Path, error: NameTaken) -> anyhow::Error {
    let error = anyhow::Error::new(Hinted::new(error, NAME_TAKEN));
    error.context(format!("{} was not archived", source.display()))
}

/// Warns if a series that the user named was one of another source until now.
pub(super) fn warn_of_another_source(archive: &Archive<dyn SnapshotHome>, request: &SnapshotRequest) {
    let as_default = SnapshotRequest { name_is_given: false, ..request.clone() };
    if let Err(NameTaken { holder }) = archive.check_name(&as_default) {
        let (name, source) = (show::name(request.name.as_bytes()), show::name(&request.source));
        warning!(
            "{name} was a series of {} until now, and continues with {source}",
            show::name(&holder.source)
        );
    }
}

fn refuse_same_names(args: &TakeSnapshotArgs, planned: &[PlannedSnapshot]) -> Result<()> {
    let mut known = BTreeMap::new();
    for (PlannedSnapshot { request, .. }, source) in planned.iter().zip(&args.sources) {
        if let Some(other) = known.insert(&request.name, source) {
            let name = show::name(request.name.as_bytes());
            let (one, two) = (other.display(), source.display());
            let output = match distinct_names(other, source) {
                Some((first, second)) => format!(
                    "{one} and {two} would both be called {name}; archive them one by one, for example with --name {first} and --name {second}"
                ),
                None => format!("{one} and {two} would both be called {name}: they are the same source"),
            };
            bail!(UsageError(output));
        }
    }
    Ok(())
}

/// Returns names for two paths that end alike: their shortest endings that differ. Returns `None`
/// if the paths are equal.
fn distinct_names(one: &Path, other: &Path) -> Option<(String, String)> {
    let parts = |path: &Path| -> Vec<String> {
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.into());
        let names = whole.components().filter_map(|part| match part {
            Component::Normal(name) => Some(fit(&name.to_string_lossy())),
            _ => None,
        });
        names.collect()
    };
    let (one, other) = (parts(one), parts(other));
    let end = |parts: &[String], count: usize| parts[parts.len().saturating_sub(count)..].join("-");
    (1..=one.len().max(other.len()))
        .map(|count| (end(&one, count), end(&other, count)))
        .find(|(one, other)| one != other)
}

/// Returns the default name of a source, and the default name of earlier versions if that differs.
/// The name is the last part of the path; earlier versions removed the extension of a file. A link
/// gives its own name and not that of its target. The target may change, as below
/// `/dev/disk/by-id`.
fn own_names(source: &Path) -> Result<(String, Option<String>)> {
    if source == Path::new("-") {
        bail!(UsageError("standard input has no name: give it one with --name".into()));
    }
    let whole = std::path::absolute(source)?;
    let whole = if whole.file_name().is_some() { whole } else { whole.canonicalize().unwrap_or(whole) };
    let text = |part: Option<&std::ffi::OsStr>| {
        fit(&part.map_or_else(|| "root".into(), |part| part.to_string_lossy()))
    };
    let name = text(whole.file_name());
    let name = parse_name(&name)
        .map_err(|error| UsageError(format!("{error}; name {} with --name", source.display())))?;
    let had_ending = std::fs::metadata(&whole)
        .map_or(true, |found| !found.is_dir() && !found.file_type().is_block_device());
    let older = Some(text(whole.file_stem())).filter(|older| had_ending && *older != name);
    Ok((name, older))
}

/// Replaces the characters that a snapshot's name must not have.
fn fit(name: &str) -> String {
    name.replace(|c: char| c.is_control() || matches!(c, ':' | '@'), "-")
}

/// Returns the path in the form in which a snapshot records it.
fn remembered_path(source: &Path) -> Vec<u8> {
    if source == Path::new("-") {
        return b"-".to_vec();
    }
    let whole = std::path::absolute(source).unwrap_or_else(|_| source.into());
    // Remove a trailing `/`, so that the same folder always has the same path.
    let whole: std::path::PathBuf = whole.components().collect();
    whole.into_os_string().as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_have_names_of_their_own() {
        for (source, name, older) in [
            ("/srv/web.img", "web.img", Some("web")),
            ("/srv/a.tar.gz", "a.tar.gz", Some("a.tar")),
            ("/srv/.profile", ".profile", None),
            ("/dev/null", "null", None),
            ("/", "root", None),
            ("/usr/bin", "bin", None),
            ("/srv/a:b@c", "a-b-c", None),
        ] {
            assert_eq!(
                own_names(Path::new(source)).unwrap(),
                (name.into(), older.map(Into::into)),
                "{source}"
            );
        }
        assert!(own_names(Path::new("-")).is_err());
        let folder = tempfile::tempdir().unwrap();
        let (link, inside) = (folder.path().join("by-id.1"), folder.path().join("dm-3"));
        std::fs::create_dir(&inside).unwrap();
        std::os::unix::fs::symlink(&inside, &link).unwrap();
        assert_eq!(own_names(&link).unwrap(), ("by-id.1".into(), None));
        let parent = folder.path().file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(own_names(&inside.join("..")).unwrap().0, parent);
    }

    #[test]
    fn names_are_suggested_that_differ() {
        let names = |one: &str, other: &str| distinct_names(Path::new(one), Path::new(other));
        let pair = |one: &str, other: &str| Some((one.to_owned(), other.to_owned()));
        assert_eq!(names("/a/docs", "/b/docs"), pair("a-docs", "b-docs"));
        assert_eq!(names("/x/a/c/docs", "/x/b/c/docs"), pair("a-c-docs", "b-c-docs"));
        assert_eq!(names("/docs", "/a/docs/"), pair("docs", "a-docs"));
        assert_eq!(names("/docs", "/docs/."), None);
    }

    #[test]
    fn one_path_is_kept_in_one_way() {
        for path in ["/srv/docs/", "/srv//docs", "/srv/./docs"] {
            assert_eq!(remembered_path(Path::new(path)), b"/srv/docs", "{path}");
        }
        assert_eq!(remembered_path(Path::new("-")), b"-");
        assert_eq!(remembered_path(Path::new("/")), b"/");
    }
}
