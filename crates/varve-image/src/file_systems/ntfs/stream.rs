//! A stream: the bytes of one attribute, put together from all its parts.

use std::ops::Range;

use varve_block::to_usize;

use super::attribute::{NtfsAttribute, StreamSizes};
use super::boot::NtfsBoot;
use super::runs::{NtfsRun, append_runs};
use super::{damaged, lznt1};
use crate::bytes::read_at::ReadAt;
use crate::file_systems::file_system::FileSystemError;

/// The largest unit that any program compresses together has 64 KiB.
const UNIT_BYTES_MAX: u64 = 1 << 20;

/// The content of a file, or a structure that is stored like one.
#[derive(Debug)]
pub(super) struct NtfsStream {
    place: StreamPlace,
    sizes: StreamSizes,
    is_encrypted: bool,
}

#[derive(Debug)]
enum StreamPlace {
    /// In the file's record.
    Record(Vec<u8>),
    Clusters(Vec<NtfsRun>),
    /// In clusters that are compressed together, `unit` at a time.
    Compressed {
        runs: Vec<NtfsRun>,
        unit: u64,
    },
}

impl NtfsStream {
    /// Puts a stream together from its parts, in any order. `None` if there are none.
    ///
    /// # Errors
    /// [`FileSystemError::Damaged`] if a part is missing: a part is never taken for the whole.
    pub(super) fn of_parts(
        mut parts: Vec<NtfsAttribute<'_>>,
        boot: &NtfsBoot,
        what: &str,
    ) -> Result<Option<Self>, FileSystemError> {
        parts.sort_by_key(|part| part.first_cluster());
        let Some((first, later)) = parts.split_first() else { return Ok(None) };
        let mut stream = Self::beginning(*first, boot, what)?;
        for part in later {
            stream.append(*part, what)?;
        }
        stream.check_whole(boot, what)?;
        Ok(Some(stream))
    }

    /// Returns a stream with its first part alone.
    pub(super) fn beginning(
        first: NtfsAttribute<'_>,
        boot: &NtfsBoot,
        what: &str,
    ) -> Result<Self, FileSystemError> {
        let is_encrypted = first.is_encrypted();
        if !first.is_outside() {
            let value =
                first.resident_value().ok_or_else(|| damaged(what, "it is larger than its record"))?;
            let size = value.len() as u64;
            let sizes = StreamSizes { allocated: size, size, written: size };
            return Ok(Self { place: StreamPlace::Record(value.to_vec()), sizes, is_encrypted });
        }
        if first.first_cluster() != 0 {
            return Err(damaged(what, "its first part is missing"));
        }
        let mut runs = Vec::new();
        append_runs(&mut runs, first.run_bytes(), 0, what)?;
        let place = match first.is_compressed() && first.unit_power() > 0 {
            false => StreamPlace::Clusters(runs),
            true => {
                let unit = 1_u64.checked_shl(first.unit_power().into()).unwrap_or(0);
                if unit == 0 || unit.saturating_mul(boot.cluster_bytes) > UNIT_BYTES_MAX {
                    return Err(damaged(what, "its compressed parts have an impossible size"));
                }
                StreamPlace::Compressed { runs, unit }
            }
        };
        Ok(Self { place, sizes: first.sizes(), is_encrypted })
    }

    /// Appends the next part.
    pub(super) fn append(&mut self, part: NtfsAttribute<'_>, what: &str) -> Result<(), FileSystemError> {
        let follows = self.runs().last().map_or(0, |run| run.end);
        match &mut self.place {
            StreamPlace::Clusters(runs) | StreamPlace::Compressed { runs, .. }
                if part.is_outside() && part.first_cluster() == follows =>
            {
                append_runs(runs, part.run_bytes(), follows, what)
            }
            _ => Err(damaged(what, "its parts do not follow each other")),
        }
    }

