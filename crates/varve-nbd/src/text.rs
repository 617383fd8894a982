//! Texts in messages: a length of four bytes, and as many bytes of UTF-8. The bytes come from the
//! peer, so nothing about them is trusted.

use varve_block::{BigEndian, to_usize};

/// Reads the bytes of a text. They need not be UTF-8.
pub(crate) fn read_text<'a>(from: &mut BigEndian<'a>) -> Option<&'a [u8]> {
    let length = to_usize(from.u32()?);
    from.take(length)
}

/// Appends a text with its length in front.
pub(crate) fn put_text(into: &mut Vec<u8>, text: &str) {
    into.extend_from_slice(&length_u32(text.len()).to_be_bytes());
    into.extend_from_slice(text.as_bytes());
}

/// Converts the length of a message that this crate has bounded itself.
pub(crate) fn length_u32(length: usize) -> u32 {
    u32::try_from(length).expect("messages are bounded far below 4 GiB")
}
