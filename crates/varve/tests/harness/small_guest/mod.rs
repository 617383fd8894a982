//! Disks that boot in QEMU without a system: all code is in their first sector.
#![allow(dead_code, reason = "each test uses its own part of this")]

/// One read of the machine that reads its whole disk, in sectors and bytes.
const READ_SECTORS: u8 = 64;
pub const READ_BYTES: usize = READ_SECTORS as usize * 512;

/// The device on which the machine prints its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    OnItsConsole,
    OnItsScreen,
    Nowhere,
}

/// A disk that boots. `text` has a `?` for the number of starts.
pub fn bootable(text: &str, says: Says) -> Vec<u8> {
    const ORIGIN: usize = 0x7c00;
    // Reads the second sector to 0x7e00, increments its first byte, and writes it back.
    let mut code = vec![
        0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, 0xbc, 0x00, 0x7c, // segments and stack
        0xb6, 0x00, 0xbb, 0x00, 0x7e, 0xb9, 0x02, 0x00, 0x52, 0xb8, 0x01, 0x02, 0xcd, 0x13,
        0x5a, // read
        0xfe, 0x06, 0x00, 0x7e, // count
        0xbb, 0x00, 0x7e, 0xb9, 0x02, 0x00, 0xb8, 0x01, 0x03, 0xcd, 0x13, // write
        0xa0, 0x00, 0x7e, 0x04, 0x30, // the count as a digit
    ];
    // Puts the digit into the text, and prints the text character by character.
    let message_at = ORIGIN + code.len() + 3 + 3 + 20;
    let word = |value: usize| u16::try_from(value).unwrap().to_le_bytes();
    code.push(0xa2);
    code.extend(word(message_at + text.find('?').unwrap_or(text.len())));
    code.push(0xbe);
    code.extend(word(message_at));
    // `int 0x10` shows a character, and `out dx, al` sends it. A `nop` replaces the one
    // that is not used.
    let (show, send) = match says {
        Says::OnItsConsole => ([0x90, 0x90], 0xee),
        Says::OnItsScreen => ([0xcd, 0x10], 0x90),
        Says::Nowhere => ([0x90, 0x90], 0x90),
    };
    code.extend([0xac, 0x84, 0xc0, 0x74, 0x0c, 0xb4, 0x0e, 0x31, 0xdb]);
    code.extend(show);
    code.extend([0xba, 0xf8, 0x03, send, 0xeb, 0xef, 0xf4, 0xeb, 0xfd]);
    assert_eq!(ORIGIN + code.len(), message_at);
    code.extend(text.as_bytes());
    code.extend(b"\r\n\0");
    assert!(code.len() <= 446, "it must fit before the partition table");
    code.resize(510, 0);
    code.extend([0x55, 0xaa]);
    code.resize(4 << 20, 0);
    code
}

/// Makes a disk boot that has any contents after its first 32 KiB. The machine reads all of them in
/// order, and prints `text` on its console if their sum is right. Otherwise it prints `BROKEN`.
pub fn reading_itself(disk: &mut [u8], text: &str) {
    const ORIGIN: usize = 0x7c00;
    const SUM_AT: usize = 0x180;
    const TEXT_AT: usize = 0x190;
    const BROKEN_AT: usize = 0x1c0;
    const READ_AT: usize = 0x1d0;
    const LEFT_AT: usize = 0x1e0;
    assert!(disk.len().is_multiple_of(READ_BYTES) && text.len() < BROKEN_AT - TEXT_AT);
    let words = disk[READ_BYTES..].chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    let sum = words.fold(0, u32::wrapping_add);
    let left = u16::try_from(disk.len() / READ_BYTES - 1).unwrap();
    let at = |place: usize| u16::try_from(ORIGIN + place).unwrap().to_le_bytes();
    let mut code = vec![0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, 0xbc, 0x00, 0x7c]; // segments, stack
    code.extend([0xfc, 0x66, 0x31, 0xdb]); // forwards, and the sum is zero
    let again = code.len();
    code.extend([0x66, 0x53, 0x52, 0xbe]); // keep the sum and the drive
    code.extend(at(READ_AT));
    code.extend([0xb4, 0x42, 0xcd, 0x13, 0x5a, 0x66, 0x5b]); // read 32 KiB to 1000:0000
    let failed = code.len();
    code.extend([0x72, 0]);
    code.extend([0x1e, 0xb8, 0x00, 0x10, 0x8e, 0xd8, 0x31, 0xf6, 0xb9, 0x00, 0x20]);
    code.extend([0x66, 0xad, 0x66, 0x01, 0xc3, 0xe2, 0xf9, 0x1f]); // add its words
    code.extend([0x66, 0x83, 0x06]);
    code.extend(at(READ_AT + 8));
    code.extend([READ_SECTORS, 0xff, 0x0e]);
    code.extend(at(LEFT_AT));
    let back = i8::try_from(again as isize - code.len() as isize - 2).unwrap();
    code.extend([0x75, back.to_le_bytes()[0], 0x66, 0x3b, 0x1e]); // until nothing is left
    code.extend(at(SUM_AT));
    code.push(0xbe);
    code.extend(at(TEXT_AT));
    code.extend([0x74, 0x03]); // the sum is right
    let broken = code.len();
    code.push(0xbe);
    code.extend(at(BROKEN_AT));
    code[failed + 1] = u8::try_from(broken - failed - 2).unwrap();
    code.extend([0xba, 0xf8, 0x03]);
    code.extend([0xac, 0x84, 0xc0, 0x74, 0x03, 0xee, 0xeb, 0xf8, 0xf4, 0xeb, 0xfd]); // print, and halt
    assert!(code.len() <= SUM_AT);
    code.resize(512, 0);
    code[SUM_AT..SUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    code[TEXT_AT..TEXT_AT + text.len()].copy_from_slice(text.as_bytes());
    code[BROKEN_AT..BROKEN_AT + 6].copy_from_slice(b"BROKEN");
    code[READ_AT..READ_AT + 9].copy_from_slice(&[16, 0, READ_SECTORS, 0, 0, 0, 0, 0x10, READ_SECTORS]);
    code[LEFT_AT..LEFT_AT + 2].copy_from_slice(&left.to_le_bytes());
    code[510..].copy_from_slice(&[0x55, 0xaa]);
    disk[..512].copy_from_slice(&code);
}
