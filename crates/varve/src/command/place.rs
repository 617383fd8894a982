//! What `SNAPSHOT[:PATH]` names.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use varve_archive::{
    CachedBlocks, Files, ImageFiles, ImagePart, LookupError, Node, Snapshot, SnapshotContent, StoredFiles,
    VacArchive, VacContent, VacFiles, VacLine, lookup, select,
};
use varve_block::BlockStore;
use varve_replica::Healing;
use varve_tree::Entry;

use crate::{moment, session, show};

/// A snapshot or another program's archive, and a path in it, as `SNAPSHOT[:PATH]` names them.
pub(super) struct Place<'a> {
    pub(super) what: What<'a>,
    pub(super) path: &'a str,
}

/// What may be looked into.
#[derive(Clone, Copy)]
pub(super) enum What<'a> {
    Snapshot(&'a Snapshot),
    /// What vac or vbackup wrote, by its score.
    Vac(VacLine),
}

/// Finds what `SNAPSHOT[:PATH]` names.
pub(super) fn place<'a>(snapshots: &'a [Snapshot], text: &'a str) -> Result<Place<'a>> {
    if let Some((line, path)) = vac_place(text)? {
        return Ok(Place { what: What::Vac(line), path: path.trim_matches('/') });
    }
    // A time of day has colons too: the path begins after the first one that is not in a time.
    let (name, path) = match text.match_indices(':').find(|(at, _)| !is_in_time(text, *at)) {
        Some((at, _)) => (&text[..at], &text[at + 1..]),
        None => (text, ""),
    };
    let snapshot = select(snapshots, name, &moment::parse_last)?;
    Ok(Place { what: What::Snapshot(snapshot), path: path.trim_matches('/') })
}

/// The archive that `vac:SCORE[:PATH]` or `FILE.vac[:PATH]` names, if the text is such.
pub(super) fn vac_place(text: &str) -> Result<Option<(VacLine, &str)>> {
    let path_of = |rest: &'_ str| rest.is_empty() || rest.starts_with(':');
    if let Ok((line, rest)) = VacLine::split(text)
        && path_of(rest)
    {
        return Ok(Some((line, rest.get(1..).unwrap_or_default())));
    }
    for (at, ending) in text.match_indices(VAC_ENDING) {
        let (name, rest) = text.split_at(at + ending.len());
        if !path_of(rest) || !Path::new(name).is_file() {
            continue;
        }
        match vac_file(Path::new(name)) {
            Ok(line) => return Ok(Some((line, rest.get(1..).unwrap_or_default()))),
            // It may be the name of a snapshot, too.
            Err(_) if !name.contains('/') => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// How the files end that vac writes its lines to.
const VAC_ENDING: &str = ".vac";
/// So much of such a file is read; the line is shorter.
const VAC_FILE_BYTES: u64 = 128;

/// Reads a file that vac has written its line to.
fn vac_file(file: &Path) -> Result<VacLine> {
    let mut bytes = Vec::new();
    let context = || format!("{} is no vac file", file.display());
    File::open(file)
        .and_then(|opened| opened.take(VAC_FILE_BYTES).read_to_end(&mut bytes))
        .with_context(context)?;
    VacLine::of_file(&bytes).with_context(context)
}

/// What a place holds.
pub(super) enum Content<'a> {
    /// A whole disk image.
    Disk(ImageFiles),
    /// The bytes of a disk image, or of a volume of one.
    Raw(ImagePart),
    /// A file or a folder, wherever it lies.
    Node { files: Box<dyn Files + 'a>, node: Box<Node> },
}

impl Place<'_> {
    /// What to call it.
    pub(super) fn name(&self) -> String {
        match self.what {
            What::Snapshot(snapshot) => snapshot.name.clone(),
            What::Vac(line) => line.to_string(),
        }
    }

    /// Finds what is at this place.
    pub(super) fn content<'a>(&self, blocks: &'a Arc<Healing>) -> Result<Content<'a>> {
        match self.what {
            What::Snapshot(snapshot) => self
                .in_snapshot(blocks, snapshot)
                .with_context(|| format!("{} {}", snapshot.name, moment::show(snapshot.time))),
            What::Vac(line) => self.in_vac(blocks, &line).with_context(|| line.to_string()),
        }
    }

    fn in_snapshot<'a>(&self, blocks: &'a Arc<Healing>, snapshot: &Snapshot) -> Result<Content<'a>> {
        match &snapshot.content {
            SnapshotContent::Image(entry) => Ok(self.inside(open_image(blocks, entry))?),
            SnapshotContent::Folder(root) => self.in_files(Box::new(StoredFiles::new(&**blocks)), root),
        }
    }

    fn in_vac<'a>(&self, blocks: &'a Arc<Healing>, line: &VacLine) -> Result<Content<'a>> {
        let owners = session::owner_names();
        match VacArchive::open(&**blocks, line, &owners)?.content {
            VacContent::Image(entry) => Ok(self.inside(open_image(blocks, &entry))?),
            VacContent::Folder(root) => self.in_files(Box::new(VacFiles::new(&**blocks, owners)), &root),
        }
    }

    fn in_files<'a>(&self, files: Box<dyn Files + 'a>, root: &Node) -> Result<Content<'a>> {
        let node = Box::new(lookup(&*files, root, Path::new(self.path))?);
        Ok(Content::Node { files, node })
    }

    fn inside<'a>(&self, disk: ImageFiles) -> Result<Content<'a>, LookupError> {
        if self.path.is_empty() {
            return Ok(Content::Disk(disk));
        }
        let node = lookup(&disk, &disk.root(), Path::new(self.path))?;
        warn_of(&disk);
        Ok(match disk.raw_of(&node) {
            Some(part) => Content::Raw(part),
            None => Content::Node { files: Box::new(disk), node: Box::new(node) },
        })
    }
}

