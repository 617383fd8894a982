//! Decodes and encodes fields of messages. The bytes come from the peer, so nothing about them is
//! trusted.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

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

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A text with its length in front.
    pub(crate) fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u32()?).ok()?;
        self.bytes(length)
    }

    /// The remaining bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
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
