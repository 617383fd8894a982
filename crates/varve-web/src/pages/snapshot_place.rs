//! The place that an address names: a snapshot by its id, and a path in it.

use varve_archive::{CollectedError, Snapshot};
use varve_block::with_causes;

use super::page::PageError;
use crate::archive::place::{Place, PlaceError};
use crate::archive::snapshot_view::{SeriesName, parse_id};
use crate::show;
use crate::site::PageRequest;

/// The names of a path that are shown, from its end.
const STEPS_MAX: usize = 40;

/// A path in a snapshot.
pub(crate) struct SnapshotPlace<'a> {
    pub(crate) snapshot: &'a Snapshot,
    /// A slash at the end of a file means the disk in it.
    pub(crate) path: Vec<u8>,
}

/// A step of the way to a place.
pub(crate) struct PathStep {
    pub(crate) name: String,
    pub(crate) address: String,
}

impl<'a> SnapshotPlace<'a> {
    /// Parses an address like `/look/ID/PATH`, of which `beginning` is the first part.
    pub(crate) fn parse(request: &'a PageRequest, beginning: &str) -> Result<Self, PageError> {
        let rest = request.rest(beginning);
        let (id, path) = match rest.iter().position(|byte| *byte == b'/') {
            Some(at) => (&rest[..at], &rest[at + 1..]),
            None => (&rest[..], &[][..]),
        };
        let id = str::from_utf8(id).ok().and_then(parse_id);
        let snapshot = id.and_then(|id| request.view.snapshot(&id));
        let snapshot = snapshot.ok_or_else(|| {
            PageError::absent("There is no snapshot with this id. It may have been forgotten.")
        })?;
        let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
        Ok(Self { snapshot, path: path[start..].to_vec() })
    }

    /// Finds the file or folder.
    pub(crate) fn find(&self, request: &PageRequest) -> Result<Place, PageError> {
        let found = Place::find(&request.site.opener, self.snapshot, &self.path);
        found.map_err(|error| self.page_error(request, error))
    }

    fn page_error(&self, request: &PageRequest, error: PlaceError) -> PageError {
        match error {
            PlaceError::Absent(_) | PlaceError::Depth => {
                PageError::absent(show::line(with_causes(&error).as_bytes()))
            }
            PlaceError::Unreadable(_) => self.unreadable(request, &with_causes(&error)),
        }
    }

    /// The error of a part of the snapshot that the archive does not return.
    pub(crate) fn unreadable(&self, request: &PageRequest, reason: &str) -> PageError {
        match request.site.snapshots.is_in_catalog(&self.snapshot.id) {
            true => PageError::unreadable(show::line(reason.as_bytes())),
            false => PageError::gone(&CollectedError::new(self.snapshot)),
        }
    }

    /// The series of the snapshot.
    pub(crate) fn series(&self) -> SeriesName {
        SeriesName::of(self.snapshot)
    }

    /// An address of this place, such as `/file/ID/PATH`.
    pub(crate) fn address(&self, beginning: &str) -> String {
        address_in(beginning, self.snapshot, &self.path)
    }

    /// The way from the snapshot's root to this place, each step with its address.
    pub(crate) fn steps(&self) -> Vec<PathStep> {
        let mut steps = vec![PathStep {
            name: show::name(self.snapshot.name.as_bytes()),
            address: address_in("/look/", self.snapshot, b""),
        }];
        let (mut names, mut end) = (Vec::new(), 0);
        for name in self.path.split(|byte| *byte == b'/') {
            end += name.len();
            if !name.is_empty() {
                names.push((show::name(name), end));
            }
            end += 1;
        }
        // Each step has the address of the whole way to it.
        let left_out = names.len().saturating_sub(STEPS_MAX);
        if let Some((name, _)) = left_out.checked_sub(1).and_then(|last| names.get_mut(last)) {
            *name = "\u{2026}".into();
        }
        steps.extend(names.into_iter().skip(left_out.saturating_sub(1)).map(|(name, end)| PathStep {
            name,
            address: address_in("/look/", self.snapshot, &self.path[..end]),
        }));
        steps
    }
}

/// The address of a path in a snapshot.
pub(crate) fn address_in(beginning: &str, snapshot: &Snapshot, path: &[u8]) -> String {
    format!("{beginning}{}/{}", snapshot.id, show::path_link(path))
}

/// The address of a source's page.
pub(crate) fn source_address(series: &SeriesName, year: Option<i16>) -> String {
    let year = year.map(|year| format!("?year={year}")).unwrap_or_default();
    format!("/source/{}{year}", series.key())
}
