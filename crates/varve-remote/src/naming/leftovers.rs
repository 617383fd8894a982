//! Leftovers of dead writers: files with the names of unfinished objects that no writer will
//! finish.
//!
//! Only names that this program makes are considered, and only if the writer is surely dead by the
//! server's own clock: the server has written another file days later. An upload takes less than a
//! tenth of that time, because a slower one is given up. If a clock jumps all the same, the writer
//! finds that its upload is gone, and repeats it.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::naming::object_names::is_folder_of_a_store;

/// A leftover is dead if the server has written another file this many seconds later: three days.
const YOUNGER_SECONDS: i64 = 3 * 24 * 3600;
/// The most leftovers that are remembered. A later listing finds the rest.
const COUNT_MAX: usize = 10_000;
const PREFIX: &str = ".varve-";
const SUFFIX: &str = ".tmp";
const DIGITS: usize = 16;

/// Makes a name for an unfinished object. No store uses such a name, and no other writer has it.
pub(crate) fn unfinished_name(number: u64) -> String {
    format!("{PREFIX}{number:0DIGITS$x}{SUFFIX}")
}

fn is_unfinished(own_name: &str) -> bool {
    let digits = own_name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    digits.is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(is_digit))
}

/// The files with names of unfinished objects in a listing, and the time of the server's newest
/// file.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    found: Vec<(String, i64)>,
    newest: Option<i64>,
}

impl Leftovers {
    /// Adds a file: its path below the target's folder, and the server's modification time in
    /// seconds since 1970.
    pub fn note(&mut self, path: &str, modified: Option<i64>) {
        let Some(modified) = modified else { return };
        self.newest = self.newest.max(Some(modified));
        // A malicious path must not lead out of the target's folder.
        let is_ours = match path.rsplit_once('/') {
            Some((folder, own_name)) => is_folder_of_a_store(folder) && is_unfinished(own_name),
            None => is_unfinished(path),
        };
        if is_ours && self.found.len() < COUNT_MAX {
            self.found.push((path.into(), modified));
        }
    }

    /// Returns the files that no writer will finish.
    pub fn dead(&mut self) -> Vec<String> {
        let newest = self.newest.unwrap_or(i64::MIN);
        let is_dead = |modified: i64| newest.saturating_sub(modified) >= YOUNGER_SECONDS;
        std::mem::take(&mut self.found)
            .into_iter()
            .filter(|(_, modified)| is_dead(*modified))
            .map(|(path, _)| path)
            .collect()
    }
}

/// Parses an HTTP date into seconds since 1970.
pub(crate) fn of_http_date(text: &str) -> Option<i64> {
    jiff::fmt::rfc2822::parse(text.trim()).ok().map(|zoned| zoned.timestamp().as_second())
}

/// Parses FTP's `modify` fact into seconds since 1970: the digits of a time in UTC, and an optional
/// fraction.
pub(crate) fn of_ftp_digits(text: &str) -> Option<i64> {
    let digits = text.split('.').next().filter(|digits| digits.len() == 14)?;
    let moment = DateTime::strptime("%Y%m%d%H%M%S", digits).ok()?;
    moment.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3600;

    #[test]
    fn only_ours_and_only_what_is_surely_dead() {
        let ours = |number: u64| format!("arenas/{}", unfinished_name(number));
        let mut found = Leftovers::default();
        found.note(&ours(1), Some(10 * DAY));
        found.note(&ours(2), Some(12 * DAY));
        found.note(&ours(3), None);
        for foreign in [
            ".varve-1.tmp",
            ".varve-00000000000000zz.tmp",
            ".varve-0123456789ABCDEF.tmp",
            "varve-0123456789abcdef.tmp",
            ".varve-0123456789abcdef.tmp.old",
            "../.varve-0123456789abcdef.tmp",
            "/etc/.varve-0123456789abcdef.tmp",
            "arenas/../../.varve-0123456789abcdef.tmp",
        ] {
            found.note(foreign, Some(0));
        }
        found.note("arenas/object", Some(13 * DAY));
        assert_eq!(found.dead(), [ours(1)]);
        let mut alone = Leftovers::default();
        alone.note(&ours(1), Some(0));
        assert_eq!(alone.dead(), [""; 0], "nothing tells how old it is");
        assert_eq!(Leftovers::default().dead(), [""; 0]);
    }

    #[test]
    fn moments_are_read() {
        assert_eq!(of_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(of_ftp_digits("19941106084937"), Some(784_111_777));
        assert_eq!(of_ftp_digits("19941106084937.123"), Some(784_111_777));
        for text in ["", "yesterday", "1994110608493", "19941306084937", "-9941106084937", "99999999999999"] {
            assert_eq!((of_http_date(text), of_ftp_digits(text)), (None, None), "{text}");
        }
    }
}
