//! Reads little-endian fields off a slice; `None` where the slice ends too early.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

/// What is left of a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decoder<'a>(pub(crate) &'a [u8]);

impl<'a> Decoder<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A column of `count` numbers.
    pub(crate) fn u32s(&mut self, count: usize) -> Option<impl Iterator<Item = u32> + use<'a>> {
        let column = self.take(count.checked_mul(4)?)?;
        Some(column.as_chunks().0.iter().map(|number| u32::from_le_bytes(*number)))
    }
}

/// `index` as a `usize`. The program runs on machines of 64 bits, where nothing is lost.
pub(crate) fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
