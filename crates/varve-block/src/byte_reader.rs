//! Reads numbers and bytes off the front of bytes that somebody else has written.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

/// The bytes that are still to be read. Every method returns `None`, and takes nothing, if too few
/// are left.
#[derive(Debug, Clone, Copy)]
pub struct ByteReader<'a, const IS_BIG_ENDIAN: bool>(&'a [u8]);

/// Reads numbers with their highest byte first.
pub type BigEndian<'a> = ByteReader<'a, true>;
/// Reads numbers with their lowest byte first.
pub type LittleEndian<'a> = ByteReader<'a, false>;

impl<'a, const IS_BIG_ENDIAN: bool> ByteReader<'a, IS_BIG_ENDIAN> {
    /// Begins at the front of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        self.0.split_off(..count)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// The next byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    /// A number of two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(if IS_BIG_ENDIAN { u16::from_be_bytes } else { u16::from_le_bytes })
    }

    /// A number of four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(if IS_BIG_ENDIAN { u32::from_be_bytes } else { u32::from_le_bytes })
    }

    /// A number of eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(if IS_BIG_ENDIAN { u64::from_be_bytes } else { u64::from_le_bytes })
    }

    /// Takes the remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// The remaining bytes, which can still be read.
    #[must_use]
    pub fn left(&self) -> &'a [u8] {
        self.0
    }

    /// Reports whether all bytes have been read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_read_in_either_order() {
        let bytes: Vec<u8> = (1..=15).collect();
        let mut big = BigEndian::new(&bytes);
        assert_eq!((big.u8(), big.u16(), big.u32()), (Some(1), Some(0x0203), Some(0x0405_0607)));
        assert_eq!((big.u64(), big.u8(), big.is_empty()), (Some(0x0809_0a0b_0c0d_0e0f), None, true));
        let mut little = LittleEndian::new(&bytes);
        assert_eq!((little.u8(), little.u16(), little.u32()), (Some(1), Some(0x0302), Some(0x0706_0504)));
        assert_eq!((little.u64(), little.take(0)), (Some(0x0f0e_0d0c_0b0a_0908), Some(&[][..])));
    }

    proptest! {
        #[test]
        fn too_few_bytes_are_left_alone(bytes in prop::collection::vec(any::<u8>(), 0..8), more in 1_usize..) {
            let mut reader = BigEndian::new(&bytes);
            prop_assert_eq!(reader.take(bytes.len().saturating_add(more)), None);
            prop_assert_eq!(reader.u64(), None);
            prop_assert_eq!(reader.left(), &bytes[..]);
            prop_assert_eq!({ reader }.rest(), &bytes[..]);
            prop_assert_eq!(reader.take(bytes.len()), Some(&bytes[..]));
            prop_assert!(reader.is_empty());
        }
    }
}
