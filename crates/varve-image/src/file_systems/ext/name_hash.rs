//! The name hashes of folder indexes, as every Linux kernel since 2002 computes them.

/// The hash function of a folder, and the signedness of its bytes: that once depended on the
/// machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HashKind {
    function: HashFunction,
    is_unsigned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HashFunction {
    Legacy,
    HalfMd4,
    Tea,
}

/// The seed if the file system has none.
const SEED: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
/// The reserved hash that marks the end of a folder.
const END: u32 = 0xffff_fffe;

impl HashKind {
    /// Decodes the number in an index; `None` if it is unknown.
    pub(super) fn of(number: u8, are_unsigned: bool) -> Option<Self> {
        let function = match number {
            0 | 3 => HashFunction::Legacy,
            1 | 4 => HashFunction::HalfMd4,
            2 | 5 => HashFunction::Tea,
            _ => return None,
        };
        Some(Self { function, is_unsigned: number >= 3 || are_unsigned })
    }

    /// Widens a byte to 32 bits.
    fn widen(self, byte: u8) -> u32 {
        if self.is_unsigned { u32::from(byte) } else { i32::from(byte.cast_signed()).cast_unsigned() }
    }
}

/// Returns the hash of a name. Its lowest bit is always zero.
pub(super) fn hash(name: &[u8], kind: HashKind, seed: [u32; 4]) -> u32 {
    let seed = if seed == [0; 4] { SEED } else { seed };
    let hash = match kind.function {
        HashFunction::Legacy => legacy(name, kind),
        HashFunction::HalfMd4 => {
            let [_, hash, ..] = parts(name, 32).fold(seed, |state, part| half_md4(state, words(part, kind)));
            hash
        }
        HashFunction::Tea => {
            let [hash, ..] = parts(name, 16).fold(seed, |state, part| tea(state, words(part, kind)));
            hash
        }
    };
    let hash = hash & !1;
    if hash == END { END.wrapping_sub(2) } else { hash }
}

/// Returns the rest of a name at each multiple of `bytes`. The length of the rest is part of the
/// hash input.
fn parts(name: &[u8], bytes: usize) -> impl Iterator<Item = &[u8]> {
    (0..name.len()).step_by(bytes).filter_map(|from| name.get(from..))
}

fn legacy(name: &[u8], kind: HashKind) -> u32 {
    let step = |(last, before): (u32, u32), byte: &u8| {
        let hash = before.wrapping_add(last ^ kind.widen(*byte).wrapping_mul(7_152_373));
        let hash = if hash & 0x8000_0000 != 0 { hash.wrapping_sub(0x7fff_ffff) } else { hash };
        (hash, last)
    };
    name.iter().fold((0x12a3_fe2d, 0x37ab_e8f9), step).0 << 1
}

/// Packs the bytes of a name into `N` words, padded with its length.
fn words<const N: usize>(name: &[u8], kind: HashKind) -> [u32; N] {
    let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
    let pad = length | length << 8;
    let pad = pad | pad << 16;
    let mut words = [pad; N];
    for (word, bytes) in words.iter_mut().zip(name.chunks(4)) {
        *word = bytes.iter().fold(pad, |word, byte| kind.widen(*byte).wrapping_add(word << 8));
    }
    words
}

fn tea(state: [u32; 4], [a, b, c, d]: [u32; 4]) -> [u32; 4] {
    let [mut one, mut other, ..] = state;
    let mut sum = 0_u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        let mixed = |half: u32, left: u32, right: u32| {
            (half << 4).wrapping_add(left) ^ half.wrapping_add(sum) ^ (half >> 5).wrapping_add(right)
        };
        one = one.wrapping_add(mixed(other, a, b));
        other = other.wrapping_add(mixed(one, c, d));
    }
    let [first, second, third, fourth] = state;
    [first.wrapping_add(one), second.wrapping_add(other), third, fourth]
}

/// For each round: the order of the words, the rotations, and the constant.
const ROUNDS: [([usize; 8], [u32; 4], u32); 3] = [
    ([0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19], 0),
    ([1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13], 0x5a82_7999),
    ([3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15], 0x6ed9_eba1),
];

fn half_md4(state: [u32; 4], words: [u32; 8]) -> [u32; 4] {
    let [mut a, mut b, mut c, mut d] = state;
    for (round, (order, turns, constant)) in ROUNDS.into_iter().enumerate() {
        for (place, turn) in order.into_iter().zip(turns.into_iter().cycle()) {
            let mixed = match round {
                0 => d ^ (b & (c ^ d)),
                1 => (b & c).wrapping_add((b ^ c) & d),
                _ => b ^ c ^ d,
            };
            let word = words.get(place).copied().unwrap_or(0);
            let turned = a.wrapping_add(mixed).wrapping_add(word).wrapping_add(constant).rotate_left(turn);
            (a, b, c, d) = (d, turned, b, c);
        }
    }
    let [first, second, third, fourth] = state;
    [first.wrapping_add(a), second.wrapping_add(b), third.wrapping_add(c), fourth.wrapping_add(d)]
}

#[cfg(test)]
mod tests {
    use super::*;
    /// Computed by e2fsprogs.
    const KNOWN: [(&str, [u32; 3]); 4] = [
        ("a", [0xe74b_53e2, 0xd5fa_7d7a, 0x6d0e_a4c0]),
        ("etc", [0xd4a6_d32e, 0x0cf6_5492, 0x83c9_58ec]),
        ("a file with a name of some length 17", [0xeb02_9688, 0xc37a_65d0, 0x976d_5608]),
        (
            "Grüße und noch mehr, damit es lang wird, länger als zweiunddreißig",
            [0xe4e5_1fb0, 0x4cd7_8232, 0xf289_4dfa],
        ),
    ];

    #[test]
    fn hashes_are_those_that_everybody_computes() {
        for (name, expected) in KNOWN {
            for (number, expected) in (0..).zip(expected) {
                let kind = HashKind::of(number, false).unwrap();
                assert_eq!(hash(name.as_bytes(), kind, [0; 4]), expected, "{name}, {number}");
                let unsigned = hash(name.as_bytes(), HashKind::of(number, true).unwrap(), [0; 4]);
                assert_eq!(unsigned == expected, name.is_ascii(), "{name}, {number}: bytes above 127 differ");
                assert_ne!(hash(name.as_bytes(), kind, [1; 4]) == expected, number > 0, "the seed counts");
            }
        }
        assert_eq!(HashKind::of(4, false), HashKind::of(1, true));
        assert_eq!(HashKind::of(6, false), None);
    }
}
