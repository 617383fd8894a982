//! Answers to be sent. Short ones share one buffer. Blocks stay as they are, so that only the
//! kernel copies them.

use std::io::IoSlice;

use bytes::Bytes;
use varve_venti::{VentiReply, Version, encode_read_head};

/// Blocks up to this length are copied: a slice of their own would cost more.
const COPIED_BYTES_MAX: usize = 1 << 10;
/// The limit of slices in a vectored write (`IOV_MAX`).
const PIECES_MAX: usize = 1 << 10;

/// Replies in the order in which they are sent.
#[derive(Debug, Default)]
pub(super) struct ReplyQueue {
    bytes: Vec<u8>,
    /// Blocks, each with the number of bytes in `bytes` that precede it.
    blocks: Vec<(usize, Bytes)>,
    block_bytes: usize,
    needs_room: bool,
}

impl ReplyQueue {
    /// Appends raw bytes that are not a reply.
    pub(super) fn put_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a reply; one that does not fit the protocol version becomes an error. A block, and
    /// the whole buffer that it is a slice of, is kept until it has been sent.
    pub(super) fn put(&mut self, version: Version, tag: u8, reply: VentiReply) {
        self.needs_room |= matches!(reply, VentiReply::Read(_));
        let encoded = match &reply {
            VentiReply::Read(block) if block.len() > COPIED_BYTES_MAX => {
                encode_read_head(version, tag, block.len(), &mut self.bytes)
            }
            reply => reply.encode(version, tag, &mut self.bytes),
        };
        match (encoded, reply) {
            (Ok(()), VentiReply::Read(block)) if block.len() > COPIED_BYTES_MAX => {
                self.block_bytes += block.len();
                self.blocks.push((self.bytes.len(), block));
            }
            (Ok(()), _) => {}
            (Err(error), _) => {
                let error = VentiReply::Error(error.to_string());
                error.encode(version, tag, &mut self.bytes).expect("an error's text is short");
            }
        }
    }

    /// The length in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + self.block_bytes
    }

    /// Reports whether there are blocks among the answers. Other answers are too small to count
    /// against the budget: a client can have at most one per tag outstanding.
    pub(super) fn needs_room(&self) -> bool {
        self.needs_room
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that remain after `sent` bytes were sent, as non-empty slices.
    pub(super) fn pieces(&self, sent: usize) -> Vec<IoSlice<'_>> {
        let mut pieces = Vec::with_capacity(2 * self.blocks.len() + 1);
        let (mut place, mut to_skip) = (0, sent);
        let mut push = |bytes| {
            let skipped = to_skip.min(<[u8]>::len(bytes));
            to_skip -= skipped;
            if skipped < bytes.len() && pieces.len() < PIECES_MAX {
                pieces.push(IoSlice::new(&bytes[skipped..]));
            }
        };
        for (before, block) in &self.blocks {
            push(&self.bytes[place..*before]);
            push(block);
            place = *before;
        }
        push(&self.bytes[place..]);
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_sent_as_they_are_encoded_wherever_a_write_ends() {
        let replies = [
            VentiReply::Ping,
            VentiReply::Read(vec![1; 5000].into()),
            VentiReply::Read(vec![2; 3].into()),
            VentiReply::Read(Bytes::new()),
            VentiReply::Error("no".into()),
            VentiReply::Read(vec![3; COPIED_BYTES_MAX + 1].into()),
            VentiReply::Read(vec![4; 9000].into()),
        ];
        let mut expected = b"before".to_vec();
        let mut answers = ReplyQueue::default();
        assert!(answers.is_empty());
        answers.put_bytes(b"before");
        for (tag, reply) in (0..).zip(&replies) {
            reply.encode(Version::V04, tag, &mut expected).unwrap();
            answers.put(Version::V04, tag, reply.clone());
        }
        assert_eq!(answers.len(), expected.len());
        for sent in 0..=expected.len() {
            let pieces = answers.pieces(sent);
            assert!(pieces.iter().all(|piece| !piece.is_empty()));
            let left: Vec<&[u8]> = pieces.iter().map(|piece| &**piece).collect();
            assert!(left.concat() == expected[sent..], "{sent}");
        }
    }

    #[test]
    fn what_a_version_has_no_room_for_is_an_error_of_that_request() {
        let mut answers = ReplyQueue::default();
        answers.put(Version::V02, 9, VentiReply::Read(vec![0; 70_000].into()));
        let mut expected = Vec::new();
        let text = "a block of 70000 bytes cannot be sent in version 02".to_owned();
        VentiReply::Error(text).encode(Version::V02, 9, &mut expected).unwrap();
        assert_eq!((answers.bytes, answers.blocks.len()), (expected, 0));
    }
}
