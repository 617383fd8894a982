//! Taking a segment out of the local log: exactly the bytes that are sent are the bytes that were checked.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use varve_log::{ArenaState, FooterError, Log, ReadLogError};
use varve_world::{FileLock, FileName, LockError, Storage};

use crate::name::SegmentEnd;
use crate::plan::PlannedSegment;
use crate::records::ArenaRecords;

/// A part of one file, held in memory, before the rest of a storage.
struct Held {
    below: Arc<dyn Storage>,
    file: FileName,
    offset: u64,
    bytes: Bytes,
}

impl Storage for Held {
    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let inside = (*file == self.file)
            .then(|| offset.checked_sub(self.offset).and_then(|start| usize::try_from(start).ok()))
            .flatten()
            .and_then(|start| self.bytes.get(start..start.checked_add(into.len())?));
        match inside {
            Some(piece) => {
                into.copy_from_slice(piece);
                Ok(())
            }
            None => self.below.read_at(file, offset, into),
        }
    }

    fn length(&self, file: &FileName) -> io::Result<u64> {
        self.below.length(file)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<FileName>> {
        self.below.list(folder)
    }

    fn create(&self, _: &FileName) -> io::Result<()> {
        Err(read_only())
    }

    fn append(&self, _: &FileName, _: &[u8]) -> io::Result<u64> {
        Err(read_only())
    }

    fn truncate(&self, _: &FileName, _: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn sync_soon(&self, _: &FileName) {}

    fn sync(&self, _: &FileName) -> io::Result<()> {
        Err(read_only())
    }

    fn sync_folder(&self, _: &str) -> io::Result<()> {
        Err(read_only())
    }

    fn rename(&self, _: &FileName, _: &FileName) -> io::Result<()> {
        Err(read_only())
    }

    fn remove(&self, _: &FileName) -> io::Result<()> {
        Err(read_only())
    }

    fn lock(&self, file: &FileName, _: &str) -> Result<Box<dyn FileLock>, LockError> {
        Err(LockError::Storage { file: file.clone(), source: read_only() })
    }
}

fn read_only() -> io::Error {
    io::ErrorKind::ReadOnlyFilesystem.into()
}

/// Reads a planned segment and checks every record in it. Needs no key that reads what is stored: who has none checks the codes
/// of pages, and of clumps only that they are those that the pages name.
pub(crate) fn take_segment(
    log: &Log,
    storage: &Arc<dyn Storage>,
    records: &ArenaRecords,
    put: &PlannedSegment,
) -> Result<Bytes, ReadLogError> {
    let (arena, offset) = (records.id, put.range.start);
    let file = arena.file_name();
    let length = usize::try_from(put.bytes()).unwrap_or(usize::MAX);
    let mut bytes = vec![0; length];
    storage.read_at(&file, offset, &mut bytes).map_err(|source| ReadLogError::Storage {
        arena,
        offset,
        bytes: length,
        source,
    })?;
    let bytes = Bytes::from(bytes);
    let held = Held { below: Arc::clone(storage), file, offset, bytes: bytes.clone() };
    let log = Log::new(Arc::new(held), log.keys().clone(), *log.config());
    let opened = log.open_arena(arena)?;
    let mut window = log.window(&opened, 0);
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
