//! An arena with a lost header. None of its records can be authenticated, but their headers are not
//! encrypted. They show how far the arena was written.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crate::arenas::address::ArenaId;
use crate::arenas::footer::{FOOTER_BYTES, Footer, SEAL_CODE_BYTES};
use crate::arenas::header::ARENA_HEADER_BYTES;
use crate::arenas::sectors::SECTOR_GRANULES;
use crate::keys::cipher::CODE_BYTES;
use crate::reading::log::{Log, ReadLogError};
use crate::records::granule::Granule;
use crate::records::record_header::{RecordHeader, RecordKind};
use crate::records::record_sizes::EMPTY_PAGE_BYTES;
use crate::records::record_sizes::RECORD_HEADER_BYTES;
use varve_block::to_usize;

/// The bytes that are read at a time.
const AHEAD_BYTES: u64 = 1 << 20;

/// The end of an arena with a lost header. It is not authenticated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnopenedEnd {
    /// The end of the last record that may be a clump or a page that names clumps, in bytes. Pages
    /// after it name nothing.
    pub log_bytes: u64,
    /// The code of the page that ends there; `None` if it may not be a page.
    pub page: Option<[u8; CODE_BYTES]>,
    /// The code of the seal, if there is one.
    pub seal: Option<[u8; SEAL_CODE_BYTES]>,
}

impl Log {
    /// Finds the end of an arena, as far as possible without its header.
    ///
    /// # Errors
    /// [`ReadLogError`] when it cannot be read for a reason other than damage.
    pub fn unopened_end(&self, id: ArenaId) -> Result<UnopenedEnd, ReadLogError> {
        let file_bytes = self.file_bytes(id)?;
        let footer = self.unopened_footer(id, file_bytes)?;
        let log_bytes = footer.as_ref().map_or(file_bytes, |footer| footer.log_bytes);
        let mut end = UnopenedEnd { log_bytes, page: None, seal: footer.map(|footer| footer.seal_code) };
        let mut headers = HeaderWindow { log: self, id, log_bytes, start: 0, buffer: Vec::new() };
        let mut place = Granule::at_or_after(ARENA_HEADER_BYTES as u64);
        while let Some(granule) = place.filter(|granule| granule.byte_offset() < log_bytes) {
            let step = match headers.read(granule)? {
                HeaderRead::Record(header) if header.end() <= log_bytes => {
                    if header.kind != RecordKind::Page || header.body_bytes > EMPTY_PAGE_BYTES {
                        end.log_bytes = header.end();
                        end.page = (header.kind == RecordKind::Page).then_some(header.code);
                    }
                    place = header.next();
                    continue;
                }
                HeaderRead::Record(_) | HeaderRead::Nothing => 1,
                HeaderRead::Withheld => SECTOR_GRANULES.saturating_sub(granule.0 % SECTOR_GRANULES),
            };
            // Anything may have been here, up to the next record that is more than a durable mark.
            (end.log_bytes, end.page) = (log_bytes, None);
            place = granule.0.checked_add(step).map(Granule);
        }
        Ok(end)
    }

    /// Reads the footer without a check of its code.
    fn unopened_footer(&self, id: ArenaId, file_bytes: u64) -> Result<Option<Footer>, ReadLogError> {
        let Some(start) = file_bytes.checked_sub(FOOTER_BYTES as u64) else { return Ok(None) };
        let mut bytes = [0; FOOTER_BYTES];
        match self.read_at(id, start, &mut bytes) {
            Ok(()) => Ok(Footer::decode(&bytes, file_bytes, self.config().map).ok()),
            Err(error) if error.is_damage() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The result of a read at one place.
enum HeaderRead {
    Record(RecordHeader),
    Nothing,
    /// The disk does not return the place.
    Withheld,
}

/// A buffer over the records of an arena.
struct HeaderWindow<'a> {
    log: &'a Log,
    id: ArenaId,
    log_bytes: u64,
    start: u64,
    buffer: Vec<u8>,
}

impl HeaderWindow<'_> {
    fn read(&mut self, granule: Granule) -> Result<HeaderRead, ReadLogError> {
        let offset = granule.byte_offset();
        if self.held(offset).is_none() {
            let left = self.log_bytes.saturating_sub(offset);
            // A bad sector must not hide its neighbours, so the retry reads only the header.
            let found = match self.fill(offset, left.min(AHEAD_BYTES)) {
                Err(error) if error.is_unreadable() => {
                    self.fill(offset, left.min(RECORD_HEADER_BYTES as u64))
                }
                other => other,
            };
            match found {
                Ok(()) => {}
                Err(error) if error.is_damage() => return Ok(HeaderRead::Withheld),
                Err(error) => return Err(error),
            }
        }
        let header = self.held(offset).and_then(|bytes| RecordHeader::decode(bytes, granule).ok());
        Ok(header.map_or(HeaderRead::Nothing, HeaderRead::Record))
    }

    fn held(&self, offset: u64) -> Option<&[u8; RECORD_HEADER_BYTES]> {
        let within = to_usize(offset.checked_sub(self.start)?);
        self.buffer.get(within..)?.first_chunk()
    }

    fn fill(&mut self, offset: u64, bytes: u64) -> Result<(), ReadLogError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer.resize(to_usize(bytes), 0);
        self.log.read_at(self.id, offset, &mut buffer)?;
        (self.start, self.buffer) = (offset, buffer);
        Ok(())
    }
}
