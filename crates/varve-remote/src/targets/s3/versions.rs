//! The versions of the objects in a bucket that keeps them. A listing of all versions answers two
//! questions: the state of the bucket at an earlier moment, and the objects that are still there
//! but hidden by delete markers.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::attempt_error::AttemptError;
use crate::http::xml::{self, XmlEvent};
use crate::naming::object_names::of_a_store;

/// A version of an object, or a delete marker.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListedVersion {
    /// The name of the object, in the store.
    pub name: String,
    pub id: String,
    pub modified: Timestamp,
    pub is_latest: bool,
    /// The length in bytes; `None` for a delete marker.
    pub bytes: Option<u64>,
}

/// The place in the listing at which the next page begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VersionMarker {
    pub key: String,
    pub version: String,
}

/// Calls `take` for each version in one page of a listing whose key begins with `prefix`, and for
/// `None` for each other entry. Returns the place of the next page.
pub(super) fn take_version_page(
    page: &[u8],
    prefix: &str,
    take: &mut dyn FnMut(Option<ListedVersion>) -> Result<(), AttemptError>,
) -> Result<Option<VersionMarker>, AttemptError> {
    let (mut key, mut id) = (String::new(), String::new());
    let (mut modified, mut bytes, mut is_latest) = (None, None, false);
    let (mut is_listing, mut is_cut) = (false, false);
    let (mut next_key, mut next_version) = (None, String::new());
    xml::walk(page, &mut |step| {
        match step {
            XmlEvent::Open("ListVersionsResult") => is_listing = true,
            XmlEvent::Open("Version" | "DeleteMarker") => {
                (key, id, modified, bytes, is_latest) = Default::default();
            }
            XmlEvent::Close("Key", text) => key = text.to_owned(),
            XmlEvent::Close("VersionId", text) => id = text.trim().to_owned(),
            XmlEvent::Close("LastModified", text) => modified = text.trim().parse::<Timestamp>().ok(),
            XmlEvent::Close("Size", text) => bytes = text.trim().parse::<u64>().ok(),
            XmlEvent::Close("IsLatest", text) => is_latest = text.trim() == "true",
            XmlEvent::Close("IsTruncated", text) => is_cut = text.trim() == "true",
            XmlEvent::Close("NextKeyMarker", text) => next_key = Some(text.to_owned()),
            XmlEvent::Close("NextVersionIdMarker", text) => next_version = text.trim().to_owned(),
            XmlEvent::Close(kind @ ("Version" | "DeleteMarker"), _) => {
                let bytes = bytes.filter(|_| kind == "Version");
                let is_complete = bytes.is_some() || kind == "DeleteMarker";
                let name = key.strip_prefix(prefix).filter(|name| is_complete && of_a_store(name).is_some());
                take(name.zip(modified).map(|(name, modified)| ListedVersion {
                    name: name.to_owned(),
                    id: id.clone(),
                    modified,
                    is_latest,
                    bytes,
                }))?;
            }
            _ => {}
        }
        Ok(())
    })?;
    match (is_listing, is_cut, next_key) {
        (true, false, _) => Ok(None),
        (true, true, Some(key)) => Ok(Some(VersionMarker { key, version: next_version })),
        _ => {
            Err(AttemptError::refused("the server's answer is not a complete page of a listing of versions"))
        }
    }
}

/// The state of a bucket at a moment.
#[derive(Debug)]
pub(super) struct PastBucket {
    moment: Timestamp,
    versions: BTreeMap<String, Vec<ListedVersion>>,
}

impl PastBucket {
    /// Makes a state without objects.
    pub fn at(moment: Timestamp) -> Self {
        Self { moment, versions: BTreeMap::new() }
    }

    /// Adds a version, or a delete marker.
    pub fn add(&mut self, version: ListedVersion) {
        self.versions.entry(version.name.clone()).or_default().push(version);
    }

    /// Forgets all but the version that each object had at the moment.
    pub fn settle(mut self) -> Self {
        let moment = self.moment;
        self.versions.retain(|_, versions| {
            let found = version_at(moment, std::mem::take(versions));
            versions.extend(found.filter(|version| version.bytes.is_some()));
            !versions.is_empty()
        });
        self
    }

    /// Returns the id of the version that an object had.
    pub fn version(&self, name: &str) -> Result<&str, AttemptError> {
        let version = self.versions.get(name).and_then(|versions| versions.first());
        version.map(|version| version.id.as_str()).ok_or(AttemptError::NotFound)
    }

    /// Returns the objects with their lengths.
    pub fn objects(&self) -> impl Iterator<Item = (&str, u64)> {
        self.versions.values().flatten().filter_map(|version| Some((version.name.as_str(), version.bytes?)))
    }
}

/// Returns the version of an object, or the delete marker, that was the latest one at a moment.
/// Many servers tell times in whole seconds. So a marker of the moment itself does not count yet,
/// and a version of it does.
///
/// Some servers tell for an older version when it was replaced, and not when it was made. So an
/// object that is hidden now, and seems to be younger than the moment, is read from its oldest
/// version.
fn version_at(moment: Timestamp, mut versions: Vec<ListedVersion>) -> Option<ListedVersion> {
    versions.sort_by_key(|version| (!version.is_latest, Reverse(version.modified)));
    let found = versions.iter().position(|version| match version.bytes {
        Some(_) => version.modified <= moment,
        None => version.modified < moment,
    });
    let is_hidden = versions.first().is_some_and(|newest| newest.bytes.is_none());
    let oldest = versions.iter().rposition(|version| version.bytes.is_some()).filter(|_| is_hidden);
    found.or(oldest).map(|place| versions.swap_remove(place))
}

