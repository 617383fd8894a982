//! The compression of extents: zlib, LZO and zstd. Each extent is compressed by itself.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::lzo;

/// The largest window of zstd that the kernel accepts, as a power of two.
const ZSTD_WINDOW_MAX: u32 = 17;

/// The compression of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Compression {
    Zlib,
    Lzo,
    Zstd,
}

impl Compression {
    /// Decompresses up to `length` bytes. Missing bytes are zeros. Bytes after the end of the
    /// compressed ones are ignored: they fill the last sector.
    ///
    /// # Errors
    /// The contradiction, in words.
    pub(super) fn decompress(
        self,
        bytes: &[u8],
        length: usize,
        sector_bytes: usize,
    ) -> Result<Vec<u8>, &'static str> {
        let mut content = vec![0; length];
        let is_whole = match self {
            Self::Zlib => inflate(bytes, &mut content).is_some(),
            Self::Lzo => lzo::decompress(bytes, &mut content, sector_bytes).is_some(),
            Self::Zstd => return unzstd(bytes, length).ok_or("it cannot be decompressed by zstd"),
        };
        match (is_whole, self) {
            (true, _) => Ok(content),
            (false, Self::Zlib) => Err("it cannot be decompressed by zlib"),
            (false, _) => Err("it cannot be decompressed by LZO"),
        }
    }
}

fn inflate(bytes: &[u8], into: &mut [u8]) -> Option<()> {
    let flags =
        inflate_flags::TINFL_FLAG_PARSE_ZLIB_HEADER | inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let mut state = Box::<DecompressorOxide>::default();
    let (status, ..) = decompress(&mut state, bytes, into, 0, flags);
    matches!(status, TINFLStatus::Done | TINFLStatus::HasMoreOutput).then_some(())
}

fn unzstd(bytes: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut context = DCtx::try_create()?;
    context.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_MAX)).ok()?;
    let mut content = Vec::with_capacity(length);
    let mut input = InBuffer::around(bytes);
    let mut output = OutBuffer::around(&mut content);
    while output.pos() < length {
        let (read, written) = (input.pos, output.pos());
        let hint = context.decompress_stream(&mut output, &mut input).ok()?;
        if hint == 0 {
            break;
        }
        if (input.pos, output.pos()) == (read, written) {
            return None;
        }
    }
    content.truncate(length);
    content.resize(length, 0);
    Some(content)
}
