//! Received bytes that are not decoded yet.

/// When more than this many decoded bytes are in front, the remaining bytes are moved to the front.
const USED_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    /// The number of decoded bytes in front.
    used: usize,
}

impl Inbox {
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        if self.used == self.bytes.len() {
            self.bytes.clear();
            self.used = 0;
        } else if self.used > USED_BYTES_MAX {
            drop(self.bytes.drain(..self.used));
            self.used = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The bytes that are not decoded yet.
    pub(crate) fn waiting(&self) -> &[u8] {
        self.bytes.get(self.used..).unwrap_or_default()
    }

    /// Discards the first `count` bytes, or all of them if there are fewer.
    pub(crate) fn take(&mut self, count: usize) {
        self.used = self.used.saturating_add(count).min(self.bytes.len());
        // Free the memory of a large payload.
        if self.used == self.bytes.len() && self.bytes.capacity() > 2 * USED_BYTES_MAX {
            *self = Self::default();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_block::to_usize;

    #[test]
    fn what_is_taken_is_gone_and_the_rest_stays_in_order() {
        let mut inbox = Inbox::default();
        let mut expected = Vec::new();
        for round in 0..1000_u32 {
            let bytes: Vec<u8> = round.to_be_bytes().repeat(100);
            inbox.receive(&bytes);
            expected.extend_from_slice(&bytes);
            let taken = expected.len().min(to_usize(round % 800));
            assert_eq!(inbox.waiting(), expected);
            inbox.take(taken);
            expected.drain(..taken);
        }
        inbox.take(usize::MAX);
        assert!(inbox.is_empty());
    }
}