/// Finds the objects that are hidden: the latest version is a delete marker, and earlier ones are
/// there.
#[derive(Debug, Default)]
pub(super) struct HiddenSearch {
    /// For each object the time of its marker, if that is the latest version, and whether there are
    /// other versions.
    found: BTreeMap<String, (Option<Timestamp>, bool)>,
}

impl HiddenSearch {
    /// Adds a version, or a delete marker.
    pub fn add(&mut self, version: &ListedVersion) {
        let (marked, has_data) = self.found.entry(version.name.clone()).or_default();
        match version.bytes {
            Some(_) => *has_data = true,
            None if version.is_latest => *marked = Some(version.modified),
            None => {}
        }
    }

    /// Returns the number of hidden objects, and the time of the first marker.
    pub fn finish(self) -> Option<(u64, Timestamp)> {
        let hidden = self.found.into_values().filter(|(_, has_data)| *has_data).filter_map(|(time, _)| time);
        let (count, first) = hidden.fold((0, None), |(count, first), time| {
            (count + 1, Some(first.map_or(time, |first: Timestamp| first.min(time))))
        });
        first.map(|first| (count, first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "<ListVersionsResult><IsTruncated>true</IsTruncated>\
        <NextKeyMarker>in/keys/a</NextKeyMarker><NextVersionIdMarker>7</NextVersionIdMarker>\
        <DeleteMarker><Key>in/config.toml</Key><VersionId>3</VersionId><IsLatest>true</IsLatest><LastModified>2026-11-29T10:00:00.000Z</LastModified></DeleteMarker>\
        <Version><Key>in/config.toml</Key><VersionId>2</VersionId><IsLatest>false</IsLatest><LastModified>2026-11-29T10:00:00.000Z</LastModified><Size>5</Size></Version>\
        <Version><Key>in/config.toml</Key><VersionId>1</VersionId><IsLatest>false</IsLatest><LastModified>2026-11-01T10:00:00.000Z</LastModified><Size>4</Size></Version>\
        <Version><Key>in/head</Key><VersionId>9</VersionId><IsLatest>true</IsLatest><LastModified>2026-11-30T10:00:00Z</LastModified><Size>6</Size></Version>\
        <Version><Key>in/head</Key><VersionId>8</VersionId><IsLatest>false</IsLatest><LastModified>2026-11-02T10:00:00Z</LastModified><Size>5</Size></Version>\
        <DeleteMarker><Key>in/gone</Key><VersionId>6</VersionId><IsLatest>true</IsLatest><LastModified>2026-01-01T10:00:00Z</LastModified></DeleteMarker>\
        <Version><Key>in/.varve-probe</Key><VersionId>5</VersionId><IsLatest>true</IsLatest><LastModified>2026-11-01T10:00:00Z</LastModified><Size>4</Size></Version>\
        <Version><Key>out/x</Key><VersionId>4</VersionId><IsLatest>true</IsLatest><LastModified>2026-11-01T10:00:00Z</LastModified><Size>4</Size></Version>\
        </ListVersionsResult>";

    fn versions() -> Vec<ListedVersion> {
        let mut versions = Vec::new();
        let next = take_version_page(PAGE.as_bytes(), "in/", &mut |version| {
            versions.extend(version);
            Ok(())
        });
        let expected = VersionMarker { key: "in/keys/a".into(), version: "7".into() };
        assert_eq!(next.unwrap(), Some(expected));
        versions
    }

    #[test]
    fn pages_are_read_whole_or_not_at_all() {
        assert_eq!(versions().len(), 6, "only names of a store, below the prefix");
        for page in [&PAGE[..PAGE.len() - 5], "<html></html>", ""] {
            assert!(take_version_page(page.as_bytes(), "", &mut |_| Ok(())).is_err());
        }
    }

    #[test]
    fn a_bucket_is_read_as_of_a_moment() {
        let at = |moment: &str| -> Vec<String> {
            let mut past = PastBucket::at(moment.parse().unwrap());
            versions().into_iter().for_each(|version| past.add(version));
            let past = past.settle();
            past.objects()
                .map(|(name, bytes)| format!("{name} {bytes} {}", past.version(name).unwrap()))
                .collect()
        };
        assert_eq!(at("2026-10-01T00:00:00Z"), ["config.toml 4 1"], "the oldest of what is hidden now");
        assert_eq!(at("2026-11-01T12:00:00Z"), ["config.toml 4 1"]);
        assert_eq!(at("2026-11-29T09:59:59Z"), ["config.toml 4 1", "head 5 8"]);
        assert_eq!(at("2026-11-29T10:00:00Z"), ["config.toml 5 2", "head 5 8"], "not hidden yet");
        assert_eq!(at("2026-11-29T10:00:01Z"), ["head 5 8"]);
        assert_eq!(at("2027-01-01T00:00:00Z"), ["head 6 9"]);
        let past = PastBucket::at(Timestamp::UNIX_EPOCH);
        assert!(matches!(past.version("head"), Err(AttemptError::NotFound)));
    }

    #[test]
    fn only_objects_with_data_are_hidden() {
        let mut search = HiddenSearch::default();
        versions().iter().for_each(|version| search.add(version));
        assert_eq!(search.finish(), Some((1, "2026-11-29T10:00:00Z".parse().unwrap())));
        assert_eq!(HiddenSearch::default().finish(), None);
    }
}
