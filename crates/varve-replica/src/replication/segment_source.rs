//! Reads a segment from the local log. The bytes that are sent are exactly the bytes that were
//! checked.

use std::sync::Arc;

use bytes::Bytes;
use varve_block::to_usize;
use varve_log::{ArenaState, FilePart, FooterError, Log, ReadLogError};
use varve_world::Storage;

use crate::objects::object_name::SegmentEnd;
use crate::objects::record_ends::ArenaRecords;
use crate::reading::overlaid_storage::OverlaidStorage;
use crate::replication::planned_segments::PlannedSegment;

/// Reads a planned segment and checks every record in it. The read key is not needed. Without it,
/// the codes of pages are checked, and clumps are only compared with the codes in the pages.
pub(crate) fn take_segment(
    log: &Log,
    storage: &Arc<dyn Storage>,
    records: &ArenaRecords,
    put: &PlannedSegment,
) -> Result<Bytes, ReadLogError> {
    let (arena, offset) = (records.id, put.range.start);
    let length = to_usize(put.bytes());
    let mut bytes = vec![0; length];
    storage.read_at(&arena.file_name(), offset, &mut bytes).map_err(|source| ReadLogError::Storage {
        arena,
        offset,
        bytes: length,
        source,
    })?;
    let bytes = Bytes::from(bytes);
    let held = FilePart::new(offset, bytes.clone());
    let log = log.over(Arc::new(OverlaidStorage::in_memory(storage, arena, held.clone())));
    let opened = log.open_arena(arena)?;
    let mut window = log.window_over(&opened, held);
    for record in records.within(&put.range) {
        let checked = match window.authenticate(record.granule) {
            Err(ReadLogError::NoReadKey { .. }) => window.record(record.granule),
            checked => checked,
        };
        if checked?.code != record.code {
            let offset = record.granule.byte_offset();
            return Err(ReadLogError::Forged { arena, offset, what: "record" });
        }
    }
    if let SegmentEnd::Seal(code) = put.name.end {
        match log.state(&opened)? {
            ArenaState::Sealed { footer, .. } if footer.seal_code == code => {}
            _ => return Err(ReadLogError::Seal { arena, source: FooterError::Forged }),
        }
    }
    Ok(bytes)
}