    /// Checks that the parts hold as many bytes as the first one says.
    pub(super) fn check_whole(&self, boot: &NtfsBoot, what: &str) -> Result<(), FileSystemError> {
        let end = self.runs().last().map_or(0, |run| run.end);
        let present = end.saturating_mul(boot.cluster_bytes);
        let is_whole = matches!(self.place, StreamPlace::Record(_)) || present >= self.sizes.size;
        match is_whole {
            true => Ok(()),
            false => {
                let size = self.sizes.size;
                Err(damaged(what, &format!("it has {size} bytes, but its parts hold only {present}")))
            }
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.sizes.size
    }

    pub(super) fn sizes(&self) -> StreamSizes {
        self.sizes
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    fn runs(&self) -> &[NtfsRun] {
        match &self.place {
            StreamPlace::Record(_) => &[],
            StreamPlace::Clusters(runs) | StreamPlace::Compressed { runs, .. } => runs,
        }
    }

    /// Returns the runs, if the clusters hold the bytes as they are.
    pub(super) fn plain_runs(&self) -> Option<&[NtfsRun]> {
        match &self.place {
            StreamPlace::Clusters(runs) if !self.is_encrypted => Some(runs),
            _ => None,
        }
    }

    /// Returns true if the content may be elsewhere: it has a hole, or is all zeros in the record.
    pub(super) fn may_be_elsewhere(&self, boot: &NtfsBoot) -> bool {
        match &self.place {
            StreamPlace::Record(value) => value.iter().all(|byte| *byte == 0),
            StreamPlace::Compressed { .. } => false,
            StreamPlace::Clusters(runs) => {
                let hole = runs.iter().find(|run| run.place.is_none());
                let whole = hole.map_or(u64::MAX, |run| run.first.saturating_mul(boot.cluster_bytes));
                whole.min(self.sizes.written) < self.sizes.size
            }
        }
    }

    /// Fills `into` with the bytes from `offset`. Returns their number, which is less than
    /// requested only at the end.
    pub(super) fn read_at(
        &self,
        volume: &dyn ReadAt,
        boot: &NtfsBoot,
        offset: u64,
        into: &mut [u8],
        what: &str,
    ) -> Result<usize, FileSystemError> {
        let length = bounded(self.sizes.size.saturating_sub(offset), into.len());
        let written = bounded(self.sizes.written.saturating_sub(offset), length);
        let Some((stored, zeros)) =
            into.get_mut(..length).and_then(|into| into.split_at_mut_checked(written))
        else {
            return Ok(0);
        };
        zeros.fill(0);
        match &self.place {
            StreamPlace::Record(value) => {
                let from = value.get(to_usize(offset)..).and_then(|rest| rest.get(..written));
                stored.copy_from_slice(from.ok_or_else(|| damaged(what, "it is cut short"))?);
            }
            StreamPlace::Clusters(runs) => {
                read_clusters(runs, volume, boot, offset, stored, what)?;
            }
            StreamPlace::Compressed { runs, unit } => {
                let unit_bytes = unit.saturating_mul(boot.cluster_bytes);
                let mut unit_content = vec![0; bounded(unit_bytes, usize::MAX)];
                let (mut at, mut rest) = (offset, stored);
                while !rest.is_empty() {
                    let number = at.checked_div(unit_bytes).unwrap_or(0);
                    let within = bounded(at.checked_rem(unit_bytes).unwrap_or(0), usize::MAX);
                    read_unit(runs, number, *unit, volume, boot, &mut unit_content, what)?;
                    let from = unit_content.get(within..).unwrap_or_default();
                    let count = from.len().min(rest.len());
                    let (now, later) = rest.split_at_mut(count);
                    now.copy_from_slice(from.get(..count).unwrap_or_default());
                    (at, rest) = (at.saturating_add(count as u64), later);
                }
            }
        }
        Ok(length)
    }

    /// Returns all bytes of a stream of at most `bytes_max` bytes.
    pub(super) fn read_all(
        &self,
        volume: &dyn ReadAt,
        boot: &NtfsBoot,
        bytes_max: u64,
        what: &str,
    ) -> Result<Vec<u8>, FileSystemError> {
        if self.sizes.size > bytes_max {
            return Err(damaged(what, &format!("it has {} bytes", self.sizes.size)));
        }
        let mut bytes = vec![0; bounded(self.sizes.size, usize::MAX)];
        self.read_at(volume, boot, 0, &mut bytes, what)?;
        Ok(bytes)
    }
}

fn bounded(value: u64, bound: usize) -> usize {
    to_usize(value).min(bound)
}

/// Reads bytes of plain clusters. Holes are zeros.
fn read_clusters(
    runs: &[NtfsRun],
    volume: &dyn ReadAt,
    boot: &NtfsBoot,
    offset: u64,
    into: &mut [u8],
    what: &str,
) -> Result<(), FileSystemError> {
    let in_bytes = |clusters: u64| clusters.saturating_mul(boot.cluster_bytes);
    let mut next = runs.partition_point(|run| in_bytes(run.end) <= offset);
    let (mut at, mut rest) = (offset, into);
    while !rest.is_empty() {
        let run = runs.get(next).ok_or_else(|| damaged(what, "its clusters end too early"))?;
        let count = bounded(in_bytes(run.end).saturating_sub(at), rest.len());
        let (now, later) = rest.split_at_mut(count);
        match run.place {
            None => now.fill(0),
            Some(place) => {
                let within = at.saturating_sub(in_bytes(run.first));
                let read = volume.read_at(in_bytes(place).saturating_add(within), now);
                read.map_err(|source| FileSystemError::Read { what: what.into(), source })?;
            }
        }
        (at, rest) = (at.saturating_add(count as u64), later);
        next = next.saturating_add(1);
    }
    Ok(())
}

/// Reads one unit of compressed clusters. A unit without holes is not compressed, one of holes
/// alone is zeros, and any other is compressed in the clusters before its first hole.
fn read_unit(
    runs: &[NtfsRun],
    number: u64,
    unit: u64,
    volume: &dyn ReadAt,
    boot: &NtfsBoot,
    into: &mut [u8],
    what: &str,
) -> Result<(), FileSystemError> {
    let clusters = number.saturating_mul(unit)..number.saturating_add(1).saturating_mul(unit);
    let in_unit = |run: &&NtfsRun| run.first < clusters.end && run.end > clusters.start;
    let from = runs.partition_point(|run| run.end <= clusters.start);
    let own = runs.get(from..).unwrap_or_default().iter().take_while(in_unit);
    let is_kept = |run: &NtfsRun| run.place.is_some();
    let part = |run: &NtfsRun| run.first.max(clusters.start)..run.end.min(clusters.end);
    let length = |part: Range<u64>| part.end.saturating_sub(part.start);
    let kept: u64 = own.clone().filter(|run| is_kept(run)).map(|run| length(part(run))).sum();
    let offset = clusters.start.saturating_mul(boot.cluster_bytes);
    if kept == unit || kept == 0 {
        // The last unit may have fewer clusters.
        let present = own.map(|run| length(part(run))).fold(0, u64::saturating_add);
        let present = bounded(present.saturating_mul(boot.cluster_bytes), into.len());
        let (present, rest) = into.split_at_mut(present);
        rest.fill(0);
        return read_clusters(runs, volume, boot, offset, present, what);
    }
    let mut stored = vec![0; bounded(kept.saturating_mul(boot.cluster_bytes), into.len())];
    read_clusters(runs, volume, boot, offset, &mut stored, what)?;
    lznt1::decompress(&stored, into).ok_or_else(|| damaged(what, "its compressed content makes no sense"))
}
