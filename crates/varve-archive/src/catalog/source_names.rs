//! Chooses the name of a snapshot, and detects a name that belongs to another source. Pure, except
//! that it asks the file system whether two paths lead to the same file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::catalog::snapshot::Snapshot;
use crate::catalog::snapshot_filter::source_path;
use crate::catalog::snapshot_request::SnapshotRequest;

/// The name belongs to another source, which was archived last under it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the name {:?} belongs to {} on the host {:?}: its newest snapshot is {}", holder.name, source_path(holder).display(), holder.host, holder.id)]
pub struct NameTaken {
    /// The newest snapshot with that name.
    pub holder: Box<Snapshot>,
}

/// The name of a source if the user gives none. This is `name`, with one exception: an earlier
/// version of the program named sources differently. If this host has archived the source under the
/// name `older`, and not yet under `name`, it is `older`. A series that has begun keeps its name.
#[must_use]
pub fn default_name<'n>(
    snapshots: &[Snapshot],
    host: &str,
    source: &[u8],
    name: &'n str,
    older: Option<&'n str>,
) -> &'n str {
    let is_known_as = |name: &str| {
        let is_it =
            |one: &Snapshot| one.name == name && one.host == host && is_path(source_path(one), source);
        snapshots.iter().any(is_it)
    };
    older.filter(|older| !is_known_as(name) && is_known_as(older)).unwrap_or(name)
}

/// Checks that the name of a request is free for it: it is unused on its host, or its newest
/// snapshot there is of the same source. Several hosts may use one name.
///
/// # Errors
/// [`NameTaken`]: the newest snapshot of that host and name came from another path.
pub fn check_name<'a>(
    snapshots: impl Iterator<Item = &'a Snapshot>,
    request: &SnapshotRequest,
) -> Result<(), NameTaken> {
    let series = snapshots.filter(|snapshot| snapshot.is_of_series(&request.host, &request.name));
    if request.name_is_given {
        return Ok(());
    }
    match series.max_by_key(|snapshot| snapshot.time) {
        Some(holder) if !is_of(holder, request) => Err(NameTaken { holder: Box::new(holder.clone()) }),
        _ => Ok(()),
    }
}

/// Returns whether the source of a snapshot is the source of the request.
fn is_of(snapshot: &Snapshot, request: &SnapshotRequest) -> bool {
    let uuid = |machine: &Option<crate::catalog::machine::Machine>| {
        machine.as_ref().and_then(|machine| machine.uuid)
    };
    // The disks of a QEMU machine may be elsewhere tomorrow.
    if let (Some(one), Some(other)) = (uuid(&snapshot.machine), uuid(&request.machine)) {
        return one == other;
    }
    is_path(source_path(snapshot), &request.source)
}

/// Returns whether two paths are equal, or lead to the same file now.
fn is_path(one: &Path, other: &[u8]) -> bool {
    let other = Path::new(OsStr::from_bytes(other));
    one == other || one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::snapshot::tests::snapshot;

    fn of(number: u8, host: &str, source: &str, name: &str, time: i64) -> Snapshot {
        let (host, source) = (host.into(), source.as_bytes().to_vec());
        Snapshot { host, source, machine: None, ..snapshot(number, name, time) }
    }

    fn request(host: &str, source: &str, name: &str) -> SnapshotRequest {
        let source = source.as_bytes().to_vec();
        SnapshotRequest { name: name.into(), host: host.into(), source, ..SnapshotRequest::default() }
    }

    #[test]
    fn a_series_keeps_the_name_that_it_began_with() {
        let names = |snapshots: &[Snapshot], source: &str| {
            default_name(snapshots, "h", source.as_bytes(), "disk.img", Some("disk")).to_owned()
        };
        let old = of(1, "h", "/srv/disk.img", "disk", 1);
        assert_eq!(names(&[], "/srv/disk.img"), "disk.img");
        assert_eq!(names(std::slice::from_ref(&old), "/srv/disk.img"), "disk");
        assert_eq!(names(std::slice::from_ref(&old), "/srv//disk.img/"), "disk");
        assert_eq!(names(std::slice::from_ref(&old), "/other/disk.img"), "disk.img", "another path");
        let elsewhere = Snapshot { host: "other".into(), ..old.clone() };
        assert_eq!(names(&[elsewhere], "/srv/disk.img"), "disk.img", "another host");
        let named = of(2, "h", "/srv/disk.img", "before the upgrade", 2);
        assert_eq!(
            names(&[old.clone(), named], "/srv/disk.img"),
            "disk",
            "a name for one night begins no series"
        );
        let renamed = of(3, "h", "/srv/disk.img", "disk.img", 3);
        assert_eq!(names(&[old, renamed], "/srv/disk.img"), "disk.img");
        assert_eq!(default_name(&[], "h", b"/etc", "etc", None), "etc");
    }

    fn checked(snapshots: &[Snapshot], request: &SnapshotRequest) -> Result<(), NameTaken> {
        check_name(snapshots.iter(), request)
    }

    #[test]
    fn a_name_belongs_to_the_source_that_used_it_last_on_its_host() {
        let all = [of(1, "a", "/etc", "etc", 1), of(2, "b", "/etc", "etc", 2)];
        for free in [request("a", "/etc", "etc"), request("b", "/etc/", "etc"), request("a", "/x", "x")] {
            assert_eq!(checked(&all, &free), Ok(()));
        }
        let other_host = request("c", "/srv/etc", "etc");
        assert_eq!(checked(&all, &other_host), Ok(()), "each host has its own names");
        for (host, holder) in [("a", 1), ("b", 2)] {
            let taken = checked(&all, &request(host, "/srv/etc", "etc")).unwrap_err();
            assert_eq!(taken.holder.id.0[0], holder);
        }
        // The snapshot with the latest time counts, as it does for a name that is given alone.
        let moved = [of(3, "a", "/srv/etc", "etc", 9), all[0].clone()];
        assert!(checked(&moved, &request("a", "/etc", "etc")).is_err());
    }

    #[test]
    fn a_link_and_what_it_leads_to_are_one_source() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::create_dir(path("real")).unwrap();
        std::os::unix::fs::symlink("real", path("link")).unwrap();
        let all = [of(1, "h", &path("real"), "n", 1)];
        assert_eq!(checked(&all, &request("h", &path("link"), "n")), Ok(()));
        assert_eq!(checked(&all, &request("h", &path("real/../real"), "n")), Ok(()));
        assert!(checked(&all, &request("h", &path("gone"), "n")).is_err());
    }

    #[test]
    fn a_machine_is_known_by_its_own_number() {
        let mut machine = of(1, "a", "/srv/web.qcow2", "web", 1);
        machine.machine = Some(crate::catalog::machine::tests::machine());
        let mut moved = request("a", "/new/web.qcow2", "web");
        moved.machine.clone_from(&machine.machine);
        assert_eq!(checked(&[machine.clone()], &moved), Ok(()));
        moved.machine.as_mut().unwrap().uuid = Some([1; 16]);
        assert!(checked(&[machine], &moved).is_err());
    }
}
