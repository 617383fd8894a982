//! The header page of swap.
//!
//! | offset | bytes | name           | meaning                                                           |
//! |-------:|------:|----------------|-------------------------------------------------------------------|
//! |      0 |  1024 | boot block     | not part of swap                                                  |
//! |   1024 |     4 | version        | 1                                                                 |
//! |   1028 |     4 | last_page      | the number of the last page, counted from this page               |
//! |   1032 |     4 | bad_page_count | at most 637 with pages of 4 KiB                                   |
//! |   1036 |    16 | UUID           |                                                                   |
//! |   1052 |    16 | label          |                                                                   |
//! |   1068 |   468 | padding        | zeros                                                             |
//! |   1536 |   4 n | bad pages      | their numbers, in ascending order                                 |
//! |        |       |                | zeros; while suspended, the kernel's own data in the last bytes   |
//! |  -10   |    10 | magic          | `SWAPSPACE2`, or the magic of a suspended machine                 |
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;

use varve_block::to_usize;

use crate::bytes::fields::{has_at, u32_at};

/// The possible page sizes. The magic number is at the end of the first page.
const PAGES: [usize; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
const AWAKE: &[u8] = b"SWAPSPACE2";
/// The last three mean that a machine has hibernated into it.
const MAGIC: [&[u8]; 4] = [AWAKE, b"S1SUSPEND", b"S2SUSPEND", b"ULSUSPEND"];
const MAGIC_BYTES: usize = 10;
const VERSION_AT: usize = 1024;
/// Zeros up to the list of bad pages. Other kinds of content have their own fields here.
const PADDING: Range<usize> = 1068..1536;
const BAD_PAGES_AT: usize = 1536;
const BAD_PAGES_MAX: u32 = 637;
/// A hibernating kernel keeps at most this many bytes before the magic number.
const SLEEP_BYTES_MAX: usize = 128;

/// The names of signatures that swap has itself.
pub(crate) const OWN_NAMES: &[&str] = &["swap", "sleep"];

/// Returns the bytes of the first page that a valid header explains. A UUID may contain any magic
/// number.
pub(crate) fn own_bytes(page: u64) -> Range<u64> {
    VERSION_AT as u64..page
}

/// Returns the page size at whose end a magic number of swap is found.
fn page_of(head: &[u8]) -> Option<usize> {
    PAGES.into_iter().find(|page| {
        let place = page.checked_sub(MAGIC_BYTES);
        MAGIC.iter().any(|magic| place.is_some_and(|at| has_at(head, at, magic)))
    })
}

/// Returns the range of memory in a volume or file that begins with `head`, counted from its
/// beginning; `None` if it does not look like swap. This proves nothing: see [`check`].
pub(crate) fn memory_in(head: &[u8]) -> Option<Range<u64>> {
    let page = page_of(head)?;
    let last_page = u32_at(head, 1028);
    let is_header = u32_at(head, VERSION_AT) == 1
        && last_page > 0
        && u32_at(head, 1032) <= BAD_PAGES_MAX
        && head.get(PADDING)?.iter().all(|byte| *byte == 0);
    let page = page as u64;
    is_header.then(|| page..u64::from(last_page).saturating_add(1).saturating_mul(page))
}

/// Checks every field of the header of swap with `size` bytes.
///
/// # Errors
/// The invalid field, in words.
pub(crate) fn check(head: &[u8], size: u64) -> Result<(), String> {
    let Some(page) = page_of(head) else { return Err("it has no swap header".into()) };
    let version = u32_at(head, VERSION_AT);
    if version != 1 {
        return Err(format!("its swap header has the unknown version {version}"));
    }
    let last_page = u32_at(head, 1028);
    let end = u64::from(last_page).saturating_add(1).saturating_mul(page as u64);
    if last_page == 0 || end > size {
        return Err(format!("its swap header names {end} bytes, but it has {size}"));
    }
    let bad_count = u32_at(head, 1032);
    let list_bytes = to_usize(bad_count).saturating_mul(4);
    let list_end = BAD_PAGES_AT.saturating_add(list_bytes);
    let magic_at = page.saturating_sub(MAGIC_BYTES);
    let Some(list) = head.get(BAD_PAGES_AT..list_end).filter(|_| list_end <= magic_at) else {
        return Err(format!("its swap header counts {bad_count} bad pages, more than it can list"));
    };
    let bad_pages: Vec<u32> = list.chunks_exact(4).map(|number| u32_at(number, 0)).collect();
    let are_inside = bad_pages.iter().all(|number| (1..=last_page).contains(number));
    if !are_inside || !bad_pages.is_sorted_by(|one, two| one < two) {
        return Err("the list of bad pages in its swap header is invalid".into());
    }
    let is_awake = has_at(head, magic_at, AWAKE);
    let zeros_end = if is_awake { magic_at } else { page.saturating_sub(SLEEP_BYTES_MAX).max(list_end) };
    let zeros = [PADDING, list_end..zeros_end];
    let are_zeros = zeros
        .into_iter()
        .all(|range| head.get(range).is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0)));
    if are_zeros { Ok(()) } else { Err("the page of its swap header has other data in it".into()) }
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
        // A file system made over swap that left the end of the page intact.
        let mut over = header(4096, 9);
        over[1080] = 0x53;
        assert_eq!(memory_in(&over), None);
        let mut newer = header(4096, 9);
        newer[VERSION_AT] = 2;
        assert_eq!(memory_in(&newer), None);
        assert_eq!(memory_in(&header(4096, 9)[..4095]), None);
    }

    #[test]
    fn every_field_is_checked() {
        let whole = header(4096, 9);
        assert_eq!(check(&whole, 40960), Ok(()));
        assert_eq!(check(&header(65536, 1), 131_072), Ok(()));
        let changed = |place: usize, bytes: &[u8]| {
            let mut head = whole.clone();
            head[place..place.saturating_add(bytes.len())].copy_from_slice(bytes);
            check(&head, 40960)
        };
        assert_eq!(changed(0, &[1; 1024]), Ok(()), "the boot block is not swap's");
        assert_eq!(changed(1036, &[7; 32]), Ok(()), "any UUID and any label");
        assert_eq!(changed(4086, b"S1SUSPEND\0"), Ok(()));
        let two = [2_u32, 5, 9].map(u32::to_le_bytes).concat();
        let with_bad_pages = |count: u32, list: &[u8]| {
            let mut head = whole.clone();
            head[1032..1036].copy_from_slice(&count.to_le_bytes());
            head[1536..][..list.len()].copy_from_slice(list);
            check(&head, 40960)
        };
        assert_eq!(with_bad_pages(3, &two), Ok(()));
        for (count, list) in [
            (2, &two[..]),
            (4, &two[..]),
            (2, &[5, 0, 0, 0, 2, 0, 0, 0]),
            (1, &[10, 0, 0, 0]),
            (638, &two[..]),
            (u32::MAX, &[]),
        ] {
            assert!(with_bad_pages(count, list).is_err(), "{count} {list:?}");
        }
        assert!(check(&whole, 40959).is_err(), "it ends beyond the end");
        for (place, bytes) in [
            (1024, &[2][..]),
            (1028, &[0]),
            (1068, &[1]),
            (1535, &[1]),
            (1536, &[1]),
            (4085, &[1]),
            (4086, b"x"),
        ] {
            assert!(changed(place, bytes).is_err(), "{place}");
        }
        assert!(check(&whole[..4000], 40960).is_err());
    }
}
