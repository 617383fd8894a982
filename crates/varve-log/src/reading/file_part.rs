//! A part of a file in memory, in the pieces in which it was received.

use bytes::Bytes;
use varve_block::to_usize;

/// Consecutive bytes of a file. Each piece stays in the buffer in which it was received.
#[derive(Debug, Clone, Default)]
pub struct FilePart {
    start: u64,
    pieces: Vec<Bytes>,
}

impl FilePart {
    /// Makes a part that begins at byte `start` of the file.
    #[must_use]
    pub fn new(start: u64, piece: Bytes) -> Self {
        Self { start, pieces: vec![piece] }
    }

    /// Appends the next bytes of the file.
    pub fn push(&mut self, piece: Bytes) {
        self.pieces.push(piece);
    }

    /// Returns the end of the part in the file, in bytes.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.pieces.iter().fold(self.start, |place, piece| place.saturating_add(piece.len() as u64))
    }

    /// Drops the bytes before byte `offset` of the file.
    pub fn forget_before(&mut self, offset: u64) {
        while self.start < offset
            && let Some(first) = self.pieces.first_mut()
        {
            let before = to_usize(offset - self.start).min(first.len());
            drop(first.split_to(before));
            self.start += before as u64;
            if first.is_empty() {
                self.pieces.remove(0);
            }
        }
    }

    /// Returns `count` bytes from byte `offset` of the file, if they are in one piece.
    #[must_use]
    pub fn slice(&self, offset: u64, count: usize) -> Option<&[u8]> {
        self.places().find_map(|(place, piece)| {
            let skip = to_usize(offset.checked_sub(place)?);
            piece.get(skip..skip.checked_add(count)?)
        })
    }

    /// Returns true if the part contains `count` bytes from byte `offset` of the file.
    #[must_use]
    pub fn covers(&self, offset: u64, count: usize) -> bool {
        offset >= self.start && offset.saturating_add(count as u64) <= self.end()
    }

    /// Overwrites `into`, which was read from byte `offset` of the file, with the bytes of this
    /// part.
    pub fn put_over(&self, offset: u64, into: &mut [u8]) {
        let end = offset.saturating_add(into.len() as u64);
        for (place, piece) in self.places() {
            let (from, to) = (offset.max(place), end.min(place.saturating_add(piece.len() as u64)));
            if from < to {
                into[within(offset, from, to)].copy_from_slice(&piece[within(place, from, to)]);
            }
        }
    }

    /// Iterates over the pieces with their offsets in the file.
    fn places(&self) -> impl Iterator<Item = (u64, &Bytes)> {
        self.pieces.iter().scan(self.start, |place, piece| {
            let here = *place;
            *place = here.saturating_add(piece.len() as u64);
            Some((here, piece))
        })
    }
}

/// Returns the range of memory for the bytes `from..to` of a file. The memory begins at byte
/// `start` of the file.
fn within(start: u64, from: u64, to: u64) -> std::ops::Range<usize> {
    let place = |offset: u64| to_usize(offset - start);
    place(from)..place(to)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Change {
        Push(Vec<u8>),
        ForgetBefore(usize),
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..10).prop_map(Change::Push),
            (0..60_usize).prop_map(Change::ForgetBefore),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_part_of_its_file(start in 0..20_usize, changes in proptest::collection::vec(change(), 0..12)) {
            let (mut part, mut model) = (FilePart::new(start as u64, Bytes::new()), vec![None; start]);
            for change in changes {
                match change {
                    Change::Push(bytes) => {
                        model.extend(bytes.iter().copied().map(Some));
                        part.push(bytes.into());
                    }
                    Change::ForgetBefore(offset) => {
                        model.iter_mut().take(offset).for_each(|byte| *byte = None);
                        part.forget_before(offset as u64);
                    }
                }
            }
            prop_assert_eq!(part.end(), model.len() as u64);
            for offset in 0..model.len() + 3 {
                for count in 1..model.len() + 3 - offset {
                    let mut read = vec![0; count];
                    part.put_over(offset as u64, &mut read);
                    let expected: Vec<_> = (offset..offset + count).map(|place| model.get(place).copied().flatten()).collect();
                    prop_assert_eq!(&read, &expected.iter().map(|byte| byte.unwrap_or(0)).collect::<Vec<_>>());
                    prop_assert_eq!(part.covers(offset as u64, count), expected.iter().all(Option::is_some));
                    if let Some(slice) = part.slice(offset as u64, count) {
                        prop_assert_eq!(slice, &read[..]);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_in_one_piece_is_not_copied() {
        let (one, other) = (Bytes::from(vec![1; 10]), Bytes::from(vec![2; 10]));
        let mut part = FilePart::new(5, one.clone());
        part.push(other.clone());
        assert_eq!(part.slice(7, 8).map(<[u8]>::as_ptr), Some(one[2..].as_ptr()));
        assert_eq!(part.slice(15, 10).map(<[u8]>::as_ptr), Some(other.as_ptr()));
        assert_eq!(part.slice(14, 2), None);
        part.forget_before(16);
        assert_eq!(
            (part.slice(14, 1), part.slice(16, 9).map(<[u8]>::as_ptr)),
            (None, Some(other[1..].as_ptr()))
        );
    }
}
