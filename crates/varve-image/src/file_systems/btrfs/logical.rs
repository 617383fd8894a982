//! The bytes at logical addresses, from the copies that this device has.

use std::collections::BTreeMap;
use std::sync::Arc;

use varve_block::to_usize;

use super::chunks::{ChunkMap, NoCopy};
use super::damaged;
use crate::bytes::read_at::ReadAt;
use crate::file_systems::file_system::FileSystemError;

/// The bytes of a file system at its logical addresses.
pub(super) struct LogicalBytes {
    volume: Arc<dyn ReadAt>,
    chunks: ChunkMap,
    /// The UUIDs of the other devices, as text.
    devices: BTreeMap<u64, String>,
}

impl LogicalBytes {
    pub(super) fn new(volume: Arc<dyn ReadAt>, chunks: ChunkMap, devices: BTreeMap<u64, String>) -> Self {
        Self { volume, chunks, devices }
    }

    pub(super) fn volume(&self) -> &dyn ReadAt {
        &self.volume
    }

    pub(super) fn chunks(&self) -> &ChunkMap {
        &self.chunks
    }

    /// Returns the number of copies of the byte at this address on this device; 1 if there is none.
    pub(super) fn copy_count(&self, logical: u64) -> usize {
        self.chunks.locate(logical).map_or(1, |copies| copies.places.len())
    }

    /// Fills `into` with the bytes from `logical` on: from the copy of this number, or from the
    /// last one if there are fewer.
    ///
    /// # Errors
    /// [`FileSystemError`]; `what` names the bytes.
    pub(super) fn read(
        &self,
        logical: u64,
        into: &mut [u8],
        copy: usize,
        what: &dyn Fn() -> String,
    ) -> Result<(), FileSystemError> {
        let (mut at, mut rest) = (logical, into);
        while !rest.is_empty() {
            let copies = self.chunks.locate(at).map_err(|reason| self.problem(at, reason, what()))?;
            let length = to_usize(copies.length).min(rest.len());
            let (now, later) = rest.split_at_mut(length);
            let place = copies.places.get(copy).or(copies.places.last()).copied().unwrap_or(u64::MAX);
            let read = self.volume.read_at(place, now);
            read.map_err(|source| FileSystemError::Read { what: what(), source })?;
            at = at.saturating_add(now.len() as u64);
            rest = later;
        }
        Ok(())
    }

    fn problem(&self, logical: u64, reason: NoCopy, what: String) -> FileSystemError {
        let feature = match reason {
            NoCopy::NoChunk => {
                return damaged(what, &format!("it lies at the address {logical}, which no chunk has"));
            }
            NoCopy::Parity => "RAID5 and RAID6 of Btrfs".into(),
            NoCopy::Elsewhere(devices) => {
                let name = |device: &u64| match self.devices.get(device) {
                    Some(uuid) => format!("device {device} ({uuid})"),
                    None => format!("device {device}"),
                };
                let names: Vec<_> = devices.iter().map(name).collect();
                format!("a file system without its {}", names.join(" and "))
            }
        };
        FileSystemError::Unsupported { what, feature }
    }
}
