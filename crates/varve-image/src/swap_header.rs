//! The page in which swap says what it is.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;

use crate::fields::{has_at, u32_at};

/// A page is as long as this, and in its end swap says what it is.
const PAGES: [usize; 4] = [4 << 10, 8 << 10, 16 << 10, 64 << 10];
/// The last three: a machine has gone to sleep in it.
const MAGIC: [&[u8]; 4] = [b"SWAPSPACE2", b"S1SUSPEND", b"S2SUSPEND", b"ULSUSPEND"];
const VERSION_AT: usize = 1024;
/// Zeros up to the list of bad pages: where other kinds of content have their own numbers.
const PADDING: Range<usize> = 1068..1536;
const BAD_PAGES_MAX: u32 = 637;

/// Where the memory is in something that begins with `head`, counted from its beginning; `None` if it is no swap.
pub(crate) fn memory_in(head: &[u8]) -> Option<Range<u64>> {
    let page = PAGES.into_iter().find(|page| {
        MAGIC.iter().any(|magic| page.checked_sub(10).is_some_and(|at| has_at(head, at, magic)))
    })?;
    let last_page = u32_at(head, 1028);
    let is_header = u32_at(head, VERSION_AT) == 1
        && last_page > 0
        && u32_at(head, 1032) <= BAD_PAGES_MAX
        && head.get(PADDING)?.iter().all(|byte| *byte == 0);
    let page = page as u64;
    is_header.then(|| page..u64::from(last_page).saturating_add(1).saturating_mul(page))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(page: usize, last_page: u32) -> Vec<u8> {
        let mut head = vec![0; 64 << 10];
        head[VERSION_AT] = 1;
        head[1028..1032].copy_from_slice(&last_page.to_le_bytes());
        head[page.saturating_sub(10)..page].copy_from_slice(b"SWAPSPACE2");
        head
    }

    #[test]
    fn only_a_whole_header_is_one() {
        assert_eq!(memory_in(&header(4096, 9)), Some(4096..40960));
        assert_eq!(memory_in(&header(65536, 1)), Some(65536..131_072));
        let mut asleep = header(4096, 9);
        asleep[4086..4096].copy_from_slice(b"S1SUSPEND\0");
        assert_eq!(memory_in(&asleep), Some(4096..40960));
        assert_eq!(memory_in(&header(4096, 0)), None);
        // A file system that was made over it, and left the end of the page as it was.
        let mut over = header(4096, 9);
        over[1080] = 0x53;
        assert_eq!(memory_in(&over), None);
        let mut newer = header(4096, 9);
        newer[VERSION_AT] = 2;
        assert_eq!(memory_in(&newer), None);
        assert_eq!(memory_in(&header(4096, 9)[..4095]), None);
    }
}
