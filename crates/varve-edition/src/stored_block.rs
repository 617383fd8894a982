//! A stored block: a block of a disk, a page of a map or a profile, as an object or as a part of
//! one. Its name is the SHA-256 of all of its bytes.
//!
//! | offset | bytes | field   | meaning                                                              |
//! |-------:|------:|---------|----------------------------------------------------------------------|
//! |      0 |     1 | codec   | 0 the content itself, 1 one zstd frame, 2 one zlib stream             |
//! |      1 |       | payload | the content in that form                                             |
//!
//! If the image has a cipher, the stored block is these bytes encrypted: see `block_form.rs`.

use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;

use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};
use zstd_safe::{CCtx, CParameter, DCtx};

const PLAIN: u8 = 0;
const ZSTD: u8 = 1;
const ZLIB: u8 = 2;

/// A plain stored block has at most this number of bytes more than its content.
pub(crate) const CODEC_BYTES: usize = 1;

/// The way in which a publisher compresses blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredCompression {
    None,
    /// A level from 1 to 19.
    Zstd(i32),
    /// A level from 1 to 9.
    Zlib(u8),
}

impl Default for StoredCompression {
    fn default() -> Self {
        Self::Zstd(3)
    }
}

impl fmt::Display for StoredCompression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Zstd(level) => write!(f, "zstd:{level}"),
            Self::Zlib(level) => write!(f, "zlib:{level}"),
        }
    }
}

impl FromStr for StoredCompression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, level) = text.split_once(':').map_or((text, None), |(name, level)| (name, Some(level)));
        let number = |otherwise: u8, max: u8| match level.map(str::parse::<u8>) {
            None => Some(otherwise),
            Some(Ok(level)) => (1..=max).contains(&level).then_some(level),
            Some(Err(_)) => None,
        };
        let found = match name {
            "none" if level.is_none() => Some(Self::None),
            "zstd" => number(3, 19).map(|level| Self::Zstd(i32::from(level))),
            "zlib" => number(6, 9).map(Self::Zlib),
            _ => None,
        };
        found.ok_or_else(|| {
            format!("{text:?} is no compression: use zstd:1 to zstd:19, zlib:1 to zlib:9, or none")
        })
    }
}

thread_local! {
    // A context holds about a megabyte of tables.
    static CONTEXTS: RefCell<(CCtx<'static>, DCtx<'static>)> = RefCell::new((CCtx::create(), DCtx::create()));
}

/// Makes the plain stored form of a content. It is not compressed if that would not make it
/// smaller.
pub(crate) fn store_block(content: &[u8], compression: StoredCompression) -> Vec<u8> {
    let compressed = match compression {
        StoredCompression::None => None,
        StoredCompression::Zstd(level) => zstd(content, level).map(|payload| (ZSTD, payload)),
        StoredCompression::Zlib(level) => Some((ZLIB, compress_to_vec_zlib(content, level))),
    };
    match compressed {
        Some((codec, payload)) if payload.len() < content.len() => [&[codec][..], &payload].concat(),
        _ => [&[PLAIN][..], content].concat(),
    }
}

/// Compresses into fewer bytes than the content has; `None` if that is impossible.
fn zstd(content: &[u8], level: i32) -> Option<Vec<u8>> {
    let mut payload = vec![0; content.len()];
    let written = CONTEXTS.with_borrow_mut(|(compressor, _)| {
        compressor
            .set_parameter(CParameter::CompressionLevel(level))
            .and_then(|_| compressor.compress2(payload.as_mut_slice(), content))
    });
    payload.truncate(written.ok()?);
    Some(payload)
}

