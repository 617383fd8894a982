//! Pictures that a page may show: the kinds, recognised by their first bytes, and their sizes.
//! Pure.
//!
//! A browser decodes a picture of hostile bytes in its sandbox, as it does for any site. The page
//! only shows kinds that have no scripts and no addresses, and sizes that a browser can keep.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::{BigEndian, LittleEndian};

/// Larger files are not shown.
pub(crate) const PICTURE_BYTES_MAX: u64 = 16 << 20;
/// The first bytes, by which the kinds differ from other files.
pub(crate) const MAGIC_BYTES: u64 = 16;
/// The bytes from which a picture is recognised. A JPEG has its size after its attributes.
pub(crate) const HEAD_BYTES: u64 = 256 << 10;
/// A decoded picture takes four bytes for each of these.
const PIXELS_MAX: u64 = 50_000_000;

/// A picture that may be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Picture {
    pub(crate) media_type: &'static str,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

/// Reports whether a file whose first [`MAGIC_BYTES`] these are may be a picture.
pub(crate) fn has_magic(start: &[u8]) -> bool {
    kind(start).is_some()
}

/// Recognises a picture by the beginning of a file; `None` if it is none, or too large.
pub(crate) fn recognise(start: &[u8], file_bytes: u64) -> Option<Picture> {
    let (media_type, size) = kind(start)?;
    let (width, height) = size(start)?;
    let pixels = u64::from(width).checked_mul(u64::from(height))?;
    let is_shown = (1..=PIXELS_MAX).contains(&pixels) && file_bytes <= PICTURE_BYTES_MAX;
    is_shown.then_some(Picture { media_type, width, height })
}

/// Reads the width and height of a picture of one kind.
type ReadSize = fn(&[u8]) -> Option<(u32, u32)>;

fn kind(start: &[u8]) -> Option<(&'static str, ReadSize)> {
    if start.starts_with(b"\x89PNG\r\n\x1a\n") {
        Some(("image/png", png_size))
    } else if start.starts_with(b"\xff\xd8\xff") {
        Some(("image/jpeg", jpeg_size))
    } else if start.starts_with(b"GIF87a") || start.starts_with(b"GIF89a") {
        Some(("image/gif", gif_size))
    } else if start.starts_with(b"RIFF") && start.get(8..12) == Some(b"WEBP") {
        Some(("image/webp", webp_size))
    } else {
        None
    }
}

fn png_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut reader = BigEndian::new(bytes.get(12..)?);
    (reader.take(4)? == b"IHDR").then_some(())?;
    Some((reader.u32()?, reader.u32()?))
}

/// The size in the first frame header. Segments before it are skipped.
fn jpeg_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut reader = BigEndian::new(bytes.get(2..)?);
    loop {
        (reader.u8()? == 0xff).then_some(())?;
        let mut marker = reader.u8()?;
        // Fill bytes.
        while marker == 0xff {
            marker = reader.u8()?;
        }
        // The image data, or its end, without a frame header.
        if matches!(marker, 0xd8..=0xda) {
            return None;
        }
        let mut body = reader;
        let length = reader.u16()?.max(2);
        if matches!(marker, 0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf) {
            body.take(3)?;
            let (height, width) = (body.u16()?, body.u16()?);
            return Some((width.into(), height.into()));
        }
        reader.take(usize::from(length.saturating_sub(2)))?;
    }
}

fn gif_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut reader = LittleEndian::new(bytes.get(6..)?);
    Some((reader.u16()?.into(), reader.u16()?.into()))
}

fn webp_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut reader = LittleEndian::new(bytes.get(20..)?);
    match bytes.get(12..16)? {
        b"VP8X" => {
            reader.take(4)?;
            let [w0, w1, w2, h0, h1, h2] = reader.array()?;
            let size = |low, middle, high| u32::from_le_bytes([low, middle, high, 0]).checked_add(1);
            Some((size(w0, w1, w2)?, size(h0, h1, h2)?))
        }
        b"VP8L" => {
            (reader.u8()? == 0x2f).then_some(())?;
            let bits = reader.u32()?;
            Some(((bits & 0x3fff).checked_add(1)?, (bits >> 14 & 0x3fff).checked_add(1)?))
        }
        b"VP8 " => {
            reader.take(3)?;
            (reader.take(3)? == [0x9d, 0x01, 0x2a]).then_some(())?;
            Some((u32::from(reader.u16()? & 0x3fff), u32::from(reader.u16()? & 0x3fff)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32) -> Vec<u8> {
        let head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
        [&head[..], &width.to_be_bytes(), &height.to_be_bytes(), b"\x08\x02\0\0\0"].concat()
    }

    fn webp(chunk: &[u8]) -> Vec<u8> {
        [&b"RIFF\0\0\0\0WEBP"[..], chunk].concat()
    }

    #[test]
    fn four_kinds_are_recognised_with_their_sizes() {
        let jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc2\0\x11\x08\x01\x02\x03\x04rest";
        let vp8 = b"VP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x20\0\x10\0";
        for (start, media_type, width, height) in [
            (png(640, 480), "image/png", 640, 480),
            (jpeg.to_vec(), "image/jpeg", 0x304, 0x102),
            (b"GIF89a\x10\0\x20\0".to_vec(), "image/gif", 16, 32),
            (webp(b"VP8X\x0a\0\0\0\0\0\0\0\x63\0\0\x31\0\0"), "image/webp", 100, 50),
            (webp(b"VP8L\0\0\0\0\x2f\x03\x40\0\0"), "image/webp", 4, 2),
            (webp(vp8), "image/webp", 32, 16),
        ] {
            assert!(has_magic(&start[..start.len().min(16)]));
            assert_eq!(recognise(&start, 1_000), Some(Picture { media_type, width, height }));
            // Every beginning of it is no picture, and no panic.
            for end in 0..start.len() {
                let _ = recognise(&start[..end], 1_000);
            }
        }
    }

    #[test]
    fn everything_else_is_no_picture() {
        let others: [&[u8]; 7] = [
            b"",
            b"<svg xmlns='http://www.w3.org/2000/svg'/>",
            b"<?xml version='1.0'?><svg/>",
            b"<html><script>alert(1)</script>",
            b"%PDF-1.7",
            b"BM\0\0\0\0",
            b"\xff\xd8\xff\xda\0\x02\xff\xc0\0\0\0\0\0\0\0\0",
        ];
        for other in others {
            assert_eq!(recognise(other, 1_000), None);
        }
        // Too many pixels, none, and too many bytes.
        assert_eq!(recognise(&png(50_000, 50_000), 1_000), None);
        assert_eq!(recognise(&png(0, 10), 1_000), None);
        assert_eq!(recognise(&png(u32::MAX, u32::MAX), 1_000), None);
        assert_eq!(recognise(&png(10, 10), PICTURE_BYTES_MAX + 1), None);
    }
}
