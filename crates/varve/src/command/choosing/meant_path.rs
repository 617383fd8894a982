//! The path in a snapshot that a user may have meant by one that does not exist.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use varve_archive::Snapshot;
use varve_content::folder::lookup;
use varve_content::{Files, Node};

/// The minimum similarity of a name.
const ALIKE_MIN: f64 = 0.7;
/// The number of names of a folder that are compared.
const NAMES_MAX: usize = 100_000;

/// Finds the path that was meant: without the path of the source in front, as other programs write
/// it, or with similar names.
pub(super) fn meant_path(
    snapshot: Option<&Snapshot>,
    files: &dyn Files,
    root: &Node,
    path: &Path,
) -> Option<PathBuf> {
    let source = snapshot.map(|snapshot| Path::new(OsStr::from_bytes(&snapshot.source)));
    let whole = source.and_then(|source| source.strip_prefix("/").ok());
    let last = source.and_then(Path::file_name).map(Path::new);
    let name = snapshot.map(|snapshot| Path::new(&snapshot.name));
    let in_front = [whole, last, name].into_iter().flatten();
    let mut below = in_front.filter_map(|front| path.strip_prefix(front).ok());
    below
        .find(|below| !below.as_os_str().is_empty() && lookup(files, root, below).is_ok())
        .map(Path::to_owned)
        .or_else(|| similar(files, root, path))
}

/// Replaces each name that does not exist by the most similar one in its folder.
fn similar(files: &dyn Files, root: &Node, path: &Path) -> Option<PathBuf> {
    let (mut node, mut meant) = (root.clone(), PathBuf::new());
    for component in path.components() {
        let Component::Normal(name) = component else { return None };
        if let Ok(Some(found)) = files.find(&node, name.as_bytes()) {
            node = found;
        } else {
            let name = name.to_str()?.to_lowercase();
            let likeness = |one: &Node| {
                let other = String::from_utf8_lossy(&one.name).to_lowercase();
                strsim::normalized_damerau_levenshtein(&name, &other)
            };
            let nodes = files.nodes(&node).map_while(Result::ok).take(NAMES_MAX);
            let scored = nodes.map(|one| (likeness(&one), one)).filter(|(alike, _)| *alike >= ALIKE_MIN);
            node = scored.max_by(|(one, _), (other, _)| one.total_cmp(other))?.1;
        }
        meant.push(OsStr::from_bytes(&node.name));
    }
    Some(meant)
}
