//! The checksums of partition tables and file systems, computed eight bytes at a time.

/// The remainders of one polynomial, for eight bytes at once.
type CrcTable = [[u32; 256]; 8];

/// CRC-32 as in GPT headers.
static IEEE: CrcTable = table(0xedb8_8320);
/// CRC-32C as in ext4, LVM and iSCSI.
static CASTAGNOLI: CrcTable = table(0x82f6_3b78);

const fn table(polynomial: u32) -> CrcTable {
    let mut table = [[0; 256]; 8];
    let mut byte = 0;
    let mut value = 0;
    while byte < 256 {
        let mut remainder = value;
        let mut bit = 0;
        while bit < 8 {
            remainder = if remainder & 1 == 1 { remainder >> 1 ^ polynomial } else { remainder >> 1 };
            bit += 1;
        }
        table[0][byte] = remainder;
        byte += 1;
        value += 1;
    }
    let mut row = 1;
    while row < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = table[row - 1][byte];
            table[row][byte] = before >> 8 ^ table[0][(before & 0xff) as usize];
            byte += 1;
        }
        row += 1;
    }
    table
}

fn update(table: &CrcTable, mut remainder: u32, bytes: &[u8]) -> u32 {
    let mut eights = bytes.chunks_exact(8);
    for eight in &mut eights {
        let low = remainder ^ u32::from_le_bytes([eight[0], eight[1], eight[2], eight[3]]);
        let low = low.to_le_bytes().map(usize::from);
        remainder = table[7][low[0]]
            ^ table[6][low[1]]
            ^ table[5][low[2]]
            ^ table[4][low[3]]
            ^ table[3][usize::from(eight[4])]
            ^ table[2][usize::from(eight[5])]
            ^ table[1][usize::from(eight[6])]
            ^ table[0][usize::from(eight[7])];
    }
    for byte in eights.remainder() {
        remainder = remainder >> 8 ^ table[0][usize::from(remainder.to_le_bytes()[0] ^ byte)];
    }
    remainder
}

/// Computes CRC-32 as zip and GPT do.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    !update(&IEEE, !0, bytes)
}

/// Continues CRC-32 from `seed`, without the inversions, as LVM does.
pub(crate) fn crc32_from(seed: u32, bytes: &[u8]) -> u32 {
    update(&IEEE, seed, bytes)
}

/// Continues CRC-32C from `seed`, without the inversions, as ext4 does.
pub(crate) fn crc32c_from(seed: u32, bytes: &[u8]) -> u32 {
    update(&CASTAGNOLI, seed, bytes)
}

/// Continues CRC-16 (polynomial 0xA001) from `seed`, as old ext4 group descriptors do.
pub(crate) fn crc16_from(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(seed, |remainder, byte| {
        (0..8).fold(remainder ^ u16::from(*byte), |remainder, _| {
            if remainder & 1 == 1 { remainder >> 1 ^ 0xa001 } else { remainder >> 1 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_values_come_out() {
        let digits = b"123456789";
        assert_eq!(crc32(digits), 0xcbf4_3926);
        assert_eq!(!crc32c_from(!0, digits), 0xe306_9283);
        assert_eq!(crc16_from(0, digits), 0xbb3d);
        let long: Vec<u8> = (0..=255).cycle().take(1003).collect();
        let (first, rest) = long.split_at(301);
        assert_eq!(crc32c_from(crc32c_from(!0, first), rest), crc32c_from(!0, &long));
        assert_eq!(!crc32_from(crc32_from(!0, first), rest), crc32(&long));
    }
}
