//! Reads of a block device in the output of `blkparse`, from which a profile is made.
//!
//! A line of its default format, `%D %2c %8s %5T.%9t %5p %2a %3d %S + %n [%C]`:
//!
//! ```text
//!   8,0    3       11     0.009507758   697  Q   R 223490 + 8 [kjournald]
//! ```
//!
//! Queued reads (`Q`) count: they are in the order in which they were requested. Every other line
//! is skipped, since `blkparse` ends its output with a summary.

use crate::profile::ProfileRead;

const SECTOR_BYTES: u64 = 512;

/// Returns the reads in the output of `blkparse`, in its order.
#[must_use]
pub fn parse_blkparse(text: &str) -> Vec<ProfileRead> {
    text.lines().filter_map(queued_read).collect()
}

fn queued_read(line: &str) -> Option<ProfileRead> {
    let mut words = line.split_ascii_whitespace();
    let (_device, _processor, _sequence) = (words.next()?, words.next()?, words.next()?);
    let (seconds, fraction) = words.next()?.split_once('.')?;
    let (_process, action, kind) = (words.next()?, words.next()?, words.next()?);
    if action != "Q" || !kind.starts_with('R') || fraction.len() != 9 {
        return None;
    }
    let first: u64 = words.next()?.parse().ok()?;
    let count: u64 = (words.next()? == "+").then(|| words.next()?.parse().ok()).flatten()?;
    let seconds: u64 = seconds.parse().ok()?;
    let milliseconds = fraction.get(..3)?.parse::<u64>().ok()?;
    let start = first.checked_mul(SECTOR_BYTES)?;
    let end = first.checked_add(count)?.checked_mul(SECTOR_BYTES)?;
    let milliseconds = seconds.checked_mul(1000)?.checked_add(milliseconds)?;
    (start < end).then_some(ProfileRead { milliseconds, range: start..end })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn queued_reads_count() {
        let text = "  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]
  8,0    3        2     0.001507758   697  Q   R 2048 + 8 [qemu-system-x86]
  8,0    1        5     0.001600000   697  D   R 2048 + 8 [qemu-system-x86]
  8,0    1        6     1.250000001     0  C   R 2048 + 8 [0]
  8,0    0        7    12.345678901   697  Q  RM 100 + 16 [a b]
  8,0    0        8    13.000000000   697  Q   R 18446744073709551615 + 8 [x]
CPU0 (sda):
 Reads Queued:           2,       12KiB\t Writes Queued:           0,        0KiB
";
        let reads = parse_blkparse(text);
        assert_eq!(
            reads,
            [
                ProfileRead { milliseconds: 1, range: 2048 * 512..2056 * 512 },
                ProfileRead { milliseconds: 12_345, range: 100 * 512..116 * 512 },
            ]
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([0-9]{0,3} ?[0-9.]{0,12} ?[QR+]? ?[0-9]{0,20} ?\n?){0,20}", any in ".{0,200}") {
            for read in parse_blkparse(&text).into_iter().chain(parse_blkparse(&any)) {
                prop_assert!(read.range.start < read.range.end);
            }
        }
    }
}
