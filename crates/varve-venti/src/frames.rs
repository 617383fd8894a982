//! Splits a stream of bytes into messages.

use bytes::{Buf as _, Bytes, BytesMut};
use varve_block::to_usize;

use crate::SKIPPED_BYTES_MAX;
use crate::version::Version;

/// The shortest message has a type and a tag.
const MESSAGE_BYTES_MIN: usize = 2;

/// A message, or the head of one that was skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VentiMessage {
    /// A complete message: type, tag, and the rest.
    Whole { kind: u8, tag: u8, body: Bytes },
    /// A message that is too long to be kept. The bytes after its type and tag are skipped as they
    /// arrive.
    TooLong {
        kind: u8,
        tag: u8,
        /// The announced length.
        length: u32,
    },
    /// A message without a tag.
    TooShort {
        /// The announced length.
        length: u32,
    },
}

/// Why no more messages can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A message so long that it would not even be skipped. A well-meaning peer does not send it.
    #[error("a message of {length} bytes is too long: at most {SKIPPED_BYTES_MAX} bytes can be skipped")]
    Enormous {
        /// The announced length.
        length: u32,
    },
}

/// Extracts messages from received bytes.
#[derive(Debug)]
pub struct MessageDecoder {
    version: Version,
    message_bytes_max: usize,
    inbox: BytesMut,
    /// The number of bytes of a skipped message that have not arrived yet.
    to_skip: usize,
}

impl MessageDecoder {
    /// Makes a reader for messages of a version. Messages of at most `message_bytes_max` bytes are
    /// kept. `inbox` has the bytes that have already arrived.
    #[must_use]
    pub fn new(version: Version, message_bytes_max: usize, inbox: BytesMut) -> Self {
        Self { version, message_bytes_max, inbox, to_skip: 0 }
    }

    /// The buffer for received bytes. The caller can read into it directly, without a copy.
    pub fn inbox(&mut self) -> &mut BytesMut {
        &mut self.inbox
    }

    /// The next message; `None` until more bytes arrive.
    ///
    /// # Errors
    /// [`FrameError`]: the connection is to be closed.
    pub fn next_message(&mut self) -> Result<Option<VentiMessage>, FrameError> {
        let skipped = self.to_skip.min(self.inbox.len());
        self.inbox.advance(skipped);
        self.to_skip = self.to_skip.saturating_sub(skipped);
        let Some(length) = self.length() else { return Ok(None) };
        if length > SKIPPED_BYTES_MAX {
            return Err(FrameError::Enormous { length });
        }
        let head = self.version.length_bytes();
        let claimed = length_usize(length);
        let is_too_long = claimed > self.message_bytes_max;
        let needed = if is_too_long { MESSAGE_BYTES_MIN } else { claimed };
        if self.inbox.len() < head.saturating_add(needed) {
            return Ok(None);
        }
        self.inbox.advance(head);
        let mut message = self.inbox.split_to(needed).freeze();
        if claimed < MESSAGE_BYTES_MIN {
            return Ok(Some(VentiMessage::TooShort { length }));
        }
        let (kind, tag) = (message.get_u8(), message.get_u8());
        if is_too_long {
            self.to_skip = claimed.saturating_sub(MESSAGE_BYTES_MIN);
            return Ok(Some(VentiMessage::TooLong { kind, tag, length }));
        }
        Ok(Some(VentiMessage::Whole { kind, tag, body: message }))
    }

    /// Reports whether a part of a message has arrived, but not all of it.
    #[must_use]
    pub fn is_midway(&self) -> bool {
        self.to_skip > 0 || !self.inbox.is_empty()
    }

    fn length(&self) -> Option<u32> {
        let head = self.inbox.get(..self.version.length_bytes())?;
        Some(head.iter().fold(0, |length, byte| length << 8 | u32::from(*byte)))
    }
}

fn length_usize(length: u32) -> usize {
    to_usize(length)
}

/// Appends the length, type and tag of a message whose rest has `rest` bytes. Returns `None`, and
/// appends nothing, if the message is too long for its version.
pub(crate) fn put_head(into: &mut Vec<u8>, version: Version, kind: u8, tag: u8, rest: usize) -> Option<()> {
    let length = rest.checked_add(MESSAGE_BYTES_MIN)?;
    match version {
        Version::V02 => into.extend_from_slice(&u16::try_from(length).ok()?.to_be_bytes()),
        Version::V04 => into.extend_from_slice(&u32::try_from(length).ok()?.to_be_bytes()),
    }
    into.extend_from_slice(&[kind, tag]);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(version: Version, slices: &[&[u8]]) -> Result<Vec<VentiMessage>, FrameError> {
        let mut messages = MessageDecoder::new(version, 10, BytesMut::new());
        let mut found = Vec::new();
        for slice in slices {
            messages.inbox().extend_from_slice(slice);
            while let Some(message) = messages.next_message()? {
                found.push(message);
            }
        }
        Ok(found)
    }

    #[test]
    fn any_slicing_gives_the_same_messages() {
        let stream = b"\0\x04\x0c\x01ab\0\x01z\0\0\0\x02\x02\x05\0\x10\x0e\x02abcdefghijklmn\0\x02\x10\x09";
        let whole = messages(Version::V02, &[stream]).unwrap();
        let expected = [
            VentiMessage::Whole { kind: 12, tag: 1, body: Bytes::from_static(b"ab") },
            VentiMessage::TooShort { length: 1 },
            VentiMessage::TooShort { length: 0 },
            VentiMessage::Whole { kind: 2, tag: 5, body: Bytes::new() },
            VentiMessage::TooLong { kind: 14, tag: 2, length: 16 },
            VentiMessage::Whole { kind: 16, tag: 9, body: Bytes::new() },
        ];
        assert_eq!(whole, expected);
        for size in 1..stream.len() {
            let slices: Vec<&[u8]> = stream.chunks(size).collect();
            assert_eq!(messages(Version::V02, &slices).unwrap(), expected, "slices of {size}");
        }
    }

    #[test]
    fn nothing_is_taken_for_what_is_only_announced() {
        let mut announced = MessageDecoder::new(Version::V04, 60_000, BytesMut::new());
        announced.inbox().extend_from_slice(&[0, 0xff, 0xff, 0xff, 14, 1, 13]);
        assert!(matches!(
            announced.next_message(),
            Ok(Some(VentiMessage::TooLong { length: 0x00ff_ffff, .. }))
        ));
        let mut total = 1_usize;
        while announced.is_midway() {
            announced.inbox().extend_from_slice(&[7; 4096]);
            total += 4096;
            assert_eq!(announced.next_message(), Ok(None));
            assert!(announced.inbox().capacity() < 100_000, "what is skipped is kept");
            if total > 0x00ff_ffff - 4096 {
                break;
            }
        }
        let enormous = messages(Version::V04, &[&[1, 0, 0, 1]]);
        assert_eq!(enormous, Err(FrameError::Enormous { length: 0x0100_0001 }));
    }
}
