//! Names in order, each with its spans, in few bytes. A name lies behind the one before it without
//! the bytes that both begin with.
//!
//! | field   | meaning                                                                           |
//! |---------|-----------------------------------------------------------------------------------|
//! | shared  | the number of leading bytes of the name before that this name begins with         |
//! | length  | the number of the remaining bytes                                                 |
//! | rest    | the remaining bytes                                                               |
//! | spans   | twice the number of spans, and 1 more if the last span goes on                    |
//! | begin * | for each span, the number of snapshots between the span before, or the first      |
//! |         | snapshot of all, and this one                                                     |
//! | more *  | behind each begin, the number of further snapshots; nothing if the span goes on   |
//!
//! All numbers are of 32 bits, seven of them in a byte, the low ones first. The highest bit of a
//! byte is set if another one follows.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::to_usize;

/// The end of a span of a name that the newest snapshot has.
pub(super) const OPEN: u32 = u32::MAX;

/// Snapshots in a row that have a name, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NameSpan {
    pub(super) first: u32,
    /// [`OPEN`] as long as the newest snapshot has the name.
    pub(super) last: u32,
}

/// Reads packed names, one after the other.
pub(super) struct NameCursor<'a> {
    left: &'a [u8],
    name: Vec<u8>,
    spans: Vec<NameSpan>,
}

impl<'a> NameCursor<'a> {
    /// Begins before the first name.
    pub(super) fn new(packed: &'a [u8]) -> Self {
        Self { left: packed, name: Vec::new(), spans: Vec::new() }
    }

    /// Moves to the next name. Returns false at the end.
    pub(super) fn advance(&mut self) -> bool {
        self.step().is_some()
    }

    /// The name at which the cursor is.
    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    /// The spans of that name, in order.
    pub(super) fn spans(&self) -> &[NameSpan] {
        &self.spans
    }

    fn number(&mut self) -> Option<u32> {
        let mut number = 0_u64;
        for shift in [0, 7, 14, 21, 28] {
            let (byte, left) = self.left.split_first()?;
            self.left = left;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return u32::try_from(number).ok();
            }
        }
        None
    }

    fn step(&mut self) -> Option<()> {
        let shared = to_usize(self.number()?);
        let length = to_usize(self.number()?);
        let (rest, left) = self.left.split_at_checked(length)?;
        self.left = left;
        if shared > self.name.len() {
            return None;
        }
        self.name.truncate(shared);
        self.name.extend_from_slice(rest);
        let spans = self.number()?;
        self.spans.clear();
        let mut next = 0_u32;
        for following in (0..spans >> 1).rev() {
            let first = next.checked_add(self.number()?)?;
            let goes_on = following == 0 && spans & 1 == 1;
            let last = if goes_on { OPEN } else { first.checked_add(self.number()?)? };
            self.spans.push(NameSpan { first, last });
            if !goes_on {
                next = last.checked_add(1)?;
            }
        }
        Some(())
    }

    /// Returns true if all that is left are names in order, and their spans are of the first
    /// `snapshot_count` snapshots.
    pub(super) fn are_names_of(mut self, snapshot_count: u32) -> bool {
        let mut before: Option<Vec<u8>> = None;
        while !self.left.is_empty() {
            if !self.advance() {
                return false;
            }
            let is_in_order = before.as_ref().is_none_or(|before| *before < self.name);
            let is_known = |number: u32| number < snapshot_count;
            let are_known =
                |span: &NameSpan| is_known(span.first) && (span.last == OPEN || is_known(span.last));
            if !is_in_order || self.spans.is_empty() || !self.spans.iter().all(are_known) {
                return false;
            }
            let before = before.get_or_insert_default();
            before.clear();
            before.extend_from_slice(&self.name);
        }
        true
    }
}

/// Packs names that come in order.
#[derive(Default)]
pub(super) struct NamePacker {
    packed: Vec<u8>,
    before: Vec<u8>,
}

