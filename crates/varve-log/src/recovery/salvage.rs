//! Finds the good parts of a damaged arena, from which its successor is written.
//!
//! Each clump has its own code. So a whole clump can be found by following the records, even if
//! pages or the seal are lost. The names of its blocks are computed from their bytes, or in a
//! by-value store read from its table. An arena is never changed in place: a new one, of the next
//! generation, is written under another name, and renamed when it is sealed and durable.

use varve_block::Score;

use crate::arenas::header::ARENA_HEADER_BYTES;
use crate::arenas::sectors::SECTOR_GRANULES;
use crate::reading::delta_bases::DeltaBases;
use crate::reading::log::{Log, OpenedArena, ReadLogError};
use crate::reading::window::{ArenaWindow, DecryptedBody, SalvagedParts};
use crate::records::clump::{BlockRow, ClumpBytes, ClumpDraft, FrameBytes, Framing, NamedBlock, PackedClump};
use crate::records::clump_content::ClumpContent;
use crate::records::compression::CompressionLevel;
use crate::records::granule::Granule;
use crate::records::record_header::{RecordHeader, RecordKind};
use crate::records::record_sizes::RECORD_HEADER_BYTES;

/// The bytes that are read at a time.
const AHEAD_BYTES: usize = 1 << 20;

/// The undamaged part of a clump: all of it, or some of its frames.
#[derive(Debug, Clone)]
pub struct SalvagedClump {
    /// The place in the damaged arena.
    pub granule: Granule,
    /// The end in the damaged arena, including the gap after the record, in bytes.
    end: u64,
    pub content: ClumpContent,
    /// The names of its blocks in order, in a by-value store.
    pub names: Option<Vec<Score>>,
    /// The body, if no frame is missing.
    body: Option<DecryptedBody>,
}

impl SalvagedClump {
    /// Returns the end in the damaged arena, including the gap after the record, in bytes.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns true if no frame is missing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.body.is_some()
    }

    /// Packs the blocks as a clump for another arena. The packed body is reused if no frame is
    /// missing. `blocks` are the same blocks with their names, in order.
    #[must_use]
    pub fn pack<'a>(
        self,
        level: CompressionLevel,
        blocks: impl Iterator<Item = NamedBlock<'a>>,
    ) -> PackedClump {
        let Some(DecryptedBody { bytes, table_bytes }) = self.body else {
            let mut draft = ClumpDraft::new(ClumpBytes::default());
            blocks.for_each(|block| {
                draft.push(block);
            });
            return draft.pack(level, Framing::Pieces(FrameBytes::default()));
        };
        let rows = blocks.zip(self.content.bases()).map(|(block, base)| BlockRow {
            name: block.name,
            digest: block.digest,
            size: u32::try_from(block.bytes.len()).expect("blocks are small"),
            base,
        });
        let mut record = vec![0; RECORD_HEADER_BYTES];
        record.extend_from_slice(&bytes);
        PackedClump { rows: rows.collect(), record, table_bytes }
    }
}

impl Log {
    /// Calls `take` for every clump of an arena, in order, with its undamaged frames. Unreadable
    /// and damaged parts are skipped, and so are deltas of blocks that `bases` has lost.
    ///
    /// # Errors
    /// [`ReadLogError::NoReadKey`], errors that are not about the log
    /// ([`ReadLogError::is_passing`]), and the errors of `take`.
    pub fn salvage<E: From<ReadLogError>>(
        &self,
        arena: &OpenedArena,
        bases: &dyn DeltaBases,
        take: &mut dyn FnMut(SalvagedClump) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut window = self.window(arena, AHEAD_BYTES).with_bases(bases);
        let mut place = Granule::at_or_after(ARENA_HEADER_BYTES as u64);
        while let Some(granule) = place {
            place = match whole_clump(&mut window, granule) {
                Ok((next, clump)) => {
                    if let Some(clump) = clump {
                        take(clump)?;
                    }
                    next
                }
                Err(error) if error.is_no_loss() => return Err(error.into()),
                Err(_) => seek_record(&mut window, granule)?,
            };
        }
        Ok(())
    }
}

impl Log {
    /// Calls `take` for every sound record header of an arena, in order. Skips damage. Does not
    /// read the bodies.
    ///
    /// # Errors
    /// [`ReadLogError::NoReadKey`], and errors that are not about the log
    /// ([`ReadLogError::is_passing`]).
    pub fn records(
        &self,
        arena: &OpenedArena,
        take: &mut dyn FnMut(&RecordHeader),
    ) -> Result<(), ReadLogError> {
        let mut window = self.window(arena, AHEAD_BYTES);
        let mut place = Granule::at_or_after(ARENA_HEADER_BYTES as u64);
        while let Some(granule) = place {
            place = match window.record(granule) {
                Ok(header) => {
                    take(&header);
                    header.next()
                }
                Err(error) if error.is_no_loss() => return Err(error),
                Err(_) => seek_record(&mut window, granule)?,
            };
        }
        Ok(())
    }
}

/// Returns the first place after `broken` where a record begins. Skips damaged and unreadable
/// places.
fn seek_record(window: &mut ArenaWindow<'_>, broken: Granule) -> Result<Option<Granule>, ReadLogError> {
    let file_bytes = window.file_bytes()?;
    let mut next = broken.0.checked_add(1).map(Granule);
    while let Some(granule) = next.filter(|granule| granule.byte_offset() < file_bytes) {
        let step = match window.record(granule) {
            Ok(_) => return Ok(Some(granule)),
            Err(error) if error.is_no_loss() => return Err(error),
            Err(error) if error.is_damage() && !error.is_unreadable() => 1,
            Err(_) => SECTOR_GRANULES - granule.0 % SECTOR_GRANULES,
        };
        next = granule.0.checked_add(step).map(Granule);
    }
    Ok(None)
}

/// Reads the undamaged part of the clump at `granule`, if there is a clump, and returns the place
/// of the next record.
fn whole_clump(
    window: &mut ArenaWindow<'_>,
    granule: Granule,
) -> Result<(Option<Granule>, Option<SalvagedClump>), ReadLogError> {
    let header = window.record(granule)?;
    if header.kind != RecordKind::Clump {
        return Ok((header.next(), None));
    }
    match window.salvage(granule) {
        Err(error) if error.is_no_loss() => Err(error),
        // The header is whole, so it gives the place of the next record.
        Err(_) => Ok((header.next(), None)),
        Ok(SalvagedParts { content, .. }) if content.block_count() == 0 => Ok((header.next(), None)),
        Ok(SalvagedParts { content, names, body }) => {
            let end = header.end();
            Ok((header.next(), Some(SalvagedClump { granule, end, content, names, body })))
        }
    }
}
