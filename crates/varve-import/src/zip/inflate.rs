//! Decompresses the method `deflate` as a stream.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io::{self, Read};

use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZError, MZFlush, MZStatus};

const INPUT_BYTES: usize = 64 << 10;

/// A compressed stream, decompressed while it is read.
pub(super) struct Inflated<R> {
    stream: R,
    state: Box<InflateState>,
    input: Vec<u8>,
    /// The part of `input` that was not used yet.
    used: usize,
    has_ended: bool,
}

impl<R: Read> Inflated<R> {
    pub(super) fn new(stream: R) -> Self {
        let state = InflateState::new_boxed(DataFormat::Raw);
        Self { stream, state, input: Vec::new(), used: 0, has_ended: false }
    }

    /// Reads more compressed bytes. Returns false at the end of the stream.
    fn fill(&mut self) -> io::Result<bool> {
        self.input.resize(INPUT_BYTES, 0);
        let count = self.stream.read(&mut self.input)?;
        self.input.truncate(count);
        self.used = 0;
        Ok(count > 0)
    }
}

impl<R: Read> Read for Inflated<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() || self.has_ended {
            return Ok(0);
        }
        loop {
            let is_empty = self.used >= self.input.len();
            let has_more = if is_empty { self.fill()? } else { true };
            let input = self.input.get(self.used..).unwrap_or_default();
            let result = inflate(&mut self.state, input, into, MZFlush::None);
            self.used = self.used.saturating_add(result.bytes_consumed);
            match result.status {
                Ok(MZStatus::StreamEnd) => self.has_ended = true,
                Ok(_) => {}
                // There is no progress without more input.
                Err(MZError::Buf) if !has_more || result.bytes_consumed > 0 => {}
                Err(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, "it is damaged")),
            }
            if result.bytes_written > 0 || self.has_ended {
                return Ok(result.bytes_written);
            }
            if !has_more {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it is cut short"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_decompressed_in_pieces() {
        let plain: Vec<u8> = (0..300_000_u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
        let packed = miniz_oxide::deflate::compress_to_vec(&plain, 6);
        let mut bytes = Vec::new();
        Inflated::new(packed.as_slice()).read_to_end(&mut bytes).unwrap();
        assert!(bytes == plain);
        let cut = packed.get(..packed.len() / 2).unwrap();
        let error = Inflated::new(cut).read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let error = Inflated::new(&[0xff; 100][..]).read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let mut empty = Vec::new();
        Inflated::new(&[3_u8, 0][..]).read_to_end(&mut empty).unwrap();
        assert!(empty.is_empty());
    }
}
