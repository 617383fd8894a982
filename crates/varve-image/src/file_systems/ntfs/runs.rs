//! Runs: the clusters of a stream, as a list of lengths and of distances to the run before.
//!
//! Each run begins with a byte: the bytes of its length in the lower half, those of its distance in
//! the upper half. A run without a distance is a hole. A byte of zero ends the list.

use super::damaged;
use crate::file_systems::file_system::FileSystemError;

/// A stream with more runs is not read: 12 MiB of memory.
pub(super) const RUN_COUNT_MAX: usize = 1 << 19;

/// Clusters that follow each other in a stream and on the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NtfsRun {
    /// The first cluster in the stream.
    pub(super) first: u64,
    /// The first cluster in the stream that is behind it.
    pub(super) end: u64,
    /// The first cluster on the volume; `None` for a hole.
    pub(super) place: Option<u64>,
}

/// Appends the runs of one part of a stream. `first` is the part's first cluster in the stream.
pub(super) fn append_runs(
    runs: &mut Vec<NtfsRun>,
    mut bytes: &[u8],
    first: u64,
    what: &str,
) -> Result<(), FileSystemError> {
    let wrong = || damaged(what, "its list of clusters makes no sense");
    let (mut next, mut place) = (first, 0_i64);
    loop {
        let (head, rest) = bytes.split_first().ok_or_else(wrong)?;
        if *head == 0 {
            return Ok(());
        }
        let (length, rest) = rest.split_at_checked((head & 15).into()).ok_or_else(wrong)?;
        let (distance, rest) = rest.split_at_checked((head >> 4).into()).ok_or_else(wrong)?;
        let length =
            signed(length).and_then(|length| u64::try_from(length).ok()).filter(|length| *length > 0);
        let end = length.and_then(|length| next.checked_add(length)).ok_or_else(wrong)?;
        let on_volume = match distance {
            [] => None,
            _ => {
                place = signed(distance).and_then(|by| place.checked_add(by)).ok_or_else(wrong)?;
                Some(u64::try_from(place).map_err(|_| wrong())?)
            }
        };
        if runs.len() == RUN_COUNT_MAX {
            return Err(FileSystemError::Unsupported {
                what: what.into(),
                feature: format!("content in more than {RUN_COUNT_MAX} pieces"),
            });
        }
        runs.push(NtfsRun { first: next, end, place: on_volume });
        (next, bytes) = (end, rest);
    }
}

/// Reads a signed little-endian number of up to eight bytes.
fn signed(bytes: &[u8]) -> Option<i64> {
    let filler = if bytes.last()? & 0x80 == 0 { 0 } else { 0xff };
    let mut whole = [filler; 8];
    whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Option<Vec<NtfsRun>> {
        let mut runs = Vec::new();
        append_runs(&mut runs, bytes, 10, "test").ok().map(|()| runs)
    }

    #[test]
    fn runs_are_lengths_and_distances() {
        let run = |first, end, place| NtfsRun { first, end, place };
        // Five clusters at 300, a hole of two, 0x0180 clusters 16 before.
        let bytes = [0x21, 5, 0x2c, 1, 0x01, 2, 0x12, 0x80, 1, 0xf0, 0, 0xaa];
        assert_eq!(
            read(&bytes).unwrap(),
            [run(10, 15, Some(300)), run(15, 17, None), run(17, 401, Some(284))]
        );
        assert_eq!(read(&[0]).unwrap(), []);
        for wrong in [
            &[][..],
            &[0x21, 5, 0x2c],
            &[0x11, 0, 5, 0],
            &[0x11, 0xff, 5, 0],
            &[0x11, 1, 0xff, 0],
            &[0x90, 1],
            &[0x19, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0],
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
