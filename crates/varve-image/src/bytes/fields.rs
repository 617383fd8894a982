//! Reads and writes numbers at fixed offsets of foreign bytes. An offset beyond the end reads as
//! zero: a caller that must tell the two apart checks the length first.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

/// Returns the `N` bytes at `at`.
pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().unwrap_or([0; N])
}

pub(crate) fn u8_at(bytes: &[u8], at: usize) -> u8 {
    u8::from_le_bytes(array_at(bytes, at))
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

pub(crate) fn be16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array_at(bytes, at))
}

pub(crate) fn be32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array_at(bytes, at))
}

pub(crate) fn be64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array_at(bytes, at))
}

/// Copies bytes to the offset `at`, up to the end of `into`.
pub(crate) fn put(into: &mut [u8], at: usize, bytes: &[u8]) {
    into.iter_mut().skip(at).zip(bytes).for_each(|(into, byte)| *into = *byte);
}

/// Returns true if the bytes at `at` are `expected`.
pub(crate) fn has_at(bytes: &[u8], at: usize, expected: &[u8]) -> bool {
    bytes.get(at..).is_some_and(|rest| rest.starts_with(expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_beyond_the_end_are_zero() {
        let bytes = [1, 2, 3, 4, 5];
        assert_eq!((u8_at(&bytes, 4), u16_at(&bytes, 3), u32_at(&bytes, 1)), (5, 0x0504, 0x0504_0302));
        assert_eq!((u8_at(&bytes, 5), u16_at(&bytes, 4), u32_at(&bytes, 2), u64_at(&bytes, 0)), (0, 0, 0, 0));
        assert_eq!(u16_at(&bytes, usize::MAX), 0);
        let mut changed = bytes;
        put(&mut changed, 3, &[8, 9, 10]);
        put(&mut changed, 5, &[11]);
        assert_eq!(changed, [1, 2, 3, 8, 9]);
        assert!(has_at(&bytes, 3, &[4, 5]) && !has_at(&bytes, 4, &[5, 6]) && !has_at(&bytes, 9, &[0]));
    }
}
