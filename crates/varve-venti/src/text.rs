//! Texts in messages: a length of two bytes, and as many bytes of UTF-8. The bytes come from the
//! peer, so nothing about them is trusted.

use varve_block::BigEndian;

use crate::TEXT_BYTES_MAX;

/// Reads the bytes of a text. They need not be UTF-8. Also returns `None` if the text is longer
/// than any text may be.
pub(crate) fn read_text<'a>(from: &mut BigEndian<'a>) -> Option<&'a [u8]> {
    let length = usize::from(from.u16()?);
    if length <= TEXT_BYTES_MAX { from.take(length) } else { None }
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
        let text = read_text(&mut BigEndian::new(&bytes)).unwrap();
        assert_eq!(text, "ä".repeat(512).as_bytes());
        put_text(&mut bytes, &format!("x{}", "ä".repeat(600)));
        let mut fields = BigEndian::new(&bytes);
        read_text(&mut fields).unwrap();
        assert_eq!(read_text(&mut fields).unwrap().len(), 1023);
        assert!(fields.is_empty());
    }

    #[test]
    fn a_text_of_1024_bytes_is_read_and_a_longer_one_is_not() {
        let mut bytes = vec![4, 0];
        bytes.extend_from_slice(&[b'x'; 1025]);
        assert_eq!(read_text(&mut BigEndian::new(&bytes)).unwrap().len(), 1024);
        bytes[1] = 1;
        assert_eq!(read_text(&mut BigEndian::new(&bytes)), None);
    }
}
