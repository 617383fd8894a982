//! Machines that start with UEFI: programs for its firmware, disks that it starts from, and its
//! variables, as far as tests need them.
#![allow(dead_code, reason = "each test uses its own part of this")]
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Code and fresh variables, for variables of 128 KiB and of 528 KiB.
pub const OVMF: (&str, &str) = ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd");
pub const OVMF_4M: (&str, &str) = ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd");

/// Returns true if UEFI for QEMU is installed. Otherwise prints the name of the skipped test.
pub fn has_ovmf(test: &str) -> bool {
    let missing = [OVMF.0, OVMF.1, OVMF_4M.0, OVMF_4M.1].into_iter().find(|file| !Path::new(file).is_file());
    if let Some(missing) = missing {
        eprintln!("skipped as {missing} is not there (package ovmf): {test}");
    }
    missing.is_none()
}

/// Options of QEMU for a machine with UEFI whose variables are in this file.
pub fn flash(code: &str, variables: &str) -> [String; 4] {
    [
        "-drive".into(),
        format!("if=pflash,unit=0,format=raw,readonly=on,file={code}"),
        "-drive".into(),
        format!("if=pflash,unit=1,format=raw,file={variables}"),
    ]
}

fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

/// Variables with a boot entry of this title, whose program is nowhere. The firmware prints the
/// title when it tries the entry. Made from fresh variables.
pub fn with_boot_entry(fresh: &str, title: &str) -> Vec<u8> {
    // After the headers of the volume and of its store.
    const FIRST_VARIABLE: usize = 0x64;
    // 8be4df61-93ca-11d2-aa0d-00e098032b8c: the variables that UEFI itself defines.
    const GLOBAL: [u8; 16] =
        [0x61, 0xdf, 0xe4, 0x8b, 0xca, 0x93, 0xd2, 0x11, 0xaa, 0x0d, 0x00, 0xe0, 0x98, 0x03, 0x2b, 0x8c];
    let variable = |name: &str, data: &[u8]| {
        let name = wide(name);
        // It is complete, outlives the machine's stop, and can be read at each time; then a
        // counter, a time and a number of a key, which it does not need.
        let mut bytes = [&[0xaa, 0x55, 0x3f, 0, 7, 0, 0, 0][..], &[0; 28]].concat();
        bytes.extend(u32::try_from(name.len()).unwrap().to_le_bytes());
        bytes.extend(u32::try_from(data.len()).unwrap().to_le_bytes());
        bytes.extend([&GLOBAL[..], &name, data].concat());
        bytes.resize(bytes.len().next_multiple_of(4), 0xff);
        bytes
    };
    let file = wide(r"\EFI\gone.efi");
    let length = u16::try_from(4 + file.len()).unwrap().to_le_bytes();
    let path = [&[4, 4][..], &length, &file, &[0x7f, 0xff, 4, 0]].concat();
    let path_length = u16::try_from(path.len()).unwrap().to_le_bytes();
    let entry = [&[1, 0, 0, 0][..], &path_length, &wide(title), &path].concat();
    let added = [variable("Boot0007", &entry), variable("BootOrder", &[7, 0])].concat();
    let mut variables = fs::read(fresh).unwrap();
    variables[FIRST_VARIABLE..][..added.len()].copy_from_slice(&added);
    variables
}

