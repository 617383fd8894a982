//! Transfers that bypass the page cache (`O_DIRECT`). Data that will not be read again soon then
//! neither evicts other data from it, nor is copied into it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::page_buffer::{PAGE_BYTES, PageBuffer};
use crate::support::is_unsupported;

/// Unaligned data is copied and written in parts of this size.
const PIECE_BYTES: usize = 1 << 20;

/// Opens a file for direct transfers; `None` if its file system does not support them.
///
/// # Errors
/// The file cannot be opened.
pub fn open_uncached(path: &Path, options: &OpenOptions) -> io::Result<Option<File>> {
    let Ok(direct) = i32::try_from(rustix::fs::OFlags::DIRECT.bits()) else { return Ok(None) };
    match options.clone().custom_flags(direct).open(path) {
        Err(error) if is_unsupported(&error) => Ok(None),
        other => other.map(Some),
    }
}

/// The number of bytes before the next page of the file.
fn bytes_before_a_page(offset: u64) -> usize {
    usize::try_from(offset.next_multiple_of(PAGE_BYTES as u64) - offset).unwrap_or(0)
}

/// The length of the whole pages among `byte_count` bytes.
fn end_of_pages(byte_count: usize) -> usize {
    byte_count - byte_count % PAGE_BYTES
}

/// Fills `into` from `offset` on. Uses `uncached`, which is the same file, for whole pages if they
/// are aligned in memory and in the file, and the page cache for the rest.
pub(crate) fn read_exact_at(file: &File, uncached: &File, into: &mut [u8], offset: u64) -> io::Result<()> {
    if bytes_before_a_page(offset) > 0 || into.as_ptr().align_offset(PAGE_BYTES) > 0 {
        return file.read_exact_at(into, offset);
    }
    let (pages, tail) = into.split_at_mut(end_of_pages(into.len()));
    match uncached.read_exact_at(pages, offset) {
        Err(error) if is_unsupported(&error) => file.read_exact_at(pages, offset)?,
        other => other?,
    }
    file.read_exact_at(tail, offset + pages.len() as u64)
}

/// Writes to `file` from `offset` on. Uses `uncached`, which is the same file, for whole pages, and
/// the page cache for the rest.
pub(crate) fn write_all_at(file: &File, uncached: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let (head, rest) = bytes.split_at(bytes_before_a_page(offset).min(bytes.len()));
    let (pages, tail) = rest.split_at(end_of_pages(rest.len()));
    file.write_all_at(head, offset)?;
    let mut place = offset + head.len() as u64;
    let is_aligned = pages.as_ptr().align_offset(PAGE_BYTES) == 0;
    let mut copy = PageBuffer::default();
    for piece in pages.chunks(if is_aligned { pages.len().max(1) } else { PIECE_BYTES }) {
        let aligned = if is_aligned {
            piece
        } else {
            copy.clear();
            copy.extend_from_slice(piece);
            &copy
        };
        match uncached.write_all_at(aligned, place) {
            // Direct writes are not possible here after all, or not for the rest of a partly
            // written buffer.
            Err(error) if is_unsupported(&error) => file.write_all_at(piece, place)?,
            other => other?,
        }
        place += piece.len() as u64;
    }
    file.write_all_at(tail, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new file, opened in both ways. If direct transfers are not supported, both are ordinary.
    fn opened(folder: &tempfile::TempDir) -> (File, File) {
        let path = folder.path().join("file");
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
        let uncached = open_uncached(&path, options.create_new(false)).unwrap();
        let uncached = uncached.unwrap_or_else(|| file.try_clone().unwrap());
        (file, uncached)
    }

    fn sample(length: usize, number: u8) -> PageBuffer {
        let mut bytes = PageBuffer::default();
        bytes.extend_from_slice(
            &(0..251).cycle().map(|byte: u8| byte ^ number).take(length).collect::<Vec<_>>(),
        );
        bytes
    }

    #[test]
    fn pieces_of_any_length_follow_each_other() {
        let lengths =
            [0, 1, 4095, 1, PAGE_BYTES, 5000, 3, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES - 17, 100_000];
        for skipped in [0, 5] {
            let folder = tempfile::tempdir_in(".").unwrap();
            let (file, uncached) = opened(&folder);
            let mut expected = Vec::new();
            for (number, length) in (1_u8..).zip(lengths) {
                let bytes = sample(length + skipped, number);
                let bytes = &bytes[skipped..];
                write_all_at(&file, &uncached, bytes, expected.len() as u64).unwrap();
                expected.extend_from_slice(bytes);
                let written = std::fs::read(folder.path().join("file")).unwrap();
                assert!(written == expected, "after {length} bytes");
            }
        }
    }

    #[test]
    fn what_is_read_is_the_same_from_any_place_to_any_memory() {
        let folder = tempfile::tempdir_in(".").unwrap();
        let (file, uncached) = opened(&folder);
        let written = sample(5 * PAGE_BYTES + 100, 0);
        file.write_all_at(&written, 0).unwrap();
        for offset in [0, 1, PAGE_BYTES, PAGE_BYTES + 1, 5 * PAGE_BYTES, written.len()] {
            for length in
                [0, 1, PAGE_BYTES - 1, PAGE_BYTES, 2 * PAGE_BYTES + 7, written.len(), written.len() + 1]
            {
                for skipped in [0, 3] {
                    let mut memory = PageBuffer::zeroed(skipped + length);
                    let into = &mut memory[skipped..];
                    let read = read_exact_at(&file, &uncached, into, offset as u64);
                    match written.get(offset..offset + length) {
                        Some(expected) => {
                            read.unwrap();
                            assert!(into == expected, "{length} bytes from {offset}");
                        }
                        None => assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof),
                    }
                }
            }
        }
    }
}
