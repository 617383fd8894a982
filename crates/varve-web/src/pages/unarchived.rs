//! The sources that the configuration names, and that have no snapshot yet.

use varve_daily::{JudgedPromise, PromiseKind, PromiseState};

use crate::show;
use crate::site::PageRequest;

/// A source without a snapshot.
pub(crate) struct UnarchivedSource {
    pub(crate) name: String,
}

/// The sources that are promised and that have no snapshot, as the promises were judged last.
pub(crate) fn unarchived_sources(request: &PageRequest) -> Vec<UnarchivedSource> {
    let known = request.site.state.as_ref().and_then(|state| state.status.soon());
    let Some(Ok(Some(report))) = known.as_ref().map(|known| &known.value) else { return Vec::new() };
    let is_closed =
        report.promises.iter().any(|one| one.kind == PromiseKind::Store && one.state != PromiseState::Kept);
    let is_without = |promise: &&JudgedPromise| {
        promise.kind == PromiseKind::SnapshotWithin
            && promise.figure.is_none()
            && promise.state == PromiseState::Broken
    };
    // A store that does not open says nothing about its snapshots.
    let promises = report.promises.iter().filter(|_| !is_closed).filter(is_without);
    promises.map(|promise| UnarchivedSource { name: show::name(promise.subject.as_bytes()) }).collect()
}