/// A program for UEFI that writes a text to the first serial line, and waits.
pub fn program(text: &str) -> Vec<u8> {
    const PAGE: u32 = 0x1000;
    const FILE_PAGE: usize = 0x200;
    // lea rsi, [text]; lodsb; test al, al; jz; mov dx, 0x3f8; out dx, al; jmp; pause; jmp
    let mut code = vec![0x48, 0x8d, 0x35, 0x12, 0, 0, 0, 0xac, 0x84, 0xc0, 0x74, 0x07];
    code.extend([0x66, 0xba, 0xf8, 0x03, 0xee, 0xeb, 0xf4, 0xf3, 0x90, 0xeb, 0xfc]);
    let text_at = u8::try_from(code.len() - 7).unwrap();
    code[3] = text_at;
    code.extend(text.as_bytes());
    code.extend(b"\r\n\0");
    assert!(code.len() <= FILE_PAGE);
    code.resize(FILE_PAGE, 0);
    let (short, long) = (|number: u16| number.to_le_bytes(), |number: u32| number.to_le_bytes());
    let mut file = b"MZ".to_vec();
    file.resize(0x3c, 0);
    file.extend(long(0x40));
    // The header of an image for x86-64 with one section, and 240 bytes of the optional header.
    file.extend(b"PE\0\0");
    file.extend([short(0x8664), short(1)].concat());
    file.extend([0; 12]);
    file.extend([short(240), short(0x22e), short(0x20b), short(0)].concat());
    file.extend([0x200, 0, 0, PAGE, PAGE].map(long).concat());
    file.extend([0; 8]);
    file.extend([PAGE, 0x200].map(long).concat());
    file.extend([0; 16]);
    file.extend([2 * PAGE, 0x200, 0].map(long).concat());
    file.extend([short(10), short(0)].concat());
    file.extend([0; 36]);
    file.extend(long(16));
    file.extend([0; 128]);
    file.extend(b".text\0\0\0");
    file.extend([0x200, PAGE, 0x200, 0x200, 0, 0, 0, 0x6000_0020].map(long).concat());
    file.resize(FILE_PAGE, 0);
    file.extend(code);
    file
}

/// Makes an EFI system partition of 8 MiB in a file, with a program at the place where UEFI looks
/// for one.
pub fn system_partition(folder: &Path, sector_bytes: u32, program: &[u8]) -> PathBuf {
    let (file, partition) = (folder.join("program.efi"), folder.join("system.fat"));
    fs::write(&file, program).unwrap();
    fs::write(&partition, vec![0; 8 << 20]).unwrap();
    let run = |name: &str, words: &[&str]| {
        let path = format!("{}:/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new(name);
        // mtools refuses sizes that it does not expect.
        command.args(words).env("PATH", path).env("MTOOLS_SKIP_CHECK", "1");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let path = partition.to_str().unwrap();
    run("mkfs.fat", &["-F", "12", "-S", &sector_bytes.to_string(), "-s", "1", path]);
    run("mmd", &["-i", path, "::EFI", "::EFI/BOOT"]);
    run("mcopy", &["-i", path, file.to_str().unwrap(), "::EFI/BOOT/BOOTX64.EFI"]);
    partition
}

/// Returns a disk with a GPT, and an EFI system partition with these contents at its first MiB.
pub fn gpt_disk(sector_bytes: u64, partition: &[u8]) -> Vec<u8> {
    const START: usize = 1 << 20;
    const TABLE_BYTES: usize = 16_384;
    // c12a7328-f81f-11d2-ba4b-00a0c93ec93b
    const EFI_SYSTEM: [u8; 16] =
        [0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11, 0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9, 0x3b];
    let mut disk = vec![0; START + partition.len() + START];
    let place = |sector: u64| usize::try_from(sector * sector_bytes).unwrap();
    let sector_of = |bytes: usize| bytes as u64 / sector_bytes;
    let (last, table_sectors) = (sector_of(disk.len()) - 1, sector_of(TABLE_BYTES));
    let mut table = [&EFI_SYSTEM[..], &[5; 16]].concat();
    let (first, end) = (sector_of(START), sector_of(START + partition.len()));
    table.extend([first, end - 1, 0].map(u64::to_le_bytes).concat());
    table.resize(TABLE_BYTES, 0);
    let header = |own: u64, other: u64, table_at: u64| {
        let mut header = b"EFI PART".to_vec();
        header.extend([0x1_0000, 92, 0, 0].map(u32::to_le_bytes).concat());
        let usable = [2 + table_sectors, last - table_sectors - 1];
        header.extend([own, other, usable[0], usable[1]].map(u64::to_le_bytes).concat());
        header.extend([9; 16]);
        header.extend(table_at.to_le_bytes());
        header.extend([128, 128, crc32(&table)].map(u32::to_le_bytes).concat());
        let code = crc32(&header).to_le_bytes();
        header[16..20].copy_from_slice(&code);
        header
    };
    let mut put = |at: usize, bytes: &[u8]| disk[at..at + bytes.len()].copy_from_slice(bytes);
    put(446, &[0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0xff, 0xff, 0, 0]);
    put(510, &[0x55, 0xaa]);
    put(place(1), &header(1, last, 2));
    put(place(2), &table);
    put(place(last - table_sectors), &table);
    put(place(last), &header(last, 1, last - table_sectors));
    put(START, partition);
    disk
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
        }
    }
    !sum
}
