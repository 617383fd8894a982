//! The format `msgpack`, as far as borg writes it: a reader of values, one after the other.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io::{self, Read};

/// The longest text that is kept.
const TEXT_BYTES_MAX: u64 = 16 << 20;
/// The deepest value that is skipped.
const DEPTH_MAX: usize = 32;

/// Why a stream is not in the format.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    #[error("it cannot be read")]
    Read(#[from] io::Error),
    #[error("it is cut short at byte {offset}")]
    Truncated { offset: u64 },
    #[error("byte {offset}: {expected} is expected there")]
    Unexpected { offset: u64, expected: &'static str },
    #[error("byte {offset}: a text of {bytes} bytes is too long")]
    Long { offset: u64, bytes: u64 },
    #[error("byte {offset}: values are nested too deeply")]
    Deep { offset: u64 },
}

/// The beginning of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageHead {
    Nil,
    Bool(bool),
    Integer(i128),
    /// A text or bytes, which follow.
    Text {
        bytes: u64,
    },
    /// Values follow.
    Array {
        count: u64,
    },
    /// Keys follow, each before its value.
    Map {
        count: u64,
    },
    /// A number with a fraction, or an extension: bytes that are never used.
    Other {
        bytes: u64,
    },
}

/// Reads values from a stream.
pub(super) struct Messages<R> {
    stream: R,
    offset: u64,
}

impl<R: Read> Messages<R> {
    pub(super) fn new(stream: R) -> Self {
        Self { stream, offset: 0 }
    }

    pub(super) fn unexpected(&self, expected: &'static str) -> MessageError {
        MessageError::Unexpected { offset: self.offset, expected }
    }

    /// The beginning of the next value; `None` at the end of the stream.
    pub(super) fn next(&mut self) -> Result<Option<MessageHead>, MessageError> {
        let mut first = [0];
        loop {
            match self.stream.read(&mut first) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.offset = self.offset.saturating_add(1);
        let [code] = first;
        let low = |mask: u8| u64::from(code & mask);
        let head = match code {
            0x00..=0x7f => MessageHead::Integer(i128::from(code)),
            0x80..=0x8f => MessageHead::Map { count: low(0x0f) },
            0x90..=0x9f => MessageHead::Array { count: low(0x0f) },
            0xa0..=0xbf => MessageHead::Text { bytes: low(0x1f) },
            0xc0 => MessageHead::Nil,
            0xc2 | 0xc3 => MessageHead::Bool(code == 0xc3),
            0xc4 | 0xd9 => MessageHead::Text { bytes: self.number::<1>()? },
            0xc5 | 0xda => MessageHead::Text { bytes: self.number::<2>()? },
            0xc6 | 0xdb => MessageHead::Text { bytes: self.number::<4>()? },
            0xc7 => MessageHead::Other { bytes: self.number::<1>()?.saturating_add(1) },
            0xc8 => MessageHead::Other { bytes: self.number::<2>()?.saturating_add(1) },
            0xc9 => MessageHead::Other { bytes: self.number::<4>()?.saturating_add(1) },
            0xca => MessageHead::Other { bytes: 4 },
            0xcb => MessageHead::Other { bytes: 8 },
            0xcc => MessageHead::Integer(self.number::<1>()?.into()),
            0xcd => MessageHead::Integer(self.number::<2>()?.into()),
            0xce => MessageHead::Integer(self.number::<4>()?.into()),
            0xcf => MessageHead::Integer(self.number::<8>()?.into()),
            0xd0 => MessageHead::Integer(i8::from_be_bytes(self.array()?).into()),
            0xd1 => MessageHead::Integer(i16::from_be_bytes(self.array()?).into()),
            0xd2 => MessageHead::Integer(i32::from_be_bytes(self.array()?).into()),
            0xd3 => MessageHead::Integer(i64::from_be_bytes(self.array()?).into()),
            // One byte tells the type.
            0xd4 => MessageHead::Other { bytes: 2 },
            0xd5 => MessageHead::Other { bytes: 3 },
            0xd6 => MessageHead::Other { bytes: 5 },
            0xd7 => MessageHead::Other { bytes: 9 },
            0xd8 => MessageHead::Other { bytes: 17 },
            0xdc => MessageHead::Array { count: self.number::<2>()? },
            0xdd => MessageHead::Array { count: self.number::<4>()? },
            0xde => MessageHead::Map { count: self.number::<2>()? },
            0xdf => MessageHead::Map { count: self.number::<4>()? },
            0xe0..=0xff => MessageHead::Integer(i8::from_be_bytes([code]).into()),
            0xc1 => return Err(self.unexpected("a value")),
        };
        Ok(Some(head))
    }

    /// The beginning of a value inside another one.
    pub(super) fn inner(&mut self) -> Result<MessageHead, MessageError> {
        self.next()?.ok_or(MessageError::Truncated { offset: self.offset })
    }

    /// The bytes of a text.
    pub(super) fn bytes(&mut self, count: u64) -> Result<Vec<u8>, MessageError> {
        if count > TEXT_BYTES_MAX {
            return Err(MessageError::Long { offset: self.offset, bytes: count });
        }
        let mut bytes = Vec::new();
        let read = Read::by_ref(&mut self.stream).take(count).read_to_end(&mut bytes)?;
        self.advance(read as u64, count)?;
        Ok(bytes)
    }

    /// A text.
    pub(super) fn text(&mut self) -> Result<Vec<u8>, MessageError> {
        match self.inner()? {
            MessageHead::Text { bytes } => self.bytes(bytes),
            _ => Err(self.unexpected("a text")),
        }
    }

    /// The rest of a value whose beginning was read.
    pub(super) fn skip(&mut self, head: MessageHead) -> Result<(), MessageError> {
        self.skip_nested(head, 0)
    }

    fn skip_nested(&mut self, head: MessageHead, depth: usize) -> Result<(), MessageError> {
        if depth > DEPTH_MAX {
            return Err(MessageError::Deep { offset: self.offset });
        }
        let count = match head {
            MessageHead::Nil | MessageHead::Bool(_) | MessageHead::Integer(_) => return Ok(()),
            MessageHead::Text { bytes } | MessageHead::Other { bytes } => {
                let read = io::copy(&mut Read::by_ref(&mut self.stream).take(bytes), &mut io::sink())?;
                return self.advance(read, bytes);
            }
            MessageHead::Array { count } => count,
            MessageHead::Map { count } => count.saturating_mul(2),
        };
        for _ in 0..count {
            let head = self.inner()?;
            self.skip_nested(head, depth.saturating_add(1))?;
        }
        Ok(())
    }

    fn number<const BYTES: usize>(&mut self) -> Result<u64, MessageError> {
        let bytes: [u8; BYTES] = self.array()?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn array<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], MessageError> {
        let mut bytes = [0; BYTES];
        self.stream.read_exact(&mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => MessageError::Truncated { offset: self.offset },
            _ => MessageError::Read(error),
        })?;
        self.offset = self.offset.saturating_add(BYTES as u64);
        Ok(bytes)
    }