/// The files of an archived disk.
pub(super) fn open_image(blocks: &Arc<Healing>, entry: &Entry) -> ImageFiles {
    let below = Arc::clone(blocks) as Arc<dyn BlockStore>;
    ImageFiles::open(Arc::new(CachedBlocks::new(below)), entry)
}

/// Tells what whoever looks into the volumes that were opened should know of them.
pub(super) fn warn_of(disk: &ImageFiles) {
    for (volume, warning) in disk.warnings() {
        remark!("varve: {}: {}", show::name(volume.as_bytes()), show::name(warning.as_bytes()));
    }
}

/// Whether the colon at `at` stands between two digits, after an `@`.
fn is_in_time(text: &str, at: usize) -> bool {
    let digit = |place: Option<usize>| {
        place.and_then(|place| text.as_bytes().get(place)).is_some_and(u8::is_ascii_digit)
    };
    text[..at].contains('@') && digit(at.checked_sub(1)) && digit(Some(at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_of_vac_are_told_from_snapshots() {
        const LINE: &str = "vac:4a88b8d2d3472284cf60e0d27cf6e61ee670c531";
        let path =
            |text: &str| vac_place(text).unwrap().map(|(line, path)| (line.to_string(), path.to_owned()));
        assert_eq!(path(LINE), Some((LINE.into(), String::new())));
        assert_eq!(path(&format!("{LINE}:a:b")), Some((LINE.into(), "a:b".into())));
        for snapshot in ["web", "vac:etc", &LINE[..43], &format!("{LINE}0"), "night.vac"] {
            assert_eq!(path(snapshot), None, "{snapshot}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.vac").to_str().unwrap().to_owned();
        std::fs::write(&file, format!("{LINE}\n")).unwrap();
        assert_eq!(path(&format!("{file}:x")), Some((LINE.into(), "x".into())));
        assert_eq!(path(&file), Some((LINE.into(), String::new())));
        std::fs::write(&file, "something else").unwrap();
        assert!(vac_place(&file).is_err());
    }

    #[test]
    fn colons_of_times_do_not_begin_a_path() {
        for (text, path_at) in [
            ("web:etc", Some(3)),
            ("web@2026-05-01T23:15:etc/x:y", Some(20)),
            ("web@2026-05-01T23:15:07", None),
            ("12:34", Some(2)),
            ("web", None),
        ] {
            let found = text.match_indices(':').map(|(at, _)| at).find(|at| !is_in_time(text, *at));
            assert_eq!(found, path_at, "{text}");
        }
    }
}
