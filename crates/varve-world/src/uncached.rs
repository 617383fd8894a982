//! Writing past the system's memory of files: what nobody will read soon need not push out of it what others do, nor be copied into it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Where transfers past that memory begin and end: at pages, so that none of them meets what goes through it. No disk has larger sectors.
const PAGE_BYTES: usize = 4096;
/// So much is written at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Opens a file to be written so; `None` where its file system has no such thing.
pub(crate) fn open(path: &Path) -> Option<File> {
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).ok()?;
    OpenOptions::new().write(true).custom_flags(direct).open(path).ok()
}

/// Writes to `file` from `offset` on: what fills pages by `uncached`, which is the same file, and the rest through the system's memory.
pub(crate) fn write_all_at(file: &File, uncached: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let before = usize::try_from(offset.next_multiple_of(PAGE_BYTES as u64) - offset).unwrap_or(0);
    let (head, rest) = bytes.split_at(before.min(bytes.len()));
    let (pages, tail) = rest.split_at(rest.len() - rest.len() % PAGE_BYTES);
    file.write_all_at(head, offset)?;
    let mut place = offset + head.len() as u64;
    let mut memory = vec![0; PIECE_BYTES.min(pages.len()) + PAGE_BYTES];
    let first = memory.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
    for piece in pages.chunks(PIECE_BYTES) {
        let aligned = &mut memory[first..first + piece.len()];
        aligned.copy_from_slice(piece);
        match uncached.write_all_at(aligned, place) {
            // It cannot be done here after all, or not with what is left of a piece that was written in part.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => file.write_all_at(piece, place)?,
            other => other?,
        }
        place += piece.len() as u64;
    }
    file.write_all_at(tail, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_length_follow_each_other() {
        let folder = tempfile::tempdir_in(".").unwrap();
        let path = folder.path().join("file");
        let file = File::create_new(&path).unwrap();
        // Where there is no such thing, both ways are the same.
        let uncached = open(&path).unwrap_or_else(|| file.try_clone().unwrap());
        let mut expected = Vec::new();
        let lengths =
            [0, 1, 4095, 1, PAGE_BYTES, 5000, 3, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES - 17, 100_000];
        for (number, length) in (1_u8..).zip(lengths) {
            let bytes: Vec<u8> = (0..251).cycle().map(|byte: u8| byte ^ number).take(length).collect();
            write_all_at(&file, &uncached, &bytes, expected.len() as u64).unwrap();
            expected.extend_from_slice(&bytes);
            assert!(std::fs::read(&path).unwrap() == expected, "after {length} bytes");
        }
    }
}
