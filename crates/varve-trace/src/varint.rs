//! Whole numbers of one to ten bytes (LEB128): seven bits a byte, the lowest first. The highest bit
//! of each byte but the last is set. Each number has one form: the shortest.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::LittleEndian;

/// Appends `number`.
pub(crate) fn encode(mut number: u64, into: &mut Vec<u8>) {
    loop {
        let low = number.to_le_bytes()[0] & 0x7f;
        number >>= 7;
        if number == 0 {
            into.push(low);
            return;
        }
        into.push(low | 0x80);
    }
}

/// A number from the front of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Varint {
    Number(u64),
    /// The bytes end within the number.
    Cut,
    /// The number has more than 64 bits, or is longer than necessary.
    Invalid,
}

/// Reads a number, and takes its bytes.
pub(crate) fn decode(bytes: &mut LittleEndian<'_>) -> Varint {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let Some(byte) = bytes.u8() else { return Varint::Cut };
        let low = u64::from(byte & 0x7f);
        let placed = low << shift;
        if placed >> shift != low {
            return Varint::Invalid;
        }
        number |= placed;
        if byte & 0x80 == 0 {
            let is_shortest = byte != 0 || shift == 0;
            return if is_shortest { Varint::Number(number) } else { Varint::Invalid };
        }
    }
    Varint::Invalid
}

/// Maps a signed number to an unsigned one, so that small distances in both directions are small:
/// 0, −1, 1, −2 become 0, 1, 2, 3.
#[expect(clippy::cast_sign_loss, reason = "all 64 bits are kept")]
pub(crate) fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// The reverse of [`zigzag`].
#[expect(clippy::cast_possible_wrap, reason = "all 64 bits are kept")]
pub(crate) fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ (number as i64 & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(bytes: &[u8]) -> Varint {
        decode(&mut LittleEndian::new(bytes))
    }

    #[test]
    fn a_number_has_one_form() {
        assert_eq!(decoded(&[0]), Varint::Number(0));
        assert_eq!(decoded(&[0x80, 0]), Varint::Invalid, "longer than necessary");
        assert_eq!(decoded(&[0xff; 10]), Varint::Invalid, "more than 64 bits");
        assert_eq!(decoded(&[0xff; 9]), Varint::Cut);
        assert_eq!([0, -1, 1, -2].map(zigzag), [0, 1, 2, 3]);
    }

    proptest! {
        #[test]
        fn numbers_survive_the_round_trip(number in any::<u64>(), shift in 0..64, signed in any::<i64>()) {
            let number = number >> shift;
            let mut bytes = Vec::new();
            encode(number, &mut bytes);
            prop_assert_eq!(decoded(&bytes), Varint::Number(number));
            bytes.pop();
            prop_assert_eq!(decoded(&bytes), Varint::Cut);
            prop_assert_eq!(unzigzag(zigzag(signed)), signed);
        }

        #[test]
        fn any_bytes_have_one_meaning(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            if let Varint::Number(number) = decoded(&bytes) {
                let mut again = Vec::new();
                encode(number, &mut again);
                prop_assert!(bytes.starts_with(&again));
            }
        }
    }
}
