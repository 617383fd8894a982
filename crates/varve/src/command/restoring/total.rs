//! The total work of restoring a folder, for its progress bar. Images know theirs.

use std::sync::Arc;

use varve_archive::SnapshotContent;
use varve_content::NodeKind;
use varve_content::folder::{ListEvent, ListNext, list};
use varve_replica::HealingStore;

use crate::command::choosing::place_in_snapshot::{NamedSource, PlaceContent, PlaceInSnapshot};
use crate::progress_bar::ShownProgress;

/// Counts the entries and bytes of a place in a folder on another thread. If it is merged into
/// another folder, nobody knows how many bytes will be written.
pub(super) fn count_ahead(
    shown: &ShownProgress,
    blocks: &Arc<HealingStore>,
    place: &PlaceInSnapshot<'_>,
    is_merged: bool,
) {
    let Some(snapshot) = place.what.snapshot() else { return };
    if !matches!(snapshot.content, SnapshotContent::Folder(_)) {
        return;
    }
    let (blocks, snapshot, path) = (Arc::clone(blocks), snapshot.clone(), place.path.to_owned());
    shown.count_ahead(move |is_over| {
        let place = PlaceInSnapshot { what: NamedSource::Snapshot(&snapshot), path: &path };
        let Ok(PlaceContent::Node { files, node }) = place.content_if_there(&blocks) else { return None };
        let (mut count, mut bytes) = (0, 0_u64);
        list(&*files, &node, &mut |listed| {
            if let ListEvent::Node { node, .. } = listed {
                count += 1;
                let is_written = node.kind == NodeKind::File && !is_merged;
                bytes = bytes.saturating_add(if is_written { node.size } else { 0 });
            }
            if is_over() { ListNext::Stop } else { ListNext::Descend }
        });
        (!is_over()).then_some((count, bytes))
    });
}
