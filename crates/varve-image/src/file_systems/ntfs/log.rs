//! The log of NTFS. The newer of its first two pages tells the state in which it was left.
//!
//! | offset | bytes | of a page            | offset | bytes | of its area                        |
//! |-------:|------:|----------------------|-------:|------:|------------------------------------|
//! |      0 |     4 | `RSTR`               |      0 |     8 | number of the last record          |
//! |     24 |     2 | where its area begins |    12 |     2 | client in use; 0xffff: none         |
//! |        |       |                      |     14 |     2 | flags: 2, if it is clean            |

use crate::bytes::fields::{u16_at, u64_at};

const PAGE_BYTES: usize = 4096;
/// The bytes of a log that are read.
pub(super) const HEAD_BYTES: usize = 2 * PAGE_BYTES;
const NOBODY: u16 = 0xffff;
const IS_CLEAN: u16 = 2;

/// Returns true if a log certainly has no pending records.
pub(super) fn is_done(head: &[u8]) -> bool {
    let (pages, _) = head.as_chunks::<PAGE_BYTES>();
    // A log that was never written, or that Linux has emptied.
    if !pages.is_empty() && pages.as_flattened().iter().all(|byte| *byte == 0xff) {
        return true;
    }
    let area = |page: &'_ [u8; PAGE_BYTES]| {
        let area = page.get(usize::from(u16_at(page, 24))..).filter(|_| page.starts_with(b"RSTR"))?;
        Some((u64_at(area, 0), u16_at(area, 12) == NOBODY || u16_at(area, 14) & IS_CLEAN != 0))
    };
    // A torn page may have been the newer one.
    let areas = pages.iter().map(area).collect::<Option<Vec<_>>>().unwrap_or_default();
    areas.into_iter().max().is_some_and(|(_, is_done)| is_done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(last: u64, user: u16, flags: u16) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        page[..4].copy_from_slice(b"RSTR");
        page[24] = 48;
        page[48..56].copy_from_slice(&last.to_le_bytes());
        page[60..62].copy_from_slice(&user.to_le_bytes());
        page[62..64].copy_from_slice(&flags.to_le_bytes());
        page
    }

    #[test]
    fn the_newer_page_tells_how_a_log_was_left() {
        let (in_use, unused, clean) = (page(7, 0, 0), page(8, NOBODY, 0), page(9, 0, IS_CLEAN));
        assert!(is_done(&[0xff; HEAD_BYTES]));
        assert!(is_done(&[in_use.clone(), unused.clone()].concat()));
        assert!(is_done(&[clean, in_use.clone()].concat()));
        assert!(!is_done(&[unused.clone(), page(10, 0, 0)].concat()));
        let mut torn = page(10, 0, 0);
        torn[0] = b'B';
        assert!(!is_done(&[unused, torn].concat()));
        assert!(!is_done(&[0; HEAD_BYTES]));
        assert!(!is_done(&[]));
        let mut beyond = in_use;
        beyond[24..26].fill(0xff);
        assert!(!is_done(&beyond));
    }
}