impl NamePacker {
    /// Begins with room for so many bytes.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self { packed: Vec::with_capacity(bytes), before: Vec::new() }
    }

    /// Adds a name that comes after all others, with its spans in order.
    pub(super) fn push(&mut self, name: &[u8], spans: &[NameSpan]) {
        let shared = self.before.iter().zip(name).take_while(|(one, other)| one == other).count();
        let rest = name.get(shared..).unwrap_or_default();
        self.number(saturated(shared));
        self.number(saturated(rest.len()));
        self.packed.extend_from_slice(rest);
        self.before.truncate(shared);
        self.before.extend_from_slice(rest);
        let goes_on = spans.last().is_some_and(|span| span.last == OPEN);
        self.number(saturated(spans.len()).saturating_mul(2) | u32::from(goes_on));
        let mut next = 0_u32;
        for span in spans {
            self.number(span.first.saturating_sub(next));
            if span.last != OPEN {
                self.number(span.last.saturating_sub(span.first));
                next = span.last.saturating_add(1);
            }
        }
    }

    pub(super) fn finish(self) -> Box<[u8]> {
        self.packed.into_boxed_slice()
    }

    fn number(&mut self, mut number: u32) {
        while number >= 0x80 {
            self.packed.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.packed.push(number.to_le_bytes()[0]);
    }
}

/// A length. A name is far shorter than 4 GiB, and has fewer spans than there are snapshots.
fn saturated(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The spans of the days that have a name.
    fn spans_of(days: &[bool]) -> Vec<NameSpan> {
        let mut spans: Vec<NameSpan> = Vec::new();
        for (number, has) in days.iter().enumerate() {
            let number = u32::try_from(number).unwrap() * 1000;
            match (has, spans.last_mut()) {
                (true, Some(span)) if span.last == OPEN => {}
                (true, _) => spans.push(NameSpan { first: number, last: OPEN }),
                (false, Some(span)) if span.last == OPEN => span.last = number - 1,
                (false, _) => {}
            }
        }
        spans
    }

    proptest! {
        #[test]
        fn packed_names_are_read_again(
            names in prop::collection::btree_map(
                prop::collection::vec(0_u8..4, 0..200), prop::collection::vec(any::<bool>(), 1..9), 0..40),
        ) {
            let names: BTreeMap<_, _> =
                names.into_iter().map(|(name, days)| (name, spans_of(&[vec![true], days].concat()))).collect();
            let mut packer = NamePacker::default();
            names.iter().for_each(|(name, spans)| packer.push(name, spans));
            let packed = packer.finish();
            let mut cursor = NameCursor::new(&packed);
            for (name, spans) in &names {
                prop_assert!(cursor.advance());
                prop_assert_eq!((cursor.name(), cursor.spans()), (name.as_slice(), spans.as_slice()));
            }
            prop_assert!(!cursor.advance());
            prop_assert!(NameCursor::new(&packed).are_names_of(8_001));
            let has_later = names.values().flatten().any(|span| span.first > 0);
            prop_assert_eq!(NameCursor::new(&packed).are_names_of(1), !has_later
                && names.values().flatten().all(|span| span.last == OPEN));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let mut cursor = NameCursor::new(&bytes);
            while cursor.advance() {}
            let _ = NameCursor::new(&bytes).are_names_of(3);
        }
    }

    #[test]
    fn numbers_have_seven_bits_a_byte() {
        for number in [0, 1, 127, 128, 255, 256, 16_383, 16_384, 1 << 28, u32::MAX] {
            let mut packer = NamePacker::default();
            packer.number(number);
            let packed = packer.finish();
            assert_eq!(packed.len(), (32 - number.leading_zeros()).div_ceil(7).max(1) as usize);
            assert_eq!(NameCursor::new(&packed).number(), Some(number));
        }
        assert_eq!(NameCursor::new(&[0xff; 5]).number(), None);
        assert_eq!(NameCursor::new(&[0x80]).number(), None);
    }

    #[test]
    fn bytes_that_are_no_names_are_refused() {
        // "a" in the first snapshot, and still.
        let good = [0, 1, b'a', 3, 0];
        assert!(NameCursor::new(&good).are_names_of(1) && NameCursor::new(&[]).are_names_of(0));
        for bad in [
            &[0, 1, b'a', 3][..],
            &[0, 2, b'a', 3, 0],
            &[1, 1, b'a', 3, 0],
            &[0, 1, b'a', 0],
            &[0, 1, b'a', 3, 1],
            &[0, 1, b'a', 2, 0, 1],
            &[0, 1, b'a', 3, 0, 1, 0, 3, 0],
            &[0, 1, b'b', 3, 0, 0, 1, b'a', 3, 0],
        ] {
            assert!(!NameCursor::new(bad).are_names_of(1), "{bad:?}");
        }
    }
}
