//! Decodes and encodes fields of messages. The bytes come from the peer, so nothing about them is
//! trusted.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crate::{SCORE_BYTES, TEXT_BYTES_MAX};

/// The bytes that are still to be decoded. Every method returns `None` if too few are left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn score(&mut self) -> Option<[u8; SCORE_BYTES]> {
        self.array()
    }

    /// A text with a length of two bytes in front. Also returns `None` if it is longer than any
    /// text may be.
    pub(crate) fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.u16()?);
        if length <= TEXT_BYTES_MAX { self.bytes(length) } else { None }
    }

    /// Bytes with a length of one byte in front.
    pub(crate) fn short(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.u8()?);
        self.bytes(length)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Appends a text with its length in front. A text that is too long is cut between characters.
pub(crate) fn put_text(into: &mut Vec<u8>, text: &str) {
    let kept = text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default();
    let length = u16::try_from(kept.len()).expect("a text is bounded far below 64 KiB");
    into.extend_from_slice(&length.to_be_bytes());
    into.extend_from_slice(kept.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_is_cut_between_characters() {
        let mut bytes = Vec::new();
        put_text(&mut bytes, &"ä".repeat(600));
        let text = Fields(&bytes).text().unwrap();
        assert_eq!(text, "ä".repeat(512).as_bytes());
        put_text(&mut bytes, &format!("x{}", "ä".repeat(600)));
        let mut fields = Fields(&bytes);
        fields.text().unwrap();
        assert_eq!(fields.text().unwrap().len(), 1023);
        assert!(fields.is_empty());
    }

    #[test]
    fn a_text_of_1024_bytes_is_read_and_a_longer_one_is_not() {
        let mut bytes = vec![4, 0];
        bytes.extend_from_slice(&[b'x'; 1025]);
        assert_eq!(Fields(&bytes).text().unwrap().len(), 1024);
        bytes[1] = 1;
        assert_eq!(Fields(&bytes).text(), None);
    }
}