/// The reason why a stored block has no content. Its bytes were checked before, so the publisher
/// has made a mistake, or uses a newer format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    #[error("a stored block is empty")]
    Empty,
    #[error("it cannot be decrypted with this content key")]
    Decrypt,
    #[error("the codec {codec} is unknown to this version")]
    Codec { codec: u8 },
    #[error("not a zstd frame of at most {bytes_max} bytes: {reason}")]
    Zstd { bytes_max: usize, reason: &'static str },
    #[error("not a zlib stream of at most {bytes_max} bytes: {reason}")]
    Zlib { bytes_max: usize, reason: &'static str },
    #[error("a block has {bytes} bytes, but at most {bytes_max} belong there")]
    TooLong { bytes: usize, bytes_max: usize },
}

/// Decompresses a plain stored block to at most `bytes_max` bytes. Allocates no more than that.
pub(crate) fn unpack_block(stored: &[u8], bytes_max: usize) -> Result<Vec<u8>, UnpackError> {
    let (codec, payload) = stored.split_first().ok_or(UnpackError::Empty)?;
    let content = match *codec {
        PLAIN if payload.len() <= bytes_max => payload.to_vec(),
        PLAIN => return Err(UnpackError::TooLong { bytes: payload.len(), bytes_max }),
        ZSTD => {
            // The decompressor would append the contents of further frames.
            if zstd_safe::find_frame_compressed_size(payload).is_ok_and(|bytes| bytes < payload.len()) {
                return Err(UnpackError::Zstd { bytes_max, reason: BYTES_FOLLOW });
            }
            let mut content = Vec::with_capacity(bytes_max);
            CONTEXTS
                .with_borrow_mut(|(_, decompressor)| decompressor.decompress(&mut content, payload))
                .map_err(|code| UnpackError::Zstd { bytes_max, reason: zstd_safe::get_error_name(code) })?;
            content
        }
        ZLIB => inflate(payload, bytes_max).map_err(|reason| UnpackError::Zlib { bytes_max, reason })?,
        codec => return Err(UnpackError::Codec { codec }),
    };
    if content.len() > bytes_max {
        return Err(UnpackError::TooLong { bytes: content.len(), bytes_max });
    }
    Ok(content)
}

const BYTES_FOLLOW: &str = "other bytes follow it";

/// Decompresses exactly one zlib stream.
fn inflate(payload: &[u8], bytes_max: usize) -> Result<Vec<u8>, &'static str> {
    let mut content = vec![0; bytes_max];
    let flags =
        inflate_flags::TINFL_FLAG_PARSE_ZLIB_HEADER | inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let mut state = Box::<DecompressorOxide>::default();
    let (status, read, written) = decompress(&mut state, payload, &mut content, 0, flags);
    match status {
        TINFLStatus::Done if read == payload.len() => {
            content.truncate(written);
            Ok(content)
        }
        TINFLStatus::Done => Err(BYTES_FOLLOW),
        TINFLStatus::HasMoreOutput => Err("its content is longer"),
        TINFLStatus::FailedCannotMakeProgress | TINFLStatus::NeedsMoreInput => Err("it was cut"),
        TINFLStatus::Adler32Mismatch => Err("its checksum is wrong"),
        _ => Err("it is damaged"),
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{BlockForm, CheckedBlock, ObjectName};

    const ALL: [StoredCompression; 5] = [
        StoredCompression::None,
        StoredCompression::Zstd(1),
        StoredCompression::Zstd(3),
        StoredCompression::Zlib(1),
        StoredCompression::Zlib(6),
    ];

    fn unpack(stored: &[u8], bytes_max: usize) -> Result<Vec<u8>, UnpackError> {
        CheckedBlock::check(stored, &ObjectName::of(stored)).unwrap().unpack(&BlockForm::Plain, bytes_max)
    }

    #[test]
    fn text_becomes_small_and_comes_back() {
        let text = b"the quick brown fox jumps over the lazy dog. ".repeat(3000);
        for (compression, codec) in ALL.into_iter().zip([0, 1, 1, 2, 2]) {
            let stored = store_block(&text, compression);
            assert_eq!(stored[0], codec, "{compression}");
            assert!(codec == 0 || stored.len() < text.len() / 50, "{compression}: {}", stored.len());
            assert_eq!(unpack(&stored, text.len()), Ok(text.clone()));
        }
    }

    #[test]
    fn a_bomb_stops_at_the_expected_length() {
        let zeros = vec![0; 8 << 20];
        for compression in ALL {
            let stored = store_block(&zeros, compression);
            assert!(unpack(&stored, zeros.len()).is_ok(), "{compression}");
            assert!(unpack(&stored, zeros.len() - 1).is_err(), "{compression}");
            assert!(unpack(&stored, 0).is_err(), "{compression}");
        }
    }

    #[test]
    fn nothing_follows_a_frame_or_a_stream() {
        let text = b"a line of a file\n".repeat(100);
        for (compression, says) in
            [(StoredCompression::Zstd(3), "zstd"), (StoredCompression::Zlib(6), "zlib")]
        {
            let stored = store_block(&text, compression);
            let twice = [&stored[..], &stored[1..]].concat();
            for longer in [&[&stored[..], &[0]].concat(), &[&stored[..], b"junk"].concat(), &twice] {
                let error = unpack(longer, 4000).unwrap_err().to_string();
                assert!(error.contains(says) && error.contains("follow"), "{error}");
            }
            assert!(unpack(&stored[..stored.len() - 1], 4000).is_err());
        }
    }

    #[test]
    fn errors_name_the_cause() {
        for (stored, says) in [
            (&[][..], "empty"),
            (&[3, 1, 2], "codec 3 is unknown"),
            (&[1, 1, 2, 3], "not a zstd frame"),
            (&[2, 1, 2, 3], "not a zlib stream"),
            (&[0, 1, 2, 3], "has 3 bytes, but at most 2"),
        ] {
            let error = unpack(stored, 2).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let wrong = CheckedBlock::check(b"x", &ObjectName::of(b"y")).unwrap_err().to_string();
        assert!(wrong.contains(&ObjectName::of(b"x").to_string()), "{wrong}");
    }

    #[test]
    fn compressions_are_read_as_they_are_written() {
        for compression in ALL {
            assert_eq!(compression.to_string().parse(), Ok(compression));
        }
        assert_eq!("zstd".parse(), Ok(StoredCompression::Zstd(3)));
        assert_eq!("zlib".parse(), Ok(StoredCompression::Zlib(6)));
        for text in ["", "zstd:0", "zstd:20", "zlib:10", "none:1", "gzip", "zstd:-1", "zstd:x", "zstd:"] {
            let error = text.parse::<StoredCompression>().unwrap_err();
            assert!(error.contains("use zstd:1"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_stored_comes_back(
            pieces in proptest::collection::vec((any::<u8>(), 1_usize..300), 0..60),
            random in proptest::collection::vec(any::<u8>(), 0..300),
            which in 0_usize..5,
        ) {
            let runs = pieces.into_iter().flat_map(|(byte, count)| std::iter::repeat_n(byte, count));
            let content: Vec<u8> = runs.chain(random).collect();
            let stored = store_block(&content, ALL[which]);
            prop_assert!(stored.len() <= content.len() + CODEC_BYTES);
            prop_assert_eq!(unpack(&stored, content.len()), Ok(content));
        }

        #[test]
        fn a_changed_byte_is_refused(content in proptest::collection::vec(any::<u8>(), 1..500), at: usize, flip in 1_u8..) {
            let mut stored = store_block(&content, StoredCompression::default());
            let name = ObjectName::of(&stored);
            let at = at % stored.len();
            stored[at] ^= flip;
            prop_assert!(CheckedBlock::check(&stored, &name).is_err());
        }

        #[test]
        fn no_bytes_panic(stored in proptest::collection::vec(any::<u8>(), 0..200), bytes_max in 0_usize..1000) {
            if let Ok(content) = unpack(&stored, bytes_max) {
                prop_assert!(content.len() <= bytes_max);
            }
        }
    }
}