    fn advance(&mut self, read: u64, expected: u64) -> Result<(), MessageError> {
        self.offset = self.offset.saturating_add(read);
        if read < expected { Err(MessageError::Truncated { offset: self.offset }) } else { Ok(()) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_value_is_read() {
        let bytes = b"\x05\xff\xcd\x01\x02\xd1\xff\xfe\xa2hi\xc4\x01x\xc0\xc3\x92\x01\xa1a\x81\xa1k\xcb12345678\xd5\x01ab";
        let mut messages = Messages::new(&bytes[..]);
        let numbers: Vec<_> = (0..4).map(|_| messages.inner().unwrap()).collect();
        assert_eq!(numbers, [5, -1, 258, -2].map(MessageHead::Integer));
        assert_eq!((messages.text().unwrap(), messages.text().unwrap()), (b"hi".to_vec(), b"x".to_vec()));
        assert_eq!(messages.inner().unwrap(), MessageHead::Nil);
        assert_eq!(messages.inner().unwrap(), MessageHead::Bool(true));
        for _ in 0..3 {
            let head = messages.inner().unwrap();
            messages.skip(head).unwrap();
        }
        assert!(messages.next().unwrap().is_none());
    }

    #[test]
    fn hostile_values_end_in_an_error() {
        let skip = |bytes: &[u8]| {
            let mut messages = Messages::new(bytes);
            let head = messages.inner()?;
            messages.skip(head)
        };
        assert!(matches!(skip(&[0x91; 100]), Err(MessageError::Deep { .. })));
        assert!(matches!(skip(b"\xdf\xff\xff\xff\xff"), Err(MessageError::Truncated { .. })));
        assert!(matches!(skip(b"\xc1"), Err(MessageError::Unexpected { .. })));
        let mut long = Messages::new(&b"\xdb\xff\xff\xff\xffx"[..]);
        assert!(matches!(long.text(), Err(MessageError::Long { .. })));
    }
}
